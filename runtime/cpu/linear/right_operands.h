// The forms of a GEMM's right operand: what the loop (cpu/linear/gemm_loop.h) asks of a matrix in panels of 16 columns.
//
// A form has
//
//     RightShape shape() const;                               for the plan
//     const char *address(panel, k) const;                    where a k block of a panel begins, to be prefetched
//     int64_t panel_bytes() const;                            from one panel to the next
//     int64_t interval_bytes(TileKind kind) const;            of a panel, from one prefetch of the kernel to the next
//     static constexpr bool ahead_by_blocks;                  a single tile of rows prefetches the next k block, as several do, and
//                                                             not what comes some bytes later
//     static constexpr int64_t scratch_floats;                that a reader needs
//     class Reader {                                          of one thread
//         Reader(const Form &, const GemmPlan &, float *scratch);
//         void multiply(panel, k, const TileCall &);          by the form's microkernel
//     };
//
// and nothing else knows how its numbers are stored.
#ifndef HALYARD_RUNTIME_CPU_LINEAR_RIGHT_OPERANDS_H
#define HALYARD_RUNTIME_CPU_LINEAR_RIGHT_OPERANDS_H

#include "cpu/linear/blocked_rows.h"
#include "cpu/linear/codes.h"
#include "cpu/linear/gemm_plan.h"
#include "cpu/linear/tile_call.h"

namespace halyard {

// ---- Numbers of f32, f16 or bf16 ----

/** A matrix in panels: weights, or activations that were packed for a call. */
struct PanelMatrix {
    Panels first;  // and from there on
    int64_t panels, inputs;
    bool gated;
};
inline PanelMatrix panels_of(const halyard_weights &weights) {
    return {
        {weights.panel_data, weights.dtype, weights.panel_bytes()}, weights.panels, weights.in_features, weights.gated};
}

/** What their forms have in common. */
class PanelForm {
public:
    explicit PanelForm(const PanelMatrix &matrix) : matrix_(matrix) {}

    DType dtype() const { return matrix_.first.dtype; }
    int64_t panel_bytes() const { return matrix_.first.stride; }
    Panels at(int64_t panel, int64_t k) const { return matrix_.first.from(panel, k); }
    const char *address(int64_t panel, int64_t k) const { return at(panel, k).data; }
    static constexpr bool ahead_by_blocks = false;

protected:
    RightShape shape_for(XForm x, DType of_kernels) const {
        return {matrix_.panels,      matrix_.inputs,        matrix_.gated, panel_bytes(), x,
                tile_kind(x, false), of_kernels == dtype(), of_kernels};
    }
    /** What so many inputs of a panel take as they are stored. */
    int64_t bytes_of(int inputs) const { return inputs * panel_width * size_of(dtype()); }

private:
    const PanelMatrix matrix_;
};

/** As they are, for rows in `x`. */
template<XForm x, typename Product>
class PanelsAsTheyAre : public PanelForm {
public:
    using PanelForm::PanelForm;
    RightShape shape() const { return shape_for(x, dtype()); }
    int64_t interval_bytes(TileKind kind) const { return bytes_of(prefetch_interval(is_prefetch4(kind), dtype())); }

    static constexpr int64_t scratch_floats = 0;
    class Reader {
    public:
        Reader(const PanelsAsTheyAre &form, const GemmPlan &plan, float *)
            : form_(form), product_(plan.isa, form.dtype(), plan.kind, plan.tiling.tile_rows) {}
        void multiply(int64_t panel, int64_t k, const TileCall &call) { product_(call, form_.at(panel, k)); }

    private:
        const PanelsAsTheyAre &form_;
        Product product_;
    };
};

/** For rows in f32, and for rows in pairs of bf16. */
using PackedPanels = PanelsAsTheyAre<XForm::f32, MatmulCall>;
using PackedPairs = PanelsAsTheyAre<XForm::pairs, PairsCall>;

/** A k block of the panels of a tile in f32. */
constexpr int64_t widened_floats_of_tile = int64_t{max_tile_panels} * k_block * panel_width;
inline Panels widened_block(float *memory) {
    return {reinterpret_cast<char *>(memory), DType::f32, input_bytes(k_block, DType::f32)};
}

/** 16-bit ones that are widened block by block before they are multiplied, which pays for many rows. */
class WidenedPanels : public PanelForm {
public:
    using PanelForm::PanelForm;
    RightShape shape() const { return shape_for(XForm::f32, DType::f32); }
    int64_t interval_bytes(TileKind kind) const { return bytes_of(prefetch_interval(is_prefetch4(kind), DType::f32)); }

