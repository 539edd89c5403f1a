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
#include "cpu/linear/packing/quantize.h"

#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "core/cast.h"
#include "cpu/linear/packing/pack_codes.h"

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

/** The least and the largest of a group's inputs and 0, and the first of the largest magnitude. */
struct Extremes {
    float low[panel_width] = {}, high[panel_width] = {}, largest[panel_width] = {};
};

/** Where the elements of a panel's k block are. */
struct Source {
    const View &matrix;
    bool transposed;
    int64_t column, columns;
};

/** One k block of a panel at a time. */
class Quantizer {
public:
    Quantizer(const CodeLayout &layout, halyard_isa isa, Refused &refused)
        : layout_(layout), isa_(isa), refused_(refused) {}

    /** Takes the inputs from k on in, for groups that have more than one k block. */
    void widen_to(const Source &source, int64_t k, int64_t inputs, Extremes &extremes) {
        load(source, k, inputs);
        include(0, inputs, extremes);
    }

    /** `of_all`: those of groups of all inputs. */
    void run(const Source &source, int64_t k, const Extremes *of_all, const CodeBlock<char> &block) {
        load(source, k, block.inputs);
        const ScaleParts parts = layout_.scale_parts(block.inputs);
        memset(block.scales, 0, static_cast<size_t>(parts.bytes));
        const int64_t groups = layout_.groups(block.inputs);
        for (int64_t group = 0; group < groups; group++) {
            const int64_t begin = group * layout_.block_group(),
                          end = std::min<int64_t>(begin + layout_.block_group(), block.inputs);
            Extremes extremes;
            if (!of_all) {
                include(begin, end, extremes);
            }
            quantize(begin, end, of_all ? *of_all : extremes, scales_[group]);
            if (layout_.kind == ScaleKind::zero) {
                memcpy(block.scales + parts.zeros + group * panel_width, zeros_, panel_width);
            }
        }
        store_scales(groups, block.scales + parts.scales);
        store_codes(layout_, codes_, zeros_, block);
    }

private:
    /** As values_[input][column] in f32, columns that are not there being 0. */
    void load(const Source &source, int64_t k, int64_t inputs) {
        const View &matrix = source.matrix;
        const int64_t pitch = matrix.strides[0],
                      first = source.transposed ? source.column * pitch + k : k * pitch + source.column;
        const TypedRows rows = {matrix.data + first * size_of(matrix.dtype), matrix.dtype, pitch};
        memset(values_, 0, sizeof(values_));
        if (!source.transposed) {
            widen(isa_, rows, values_[0], panel_width, source.columns, inputs);
            return;
        }
        widen(isa_, rows, rows_[0], k_block, inputs, source.columns);
        for (int64_t input = 0; input < inputs; input++) {
            for (int64_t i = 0; i < source.columns; i++) {
                values_[input][i] = rows_[i][input];
            }
        }
    }

    void include(int64_t begin, int64_t end, Extremes &extremes) {
        int not_finite = 0;
        for (int64_t input = begin; input < end; input++) {
            for (int i = 0; i < panel_width; i++) {
                const float w = values_[input][i];
                uint32_t bits;
                memcpy(&bits, &w, 4);
                not_finite |= (bits & 0x7f800000) == 0x7f800000;
                extremes.low[i] = w < extremes.low[i] ? w : extremes.low[i];
                extremes.high[i] = w > extremes.high[i] ? w : extremes.high[i];
                extremes.largest[i] = std::fabs(w) > std::fabs(extremes.largest[i]) ? w : extremes.largest[i];
            }
        }
        if (not_finite != 0) {
            refused_.not_finite.store(true, std::memory_order_relaxed);
        }
    }

    /** A group: its codes and zeros, and what is to be stored as its scales. */
    void quantize(int64_t begin, int64_t end, const Extremes &e, float *scales) {
        const bool zeros = layout_.kind == ScaleKind::zero;
        const int most = (1 << layout_.bits) - 1;
        float inverse[panel_width];
        for (int i = 0; i < panel_width; i++) {
            const float d = zeros               ? (e.high[i] - e.low[i]) / static_cast<float>(most)
                            : layout_.bits == 8 ? std::fabs(e.largest[i]) / 127.0f
                                                : e.largest[i] / -8.0f;
            const bool counts = std::fabs(d) >= 0x1p-126f;
            scales[i] = counts ? d : 0.0f;
            inverse[i] = counts ? 1.0f / d : 0.0f;
            if (refused_.not_finite.load(std::memory_order_relaxed) || !(std::fabs(d) <= largest_scale)) {
                refused_.too_large.store(true, std::memory_order_relaxed);
                return;  // whatever is made of it
            }
            zeros_[i] =
                static_cast<uint8_t>(zeros ? std::min(most, nearest(-e.low[i] * inverse[i])) : layout_.code_of_zero());
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
    alignas(64) float values_[k_block][panel_width], rows_[panel_width][k_block],
        scales_[k_block / 16][panel_width] = {};
    alignas(64) uint8_t codes_[k_block][panel_width] = {};
    uint8_t zeros_[panel_width] = {};
};

}  // namespace

void quantize(Checker &check, const halyard_context &context, const PackSources &sources, char *block) {
    const PackedForm &form = sources.form;
    const halyard_isa isa = best_isa(context.max_isa);
    const int64_t panels = form.geometry.panels, matrices = form.gated ? 2 : 1;
    Refused refused;
    const auto source_of = [&](int64_t matrix, int64_t panel) {
        const int64_t column = panel * panel_width;
        return Source{matrix == 0 ? sources.weight : sources.up, sources.layout == HALYARD_WEIGHT_OUT_IN, column,
                      std::min<int64_t>(panel_width, form.out_features - column)};
    };
    Extremes *of_all = nullptr;
    if (form.codes.group == 0) {
        of_all = static_cast<Extremes *>(calloc(static_cast<size_t>(panels), sizeof(Extremes)));
        if (!of_all) {
            check.fail(HALYARD_OUT_OF_MEMORY, "no memory for the scales of %lld panels",
                       static_cast<long long>(panels));
            return;
        }
        run_ranges(context, panels, form.geometry.bytes, [&](int64_t begin, int64_t end) {
            Quantizer quantizer(form.codes, isa, refused);
            for (int64_t panel = begin; panel < end; panel++) {
                const Source source = source_of(panel % matrices, panel / matrices);
                for (int64_t k = 0; k < form.in_features; k += k_block) {
                    quantizer.widen_to(source, k, std::min<int64_t>(k_block, form.in_features - k), of_all[panel]);
                }
            }
        });
    }
    const uint64_t digest =
        write_codes(context, form, block, [&](int64_t matrix, int64_t panel, int64_t k, const CodeBlock<char> &target) {
            Quantizer(form.codes, isa, refused)
                .run(source_of(matrix, panel), k * k_block, of_all ? of_all + panel * matrices + matrix : nullptr,
                     target);
        });
    free(of_all);
    const char *const name = sources.weight.name, *const either = form.gated ? " or " : "",
                      *const up = form.gated ? sources.up.name : "";
    if (refused.not_finite) {
        check.fail(HALYARD_INVALID_ARGUMENT, "%s%s%s holds NaN or Inf, which cannot be quantized", name, either, up);
    } else if (refused.too_large) {
        check.fail(HALYARD_INVALID_ARGUMENT, "%s%s%s holds numbers that are too large for scales in %s", name, either,
                   up, dtype_name(form.codes.scale_dtype));
    } else {
        write_header(block, form, digest);
    }
}

}  // namespace halyard
