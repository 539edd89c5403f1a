// Memory for the intermediates of a call: booked by name, then used by name, on processors and devices alike.
//
//     Workspace workspace(context, device_of(call.x));
//     const auto sums = workspace.book<float>(rows * width), mean = workspace.book<float>(has_mean ? rows : 0);
//     if (workspace.allocate(check)) {
//         fill(workspace[sums]);
//     }
//
// It comes from the context, which keeps it for the next call.
#ifndef HALYARD_RUNTIME_CORE_WORKSPACE_H
#define HALYARD_RUNTIME_CORE_WORKSPACE_H

#include "core/backend.h"

namespace halyard {

class Workspace {
public:
    /** What was booked: elements of T. */
    template<typename T>
    struct Piece {
        int64_t offset = -1;  // in bytes; negative: it has none
    };

    Workspace(const halyard_context &context, Device device)
        : context_(context), device_(device), backend_(backend_of(device.on_cuda)) {}
    ~Workspace() {
        if (memory_.data) {
            backend_.give_back_scratch(context_, memory_);
        }
    }
    Workspace(const Workspace &) = delete;
    Workspace &operator=(const Workspace &) = delete;

    /** What a piece of `bytes` bytes takes: all begin where any access is aligned, with a cache line between them. */
    static constexpr int64_t piece_bytes(int64_t bytes) { return (bytes + 64 + 255) / 256 * 256; }

    /** `count` items of `each` elements. */
    template<typename T = char>
    Piece<T> book(int64_t count, int64_t each = 1) {
        if (count == 0 || each == 0) {
            return {};
        }
        const Piece<T> piece = {bytes_};
        const int64_t size = static_cast<int64_t>(sizeof(T)) * each;
        too_large_ = too_large_ || count > (INT64_MAX / 2 - bytes_) / size;
        bytes_ += too_large_ ? 0 : piece_bytes(count * size);
        return piece;
    }

    /** To be called once, when all is booked. False after a failure, and where there is no memory. */
    bool allocate(Checker &check) {
        if (too_large_) {
            check.fail(HALYARD_OUT_OF_MEMORY, "no memory for intermediates of more than 2^62 bytes");
        }
        if (!check.failed() && bytes_ > 0) {
            memory_ = backend_.take_scratch(check, context_, device_.device_id, bytes_);
        }
        return !check.failed();
    }

    /** Null for a piece of no elements. */
    template<typename T>
    T *operator[](Piece<T> piece) const {
        return piece.offset < 0 ? nullptr : reinterpret_cast<T *>(memory_.data + piece.offset);
    }

private:
    const halyard_context &context_;
    const Device device_;
    const Backend &backend_;
    int64_t bytes_ = 0;
    bool too_large_ = false;
    ScratchMemory memory_;
};

}  // namespace halyard

#endif
