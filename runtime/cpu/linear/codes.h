// Panels of codes on the processor: their scales as kernels read them, and their values in f32.
#ifndef HALYARD_RUNTIME_CPU_LINEAR_CODES_H
#define HALYARD_RUNTIME_CPU_LINEAR_CODES_H

#include "core/kernel_call.h"
#include "layout/code_panels.h"

namespace halyard {

/** The same k block of some panels. */
struct CodePanels {
    const CodeLayout &layout;
    CodeBlock<const char> first;
    int64_t stride;  // bytes from one panel to the next
    int64_t count;   // at most max_tile_panels

    int64_t groups() const { return layout.groups(first.inputs); }
    /** Rows of a group are 2 to this power. */
    int32_t group_shift() const {
        return __builtin_ctz(static_cast<unsigned>(layout.block_group() / code_row_inputs(layout.bits)));
    }

    /** As an argument of kernels: columns, rows, panels. */
    template<typename Buffer>
    void describe(Buffer &buffer) const {
        buffer.set_data(first.codes);
        buffer.set_dim(0, panel_width, 1);
        buffer.set_dim(1, layout.code_rows(first.inputs), panel_width);
        buffer.set_dim(2, count, count > 1 ? stride / 4 : 0);
    }
};

/** Floats that expanded scales of `panels` panels take at most. */
constexpr int64_t expanded_floats(int64_t panels) {
    constexpr int min_group = 16;
    return panels * (k_block / min_group) * scale_vectors * panel_width;
}

class CodeKernels {
public:
    CodeKernels(const CodeLayout &layout, halyard_isa isa)
        : expand_(kernel_function(of_kind(layout.kind), layout.scale_dtype, isa)),
          widen_(kernel_function(layout.bits == 4 ? kernels::widen_codes4 : kernels::widen_codes8, DType::f32, isa)) {}

    /** Writes [panel][group][zero, scale, offset][16] to `expanded` and describes it. */
    void expand(const CodePanels &panels, float *expanded, Buffer<4, float> &scales) const {
        const CodeLayout &layout = panels.layout;
        const int64_t inputs = panels.first.inputs, groups = panels.groups();
        const ScaleParts parts = layout.scale_parts(inputs);
        const auto describe = [&](auto &buffer, int64_t part, int64_t rows, int64_t bytes) {
            buffer.set_data(panels.first.scales + part);
            buffer.set_dim(0, panel_width, 1);
            buffer.set_dim(1, rows, panel_width);
            buffer.set_dim(2, panels.count, panels.count > 1 ? panels.stride / bytes : 0);
        };
        Buffer<3> wide, minima, factors, zeros;
        const int64_t wide_rows = layout.scales(inputs), wide_bytes = size_of(layout.scale_dtype);
        describe(wide, parts.scales, wide_rows, wide_bytes);
        describe(minima, parts.minima, wide_rows, wide_bytes);
        describe(factors, parts.factors, groups, 1);
        describe(zeros, parts.zeros, groups, 1);
        scales.set_data(expanded);
        scales.set_dim(0, panel_width, 1);
        scales.set_dim(1, scale_vectors, panel_width);
        scales.set_dim(2, groups, scale_vectors * panel_width);
        scales.set_dim(3, panels.count, groups * scale_vectors * panel_width);
        expand_({.scales = wide,
                 .minima = minima,
                 .factors = factors,
                 .zeros = zeros,
                 .raise = code_raise(layout.bits),
                 .plain_zero = static_cast<float>(layout.code_of_zero()),
                 .expanded = scales});
    }

    /** Writes the values of the panels to `wide`, `pitch` floats from one to the next, which have room for whole rows. */
    void widen(const CodePanels &panels, const Buffer<4, float> &scales, float *wide, int64_t pitch) const {
        Buffer<3> w;
        Buffer<3, float> in_f32;
        panels.describe(w);
        in_f32.set_data(wide);
        in_f32.set_dim(0, panel_width, 1);
        in_f32.set_dim(1, panels.layout.code_rows(panels.first.inputs) * code_row_inputs(panels.layout.bits),
                       panel_width);
        in_f32.set_dim(2, panels.count, pitch);
        widen_({.w = w, .scales = scales, .group_shift = panels.group_shift(), .wide = in_f32});
    }

private:
    static KernelOf<arguments::ExpandScales> of_kind(ScaleKind kind) {
        constexpr KernelOf<arguments::ExpandScales> kinds[] = {
            kernels::expand_scales_plain, kernels::expand_scales_zero, kernels::expand_scales_minimum,
            kernels::expand_scales_two_levels, kernels::expand_scales_two_levels_signed};
        return kinds[static_cast<int>(kind)];
    }

    const KernelCall<arguments::ExpandScales> expand_;
    const KernelCall<arguments::WidenCodes> widen_;
};

}  // namespace halyard

#endif
