// From codes in the order of a file (core/code_formats.h) to panels: no number changes but for an offset that makes codes unsigned.
#include "cpu/linear/repack.h"

#include "cpu/linear/pack_codes.h"

namespace halyard {
namespace {

/** Gives what is not there the codes that panels have there. */
void fill_up(const CodeLayout &layout, int64_t inputs, int64_t columns, CodeTile &tile) {
    const int64_t groups = layout.groups(inputs), row_inputs = code_row_inputs(layout.bits);
    const int64_t rest = (row_inputs - inputs % row_inputs) % row_inputs;
    for (int64_t column = 0; column < columns && rest > 0; column++) {
        const int zero =
            layout.kind == ScaleKind::zero ? tile.zeros[(groups - 1) * panel_width + column] : layout.code_of_zero();
        memset(tile.codes[column] + inputs, zero, rest);
    }
    for (int64_t column = columns; column < panel_width; column++) {
        memset(tile.codes[column], layout.code_of_zero(), inputs + rest);
    }
}

/** Codes by output to words [rows][16]. */
void store_words(const CodeLayout &layout, const CodeTile &tile, const CodeBlock<char> &block) {
    const auto four_codes = [&](int64_t column, int64_t input) {
        uint32_t codes;
        memcpy(&codes, tile.codes[column] + input, 4);
        return codes;
    };
    auto *const words = reinterpret_cast<uint32_t *>(block.codes);
    const int64_t rows = layout.code_rows(block.inputs);
    for (int64_t row = 0; row < rows; row++) {
        for (int64_t column = 0; column < panel_width; column++) {
            words[row * panel_width + column] =
                layout.bits == 8 ? four_codes(column, 4 * row)
                                 : four_codes(column, 8 * row) | four_codes(column, 8 * row + 4) << 4;
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
    std::atomic<bool> refused[2] = {};
    write_codes(context, form, block, [&](int64_t matrix, int64_t panel, int64_t k, const CodeBlock<char> &target) {
        const CodeSource &source = matrix == 0 ? sources.codes : sources.up_codes;
        const int64_t column = panel * panel_width,
                      columns = std::min<int64_t>(panel_width, form.out_features - column);
        const ScaleParts parts = layout.scale_parts(target.inputs);
        memset(target.scales, 0, static_cast<size_t>(parts.bytes));
        CodeTile tile;
        tile.scales = target.scales + parts.scales;
        tile.minima = target.scales + parts.minima;
        tile.factors = reinterpret_cast<uint8_t *>(target.scales + parts.factors);
        tile.zeros = reinterpret_cast<uint8_t *>(target.scales + parts.zeros);
        source.format->read(source, column, columns, k * k_block, target.inputs, tile);
        fill_up(layout, target.inputs, columns, tile);
        store_words(layout, tile, target);
        // Where there are no minima, they are the scales.
        const int64_t count = layout.scales(target.inputs) * panel_width;
        if (!sound(layout.scale_dtype, tile.scales, count) || !sound(layout.scale_dtype, tile.minima, count)) {
            refused[matrix].store(true, std::memory_order_relaxed);
        }
    });
    for (int matrix = 0; matrix < 2; matrix++) {
        if (refused[matrix]) {
            check.fail(HALYARD_INVALID_ARGUMENT,
                       "%s.%s holds scales that are NaN or Inf or larger than 2^100, with which no weight can be used",
                       matrix == 0 ? "codes" : "up", sources.codes.format->block_bytes != 0 ? "matrix" : "scales");
        }
    }
}

}  // namespace halyard
