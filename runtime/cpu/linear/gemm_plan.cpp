// See gemm_plan.h.
#include "cpu/linear/gemm_plan.h"

#include "core/parameters.h"
#include "core/system/caches.h"

namespace halyard {
namespace {

int64_t rows_in_cache() {
    const int64_t rows = second_level_cache() / 2 / (x_pitch * static_cast<int64_t>(sizeof(float)));
    return std::max<int64_t>(max_tile_rows, std::min<int64_t>(rows, max_block_rows) / max_tile_rows * max_tile_rows);
}

/** Where x does not stay in the second-level cache, it is read less often where more panels take it; where it does, fewer read
 *  memory a tenth faster. Every thread is to get some groups. */
int amx_tile_panels(const RightShape &right, bool x_in_cache, int threads) {
    int panels = x_in_cache ? max_tile_panels : max_group_panels;
    while (panels > 4 && right.panels < int64_t{2} * threads * panels) {
        panels /= 2;
    }
    return panels;
}

}  // namespace

int threads_for(const halyard_context &context, int64_t bytes) {
    return static_cast<int>(
        std::max<int64_t>(1, std::min<int64_t>(bytes / parameters.gemm_thread_bytes, thread_bound(context))));
}

int64_t block_rows(int64_t rows) {
    const int64_t chosen = rows <= max_block_rows ? parameters.gemm_block_rows_256 : parameters.gemm_block_rows;
    return chosen > 0 ? chosen : rows_in_cache();
}

Tiling::Tiling(halyard_isa isa, XForm x, int64_t rows) {
    const int tallest = tile_kernels().tallest(isa, x);
    if (rows <= tallest) {
        tile_rows = static_cast<int>(rows);
        tiles = 1;
        return;
    }
    // The tallest tiles do most with each load of a weight; somewhat lower ones may leave fewer rows idle. A load costs
    // about as much as another row.
    tile_rows = tallest;
    tiles = (rows + tallest - 1) / tallest;
    for (int lower = tallest - 1; lower > tallest / 2; lower--) {
        const int64_t needed = (rows + lower - 1) / lower;
        if ((lower + 1) * needed < (tile_rows + 1) * tiles) {
            tile_rows = lower;
            tiles = needed;
        }
    }
}

GemmPlan plan_gemm(halyard_isa isa, const RightShape &right, const Tiling &tiling, int64_t rows, int64_t x_bytes,
                   int threads) {
    GemmPlan plan = {isa, tiling, rows, right.panels, right.inputs, k_block, right.kind, 0, 0, 0, 0, 0};
    if (is_amx(isa, right.x)) {
        // With a single tile of rows, weights that come from beyond the second-level cache are read a tenth faster without
        // k blocks.
        const bool in_cache = right.panels * right.panel_bytes <= threads * second_level_cache() / 2;
        const bool of_numbers = right.kind == tile_kind(XForm::pairs, false);
        plan.depth = of_numbers && tiling.tiles == 1 && !in_cache ? right.inputs : k_block;
        plan.tile_panels = amx_tile_panels(right, x_bytes <= second_level_cache() / 2, threads);
        if (!of_numbers) {
            plan.tile_panels = std::min(plan.tile_panels, max_tile_panels);
        }
    } else {
        const auto width = [&](TileKind kind) {
            return tile_kernels().width(isa, kind, right.dtype, tiling.tile_rows);
        };
        if (tiling.tiles >= prefetch4_interval && width(prefetch4_kind(right.kind)) > 0) {
            plan.kind = prefetch4_kind(right.kind);
        } else if (tiling.tiles == 1 && right.read_in_place && width(near_kind(right.kind)) > 0 &&
                   right.panels * right.panel_bytes <= last_level_cache() / 2) {
            // Weights that may be in the last-level cache: from memory, which answers later, those that prefetch far are as fast or faster.
            plan.kind = near_kind(right.kind);
        }
        plan.tile_panels = width(plan.kind);
    }
    // Kernels count elements in 32 bits: of panels that are longer than that allows, they get one at a time.
    if (right.inputs * panel_width > INT32_MAX / max_group_panels) {
        plan.tile_panels = 1;
    }
    plan.group_panels = right.gated && plan.tile_panels % 2 != 0 ? 2 * plan.tile_panels : plan.tile_panels;
    plan.groups = (right.panels + plan.group_panels - 1) / plan.group_panels;
    plan.task_groups = tiling.tiles == 1 ? parameters.gemm_task_groups_decode
                       : rows <= 64      ? parameters.gemm_task_groups_64
                                         : parameters.gemm_task_groups;
    plan.threads = static_cast<int>(std::min<int64_t>(threads, plan.groups));
    return plan;
}

}  // namespace halyard
