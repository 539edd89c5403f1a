// One call of the C API: its tensors, right ones and wrong ones, in guarded memory, and what must hold when it has returned.
#ifndef HALYARD_TESTS_FUZZ_CALL_H
#define HALYARD_TESTS_FUZZ_CALL_H

#include <cstdint>

#include "fuzz/guarded_memory.h"
#include "fuzz/input.h"
#include "halyard/halyard.h"

namespace halyard::tests {

struct Shape {
    int rank = 0;
    std::int64_t extent[5] = {1, 1, 1, 1, 1};

    Shape with(std::int64_t next) const {
        Shape s = *this;
        s.extent[s.rank++] = next;
        return s;
    }
};

inline constexpr DLDataType f32{kDLFloat, 32, 1}, f16{kDLFloat, 16, 1}, bf16{kDLBfloat, 16, 1};

/** The memory that tensors lie in, and what it must hold: nobody but a call that succeeds may change it, and that its
 *  outputs alone. */
class TensorMemory {
public:
    static constexpr int pieces = 10;
    static constexpr std::size_t bytes = 4096;

    TensorMemory();
    /** Fills the memory before every input, always alike. */
    void reset();
    char *begin(int piece) const { return memory_.begin(piece); }
    char *end(int piece) const { return memory_.end(piece); }
    /** What was written there on purpose is right. */
    void accept(int piece, const char *from, std::size_t size);
    /** Ends the program if anything else has changed. */
    void check(const char *function) const;

private:
    GuardedMemory<pieces, bytes> memory_;
    char wanted_[pieces][bytes];
    char initial_[pieces][bytes];
};

class Call {
public:
    Call(Input &in, TensorMemory &memory) : in_(in), memory_(memory) {}
    Call(const Call &) = delete;

    const DLTensor *input(const Shape &shape, DLDataType dtype) {
        return tensor(shape, dtype, false, Contents::numbers);
    }
    DLTensor *output(const Shape &shape, DLDataType dtype) { return tensor(shape, dtype, true, Contents::numbers); }
    /** Integers of 8 or 32 bits. */
    const DLTensor *codes(const Shape &shape, DLDataType dtype) { return tensor(shape, dtype, false, Contents::codes); }
    /** Whole numbers, mostly in [0, limit). */
    const DLTensor *indices(const Shape &shape, std::int64_t limit);
    /** Memory of `count` bytes that the call may read, or write; aligned to 64 bytes, rarely to 4, and rarely none. */
    char *bytes(std::int64_t count, bool written);
    /** `count` different numbers from 0 on, or others, or null. */
    const std::int64_t *sequences(std::int64_t count);

    /** Whether every access that the tensors allow stays within their pieces, or the call must be refused. */
    bool may_be_made() const { return may_be_made_; }
    /** Whether a tensor is not what its function expects, so that the shapes of others say nothing about it. */
    bool odd() const { return odd_; }

    /** Ends the program if the call was not what its status says. */
    void returned(const char *function, halyard_status status);

private:
    enum class Contents { numbers, indices, codes };
    struct Tensor {
        DLTensor view;
        std::int64_t shape[5], strides[5];
        int piece;
        bool written;
        Contents contents;
    };

    Tensor &next_tensor(const Shape &shape, DLDataType dtype, bool written, Contents contents);
    DLTensor *tensor(const Shape &shape, DLDataType dtype, bool written, Contents contents);
    void lay_out(Tensor &t);
    void place(Tensor &t);
    void spoil(Tensor &t);
    /** The place of the first element, and how many lie from it to one past the last; 0 if there are none. */
    static __int128 address(const Tensor &t);
    static __int128 span(const Tensor &t);
    static bool readable(const Tensor &t);
    /** Whether it is a tensor that every function refuses. */
    static bool broken(const Tensor &t);
    bool within_its_piece(const Tensor &t) const;
    void accept(const Tensor &t);

    Input &in_;
    TensorMemory &memory_;
    Tensor tensors_[64];
    int count_ = 0, next_piece_ = 0;
    bool may_be_made_ = true, odd_ = false, must_fail_ = false;
};

/** Prints the words and ends the program. */
[[noreturn, gnu::format(printf, 1, 2)]] void failed(const char *format, ...);

/** Counts calls by function; how many there were is printed when the program ends. */
void count_call(const char *function, bool accepted);

}  // namespace halyard::tests

#endif
