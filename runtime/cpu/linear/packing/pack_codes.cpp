// What follows from the codes and scales of a panel.
#include "cpu/linear/packing/pack_codes.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace halyard {

CodePanelFinisher::CodePanelFinisher(const PackedForm &form, halyard_isa isa, char *block)
    : form_(form), codes_(form.codes, isa), add_(kernel_function(kernels::pack_sums, DType::f32, isa)),
      column_sums_(reinterpret_cast<float *>(block + sizeof(PackedHeader))),
      panels_(block + panels_offset(form.geometry.panels)) {}

uint64_t CodePanelFinisher::finish(int64_t panel, int64_t columns) {
    double sums[panel_width] = {};
    Buffer<1, double> total;
    Buffer<1> no_factor;
    Buffer<2> wide;
    Buffer<4, float> scales;
    total.set(sums, panel_width);
    no_factor.set(nullptr, 0);
    wide.set_data(wide_);
    wide.set_dim(0, panel_width, 1);
    for (int64_t block = 0; block < CodeLayout::blocks(form_.in_features); block++) {
        const CodePanels codes = {form_.codes, code_block(form_.codes, panels_, form_.in_features, panel, block), 0, 1};
        codes_.expand(codes, expanded_, scales);
        codes_.widen(codes, scales, wide_, 0);
        wide.set_dim(1, codes.first.inputs, panel_width);
        add_({.panel = wide,
              .factor = no_factor,
              .inputs = static_cast<int32_t>(codes.first.inputs),
              .so_far = total,
              .sums = total});
    }
    for (int64_t column = 0; column < columns; column++) {
        column_sums_[panel * panel_width + column] = static_cast<float>(sums[column]);
    }
    const int64_t bytes = form_.geometry.panel_bytes;
    return XXH3_64bits_withSeed(panels_ + panel * bytes, bytes, panel_seed(panel));
}

}  // namespace halyard
