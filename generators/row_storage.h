// How a kernel's buffers hold rows of stored elements: element by element or, on a GPU, in words of 32 bits. A GPU moves
// 128 bits at once as four such words and in no other way that Halide 21 knows, so 16-bit elements go there in pairs.
#ifndef HALYARD_GENERATORS_ROW_STORAGE_H
#define HALYARD_GENERATORS_ROW_STORAGE_H

#include <vector>

#include "Halide.h"
#include "storage.h"

namespace halyard {

class RowStorage {
public:
    RowStorage(DType dtype, const Halide::Target &target, bool words)
        : storage_(dtype, target), pairs_(words && dtype != DType::f32),
          nans_carry_(dtype == DType::bf16 && target.has_gpu_feature()),
          cuda_(target.has_feature(Halide::Target::CUDA)) {}

    /** The Halide type of the buffer. */
    Halide::Type type() const { return pairs_ ? Halide::UInt(32) : storage_.type(); }

    /** Elements in so many of what a buffer holds. */
    Halide::Expr elements(const Halide::Expr &extent) const { return pairs_ ? extent * 2 : extent; }

    /** Element i in f32; exact. `stored` is what the buffer holds at an index. */
    template<typename Stored>
    Halide::Expr load(const Stored &stored, const Halide::Expr &i) const {
        using namespace Halide;
        if (!pairs_) {
            return storage_.widen(stored(i));
        }
        const Expr word = stored(Internal::simplify(i / 2)), part = Internal::simplify(i % 2);
        const Expr bits = cast<uint16_t>(word >> cast<uint32_t>(16 * part));
        if (cuda_ && storage_.type() == Float(16)) {
            // One by one: of the same halves of four words LLVM would make two registers first.
            return intrinsic(Float(32), "llvm.convert.from.fp16.f32", {bits});
        }
        return storage_.widen(reinterpret(storage_.type(), bits));
    }

    /** What the buffer holds at index d, of element(i), i an index of elements, a result of arithmetic in f32. */
    template<typename Element>
    Halide::Expr store_result(const Element &element, const Halide::Expr &d) const {
        using namespace Halide;
        const Expr first = element(pairs_ ? d * 2 : d);
        if (!pairs_) {
            return narrow_result(first);
        }
        const Expr second = element(d * 2 + 1);
        if (cuda_ && nans_carry_) {
            // The upper halves of both by one instruction.
            return intrinsic(UInt(32), "llvm.nvvm.prmt",
                             {Storage::rounded_to_bf16(without_carry(first)),
                              Storage::rounded_to_bf16(without_carry(second)), Internal::make_const(UInt(32), 0x7632)});
        }
        return pair(narrow_result(first), narrow_result(second));
    }

    /** The same of any f32 value. */
    template<typename Element>
    Halide::Expr store(const Element &element, const Halide::Expr &d) const {
        return pairs_ ? pair(storage_.narrow(element(d * 2)), storage_.narrow(element(d * 2 + 1)))
                      : storage_.narrow(element(d));
    }

    /** f32 as it is after being stored and read again. */
    Halide::Expr rounded(const Halide::Expr &result) const { return storage_.widen(narrow_result(result)); }

    /** A result whose sign was set by its bits, which for store_result() must be what arithmetic makes. */
    Halide::Expr with_sign_set(const Halide::Expr &result) const {
        using namespace Halide;
        const Expr greatest = Internal::make_const(UInt(32), 0xffc00000u);
        return nans_carry_ ? reinterpret<float>(min(reinterpret<uint32_t>(result), greatest)) : result;
    }

private:
    // The NaN of an NVIDIA GPU's arithmetic is 0x7fffffff, which rounding to bf16 would carry into the sign: -0. As an
    // integer it is above all other results, and a NaN with zeros where bf16 ends is not.
    Halide::Expr without_carry(const Halide::Expr &value) const {
        using namespace Halide;
        return nans_carry_ ? reinterpret<float>(min(reinterpret<int32_t>(value), 0x7fc00000)) : value;
    }

    Halide::Expr narrow_result(const Halide::Expr &value) const { return storage_.narrow_result(without_carry(value)); }

    static Halide::Expr intrinsic(const Halide::Type &type, const char *name,
                                  const std::vector<Halide::Expr> &arguments) {
        using Halide::Internal::Call;
        return Call::make(type, name, arguments, Call::PureExtern);
    }

    static Halide::Expr pair(const Halide::Expr &low, const Halide::Expr &high) {
        using namespace Halide;
        const auto bits = [](const Expr &half) { return cast<uint32_t>(reinterpret<uint16_t>(half)); };
        return bits(low) | (bits(high) << 16);
    }

    Storage storage_;
    bool pairs_;
    bool nans_carry_;
    bool cuda_;
};

}  // namespace halyard

#endif
