// One call of the C API: making its tensors, and looking at what it did.
#include "fuzz/call.h"

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <unordered_map>

namespace halyard::tests {
namespace {

constexpr std::int64_t odd_numbers[] = {-1,
                                        0,
                                        1,
                                        2,
                                        3,
                                        7,
                                        64,
                                        255,
                                        65536,
                                        INT64_C(1) << 31,
                                        INT64_C(1) << 59,
                                        (INT64_C(1) << 60) + 1,
                                        INT64_C(1) << 62,
                                        INT64_MAX,
                                        INT64_MIN,
                                        -64};

std::int64_t size_of(const DLTensor &t) {
    return t.dtype.bits / 8;
}

struct Counts {
    struct Count {
        std::uint64_t calls = 0, accepted = 0;
    };
    std::unordered_map<const char *, Count> functions;  // by the literal's address: libFuzzer looks at comparisons

    ~Counts() {
        std::uint64_t calls = 0, accepted = 0;
        std::string never;
        for (const auto &[name, count] : functions) {
            calls += count.calls;
            accepted += count.accepted;
            never += count.accepted == 0 ? std::string(" ") + name : "";
        }
        std::fprintf(stderr, "%llu calls of %zu functions, %llu of them accepted%s%s\n",
                     static_cast<unsigned long long>(calls), functions.size(),
                     static_cast<unsigned long long>(accepted),
                     never.empty() ? "" : "; never accepted:", never.c_str());
    }
};

}  // namespace

void failed(const char *format, ...) {
    std::va_list arguments;
    va_start(arguments, format);
    std::vfprintf(stderr, format, arguments);
    va_end(arguments);
    std::fputc('\n', stderr);
    std::abort();
}

void count_call(const char *function, bool accepted) {
    static Counts counts;
    Counts::Count &count = counts.functions[function];
    count.calls++;
    count.accepted += accepted;
}

// ---- memory ----

TensorMemory::TensorMemory() {
    std::uint32_t random = 1;
    for (auto &piece : initial_) {
        for (char &c : piece) {
            random = random * 1664525 + 1013904223;
            c = static_cast<char>(random >> 24);
        }
    }
}

void TensorMemory::reset() {
    std::memcpy(wanted_, initial_, sizeof wanted_);
    for (int i = 0; i < pieces; i++) {
        std::memcpy(begin(i), initial_[i], bytes);
    }
}

void TensorMemory::accept(int piece, const char *from, std::size_t size) {
    std::memcpy(wanted_[piece] + (from - begin(piece)), from, size);
}

void TensorMemory::check(const char *function) const {
    for (int i = 0; i < pieces; i++) {
        if (std::memcmp(wanted_[i], begin(i), bytes) != 0) {
            std::size_t at = 0;
            while (wanted_[i][at] == begin(i)[at]) {
                at++;
            }
            failed("%s wrote what it may not: byte %zu of piece %d", function, at, i);
        }
    }
}

// ---- tensors ----

Call::Tensor &Call::next_tensor(const Shape &shape, DLDataType dtype, bool written, Contents contents) {
    if (count_ == sizeof tensors_ / sizeof tensors_[0]) {
        std::abort();
    }
    Tensor &t = tensors_[count_++];
    t = {};
    t.view.device = {kDLCPU, 0};
    t.view.dtype = dtype;
    t.view.ndim = shape.rank;
    t.view.shape = t.shape;
    std::memcpy(t.shape, shape.extent, sizeof t.shape);
    t.written = written;
    t.contents = contents;
    return t;
}

DLTensor *Call::tensor(const Shape &shape, DLDataType dtype, bool written, Contents contents) {
    if (in_.rarely()) {
        odd_ = true;
        return nullptr;
    }
    Tensor &t = next_tensor(shape, dtype, written, contents);
    lay_out(t);
    place(t);
    if (in_.one_in(32)) {
        odd_ = true;
        spoil(t);
    }
    if (broken(t)) {
        must_fail_ = true;
    } else if (!within_its_piece(t)) {
        may_be_made_ = false;
    }
    return &t.view;
}

void Call::lay_out(Tensor &t) {
    enum { compact, compact_with_strides, padded, other_order, repeated };
    const unsigned choice = in_.byte();
    const int layout = choice < 100   ? compact
                       : choice < 140 ? compact_with_strides
                       : choice < 200 ? padded
                       : choice < 230 ? other_order
                                      : repeated;
    std::int64_t stride = 1;
    for (int i = t.view.ndim - 1; i >= 0; i--) {
        t.strides[i] = stride;
        stride *= t.shape[i] > 0 ? t.shape[i] : 1;
        if (layout == padded) {
            stride += in_.in(0, 4);
        }
        if (layout == repeated && in_.one_in(2)) {
            t.strides[i] = t.shape[i] == 1 || i < t.view.ndim - 1 ? 0 : 1;
        }
    }
    if (layout == other_order && t.view.ndim >= 3) {
        t.strides[0] = t.strides[1];
        t.strides[1] = t.strides[0] * (t.shape[0] > 0 ? t.shape[0] : 1);
    }
    t.view.strides = layout == compact ? nullptr : t.strides;
}

void Call::place(Tensor &t) {
    const Tensor *other = count_ > 1 && in_.one_in(8) ? &tensors_[in_.in(0, count_ - 2)] : nullptr;
    if (other && in_.one_in(2)) {
        // The tensor gets the other's view, if that has this shape.
        t.piece = other->piece;
        std::memcpy(t.strides, other->strides, sizeof t.strides);
        t.view.strides = other->view.strides ? t.strides : nullptr;
        t.view.data = other->view.data;
        t.view.byte_offset = other->view.byte_offset;
        return;
    }
    t.piece = other ? other->piece : next_piece_++ % TensorMemory::pieces;
    const auto bytes = static_cast<std::int64_t>(span(t)) * size_of(t.view);
    std::int64_t offset = static_cast<std::int64_t>(TensorMemory::bytes) - bytes;  // its last byte is the piece's
    const int choice = in_.in(0, 3);
    if (offset < 0 || choice == 1) {
        offset = 0;
    } else if (choice == 2) {
        offset = static_cast<std::int64_t>(in_.any<std::uint16_t>()) % (offset + 1) / size_of(t.view) * size_of(t.view);
    }
    t.view.byte_offset = in_.one_in(4) ? static_cast<std::uint64_t>(in_.in(0, 200)) : 0;
    t.view.data = memory_.begin(t.piece) + offset - static_cast<std::int64_t>(t.view.byte_offset);
}

void Call::spoil(Tensor &t) {
    const int axis = in_.in(0, 3);
    switch (in_.in(0, 13)) {
    case 0:
        t.view.ndim = in_.of({-1, 0, 1, 2, 3, 4, 5, INT32_MAX, INT32_MIN});
        break;
    case 1:
        t.view.shape = nullptr;
        break;
    case 2:
        t.shape[axis] += in_.one_in(2) ? 1 : -1;
        break;
    case 3:
        t.shape[axis] = 0;
        break;
    case 4:
        // No number that a tensor of stride 0 could have: such a call might take for ever.
        t.shape[axis] = in_.of({INT64_C(-1), INT64_MIN, INT64_MAX, (INT64_C(1) << 60) + 1, INT64_C(1) << 62});
        break;
    case 5:
    case 6:
        t.view.strides = t.strides;
        t.strides[axis] = in_.of(odd_numbers);
        break;
    case 7:
        t.view.strides = t.strides;
        t.strides[axis] = INT64_C(1) << 59;
        t.strides[(axis + 1) % 4] = INT64_C(1) << 59;
        break;
    case 8:
        t.view.dtype = in_.one_in(2) ? in_.of({f32, f16, bf16, DLDataType{kDLInt, 32, 1}, DLDataType{kDLFloat, 64, 1},
                                               DLDataType{kDLFloat, 32, 2}, DLDataType{kDLUInt, 16, 1}})
                                     : in_.any<DLDataType>();
        break;
    case 9:
        t.view.device.device_type = in_.of({kDLCUDA, kDLCPU, kDLCUDAHost, kDLOpenCL, kDLMetal});
        t.view.device.device_id = in_.of({0, 1, -1, INT32_MAX});
        break;
    case 10:
        t.view.data = nullptr;
        break;
    case 11:
        t.view.data = nullptr;
        t.view.byte_offset = 0;
        break;
    case 12:
        t.view.byte_offset += static_cast<std::uint64_t>(in_.in(1, 3));
        break;
    case 13:
        t.view.byte_offset = in_.of({UINT64_MAX, UINT64_MAX - 7, UINT64_C(1) << 63, UINT64_C(1) << 47});
        if (in_.one_in(2)) {
            t.view.data = memory_.begin(t.piece) + 64;  // the sum is in the piece, if it may wrap around
            t.view.byte_offset = UINT64_MAX - 63;
        }
        break;
    }
}

const DLTensor *Call::indices(const Shape &shape, std::int64_t limit) {
    DLTensor *view =
        tensor(shape, in_.one_in(2) ? DLDataType{kDLInt, 64, 1} : DLDataType{kDLInt, 32, 1}, false, Contents::indices);
    if (!view || broken(tensors_[count_ - 1]) || span(tensors_[count_ - 1]) == 0 ||
        !within_its_piece(tensors_[count_ - 1])) {
        return view;
    }
    const Tensor &t = tensors_[count_ - 1];
    const auto count = static_cast<std::int64_t>(span(t)), size = size_of(*view);
    char *const first = memory_.begin(t.piece);
    char *data = first + static_cast<std::ptrdiff_t>(address(t) - reinterpret_cast<std::intptr_t>(first));
    for (std::int64_t i = 0; i < count; i++) {
        std::int64_t index = in_.byte() % limit;
        if (in_.one_in(64)) {
            index = in_.of({INT64_C(-1), limit, INT64_MAX, INT64_MIN, INT64_C(1) << 32});
        }
        std::memcpy(data + i * size, &index, static_cast<std::size_t>(size));
        memory_.accept(t.piece, data + i * size, static_cast<std::size_t>(size));
    }
    return view;
}

char *Call::bytes(std::int64_t count, bool written) {
    constexpr auto all = static_cast<std::int64_t>(TensorMemory::bytes);
    if (count > all) {
        may_be_made_ = false;
    }
    if (count > all || in_.rarely()) {
        return nullptr;
    }
    Tensor &t = next_tensor(Shape().with(count), {kDLUInt, 8, 1}, written, Contents::numbers);
    t.piece = next_piece_++ % TensorMemory::pieces;
    // At the end of the piece as far as the alignment allows.
    char *const data = memory_.end(t.piece) - (count + 63) / 64 * 64;
    t.view.data = data;
    return data + (in_.rarely() ? 4 : 0);
}

const std::int64_t *Call::sequences(std::int64_t count) {
    if (!in_.one_in(2)) {
        return nullptr;
    }
    // As many as the call may read.
    const std::int64_t length = odd_ ? 64 : count;
    const int piece = next_piece_++ % TensorMemory::pieces;
    char *data = memory_.end(piece) - length * 8;
    for (std::int64_t i = 0; i < length; i++) {
        std::int64_t sequence = length - 1 - i;
        if (in_.one_in(32)) {
            sequence = in_.of(odd_numbers);
        }
        std::memcpy(data + i * 8, &sequence, 8);
    }
    memory_.accept(piece, data, static_cast<std::size_t>(length) * 8);
    return reinterpret_cast<const std::int64_t *>(data);
}

// ---- what they are ----

__int128 Call::address(const Tensor &t) {
    return static_cast<__int128>(reinterpret_cast<std::uintptr_t>(t.view.data)) + t.view.byte_offset;
}

__int128 Call::span(const Tensor &t) {
    __int128 count = 1, compact = 1;
    for (int i = t.view.ndim - 1; i >= 0; i--) {
        if (t.shape[i] == 0) {
            return 0;
        }
        const __int128 stride = t.view.strides ? t.view.strides[i] : compact;
        count += (t.shape[i] - 1) * stride;
        // So many that they are too many even if they are multiplied again.
        compact = compact > INT64_MAX ? compact : compact * t.shape[i];
    }
    return count;
}

bool Call::readable(const Tensor &t) {
    if (t.view.ndim < 1 || t.view.ndim > 4 || !t.view.shape || t.view.device.device_type != kDLCPU ||
        t.view.dtype.lanes != 1) {
        return false;
    }
    const int code = t.view.dtype.code, bits = t.view.dtype.bits;
    const bool is_integer = code == kDLInt || code == kDLUInt;
    const bool has_type = t.contents == Contents::numbers
                              ? (code == kDLFloat && (bits == 32 || bits == 16)) || (code == kDLBfloat && bits == 16)
                          : t.contents == Contents::indices ? code == kDLInt && (bits == 32 || bits == 64)
                                                            : is_integer && (bits == 8 || bits == 32);
    if (!has_type) {
        return false;
    }
    for (int i = 0; i < t.view.ndim; i++) {
        if (t.shape[i] < 0 || (t.view.strides && t.strides[i] < 0)) {
            return false;
        }
    }
    return true;
}

bool Call::broken(const Tensor &t) {
    if (!readable(t)) {
        return true;
    }
    const __int128 count = span(t), begin = address(t);
    if (count == 0) {
        return false;
    }
    const std::int64_t size = size_of(t.view);
    const int last = t.view.ndim - 1;
    return !t.view.data || begin % size != 0 || begin + count * size > UINT64_MAX ||
           (t.contents != Contents::indices && t.view.strides && t.shape[last] > 1 && t.strides[last] != 1);
}

bool Call::within_its_piece(const Tensor &t) const {
    const __int128 count = span(t), begin = address(t);
    const auto first = reinterpret_cast<std::uintptr_t>(memory_.begin(t.piece));
    return count == 0 || (begin >= first && begin + count * size_of(t.view) <= first + TensorMemory::bytes);
}

// ---- afterwards ----

void Call::accept(const Tensor &t) {
    if (span(t) == 0) {
        return;
    }
    // Up to rank 4, whatever its own is.
    std::int64_t extent[4] = {1, 1, 1, 1}, stride[4] = {};
    std::int64_t compact = 1;
    for (int i = t.view.ndim - 1, to = 3; i >= 0; i--, to--) {
        extent[to] = t.shape[i];
        stride[to] = t.view.strides ? t.strides[i] : compact;
        compact *= t.shape[i];
    }
    const char *first = memory_.begin(t.piece),
               *data = first + static_cast<std::ptrdiff_t>(address(t) - reinterpret_cast<std::intptr_t>(first));
    const std::int64_t size = size_of(t.view);
    for (std::int64_t a = 0; a < extent[0]; a++) {
        for (std::int64_t b = 0; b < extent[1]; b++) {
            for (std::int64_t c = 0; c < extent[2]; c++) {
                memory_.accept(t.piece, data + (a * stride[0] + b * stride[1] + c * stride[2]) * size,
                               static_cast<std::size_t>(extent[3] * size));
            }
        }
    }
}

void Call::returned(const char *function, halyard_status status) {
    count_call(function, status == HALYARD_OK);
    if (status == HALYARD_OK) {
        if (must_fail_) {
            failed("%s accepted a tensor that is none", function);
        }
        for (int i = 0; i < count_; i++) {
            if (tensors_[i].written) {
                accept(tensors_[i]);
            }
        }
    } else {
        const std::size_t length = std::strlen(function);
        const char *message = halyard_last_error();
        if (std::strncmp(message, function, length) != 0 || message[length] != ':' || message[length + 1] == '\0') {
            failed("%s failed with the message '%s'", function, message);
        }
        if (status != HALYARD_INVALID_ARGUMENT && status != HALYARD_UNSUPPORTED && status != HALYARD_OUT_OF_MEMORY) {
            failed("%s returned the status %d: %s", function, static_cast<int>(status), message);
        }
    }
    memory_.check(function);
}

}  // namespace halyard::tests
