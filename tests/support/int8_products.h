// Products with quantized weights of rows in 8 bits, written down a second time from docs/numerics.md.
#ifndef HALYARD_TESTS_INT8_PRODUCTS_H
#define HALYARD_TESTS_INT8_PRODUCTS_H

#include <limits>

#include "support/coded_matrix.h"

namespace halyard::tests {

/** What products with a matrix take of one row. */
class Int8Row {
public:
    struct Unit {
        std::int64_t first, end;
        float scale;
    };

    Int8Row(const CodedMatrix &codes, const std::vector<float> &x) : numbers(x.size()) {
        const std::int64_t unit = codes.form.group == 16 ? 16 : 32;
        for (std::int64_t block = 0; block < codes.form.in; block += 512) {
            const std::int64_t last = std::min(codes.form.in, block + 512);
            for (std::int64_t first = block; first < last; first += unit) {
                round(x, first, std::min(last, first + unit));
            }
        }
    }

    std::vector<int> numbers;
    std::vector<Unit> units;

private:
    void round(const std::vector<float> &x, std::int64_t first, std::int64_t end) {
        const auto begin = x.begin() + first, after = x.begin() + end;
        if (!std::all_of(begin, after, [](float value) { return std::isfinite(value); })) {
            units.push_back({first, end, std::numeric_limits<float>::quiet_NaN()});
            return;
        }
        float largest = 0;
        std::for_each(begin, after, [&](float value) { largest = std::max(largest, std::abs(value)); });
        const float scale = largest < 0x1p-100f ? 0.0f : largest * (1.0f / 127.0f);
        for (std::int64_t k = first; k < end && scale > 0; k++) {
            const auto i = static_cast<std::size_t>(k);
            numbers[i] = static_cast<int>(std::nearbyint(x[i] * (1.0f / scale)));
        }
        units.push_back({first, end, scale});
    }
};

/** The products of a row with a column to the bit, where there is a fused multiply-add, and how far they may be from those of x
 *  and of the weights as they are. */
struct Int8Product {
    Int8Product(CodedMatrix &codes, int m, std::int64_t n, const std::vector<float> &x, const Int8Row &row) {
        const bool has_offsets =
            codes.form.kind != HALYARD_SCALE_PLAIN && codes.form.kind != HALYARD_SCALE_TWO_LEVELS_SIGNED;
        double roundings = 2, magnitude = 0;
        for (std::int64_t block = 0; block < codes.form.in; block += 512) {
            const std::int64_t block_end = std::min(codes.form.in, block + 512);
            for (const Int8Row::Unit &unit : row.units) {
                if (unit.first < block || unit.first >= block_end) {
                    continue;
                }
                const float weight_scale = codes.parts(m, unit.first, n).scale, both = weight_scale * unit.scale;
                std::int64_t sum = 0;
                for (std::int64_t k = unit.first; k < unit.end; k++) {
                    const auto i = static_cast<std::size_t>(k);
                    const auto c = static_cast<std::int64_t>(codes.parts(m, k, n).c);
                    sum += row.numbers[i] * c;
                    const double weight = codes.value(m, k, n);
                    exact += static_cast<double>(x[i]) * weight;
                    bound += std::abs(weight) * static_cast<double>(unit.scale) * (0.5 + std::exp2(-15));
                    magnitude += std::abs(static_cast<double>(unit.scale) * row.numbers[i]) *
                                 (std::abs(static_cast<double>(weight_scale) * static_cast<double>(c)) +
                                  std::abs(static_cast<double>(codes.parts(m, k, n).offset)));
                }
                value = std::fmaf(both, static_cast<float>(sum), value);
                roundings++;
            }
            codes.each_group([&](std::int64_t first, std::int64_t end) {
                if (!has_offsets || first < block || first >= block_end) {
                    return;
                }
                double of_group = 0;
                for (const Int8Row::Unit &unit : row.units) {
                    if (unit.first >= first && unit.first < end) {
                        std::int64_t sum = 0;
                        for (std::int64_t k = unit.first; k < unit.end; k++) {
                            sum += row.numbers[static_cast<std::size_t>(k)];
                        }
                        of_group += static_cast<double>(unit.scale) * static_cast<double>(sum);
                    }
                }
                value = std::fmaf(codes.parts(m, first, n).offset, static_cast<float>(of_group), value);
                roundings++;
            });
        }
        bound += roundings * std::exp2(-24) * magnitude + std::exp2(-145) * roundings;
    }

    float value = 0;
    double exact = 0, bound = 0;
};

}  // namespace halyard::tests

#endif
