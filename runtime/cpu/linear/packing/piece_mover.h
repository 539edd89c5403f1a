// Pieces of a matrix as packing moves them into panels: the kernels, and what these ask of their operands.
#ifndef HALYARD_RUNTIME_CPU_LINEAR_PACKING_PIECE_MOVER_H
#define HALYARD_RUNTIME_CPU_LINEAR_PACKING_PIECE_MOVER_H

#include <cstring>

#include "core/handles/weights.h"
#include "core/kernel_call.h"
#include "layout/pack.h"

namespace halyard {

struct PackKernels {
    KernelCall<arguments::Pack> as_it_is, folded;
    KernelCall<arguments::PackSums> sums, weighted_sums;

    PackKernels(DType dtype, bool transposed, halyard_isa isa)
        : as_it_is(kernel_function(transposed ? kernels::pack_out_in : kernels::pack_in_out, dtype, isa)),
          folded(kernel_function(transposed ? kernels::pack_out_in_folded : kernels::pack_in_out_folded, dtype, isa)),
          sums(kernel_function(kernels::pack_sums, dtype, isa)),
          weighted_sums(kernel_function(kernels::pack_weighted_sums, dtype, isa)) {}
};

// So many inputs are moved at a time: of [out, in] enough to be read in stretches, of [in, out] few, for a group of panels is wide.
constexpr int chunk_transposed = 512, chunk_in_out = 128;
constexpr int max_chunk = chunk_transposed + min_transposed_inputs;

/** A part of a matrix, in its own order of axes. */
struct Piece {
    const char *data;
    int64_t pitch;  // in elements
};

/** Moves pieces of one dtype and order of axes. One per task, as it holds the buffers. */
class PieceMover {
public:
    PieceMover(const PackKernels &kernels, DType dtype, bool transposed, float offset)
        : kernels_(kernels), dtype_(dtype), transposed_(transposed), offset_(offset) {}

    /** Packs a piece into `count` panels, `panel_pitch` from one to the next in what a row holds of a column; the norm's weight of
     *  its inputs is folded in if it is not null. */
    void move(const Piece &piece, int64_t inputs, const char *norm_weight, char *target, int count,
              int64_t panel_pitch) {
        // Too few inputs to transpose, or half a row: the piece is a staged one, whose other inputs are 0, and the target and
        // the norm's weight must have room for them too.
        const bool few = transposed_ && inputs < min_transposed_inputs;
        const int64_t of_row = row_inputs(dtype_);
        const bool widen = few || inputs % of_row != 0;
        const int64_t moved = few ? min_transposed_inputs : inputs + inputs % of_row;
        source_.set_data(piece.data);
        source_.set_dim(0, transposed_ ? moved : count * panel_width, 1);
        source_.set_dim(1, transposed_ ? count * panel_width : moved, piece.pitch);
        norm_weight_.set_data(norm_weight);
        norm_weight_.set_dim(0, moved, 1);
        panels_.set_data(few ? few_ : target);
        panels_.set_dim(0, panel_width, 1);
        panels_.set_dim(1, moved / of_row, panel_width);
        panels_.set_dim(2, count, count == 1 ? 0 : panel_pitch);
        if (widen && norm_weight) {
            memcpy(staged_weights_, norm_weight, inputs * size_of(dtype_));
            norm_weight_.set_data(staged_weights_);
        }
        (norm_weight ? kernels_.folded : kernels_.as_it_is)(
            {.w = source_, .norm_weight = norm_weight_, .offset = offset_, .panels = panels_});
        if (few) {
            memcpy(target, few_, input_bytes(inputs, dtype_));
        }
    }

private:
    const PackKernels &kernels_;
    const DType dtype_;
    const bool transposed_;
    const float offset_;
    Buffer<2> source_;
    Buffer<1> norm_weight_;
    Buffer<3> panels_;
    alignas(64) char few_[panel_width * min_transposed_inputs * sizeof(float)];
    alignas(64) char staged_weights_[max_chunk * sizeof(float)] = {};
};

}  // namespace halyard

#endif
