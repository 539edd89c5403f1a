// How a kernel reads and writes the elements of its tensors: one by one, or two of 16 bits at once.
//
//   packed   the buffers hold words of 32 bits. A GPU moves 128 bits at once as four such words and in no other way that
//            Halide 21 knows.
//   paired   the buffers hold elements, of which two neighbours are taken together. Of a word with two bf16 elements one is
//            an f32 but for a mask and the other but for a shift, and two results make a word again, without anything moving
//            between lanes: on x86 a vector takes 6 instructions for its conversions instead of 9.
#ifndef HALYARD_SCHEDULES_ELEMENT_ACCESS_H
#define HALYARD_SCHEDULES_ELEMENT_ACCESS_H

#include <functional>
#include <vector>

#include "Halide.h"
#include "schedules/storage.h"

namespace halyard {

class ElementAccess;

/** Element i of a row in f32, made of what `at` reads. */
using Element = std::function<Halide::Expr(const ElementAccess &at, const Halide::Expr &i)>;

class ElementAccess {
    using Expr = Halide::Expr;

public:
    enum class Form { single, packed, paired };

    /** `place`: the coordinates behind that of the element; a tensor takes as many of them as it has. */
    ElementAccess(DType dtype, const Halide::Target &target, Form form, std::vector<Expr> place = {})
        : storage_(dtype, target), two_(form != Form::single && dtype != DType::f32), paired_(form == Form::paired),
          nans_carry_(dtype == DType::bf16 && target.has_gpu_feature()),
          cuda_(target.has_feature(Halide::Target::CUDA)), place_(std::move(place)) {}

    /** The Halide type of a buffer. */
    Halide::Type type() const { return two_ && !paired_ ? Halide::UInt(32) : storage_.type(); }

    /** Elements in so many of what a buffer holds. */
    Expr elements(const Expr &extent) const { return two_ && !paired_ ? extent * 2 : extent; }

    /** Element i of a tensor in f32; exact. In pairs, i must be twice something, or one more. */
    Expr operator()(const Halide::Func &tensor, const Expr &i) const {
        using namespace Halide;
        if (!two_) {
            return storage_.widen(stored(tensor, i));
        }
        const Expr index = Internal::simplify(i / 2), part = Internal::simplify(i % 2);
        const Expr word =
            paired_ ? concat_bits({stored(tensor, 2 * index), stored(tensor, 2 * index + 1)}) : stored(tensor, index);
        const Expr bits = cast<uint16_t>(word >> cast<uint32_t>(16 * part));
        if (cuda_ && storage_.type() == Float(16)) {
            // One by one: of the same halves of four words LLVM would make two registers first.
            return intrinsic(Float(32), "llvm.convert.from.fp16.f32", {bits});
        }
        return storage_.widen(reinterpret(storage_.type(), bits));
    }

    /** What is stored at index d of element(i), results of arithmetic in f32: of element d, or of 2d and 2d + 1. */
    Expr store(const Element &element, const Expr &d) const {
        using namespace Halide;
        const Expr first = element(*this, two_ ? d * 2 : d);
        if (!two_) {
            return narrow_result(first);
        }
        const Expr second = element(*this, d * 2 + 1);
        if (cuda_ && nans_carry_) {
            // The upper halves of both by one instruction.
            return intrinsic(UInt(32), "llvm.nvvm.prmt",
                             {storage_.rounded_to_bf16(without_carry(first)),
                              storage_.rounded_to_bf16(without_carry(second)), Internal::make_const(UInt(32), 0x7632)});
        }
        return pair(narrow_result(first), narrow_result(second));
    }

    /** As store(), of any f32 value. */
    Expr store_any(const Element &element, const Expr &d) const {
        return two_ ? pair(storage_.narrow(element(*this, d * 2)), storage_.narrow(element(*this, d * 2 + 1)))
                    : storage_.narrow(element(*this, d));
    }

    /** f32 as it is after being stored and read again. */
    Expr rounded(const Expr &result) const { return storage_.widen(narrow_result(result)); }

    /** A result whose sign was set by its bits, which for store() must be what arithmetic makes. */
    Expr with_sign_set(const Expr &result) const {
        using namespace Halide;
        const Expr greatest = Internal::make_const(UInt(32), 0xffc00000u);
        return nans_carry_ ? reinterpret<float>(min(reinterpret<uint32_t>(result), greatest)) : result;
    }

private:
    Expr stored(const Halide::Func &tensor, const Expr &index) const {
        std::vector<Expr> at = {index};
        at.insert(at.end(), place_.begin(), place_.begin() + (tensor.dimensions() - 1));
        return tensor(at);
    }

    // The NaN of an NVIDIA GPU's arithmetic is 0x7fffffff, which rounding to bf16 would carry into the sign: -0. As an
    // integer it is above all other results, and a NaN with zeros where bf16 ends is not.
    Expr without_carry(const Expr &value) const {
        using namespace Halide;
        return nans_carry_ ? reinterpret<float>(min(reinterpret<int32_t>(value), 0x7fc00000)) : value;
    }

    Expr narrow_result(const Expr &value) const { return storage_.narrow_result(without_carry(value)); }

    static Expr intrinsic(const Halide::Type &type, const char *name, const std::vector<Expr> &arguments) {
        using Halide::Internal::Call;
        return Call::make(type, name, arguments, Call::PureExtern);
    }

    static Expr pair(const Expr &low, const Expr &high) {
        using namespace Halide;
        const auto bits = [](const Expr &half) { return cast<uint32_t>(reinterpret<uint16_t>(half)); };
        return bits(low) | (bits(high) << 16);
    }

    Storage storage_;
    bool two_, paired_, nans_carry_, cuda_;
    std::vector<Expr> place_;
};

/** The elements of a tensor as they are. */
inline Element elements_of(const Halide::Func &tensor) {
    return [tensor](const ElementAccess &at, const Halide::Expr &i) { return at(tensor, i); };
}

/** Element `half` of a stored pair. (Halide's extract_bits() is not pure, which would keep the two stores of a pair from
 *  becoming one.) */
inline Halide::Expr half_of_pair(const Halide::Expr &pair, const Halide::Expr &half) {
    using namespace Halide;
    return Internal::Call::make(UInt(16), Internal::Call::extract_bits, {pair, cast<uint32_t>(16 * half)},
                                Internal::Call::PureIntrinsic);
}

}  // namespace halyard

#endif
