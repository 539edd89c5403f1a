// Blocks of quantized weights: everything about them but the codes and scales themselves, which their source gives.
#ifndef HALYARD_RUNTIME_CPU_LINEAR_PACKING_PACK_CODES_H
#define HALYARD_RUNTIME_CPU_LINEAR_PACKING_PACK_CODES_H

#include <atomic>

#include "core/handles/packed_weights.h"
#include "cpu/linear/codes.h"

namespace halyard {

/** Finishes panels whose codes and scales are written: sums of columns, and their share of the payload's checksum. */
class CodePanelFinisher {
public:
    CodePanelFinisher(const PackedForm &form, halyard_isa isa, char *block);

    uint64_t finish(int64_t panel, int64_t columns);

private:
    const PackedForm &form_;
    const CodeKernels codes_;
    float *const column_sums_;
    const char *const panels_;
    alignas(64) float expanded_[expanded_floats(1)];
    alignas(64) float wide_[k_block * panel_width];
};

/** Fills a block but for its header, and returns the panels' share of the payload's checksum. Bytes are a block only once they have
 *  a header, which the caller writes if it has refused nothing. Calls fill(matrix, panel, k_block, code_block), for every k block
 *  of every panel of a matrix (0, or 1 for `up`), to write codes and scales, bytes that fill those up to 64 included; threads do so
 *  at the same time. `together`: panels that are filled side by side, k block by k block: those whose sources share cache lines. */
template<typename Fill>
[[nodiscard]] uint64_t write_codes(const halyard_context &context, const PackedForm &form, char *block,
                                   const Fill &fill, int64_t together = 1) {
    const Geometry &geometry = form.geometry;
    const int64_t matrices = form.gated ? 2 : 1;
    memset(block, 0, static_cast<size_t>(geometry.panels_offset));
    std::atomic<uint64_t> digest{0};
    run_ranges(context, geometry.panels, geometry.bytes, [&](int64_t begin, int64_t end) {
        CodePanelFinisher finisher(form, best_isa(context.max_isa), block);
        uint64_t sum = 0;
        for (int64_t first = begin; first < end; first += together) {
            const int64_t last = std::min(first + together, end);
            for (int64_t k = 0; k < CodeLayout::blocks(form.in_features); k++) {
                for (int64_t panel = first; panel < last; panel++) {
                    fill(panel % matrices, panel / matrices, k,
                         code_block(form.codes, block + geometry.panels_offset, form.in_features, panel, k));
                }
            }
            for (int64_t panel = first; panel < last; panel++) {
                sum += finisher.finish(
                    panel, std::min<int64_t>(panel_width, form.out_features - panel / matrices * panel_width));
            }
        }
        digest.fetch_add(sum, std::memory_order_relaxed);
    });
    return digest.load(std::memory_order_relaxed);
}

}  // namespace halyard

#endif
