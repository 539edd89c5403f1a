// From codes in the order of a file (core/code_formats.h) to panels: no number changes but for an offset that makes codes unsigned.
#include "cpu/linear/packing/repack.h"

#include "cpu/linear/packing/ordered_codes.h"
#include "cpu/linear/packing/pack_codes.h"

namespace halyard {
namespace {

/** Gives what is not there the codes that panels have there: that of 0. */
void fill_up(const CodeLayout &layout, int64_t inputs, int64_t columns, const CodeTarget &target) {
    const uint32_t ones = layout.bits == 4 ? 0x11111111 : 0x01010101;
    const int64_t rows = layout.code_rows(inputs);
    uint32_t there = 0;  // bits of the last row
    for (int64_t input = (rows - 1) * code_row_inputs(layout.bits); input < inputs; input++) {
        there |= ((1u << layout.bits) - 1) << code_shift(layout.bits, input % code_row_inputs(layout.bits));
    }
    const uint8_t *const last_zeros = target.zeros + (layout.groups(inputs) - 1) * panel_width;
    for (int64_t column = 0; column < columns; column++) {
        const uint32_t zero = layout.kind == ScaleKind::zero ? last_zeros[column] : layout.code_of_zero();
        uint32_t &last = target.words[rows - 1][column];
        last = (last & there) | (zero * ones & ~there);
    }
    for (int64_t row = 0; row < rows; row++) {
        for (int64_t column = columns; column < panel_width; column++) {
            target.words[row][column] = layout.code_of_zero() * ones;
        }
    }
}

/** Whether the magnitudes of all numbers, their bits but the sign's, are at most `most`. */
template<typename Bits>
bool all_within(const char *numbers, int64_t count, Bits most) {
    Bits beyond = 0;
    for (int64_t i = 0; i < count; i++) {
        Bits bits;
        memcpy(&bits, numbers + i * sizeof(Bits), sizeof(Bits));
        beyond |= static_cast<Bits>(bits << 1) > static_cast<Bits>(most << 1);
    }
    return beyond == 0;
}

/** Whether scales are finite and at most 2^100. */
bool sound(DType dtype, const char *scales, int64_t count) {
    return dtype == DType::f32   ? all_within<uint32_t>(scales, count, 0x71800000)
           : dtype == DType::f16 ? all_within<uint16_t>(scales, count, 0x7bff)
                                 : all_within<uint16_t>(scales, count, 0x7180);
}

}  // namespace

void repack(Checker &check, const halyard_context &context, const PackSources &sources, char *block) {
    const PackedForm &form = sources.form;
    const CodeLayout &layout = form.codes;
    const OrderedCodes ordered[] = {{check, context, sources.codes, form.in_features, form.out_features},
                                    {check, context, sources.up_codes, form.in_features, form.out_features}};
    if (check.failed()) {
        return;
    }
    std::atomic<bool> refused[2] = {};
    const auto fill = [&](int64_t matrix, int64_t panel, int64_t k, const CodeBlock<char> &target) {
        const CodeSource &source = ordered[matrix].source();
        const int64_t column = panel * panel_width,
                      columns = std::min<int64_t>(panel_width, form.out_features - column);
        const ScaleParts parts = layout.scale_parts(target.inputs);
        memset(target.scales, 0, static_cast<size_t>(parts.bytes));
        const CodeTarget to = {reinterpret_cast<uint32_t(*)[panel_width]>(target.codes), target.scales + parts.scales,
                               target.scales + parts.minima, reinterpret_cast<uint8_t *>(target.scales + parts.factors),
                               reinterpret_cast<uint8_t *>(target.scales + parts.zeros)};
        source.format->read(source, column, columns, k * k_block, target.inputs, to);
        fill_up(layout, target.inputs, columns, to);
        // Where there are no minima, they are the scales.
        const int64_t count = layout.scales(target.inputs) * panel_width;
        if (!sound(layout.scale_dtype, to.scales, count) || !sound(layout.scale_dtype, to.minima, count)) {
            refused[matrix].store(true, std::memory_order_relaxed);
        }
    };
    // A cache line of [in, out] rows of words holds 8 panels of AWQ.
    const uint64_t digest = write_codes(context, form, block, fill, sources.codes.format->transposed ? 8 : 1);
    for (int matrix = 0; matrix < 2; matrix++) {
        if (refused[matrix]) {
            const CodeSource &source = matrix == 0 ? sources.codes : sources.up_codes;
            check.fail(HALYARD_INVALID_ARGUMENT,
                       "%s holds scales that are NaN or Inf or larger than 2^100, with which no weight can be used",
                       (source.format->block_bytes != 0 ? source.codes : source.scales).memory.name);
        }
    }
    if (form.ordered) {
        ordered[0].write_order(reinterpret_cast<int32_t *>(block + order_offset(form.geometry.panels)));
    }
    if (!check.failed()) {
        write_header(block, form, digest);
    }
}

}  // namespace halyard
