// One call of a matmul kernel: some inputs of some panels by all tiles of rows.
#ifndef HALYARD_RUNTIME_CPU_LINEAR_TILE_CALL_H
#define HALYARD_RUNTIME_CPU_LINEAR_TILE_CALL_H

#include "cpu/linear/codes.h"
#include "cpu/linear/microkernels.h"
#include "cpu/linear/panels.h"

namespace halyard {

/** What a kernel prefetches meanwhile: `step` bytes of every panel each time. */
struct Prefetch {
    const char *data;
    int64_t panel_bytes;  // from one panel to the next
    int32_t step;
};

struct TileCall {
    const char *x;        // the rows of the left operand, from the first of the inputs on
    int64_t x_row_bytes;  // from one row to the next
    int tile_rows;
    int64_t tiles, panels, depth;
    Prefetch next;
    bool first;   // the sums hold nothing yet
    float *sums;  // [row][sums_pitch]
    int64_t sums_pitch;
    const float *x_sums = nullptr;  // of x over groups of inputs, rows x_sums_pitch apart
    int64_t x_sums_pitch = 0;

    /** What belongs to the rows of its tiles: `count` each, `pitch` apart. */
    template<typename Buffer, typename Data>
    void describe(Buffer &buffer, const Data *data, int64_t count, int64_t pitch) const {
        buffer.set_data(data);
        buffer.set_dim(0, count, 1);
        buffer.set_dim(1, tile_rows, pitch);
        buffer.set_dim(2, tiles, tile_rows * pitch);
    }
    /** `steps`: words of a row of x, a float or a pair each. */
    template<typename Buffer, typename Data>
    void describe_x(Buffer &buffer, const Data *data, int64_t steps) const {
        describe(buffer, data, steps, x_row_bytes / 4);
    }

    /** Some of its tiles, of a call without sums of x. */
    TileCall part(int64_t first_tile, int64_t count) const {
        TileCall part = *this;
        part.x += first_tile * tile_rows * x_row_bytes;
        part.sums += first_tile * tile_rows * sums_pitch;
        part.tiles = count;
        return part;
    }
};

/** The sums of a call, and what it prefetches, as kernels take them. */
class TileBuffers {
public:
    void describe(const TileCall &call) {
        sums.set_data(call.sums);
        sums.set_dim(0, panel_width, 1);
        sums.set_dim(1, call.panels, panel_width);
        sums.set_dim(2, call.tile_rows, call.sums_pitch);
        sums.set_dim(3, call.tiles, call.tile_rows * call.sums_pitch);
        next.set_data(call.next.data);
        next.set_dim(0, call.next.step, 1);
        next.set_dim(1, call.panels, call.next.panel_bytes);
    }

    Buffer<4, float> sums;
    Buffer<2> next;
};

/** The kernels of rows in f32, and of panels in f32 or 16 bits, which they widen. */
class MatmulCall {
public:
    MatmulCall(halyard_isa isa, DType panels, TileKind kind, int tile_rows)
        : kernel_(kernel_function(TileKernels::kernel(kind, tile_rows), panels, isa)) {}

    void operator()(const TileCall &call, const Panels &w) {
        buffers_.describe(call);
        call.describe_x(x_, reinterpret_cast<const float *>(call.x), call.depth);
        w_.set_data(w.data);
        w.describe(w_, call.depth, call.panels);
        kernel_({.x = x_,
                 .w = w_,
                 .so_far = buffers_.sums,
                 .first = call.first,
                 .depth = static_cast<int32_t>(call.depth),
                 .next = buffers_.next,
                 .next_step = call.next.step,
                 .sum = buffers_.sums});
    }

private:
    const KernelCall<arguments::Matmul> kernel_;
    TileBuffers buffers_;
    Buffer<3, float> x_;
    Buffer<3> w_;
};

/** The kernels of rows and panels in pairs of bf16. */
class PairsCall {
public:
    PairsCall(halyard_isa isa, DType panels, TileKind kind, int tile_rows)
        : kernel_(kernel_function(is_amx(isa, XForm::pairs) ? kernels::matmul_tiles
                                                            : TileKernels::pairs_kernel(kind, tile_rows),
                                  panels, isa)) {}

    void operator()(const TileCall &call, const Panels &w) {
        const int64_t pairs = (call.depth + 1) / 2;
        buffers_.describe(call);
        call.describe_x(x_, call.x, pairs);
        w_.set_data(w.data);
        w.describe(w_, call.depth, call.panels);
        kernel_({.x = x_,
                 .w = w_,
                 .so_far = buffers_.sums,
                 .first = call.first,
                 .depth = static_cast<int32_t>(pairs),
                 .next = buffers_.next,
                 .next_step = call.next.step,
                 .sum = buffers_.sums});
    }

private:
    const KernelCall<arguments::MatmulPairs> kernel_;
    TileBuffers buffers_;
    Buffer<3> x_, w_;
};

/** The kernels of quantized weights: of codes as they are, or of the numbers that they were widened to. */
class CodesCall {
public:
    /** `scales`: the type of those that calls bring, expanded ones in f32. */
    CodesCall(halyard_isa isa, TileKind kind, int tile_rows, DType scales)
        : kernel_(kernel_function(kernel(isa, kind, tile_rows), scales, isa)), kind_(kind) {}

