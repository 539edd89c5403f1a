// bf16 elements by twos.
//
// Of a word of 32 bits that holds two bf16 elements, one is an f32 but for a mask and the other but for a shift, and two
// results make a word again, without anything moving between lanes: on x86 a vector takes 6 instructions for its conversions
// instead of 9.
#ifndef HALYARD_GENERATORS_PAIRS_H
#define HALYARD_GENERATORS_PAIRS_H

#include "Halide.h"
#include "row_storage.h"

namespace halyard {

/** Whether kernels take elements of the type by twos. `words`: see row_storage.h. */
inline bool by_pairs(DType dtype, bool words, const Halide::Target &target) {
    return dtype == DType::bf16 && !words && target.arch == Halide::Target::X86 && !target.has_gpu_feature();
}

/** Reads stored elements as f32 and makes stored elements of f32: one at a time or, `paired`, two. */
class ElementAccess {
public:
    ElementAccess(const RowStorage &storage, bool paired) : storage_(storage), paired_(paired) {}

    /** Element i of what is stored at an index. In pairs, i must be twice something, or one more. */
    template<typename Stored>
    Halide::Expr load(const Stored &stored, const Halide::Expr &i) const {
        return storage_.load(
            [&](const Halide::Expr &index) {
                return paired_ ? Halide::concat_bits({stored(2 * index), stored(2 * index + 1)})
                               : Halide::Expr(stored(index));
            },
            i);
    }

    /** What is stored of element(access, i) at index d; in pairs, of elements 2d and 2d + 1. */
    template<typename Element>
    Halide::Expr store(const Element &element, const Halide::Expr &d) const {
        return storage_.store_result([&](const Halide::Expr &i) { return element(*this, i); }, d);
    }

private:
    RowStorage storage_;
    bool paired_;
};

/** Access by elements, and by pairs of what is stored by elements. */
inline ElementAccess element_access(DType dtype, bool words, const Halide::Target &target) {
    return {RowStorage(dtype, target, words), false};
}
inline ElementAccess pair_access(DType dtype, const Halide::Target &target) {
    return {RowStorage(dtype, target, true), true};
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
