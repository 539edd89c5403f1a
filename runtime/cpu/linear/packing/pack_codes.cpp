// What follows from the codes and scales of a panel.
#include "cpu/linear/packing/pack_codes.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace halyard {

CodePanelFinisher::CodePanelFinisher(const PackedForm &form, halyard_isa isa, char *block)
    : form_(form), codes_(form.codes, isa), column_sums_(reinterpret_cast<float *>(block + sizeof(PackedHeader))),
      panels_(block + form.geometry.panels_offset) {}

uint64_t CodePanelFinisher::finish(int64_t panel, int64_t columns) {
    double sums[panel_width] = {};
    Buffer<3> numbers;
    Buffer<4> scales;
    for (int64_t block = 0; block < CodeLayout::blocks(form_.in_features); block++) {
        const CodePanels codes = {form_.codes, code_block(form_.codes, panels_, form_.in_features, panel, block), 0, 1};
        codes_.expand(codes, expanded_, scales);
        codes_.widen(codes, wide_, 0, numbers);
        for (int64_t group = 0; group < codes.groups(); group++) {
            const int64_t first = group * form_.codes.block_group(),
                          end = std::min<int64_t>(first + form_.codes.block_group(), codes.first.inputs);
            // Numbers of 8 bits: their sums are exact.
            float of_group[panel_width] = {};
            for (int64_t input = first; input < end; input++) {
                for (int column = 0; column < panel_width; column++) {
                    of_group[column] += wide_[input * panel_width + column];
                }
            }
            const float *const scale = expanded_ + group * scale_vectors * panel_width;
            const float *const offset = scale + panel_width;
            for (int column = 0; column < panel_width; column++) {
                sums[column] += static_cast<double>(scale[column]) * static_cast<double>(of_group[column]) +
                                static_cast<double>(offset[column]) * static_cast<double>(end - first);
            }
        }
    }
    for (int64_t column = 0; column < columns; column++) {
        column_sums_[panel * panel_width + column] = static_cast<float>(sums[column]);
    }
    const int64_t bytes = form_.geometry.panel_bytes;
    return XXH3_64bits_withSeed(panels_ + panel * bytes, bytes, panel_seed(panel));
}

}  // namespace halyard
