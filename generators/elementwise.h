// y(d, t) = f of the same element of each input: by elements or, for bf16 on x86, in pairs.
//
// Of a word of 32 bits that holds two bf16 elements, one is an f32 but for a mask and the other but for a shift, and two
// results make a word again, without anything moving between lanes: of the instructions that SiLU takes for a vector, 6 are
// conversions instead of 9.
#ifndef HALYARD_GENERATORS_ELEMENTWISE_H
#define HALYARD_GENERATORS_ELEMENTWISE_H

#include "Halide.h"
#include "row_storage.h"
#include "schedules/elementwise.h"

namespace halyard {

/** Reads elements of row t of an input. */
class ElementReader {
public:
    /** By words: of an input that holds elements, two for each word; else the input holds what `storage` says. */
    ElementReader(const RowStorage &storage, const Halide::Var &t, bool by_words)
        : storage_(storage), t_(t), by_words_(by_words) {}

    /** Element i in f32. */
    template<typename Input>
    Halide::Expr operator()(const Input &x, const Halide::Expr &i) const {
        return storage_.load(
            [&](const Halide::Expr &index) -> Halide::Expr {
                return by_words_ ? Halide::concat_bits({x(2 * index, t_), x(2 * index + 1, t_)}) :
                                   Halide::Expr(x(index, t_));
            },
            i);
    }

private:
    RowStorage storage_;
    Halide::Var t_;
    bool by_words_;
};

/** Defines y(d, t) as element(read, d), an f32 expression of what `read`, an ElementReader, reads of the inputs. `words`:
 *  see row_storage.h. Returns what there is to schedule. */
template<typename Output, typename Element>
schedules::Elementwise define_elementwise(Output &y, const Halide::Var &d, const Halide::Var &t, const Element &element,
                                          DType dtype, bool words, const schedules::ElementwiseParams &params,
                                          const Halide::Target &target, bool using_autoscheduler) {
    using namespace Halide;
    const RowStorage storage(dtype, target, words);
    const auto by_elements = [&](const Expr &i) {
        return storage.store_result([&](const Expr &e) { return element(ElementReader(storage, t, false), e); }, i);
    };
    const int chunk = schedules::elements_by_pairs(params, target);
    if (dtype != DType::bf16 || words || using_autoscheduler || chunk == 0) {
        y(d, t) = by_elements(d);
        return {y, d, t};
    }
    const RowStorage by_words(dtype, target, true);
    Func pairs("pairs");
    pairs(d, t) =
        by_words.store_result([&](const Expr &e) { return element(ElementReader(by_words, t, true), e); }, d);

    // Whole chunks in pairs, and the rest of the row by elements.
    const Expr width = y.dim(0).extent();
    y.dim(0).set_min(0);
    const RDom whole(0, 2, 0, chunk / 2, 0, width / chunk, "whole");
    const RDom rest(width / chunk * chunk, width % chunk, "rest");
    // Halide's extract_bits() is not pure, which keeps the two stores of a pair from becoming one.
    const Expr element_of_pair =
        Internal::Call::make(UInt(16), Internal::Call::extract_bits,
                             {pairs(chunk / 2 * whole.z + whole.y, t), cast<uint32_t>(16 * whole.x)},
                             Internal::Call::PureIntrinsic);
    y(d, t) = undef<uint16_t>();
    y(chunk * whole.z + 2 * whole.y + whole.x, t) = element_of_pair;
    y(rest, t) = by_elements(rest);
    return {y, d, t, pairs, whole, rest};
}

}  // namespace halyard

#endif
