// From codes in the order of a file (core/code_formats.h) to the numbers that they stand for.
#include "core/cast.h"
#include "core/handles/packed_weights.h"
#include "cpu/backend.h"
#include "cpu/linear/packing/ordered_codes.h"

namespace halyard {
namespace {

/** Reads k blocks of 16 outputs at a time, and makes numbers of them. */
class Dequantizer {
public:
    Dequantizer(const OrderedCodes &codes, const View &y, halyard_isa isa)
        : source_(codes.source()), order_(codes.order()), layout_(source_.layout), y_(y), isa_(isa) {}

    /** Numbers of a k block of outputs [output, output + outputs), at most 16. */
    void run(int64_t output, int64_t outputs, int64_t block) {
        const int64_t k = block * k_block, inputs = CodeLayout::block_inputs(y_.width(), block);
        parts_ = layout_.scale_parts(inputs);
        source_.format->read(source_, output, outputs, k, inputs,
                             {words_, scales_ + parts_.scales, scales_ + parts_.minima,
                              reinterpret_cast<uint8_t *>(scales_ + parts_.factors),
                              reinterpret_cast<uint8_t *>(scales_ + parts_.zeros)});
        for (int64_t column = 0; column < outputs; column++) {
            char *const row = y_.data + (output + column) * y_.strides[0] * size_of(y_.dtype);
            char *const to = row + k * size_of(y_.dtype);
            if (y_.dtype == DType::f32 && !order_) {
                write(column, inputs, reinterpret_cast<float *>(to));
                continue;
            }
            write(column, inputs, numbers_);
            cast(isa_, {reinterpret_cast<char *>(numbers_), DType::f32}, {order_ ? in_order_ : to, y_.dtype}, inputs,
                 1);
            if (order_ && y_.dtype == DType::f32) {
                scatter<uint32_t>(order_ + k, inputs, row);
            } else if (order_) {
                scatter<uint16_t>(order_ + k, inputs, row);
            }
        }
    }

private:
    /** What a group makes of a code q: scale (q - center) + offset. An offset of -0 leaves zeros their sign. */
    struct Formula {
        float scale, center, offset;
    };

    Formula formula(int64_t group, int64_t column) const {
        const int64_t place = group * panel_width + column,
                      wide = layout_.two_levels() ? group * layout_.group / super_group * panel_width + column : place;
        const auto number = [&](int64_t part) {
            return widened(layout_.scale_dtype, scales_ + part + wide * size_of(layout_.scale_dtype));
        };
        const auto small = [&](int64_t part) { return static_cast<uint8_t>(scales_[part + place]); };
        const float scale = number(parts_.scales);
        switch (layout_.kind) {
        case ScaleKind::zero:
            return {scale, static_cast<float>(small(parts_.zeros)), -0.0f};
        case ScaleKind::minimum:
            return {scale, 0.0f, number(parts_.minima)};
        case ScaleKind::two_levels:
            return {scale * static_cast<float>(small(parts_.factors)), 0.0f,
                    -(number(parts_.minima) * static_cast<float>(small(parts_.zeros)))};
        case ScaleKind::two_levels_signed:
            return {scale * static_cast<float>(static_cast<int8_t>(small(parts_.factors))), 128.0f, -0.0f};
        case ScaleKind::plain:
            break;
        }
        return {scale, static_cast<float>(layout_.code_of_zero()), -0.0f};
    }

    /** Codes of one output in the order of their inputs. */
    void gather(int64_t column, int64_t inputs) {
        const auto put = [&](int64_t at, uint32_t four) { memcpy(codes_ + at, &four, 4); };
        const bool bytes = layout_.bits == 8;
        const int64_t rows = layout_.code_rows(inputs);
        for (int64_t row = 0; row < rows; row++) {
            const uint32_t word = words_[row][column];
            if (bytes) {
                put(4 * row, word);
            } else {
                put(8 * row, word & 0x0f0f0f0f);
                put(8 * row + 4, word >> 4 & 0x0f0f0f0f);
            }
        }
    }

    void write(int64_t column, int64_t inputs, float *to) {
        gather(column, inputs);
        const int64_t groups = layout_.groups(inputs);
        for (int64_t group = 0; group < groups; group++) {
            const Formula f = formula(group, column);
            const int64_t first = group * layout_.block_group(),
                          end = std::min<int64_t>(first + layout_.block_group(), inputs);
            for (int64_t i = first; i < end; i++) {
                to[i] = f.scale * (static_cast<float>(codes_[i]) - f.center) + f.offset;
            }
        }
    }

    /** Numbers of inputs in the order of their groups to where they are in a row of y. */
    template<typename Bits>
    void scatter(const int32_t *order, int64_t inputs, char *row) const {
        for (int64_t i = 0; i < inputs; i++) {
            memcpy(row + order[i] * sizeof(Bits), in_order_ + i * sizeof(Bits), sizeof(Bits));
        }
    }

    // Groups have 16 inputs or more, and at most 5 bytes of an output: s in f32 and z.
    static constexpr int most_scale_bytes = k_block / 16 * panel_width * 5;

    const CodeSource &source_;
    const int32_t *const order_;
    const CodeLayout &layout_;
    const View &y_;
    const halyard_isa isa_;
    ScaleParts parts_;
    alignas(64) char scales_[most_scale_bytes];
    alignas(64) uint32_t words_[k_block / 4][panel_width];
    alignas(64) uint8_t codes_[k_block];
    alignas(64) float numbers_[k_block];
    alignas(64) char in_order_[k_block * sizeof(float)];
};

}  // namespace

void cpu::dequantize(Checker &check, const halyard_context &context, const DequantizeCall &call) {
    const OrderedCodes codes(check, context, call.codes, call.y.width(), call.y.shape[0]);
    if (check.failed()) {
        return;
    }
    const int64_t outputs = call.y.shape[0], bytes = call.y.elements * size_of(call.y.dtype);
    run_ranges(context, (outputs + panel_width - 1) / panel_width, bytes, [&](int64_t begin, int64_t end) {
        Dequantizer dequantizer(codes, call.y, best_isa(context.max_isa));
        // Panels side by side share cache lines where the source is [in, out].
        for (int64_t block = 0; block < CodeLayout::blocks(call.y.width()); block++) {
            for (int64_t output = begin * panel_width; output < end * panel_width; output += panel_width) {
                dequantizer.run(output, std::min<int64_t>(panel_width, outputs - output), block);
            }
        }
    });
}

}  // namespace halyard
