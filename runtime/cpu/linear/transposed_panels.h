// A matrix in panels as a right operand the other way round: what a gradient with respect to the input of a layer multiplies
// by, from the panels that the layer itself was packed into.
#ifndef HALYARD_RUNTIME_CPU_LINEAR_TRANSPOSED_PANELS_H
#define HALYARD_RUNTIME_CPU_LINEAR_TRANSPOSED_PANELS_H

#include "cpu/linear/right_operands.h"
#include "cpu/linear/transpose.h"

namespace halyard {

/** Element [k, column] is that of input `column` in column k of the packed matrix, for the first `columns` of these in the order
 *  in which they are packed: of gated matrices 16 of the gate and 16 of up in turn. A k block of a panel is transposed in
 *  tiles of 16 x 16 before it is multiplied. */
class TransposedPanels {
public:
    TransposedPanels(const PanelMatrix &matrix, int64_t columns) : matrix_(matrix), columns_(columns) {}

    RightShape shape() const {
        return {(matrix_.inputs + panel_width - 1) / panel_width,
                columns_,
                false,
                panel_bytes(),
                XForm::f32,
                TileKind::f32,
                false,
                DType::f32};
    }
    /** Tiles of a block lie a panel apart, and the processor fetches each on its own. */
    const char *address(int64_t panel, int64_t k) const {
        return matrix_.first.from(k / panel_width, panel * panel_width).data;
    }
    static constexpr bool ahead_by_blocks = true;
    int64_t panel_bytes() const { return input_bytes(panel_width, matrix_.first.dtype); }
    int64_t interval_bytes(TileKind) const { return 0; }

    static constexpr int64_t scratch_floats = widened_floats_of_tile + panel_width * panel_width;
    class Reader {
    public:
        Reader(const TransposedPanels &form, const GemmPlan &plan, float *scratch)
            : form_(form), isa_(plan.isa), block_(scratch), tile_(scratch + widened_floats_of_tile),
              product_(plan.isa, DType::f32, plan.kind, plan.tiling.tile_rows) {}

        void multiply(int64_t first_panel, int64_t first_input, const TileCall &call) {
            for (int64_t panel = 0; panel < call.panels; panel++) {
                const int64_t first = (first_panel + panel) * panel_width;
                const int64_t inputs = std::min<int64_t>(panel_width, form_.matrix_.inputs - first);
                float *const of_panel = block_ + panel * k_block * panel_width;
                for (int64_t k = 0; k < call.depth; k += panel_width) {
                    float *const to = of_panel + k * panel_width;
                    if (inputs < panel_width) {
                        std::fill_n(to, panel_width * panel_width, 0.0f);
                    }
                    transpose_tile(tile((first_input + k) / panel_width, first, inputs), panel_width, inputs,
                                   panel_width, to, panel_width);
                }
            }
            multiply_and_prefetch(call);
        }

    private:
        /** Before every few tiles of rows some tiles of the next block are fetched: the kernels' own prefetches follow one panel. */
        void multiply_and_prefetch(const TileCall &call) {
            constexpr int64_t next_tiles = k_block / panel_width;
            const int64_t parts = std::min(call.tiles, next_tiles / 2);
            for (int64_t part = 0; part < parts; part++) {
                for (int64_t i = next_tiles * part / parts; i < next_tiles * (part + 1) / parts; i++) {
                    const char *const tile = call.next.data + i * form_.matrix_.first.stride;
                    for (int64_t byte = 0; byte < call.panels * form_.panel_bytes(); byte += 64) {
                        __builtin_prefetch(tile + byte, 0, 2);
                    }
                }
                const int64_t begin = call.tiles * part / parts;
                product_(call.part(begin, call.tiles * (part + 1) / parts - begin), widened_block(block_));
            }
        }

        /** Some inputs of a packed panel, in f32. */
        const float *tile(int64_t packed_panel, int64_t input, int64_t inputs) {
            const Panels stored = form_.matrix_.first.from(packed_panel, input);
            if (stored.dtype == DType::f32) {
                return reinterpret_cast<const float *>(stored.data);
            }
            widen_panels(isa_, stored, {reinterpret_cast<char *>(tile_), DType::f32, 0}, inputs, 1);
            return tile_;
        }

        const TransposedPanels &form_;
        const halyard_isa isa_;
        float *const block_, *const tile_;
        MatmulCall product_;
    };

private:
    const PanelMatrix matrix_;
    const int64_t columns_;
};

}  // namespace halyard

#endif
