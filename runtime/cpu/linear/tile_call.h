// One call of a matmul kernel: some inputs of some panels by all tiles of rows.
#ifndef HALYARD_RUNTIME_CPU_LINEAR_TILE_CALL_H
#define HALYARD_RUNTIME_CPU_LINEAR_TILE_CALL_H

#include "cpu/linear/codes.h"
#include "cpu/linear/microkernels.h"
#include "cpu/linear/panels.h"

namespace halyard {

struct TileCall {
    const char *x;        // the rows of the left operand, from the first of the inputs on
    int64_t x_row_bytes;  // from one row to the next
    int tile_rows;
    int64_t tiles, panels, depth;
    const Buffer<2> &next;  // what is prefetched meanwhile
    int32_t next_step;
    bool first;  // the sums hold nothing yet
    const Buffer<4, float> &sum;
    const float *x_sums = nullptr;  // of x over groups of inputs, rows x_sums_pitch apart
    int64_t x_sums_pitch = 0;

    /** `steps`: words of a row, a float or a pair each. */
    template<typename Buffer>
    void describe_x(Buffer &buffer, int64_t steps) const {
        const int64_t pitch = x_row_bytes / 4;
        buffer.set_dim(0, steps, 1);
        buffer.set_dim(1, tile_rows, pitch);
        buffer.set_dim(2, tiles, tile_rows * pitch);
    }
};

/** The sums of a call: rows `pitch` floats apart. */
inline void describe_sums(Buffer<4, float> &buffer, float *sums, int64_t panels, int tile_rows, int64_t tiles,
                          int64_t pitch) {
    buffer.set_data(sums);
    buffer.set_dim(0, panel_width, 1);
    buffer.set_dim(1, panels, panel_width);
    buffer.set_dim(2, tile_rows, pitch);
    buffer.set_dim(3, tiles, tile_rows * pitch);
}

/** The kernels of rows in f32, and of panels in f32 or 16 bits, which they widen. */
class MatmulCall {
public:
    MatmulCall(halyard_isa isa, DType panels, bool prefetch4, int tile_rows)
        : kernel_(kernel_function(TileKernels::kernel(prefetch4, tile_rows), panels, isa)) {}

    void operator()(const TileCall &call, const Panels &w) {
        x_.set_data(reinterpret_cast<const float *>(call.x));
        call.describe_x(x_, call.depth);
        w_.set_data(w.data);
        w.describe(w_, call.depth, call.panels);
        kernel_({.x = x_,
                 .w = w_,
                 .so_far = call.sum,
                 .first = call.first,
                 .depth = static_cast<int32_t>(call.depth),
                 .next = call.next,
                 .next_step = call.next_step,
                 .sum = call.sum});
    }

private:
    const KernelCall<arguments::Matmul> kernel_;
    Buffer<3, float> x_;
    Buffer<3> w_;
};

/** The kernels of rows and panels in pairs of bf16. */
class PairsCall {
public:
    PairsCall(halyard_isa isa, DType panels, bool prefetch4, int tile_rows)
        : kernel_(kernel_function(is_amx(isa, XForm::pairs) ? kernels::matmul_tiles
                                                            : TileKernels::pairs_kernel(prefetch4, tile_rows),
                                  panels, isa)) {}

    void operator()(const TileCall &call, const Panels &w) {
        const int64_t pairs = (call.depth + 1) / 2;
        x_.set_data(call.x);
        call.describe_x(x_, pairs);
        w_.set_data(w.data);
        w.describe(w_, call.depth, call.panels);
        kernel_({.x = x_,
                 .w = w_,
                 .so_far = call.sum,
                 .first = call.first,
                 .depth = static_cast<int32_t>(pairs),
                 .next = call.next,
                 .next_step = call.next_step,
                 .sum = call.sum});
    }

private:
    const KernelCall<arguments::MatmulPairs> kernel_;
    Buffer<3> x_, w_;
};

/** The kernels of quantized weights: of codes as they are, or of the numbers that they were widened to. */
class CodesCall {
public:
    /** `scales`: the type of those that calls bring, expanded ones in f32. */
    CodesCall(halyard_isa isa, TileKind kind, int tile_rows, DType scales = DType::f32)
        : kernel_(kernel_function(TileKernels::code_kernel(kind, tile_rows), scales, isa)), kind_(kind) {}

    /** `w`: codes or numbers of the panels. */
    void operator()(const TileCall &call, const CodePanels &panels, const Buffer<3> &w, const Buffer<4> &scales) {
        const int64_t inputs = panels.whole_inputs(), groups = panels.groups();
        x_.set_data(call.x);
        call.describe_x(x_, kind_ == TileKind::codes16 ? inputs / 2 : inputs);
        const int64_t pitch = call.x_sums ? call.x_sums_pitch : 0;
        x_sums_.set_data(call.x_sums ? call.x_sums : no_sums_);
        x_sums_.set_dim(0, groups, 1);
        x_sums_.set_dim(1, call.tile_rows, pitch);
        x_sums_.set_dim(2, call.tiles, call.tile_rows * pitch);
        const int step_inputs = kind_ == TileKind::codes4 ? code_step_inputs(4) : code_step_inputs(8);
        kernel_({.x = x_,
                 .x_sums = x_sums_,
                 .w = w,
                 .words = static_cast<int32_t>(panels.words()),
                 .flip = static_cast<int32_t>(panels.flip()),
                 .scales = scales,
                 .steps = static_cast<int32_t>(std::min<int64_t>(panels.layout.block_group(), inputs) / step_inputs),
                 .so_far = call.sum,
                 .first = call.first,
                 .next = call.next,
                 .next_step = call.next_step,
                 .sum = call.sum});
    }

private:
    const KernelCall<arguments::MatmulCodes> kernel_;
    const TileKind kind_;
    const float no_sums_[k_block / 16] = {};
    Buffer<3> x_;
    Buffer<3, float> x_sums_;
};

}  // namespace halyard

#endif