    void operator()(const TileCall &call, const CodePanels &panels, const Buffer<4> &scales) {
        panels.describe(codes_);
        (*this)(call, panels, codes_, scales);
    }

    /** `w`: codes of the panels, or the numbers that they were widened to. */
    void operator()(const TileCall &call, const CodePanels &panels, const Buffer<3> &w, const Buffer<4> &scales) {
        const int64_t inputs = panels.whole_inputs(), groups = panels.groups();
        buffers_.describe(call);
        const bool in_pairs = x_form(kind_) == XForm::pairs,
                   of_4_bits = kind_ == TileKind::codes4 || kind_ == TileKind::pairs_codes4;
        call.describe_x(x_, call.x, in_pairs ? inputs / 2 : inputs);
        call.describe(x_sums_, call.x_sums ? call.x_sums : no_sums_, groups, call.x_sums ? call.x_sums_pitch : 0);
        const int step_inputs = code_step_inputs(of_4_bits ? 4 : 8);
        kernel_({.x = x_,
                 .x_sums = x_sums_,
                 .w = w,
                 .words = static_cast<int32_t>(panels.words()),
                 .flip = static_cast<int32_t>(panels.flip()),
                 .scales = scales,
                 .steps = static_cast<int32_t>(std::min<int64_t>(panels.layout.block_group(), inputs) / step_inputs),
                 .so_far = buffers_.sums,
                 .first = call.first,
                 .next = buffers_.next,
                 .next_step = call.next.step,
                 .sum = buffers_.sums});
    }

private:
    static KernelOf<arguments::MatmulCodes> kernel(halyard_isa isa, TileKind kind, int tile_rows) {
        if (is_amx(isa, x_form(kind))) {
            return kind == TileKind::pairs_codes4 ? kernels::matmul_tiles_codes4 : kernels::matmul_tiles_codes8;
        }
        return TileKernels::code_kernel(kind, tile_rows);
    }

    const KernelCall<arguments::MatmulCodes> kernel_;
    const TileKind kind_;
    const float no_sums_[k_block / 16] = {};
    TileBuffers buffers_;
    Buffer<3> x_, codes_;
    Buffer<3, float> x_sums_;
};

/** The kernels of rows in 8 bits with quantized weights. */
class Int8Call {
public:
    Int8Call(halyard_isa isa, TileKind kind, int tile_rows, DType scales)
        : kernel_(kernel_function(TileKernels::int8_kernel(kind, tile_rows), scales, isa)) {}

    void operator()(const TileCall &call, const CodePanels &panels, const Buffer<4> &scales) {
        const CodeLayout &layout = panels.layout;
        const int unit = std::min(layout.block_group(), max_int8_unit);
        const int64_t units = (panels.first.inputs + unit - 1) / unit, row_words = call.x_row_bytes / 4;
        buffers_.describe(call);
        call.describe(x_, call.x, units * unit, call.x_row_bytes);
        call.describe(x_scales_, reinterpret_cast<const float *>(call.x + x_int8_scales), units, row_words);
        call.describe(corrections_, reinterpret_cast<const int32_t *>(call.x + x_int8_corrections), units, row_words);
        call.describe(x_sums_, call.x_sums, call.x_sums ? panels.groups() : 0, call.x_sums_pitch);
        w_.set_data(panels.first.codes);
        w_.set_dim(0, 4, 1);
        w_.set_dim(1, panel_width, 4);
        w_.set_dim(2, panels.words(), 4 * panel_width);
        w_.set_dim(3, panels.count, panels.count > 1 ? panels.stride : 0);
        kernel_({.x = x_,
                 .x_scales = x_scales_,
                 .corrections = corrections_,
                 .x_sums = x_sums_,
                 .w = w_,
                 .words = static_cast<int32_t>(panels.words()),
                 .center = code_center(layout.bits, layout.has_minima()),
                 .unit_words = unit / code_row_inputs(layout.bits),
                 .group_units = layout.block_group() / unit,
                 .scales = scales,
                 .so_far = buffers_.sums,
                 .first = call.first,
                 .next = buffers_.next,
                 .next_step = call.next.step,
                 .sum = buffers_.sums});
    }

private:
    const KernelCall<arguments::MatmulInt8> kernel_;
    TileBuffers buffers_;
    Buffer<3> x_;
    Buffer<3, int32_t> corrections_;
    Buffer<3, float> x_scales_, x_sums_;
    Buffer<4> w_;
};

}  // namespace halyard

#endif
