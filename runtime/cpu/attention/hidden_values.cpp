// See hidden_values.h.
#include "cpu/attention/hidden_values.h"

#include <cstring>

#include "cpu/attention/attention_products.h"

namespace halyard {
namespace {

/** `columns`: of whole panels, of which compilers make vectors. */
bool has_nan(const float *values, int64_t columns) {
    int found = 0;
    for (int64_t panel = 0; panel < columns; panel += panel_width) {
        for (int64_t i = 0; i < panel_width; i++) {
            found |= values[panel + i] != values[panel + i];
        }
    }
    return found != 0;
}

/** A copy of the pairs that hold positions [begin, end), an even one first, with zeros for those before `first` and after the last. */
Panels seen_alone(const Panels &values, int64_t panels, int64_t begin, int64_t first, int64_t end, char *memory) {
    const Panels copy = {memory, values.dtype, values.stride};
    const int64_t first_pair = first / 2 * 2;
    for (int64_t panel = 0; panel < panels; panel++) {
        char *const beginning = memory + panel * values.stride;
        memset(beginning + input_bytes(begin, values.dtype), 0,
               static_cast<size_t>(input_bytes(first_pair - begin, values.dtype)));
        uint32_t *const pairs = reinterpret_cast<uint32_t *>(beginning + input_bytes(first_pair, values.dtype));
        memcpy(pairs, values.from(panel, first_pair).data,
               static_cast<size_t>(input_bytes(end - first_pair, values.dtype)));
        // The earlier position of a pair is the upper half.
        uint32_t *const last = pairs + (end - 1 - first_pair) / 2 * panel_width;
        for (int64_t i = 0; i < panel_width; i++) {
            pairs[i] &= first > first_pair ? 0x0000ffffu : 0xffffffffu;
            last[i] &= end % 2 != 0 ? 0xffff0000u : 0xffffffffu;
        }
    }
    return copy;
}

/** result = sum of weight value over positions [first, end). */
void weigh_row(const RowTiles &tiles, const BlockedRows &weights, int64_t row, const Panels &values, int64_t first,
               int64_t end, float *memory, float *result) {
    const int64_t columns = tiles.layout.value_columns(), panels = columns / panel_width;
    // Products of pairs flush denormals, so that others would give the row other bits.
    const bool by_pairs = tiles.form == XForm::pairs;
    const int64_t together = inputs_together(tiles.isa, tiles.form, values.dtype),
                  row_first = first / together * together;
    const int64_t from = by_pairs ? row_first : first;
    Panels seen = values;
    if (by_pairs) {
        seen = seen_alone(values, panels, row_first, first, end, reinterpret_cast<char *>(memory));
    } else if (values.dtype != DType::f32) {
        // Every position is a row of panels in f32.
        seen = widened_part(tiles.isa, values, 0, panels, row_first, end - row_first, memory);
    }
    const int width = panels_of_call(tiles.isa, tiles.form, seen.dtype, tile_kind(tiles.form, false), 1);
    TileProduct product(tiles.isa, tiles.form, seen.dtype, tile_kind(tiles.form, false), 1);
    for (int64_t panel = 0; panel < panels; panel += width) {
        const Panels w = seen.from(panel, from);
        product(weights, row, from, 1, w, std::min<int64_t>(width, panels - panel), end - from,
                result + panel * panel_width, columns, {w.data, 0, 0});
    }
}

}  // namespace

void leave_out_hidden_values(const RowTiles &tiles, const BlockedRows &weights, const Panels &values, float *memory,
                             float *results) {
    const int64_t columns = tiles.layout.value_columns();
    for (int64_t i = 0; i < tiles.count(); i++) {
        for (int64_t row = tiles.row(i); tiles[i].masked && row < tiles.end_row(i); row++) {
            float *const result = results + row * columns;
            if (!has_nan(result, columns)) {
                continue;
            }
            const int64_t first = tiles[i].column + tiles.visible(row)[0],
                          end = tiles[i].column + tiles.visible(row)[1];
            if (first < end) {
                weigh_row(tiles, weights, row, values, first, end, memory, result);
            } else {
                memset(result, 0, static_cast<size_t>(columns) * sizeof(float));
            }
        }
    }
}

}  // namespace halyard