    static constexpr int64_t scratch_floats = widened_floats_of_tile;
    class Reader {
    public:
        Reader(const WidenedPanels &form, const GemmPlan &plan, float *scratch)
            : form_(form), isa_(plan.isa), wide_(widened_block(scratch)),
              product_(plan.isa, DType::f32, plan.kind, plan.tiling.tile_rows) {}
        void multiply(int64_t panel, int64_t k, const TileCall &call) {
            widen_panels(isa_, form_.at(panel, k), wide_, call.depth, call.panels);
            product_(call, wide_);
        }

    private:
        const WidenedPanels &form_;
        const halyard_isa isa_;
        const Panels wide_;
        MatmulCall product_;
    };
};

// ---- Codes with scales ----

class CodeForm {
public:
    explicit CodeForm(const halyard_weights &weights)
        : weights_(weights), panel_bytes_(weights.panel_bytes()), block_bytes_(weights.codes.block_bytes(k_block)) {}

    const CodeLayout &layout() const { return weights_.codes; }
    int64_t panel_bytes() const { return panel_bytes_; }
    CodePanels at(int64_t panel, int64_t panels, int64_t k) const {
        const int64_t inputs = CodeLayout::block_inputs(weights_.in_features, k / k_block);
        const char *const scales = address(panel, k);
        return {layout(), {scales, scales + layout().scale_parts(inputs).bytes, inputs}, panel_bytes_, panels};
    }
    const char *address(int64_t panel, int64_t k) const {
        return weights_.panel_data + panel * panel_bytes_ + k / k_block * block_bytes_;
    }
    // Panels of codes are short: what is ahead of the end of one is of no use.
    static constexpr bool ahead_by_blocks = true;

protected:
    RightShape shape_for(XForm x, TileKind kind) const {
        return {weights_.panels, weights_.in_features, weights_.gated, panel_bytes_, x, kind, true, DType::f32};
    }
    int64_t bytes_of(int inputs) const { return int64_t{inputs} * panel_width * layout().bits / 8; }

private:
    const halyard_weights &weights_;
    const int64_t panel_bytes_, block_bytes_;
};

/** Multiplied as they are with rows in `x`. */
template<XForm x>
class PackedCodes : public CodeForm {
public:
    using CodeForm::CodeForm;
    TileKind kind() const { return tile_kind_of_codes(x, layout().bits); }
    RightShape shape() const { return shape_for(x, kind()); }
    int64_t interval_bytes(TileKind) const { return bytes_of(code_step_inputs(layout().bits)); }

    static constexpr int64_t scratch_floats = expanded_floats(max_tile_panels);
    class Reader {
    public:
        Reader(const PackedCodes &form, const GemmPlan &plan, float *scratch)
            : form_(form), codes_(form.layout(), plan.isa), expanded_(scratch),
              expands_(plan.tiling.rows() > 1 || !takes_stored_scales(x, form.layout(), plan.isa)),
              product_(plan.isa, expands_ ? form.kind() : tile_kind_of_stored_scales(x, form.layout()),
                       plan.tiling.tile_rows, expands_ ? DType::f32 : form.layout().scale_dtype) {}
        void multiply(int64_t panel, int64_t k, const TileCall &call) {
            const CodePanels panels = form_.at(panel, call.panels, k);
            if (expands_) {
                codes_.expand(panels, expanded_, scales_);
            } else {
                panels.describe_scales(scales_);
            }
            product_(call, panels, scales_);
        }

    private:
        const PackedCodes &form_;
        const CodeKernels codes_;
        float *const expanded_;
        const bool expands_;
        std::conditional_t<x == XForm::int8, Int8Call, CodesCall> product_;
        Buffer<4> scales_;
    };
};

/** Widened to f32 block by block before they are multiplied, which pays for many rows. */
class WidenedCodes : public CodeForm {
public:
    using CodeForm::CodeForm;
    RightShape shape() const { return shape_for(XForm::f32, TileKind::codes32); }
    int64_t interval_bytes(TileKind) const { return bytes_of(code_step_inputs(32)); }

    static constexpr int64_t scratch_floats = widened_floats_of_tile + expanded_floats(max_tile_panels);
    class Reader {
    public:
        Reader(const WidenedCodes &form, const GemmPlan &plan, float *scratch)
            : form_(form), codes_(form.layout(), plan.isa), wide_(scratch), expanded_(scratch + widened_floats_of_tile),
              product_(plan.isa, TileKind::codes32, plan.tiling.tile_rows, DType::f32) {}
        void multiply(int64_t panel, int64_t k, const TileCall &call) {
            const CodePanels panels = form_.at(panel, call.panels, k);
            codes_.expand(panels, expanded_, scales_);
            codes_.widen(panels, wide_, k_block * panel_width, w_);
            product_(call, panels, w_, scales_);
        }

    private:
        const WidenedCodes &form_;
        const CodeKernels codes_;
        float *const wide_, *const expanded_;
        CodesCall product_;
        Buffer<3> w_;
        Buffer<4> scales_;
    };
};

}  // namespace halyard

#endif
