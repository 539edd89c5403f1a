// Panels of codes on the processor: their scales as products read them, and their numbers in f32.
#ifndef HALYARD_RUNTIME_CPU_LINEAR_CODES_H
#define HALYARD_RUNTIME_CPU_LINEAR_CODES_H

#include "core/kernel_call.h"
#include "cpu/linear/microkernels.h"
#include "layout/code_panels.h"

namespace halyard {

/** One k block of some panels. */
struct CodePanels {
    const CodeLayout &layout;
    CodeBlock<const char> first;
    int64_t stride;  // bytes from one panel to the next
    int64_t count;   // at most max_tile_panels

    int64_t groups() const { return layout.groups(first.inputs); }
    int64_t words() const { return layout.code_rows(first.inputs); }
    /** Inputs that products take. */
    int64_t whole_inputs() const { return layout.whole_inputs(first.inputs); }
    uint32_t flip() const { return code_flip(layout.bits, layout.has_minima()); }

    /** As an argument of kernels: columns, words, panels. */
    template<typename Buffer>
    void describe(Buffer &buffer) const {
        buffer.set_data(first.codes);
        buffer.set_dim(0, panel_width, 1);
        buffer.set_dim(1, words(), panel_width);
        buffer.set_dim(2, count, count > 1 ? stride / 4 : 0);
    }

    /** The scales as they are stored, of two levels the first part: columns, one vector, groups, panels. */
    template<typename Buffer>
    void describe_scales(Buffer &buffer) const {
        buffer.set_data(first.scales);
        buffer.set_dim(0, panel_width, 1);
        buffer.set_dim(1, 1, panel_width);
        buffer.set_dim(2, groups(), panel_width);
        buffer.set_dim(3, count, count > 1 ? stride / size_of(layout.scale_dtype) : 0);
    }
};

/** Whether `isa` has a kernel of one row of x that takes scales as they are stored. */
inline bool takes_stored_scales(XForm x, const CodeLayout &layout, halyard_isa isa) {
    if (layout.kind == ScaleKind::plain) {
        return layout.scale_dtype != DType::f32;
    }
    return layout.two_levels() && x == XForm::int8 &&
           kernel_function(TileKernels::of(tile_kind_of_stored_scales(x, layout), 1), layout.scale_dtype, isa) !=
               nullptr;
}

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

    /** Writes [panel][group][scale, offset][16] to `expanded` and describes it. */
    void expand(const CodePanels &panels, float *expanded, Buffer<4> &scales) const {
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
                 .center = static_cast<float>(code_center(layout.bits, layout.has_minima())),
                 .expanded = scales.of<float>()});
    }

    /** Writes the numbers of the panels' whole inputs to `wide`, `pitch` words from one panel to the next, and describes it. */
    void widen(const CodePanels &panels, void *wide, int64_t pitch, Buffer<3> &numbers) const {
        Buffer<3> w;
        panels.describe(w);
        numbers.set_data(wide);
        numbers.set_dim(0, panel_width, 1);
        numbers.set_dim(1, panels.whole_inputs(), panel_width);
        numbers.set_dim(2, panels.count, pitch);
        widen_({.w = w, .flip = static_cast<int32_t>(panels.flip()), .wide = numbers.of<float>()});
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
