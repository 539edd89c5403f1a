// Quantization of a matrix, group by group of a column's inputs, by rounding to nearest: what halyard_quantization defines.
//
// Plain codes are those of ggml's Q8_0 and Q4_0; with zeros lo and hi are the least and the largest weight of the group and 0.
//
//   plain, 8 bits   d = max |w| / 127             q = round(w / d) + 128
//   plain, 4 bits   d = (w of max |w|) / -8       q = min(15, trunc(w / d + 8.5))
//   zero            d = (hi - lo) / (2^bits - 1)  z = round(-lo / d), q = round(w / d) + z, both within 0 .. 2^bits - 1
//
// All in f32; w / d is w times the rounded 1 / d; halves are rounded away from 0. d is stored rounded to the scales' dtype, which
// codes do not see. A d below 2^-126 in magnitude counts as 0, and so does w / d then.
#include "cpu/linear/quantize.h"

#include <atomic>
#include <cmath>
#include <cstring>

#include "core/cast.h"
#include "cpu/linear/pack_codes.h"

namespace halyard {
namespace {

constexpr float largest_scale = 0x1p100f;

/** Rounded to nearest, halves away from 0. */
int nearest(float x) {
    const int whole = static_cast<int>(x);
    const float rest = x - static_cast<float>(whole);
    return whole + (rest >= 0.5f) - (rest <= -0.5f);
}

/** What a matrix may hold that codes cannot. */
struct Refused {
    std::atomic<bool> not_finite{false}, too_large{false};
};

/** One k block of a panel at a time. */
class Quantizer {
public:
    Quantizer(const CodeLayout &layout, halyard_isa isa, Refused &refused)
        : layout_(layout), isa_(isa), refused_(refused) {}

    /** Some inputs of some columns of a matrix, from one element on. */
    void run(const View &matrix, bool transposed, int64_t k, int64_t column, int64_t columns,
             const CodeBlock<char> &block) {
        load(matrix, transposed, k, column, columns, block.inputs);
        const ScaleParts parts = layout_.scale_parts(block.inputs);
        memset(block.scales, 0, static_cast<size_t>(parts.bytes));
        const int64_t groups = layout_.groups(block.inputs);
        for (int64_t group = 0; group < groups; group++) {
            const int64_t begin = group * layout_.block_group();
            quantize(begin, std::min<int64_t>(begin + layout_.block_group(), block.inputs), scales_[group]);
            if (layout_.kind == ScaleKind::zero) {
                memcpy(block.scales + parts.zeros + group * panel_width, zeros_, panel_width);
            }
        }
        store_scales(groups, block.scales + parts.scales);
        store_codes(layout_, codes_, zeros_, block);
    }

private:
    /** As values_[input][column] in f32, columns that are not there being 0. */
    void load(const View &matrix, bool transposed, int64_t k, int64_t column, int64_t columns, int64_t inputs) {
        const int64_t pitch = matrix.strides[0];
        const char *const data =
            matrix.data + (transposed ? column * pitch + k : k * pitch + column) * size_of(matrix.dtype);
        const TypedRows rows = {const_cast<char *>(data), matrix.dtype, pitch};
        memset(values_, 0, sizeof(values_));
        if (!transposed) {
            widen(isa_, rows, values_[0], panel_width, columns, inputs);
            return;
        }
        widen(isa_, rows, rows_[0], k_block, inputs, columns);
        for (int64_t input = 0; input < inputs; input++) {
            for (int64_t i = 0; i < columns; i++) {
                values_[input][i] = rows_[i][input];
            }
        }
    }

