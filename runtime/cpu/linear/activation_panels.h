// Activations as operands of a GEMM over tokens: the right one in panels made for one call, the left one transposed.
#ifndef HALYARD_RUNTIME_CPU_LINEAR_ACTIVATION_PANELS_H
#define HALYARD_RUNTIME_CPU_LINEAR_ACTIVATION_PANELS_H

#include "cpu/linear/right_operands.h"
#include "cpu/linear/transpose.h"

namespace halyard {

/** f32 matrices whose rows lie `pitch` floats apart. */
struct FloatMatrix {
    const float *data;
    int64_t rows, columns, pitch;
};

/** What the panels of a right operand with so many inputs and columns take. */
inline int64_t activation_panel_floats(int64_t inputs, int64_t columns) {
    return (columns + panel_width - 1) / panel_width * panel_width * inputs;
}

/** Element [k, column] is that of row k as it lies; or, `transposed`, of column k of row `column`. Columns that fill the last
 *  panel are 0. `memory`: activation_panel_floats() floats, aligned to 64 bytes, of all panels, of which [begin, end) are
 *  written. */
inline void pack_panels(const FloatMatrix &x, bool transposed, int64_t begin, int64_t end, float *memory) {
    const int64_t inputs = transposed ? x.columns : x.rows, columns = transposed ? x.rows : x.columns;
    for (int64_t panel = begin; panel < end; panel++) {
        const int64_t first = panel * panel_width, count = std::min<int64_t>(panel_width, columns - first);
        for (int64_t k = 0; k < inputs; k += panel_width) {
            const int64_t rows = std::min<int64_t>(panel_width, inputs - k);
            float *const tile = memory + (panel * inputs + k) * panel_width;
            if (count < panel_width) {
                std::fill_n(tile, rows * panel_width, 0.0f);
            }
            if (transposed) {
                transpose_tile(x.data + first * x.pitch + k, x.pitch, count, rows, tile, panel_width);
                continue;
            }
            for (int64_t row = 0; row < rows; row++) {
                std::copy_n(x.data + (k + row) * x.pitch + first, count, tile + row * panel_width);
            }
        }
    }
}

/** What pack_panels() has written, all panels of it. */
inline PanelMatrix packed_panels(int64_t inputs, int64_t columns, const float *memory) {
    const int64_t panel_bytes = inputs * panel_width * static_cast<int64_t>(sizeof(float));
    return {{reinterpret_cast<const char *>(memory), DType::f32, panel_bytes},
            (columns + panel_width - 1) / panel_width,
            inputs,
            false};
}

/** All panels, by the context's threads. */
inline PanelMatrix pack_activations(const halyard_context &context, const FloatMatrix &x, bool transposed,
                                    float *memory) {
    const int64_t inputs = transposed ? x.columns : x.rows, columns = transposed ? x.rows : x.columns;
    const PanelMatrix packed = packed_panels(inputs, columns, memory);
    const int threads = static_cast<int>(
        std::min<int64_t>(threads_for(context, inputs * columns * static_cast<int64_t>(sizeof(float))), packed.panels));
    run_tasks(context, threads, [&](int index) {
        pack_panels(x, transposed, packed.panels * index / threads, packed.panels * (index + 1) / threads, memory);
    });
    return packed;
}

/** The columns [first, first + rows) of x as the rows of a left operand, whose inputs are the rows of x. */
inline void load_transposed(const halyard_context &context, const FloatMatrix &x, int64_t first, int64_t rows,
                            const BlockedRows &blocked) {
    const int threads = static_cast<int>(
        std::min<int64_t>(threads_for(context, rows * x.rows * static_cast<int64_t>(sizeof(float))), x.rows));
    const int64_t tiles = (x.rows + panel_width - 1) / panel_width;
    run_tasks(context, threads, [&](int index) {
        for (int64_t k = tiles * index / threads * panel_width;
             k < std::min(x.rows, tiles * (index + 1) / threads * panel_width); k += panel_width) {
            const int64_t inputs = std::min<int64_t>(panel_width, x.rows - k);
            for (int64_t row = 0; row < rows; row += panel_width) {
                const int64_t count = std::min<int64_t>(panel_width, rows - row);
                transpose_tile(x.data + k * x.pitch + first + row, x.pitch, inputs, count,
                               blocked.floats_at(row, k / k_block) + k % k_block, x_pitch);
            }
        }
    });
    blocked.clear_from(rows, x.rows);
}

}  // namespace halyard

#endif
