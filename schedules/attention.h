// The attention family: kernels over the rows of a block of queries, all in cache.
#ifndef HALYARD_SCHEDULES_ATTENTION_H
#define HALYARD_SCHEDULES_ATTENTION_H

#include "Halide.h"
#include "schedules/row_reduction.h"

namespace halyard::schedules {

/** Parameters, set per kernel and instruction set by schedules/tuned. */
struct AttentionParams {
    Halide::GeneratorParam<int> vectors{"vectors", 2};  // of a row, per iteration of an elementwise pass
    Halide::GeneratorParam<int> passes{"passes",
                                       0};  // of a reduction, each with a part of the lanes; 0: as registers allow
};

/** Four outputs: what the exponents of a row are made with, its maximum, its exponentials, their sum. Rows are whole blocks of
 *  the reductions' lanes. */
struct AttentionSoftmax {
    RowReduction row_max;
    Halide::Func limits;   // limits(part, row), three parts, of `row_max`
    Halide::Func maximum;  // maximum(row), of `limits`
    Halide::Func weights;  // weights(position, row)
    RowReduction total;    // of weights
    Halide::Func sum;      // sum(row), of `total`
    Halide::Var position, row, part;
    Halide::Expr masked;  // whether there are positions that do not count
};

void attention_softmax(const AttentionSoftmax &stages, const AttentionParams &params, const Halide::Target &target);

/** y(d, row), every element by itself. */
void attention_rows(Halide::Func y, Halide::Var d, const AttentionParams &params, const Halide::Target &target);

/** y(row, part): a few numbers for each row, the rows a multiple of 16. */
void attention_statistics(Halide::Func y, Halide::Var row, Halide::Var part, const Halide::Target &target);

}  // namespace halyard::schedules

#endif