    /** A group: its codes and zeros, and what is to be stored as its scales. */
    void quantize(int64_t begin, int64_t end, float *scales) {
        float low[panel_width] = {}, high[panel_width] = {};
        uint32_t exponents = 0;
        float largest[panel_width] = {};  // the first of the largest magnitude
        for (int64_t input = begin; input < end; input++) {
            for (int i = 0; i < panel_width; i++) {
                const float w = values_[input][i];
                uint32_t bits;
                memcpy(&bits, &w, 4);
                exponents |= (bits & 0x7f800000) == 0x7f800000;
                low[i] = w < low[i] ? w : low[i];
                high[i] = w > high[i] ? w : high[i];
                largest[i] = std::fabs(w) > std::fabs(largest[i]) ? w : largest[i];
            }
        }
        if (exponents != 0) {
            refused_.not_finite.store(true, std::memory_order_relaxed);
            return;
        }
        const bool zeros = layout_.kind == ScaleKind::zero;
        const int most = (1 << layout_.bits) - 1;
        float inverse[panel_width];
        for (int i = 0; i < panel_width; i++) {
            const float d = zeros               ? (high[i] - low[i]) / static_cast<float>(most)
                            : layout_.bits == 8 ? std::fabs(largest[i]) / 127.0f
                                                : largest[i] / -8.0f;
            const bool counts = std::fabs(d) >= 0x1p-126f;
            scales[i] = counts ? d : 0.0f;
            inverse[i] = counts ? 1.0f / d : 0.0f;
            zeros_[i] =
                static_cast<uint8_t>(zeros ? std::min(most, nearest(-low[i] * inverse[i])) : layout_.code_of_zero());
            if (!(std::fabs(d) <= largest_scale)) {
                refused_.too_large.store(true, std::memory_order_relaxed);
                return;
            }
        }
        for (int64_t input = begin; input < end; input++) {
            for (int i = 0; i < panel_width; i++) {
                const float quotient = values_[input][i] * inverse[i];
                const int code =
                    layout_.bits == 4 && !zeros ? static_cast<int>(quotient + 8.5f) : nearest(quotient) + zeros_[i];
                codes_[input][i] = static_cast<uint8_t>(std::max(0, std::min(most, code)));
            }
        }
    }

    void store_scales(int64_t groups, char *target) {
        const TypedRows rounded = {target, layout_.scale_dtype};
        cast(isa_, {reinterpret_cast<char *>(scales_[0]), DType::f32}, rounded, groups * panel_width, 1);
        for (int64_t i = 0; i < groups * panel_width; i++) {
            if (!(std::fabs(widened(layout_.scale_dtype, target + i * size_of(layout_.scale_dtype))) <=
                  largest_scale)) {
                refused_.too_large.store(true, std::memory_order_relaxed);
            }
        }
    }

    const CodeLayout &layout_;
    const halyard_isa isa_;
    Refused &refused_;
    alignas(64) float values_[k_block][panel_width], rows_[panel_width][k_block], scales_[k_block / 16][panel_width];
    alignas(64) uint8_t codes_[k_block][panel_width];
    uint8_t zeros_[panel_width];
};

}  // namespace

void quantize(Checker &check, const halyard_context &context, const PackSources &sources, char *block) {
    const PackedForm &form = sources.form;
    Refused refused;
    write_codes(context, form, block, [&](int64_t matrix, int64_t panel, int64_t k, const CodeBlock<char> &target) {
        const int64_t column = panel * panel_width;
        Quantizer(form.codes, best_isa(context.max_isa), refused)
            .run(matrix == 0 ? sources.weight : sources.up, sources.layout == HALYARD_WEIGHT_OUT_IN, k * k_block,
                 column, std::min<int64_t>(panel_width, form.out_features - column), target);
    });
    const char *const names = form.gated ? "weight or up" : "weight";
    if (refused.not_finite) {
        check.fail(HALYARD_INVALID_ARGUMENT, "%s holds NaN or Inf, which cannot be quantized", names);
    } else if (refused.too_large) {
        check.fail(HALYARD_INVALID_ARGUMENT, "%s holds numbers that are too large for scales in %s", names,
                   dtype_name(form.codes.scale_dtype));
    }
}

}  // namespace halyard
