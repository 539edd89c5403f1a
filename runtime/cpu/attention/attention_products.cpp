// See attention_products.h. Tiles whose mask ends within the block do not multiply what lies beyond.
#include "cpu/attention/attention_products.h"

#include <cstring>

#include "core/parameters.h"

namespace halyard {

/** Panels of one kernel call. */
int64_t AttentionProducts::panels_at_once(int64_t panels) const {
    const DType dtype = tiles_.multiplied();
    const int64_t width =
        panels_of_call(tiles_.isa, tiles_.form, dtype, tile_kind(tiles_.form, tiles_.prefetch4()), tiles_.tile_rows());
    if (tiles_.count() > 1 || dtype != DType::f32) {
        return width;
    }
    // A single tile reads keys and values once: f32 panels one after the other, as they lie in memory, which is what kernels
    // do with every number of panels but their own. Of 16-bit ones the additions of one would keep the next waiting.
    return panels == width ? std::max<int64_t>(1, panels - 1) : panels;
}

/** A single tile reads keys and values at the speed of memory. AMX prefetches a step ahead by itself. */
bool AttentionProducts::prefetches_ahead() const {
    return tiles_.count() == 1 && !is_amx(tiles_.isa, tiles_.form);
}

Prefetch AttentionProducts::prefetch_ahead(const Panels &w, int64_t bytes) const {
    return {w.data + (w.dtype == DType::f32 ? parameters.attention_prefetch_bytes : bytes), w.stride,
            static_cast<int32_t>(input_bytes(prefetch_interval(tiles_.prefetch4(), w.dtype), w.dtype))};
}

/** All of what comes next, if that is not more than a line with each prefetch. */
Prefetch AttentionProducts::prefetch_next(const Panels &next, int64_t inputs, int64_t tiles) const {
    const int64_t interval = prefetch_interval(tiles_.prefetch4(), tiles_.multiplied());
    const int64_t line = interval * panel_width * size_of(next.dtype);
    const int64_t prefetches = std::max<int64_t>(1, inputs / interval * tiles);
    const int64_t step = next.data ? std::min(line, (next.stride + prefetches - 1) / prefetches) : 0;
    return {next.data, next.stride, static_cast<int32_t>(step)};
}

void AttentionProducts::scores(const BlockedRows &queries, const Panels &keys, const Panels &next, float *scores) {
    const int64_t features = tiles_.layout.head_dim;
    const int64_t first_panel = tiles_[0].first / panel_width;
    const int64_t end_panel = (tiles_[tiles_.count() - 1].end + panel_width - 1) / panel_width;
    const int64_t at_once = panels_at_once(end_panel - first_panel);
    int64_t first_tile = 0, end_tile = 0;  // of those that see some of the panels
    for (int64_t panel = first_panel; panel < end_panel; panel += at_once) {
        const int64_t panels = std::min<int64_t>(at_once, end_panel - panel), after = panel + panels;
        while (tiles_[first_tile].end <= panel * panel_width) {
            first_tile++;
        }
        while (end_tile < tiles_.count() && tiles_[end_tile].first < after * panel_width) {
            end_tile++;
        }
        const int64_t row = tiles_.row(first_tile), tiles = end_tile - first_tile;
        const Panels w = keys.from(panel, 0);
        (*product_)(queries, row, 0, tiles, w, panels, features, scores + row * x_pitch + panel * panel_width, x_pitch,
                    prefetches_ahead()
                        ? prefetch_ahead(w, panels * keys.stride)
                        : prefetch_next(after < end_panel ? keys.from(after, 0) : next, features, tiles));
    }
}

void AttentionProducts::weigh(const BlockedRows &weights, const Panels &values, const Panels &next, float *into) {
    const int64_t columns = tiles_.layout.value_columns(), panels = columns / panel_width;
    const int64_t at_once = panels_at_once(panels);
    for (int64_t i = 0; i < tiles_.count();) {
        const TileKeys &keys = tiles_[i];
        int64_t end = i + 1;
        while (end < tiles_.count() && tiles_[end].first == keys.first && tiles_[end].end == keys.end) {
            end++;
        }
        const int64_t row = tiles_.row(i), inputs = keys.end - keys.first, tiles = end - i;
        float *const sums = into + row * columns;
        if (inputs <= 0) {
            memset(sums, 0, static_cast<size_t>(tiles * tiles_.tile_rows() * columns) * sizeof(float));
        }
        for (int64_t panel = 0; panel < panels && inputs > 0; panel += at_once) {
            const int64_t count = std::min<int64_t>(at_once, panels - panel), after = panel + count;
            const Panels w = values.from(panel, keys.first);
            (*product_)(weights, row, keys.first, tiles, w, count, inputs, sums + panel * panel_width, columns,
                        prefetches_ahead()
                            ? prefetch_ahead(w, parameters.attention_prefetch_bytes_16_bit)
                            : prefetch_next(after < panels ? values.from(after, keys.first) : next, inputs, tiles));
        }
        i = end;
    }
}

}  // namespace halyard
