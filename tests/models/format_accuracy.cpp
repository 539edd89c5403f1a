// halyard-format-accuracy: the table of docs/results/quantization.md. It quantizes a matrix of normally distributed weights in every
// format of GGUF, multiplies rows by it, and prints how far the products are from float64 ones of the same codes, as a part of the
// bounds of docs/numerics.md, and from those of the weights before; the same with x in 8 bits. With an argument it takes a matrix of
// that many rows and columns. Exits with 1 if an error is beyond its bound.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "block_encoders.h"
#include "halyard/halyard.hpp"

namespace {

using namespace halyard;

constexpr std::int64_t rows = 32;

std::vector<float> normal(std::int64_t count, double deviation, std::uint64_t seed) {
    std::mt19937_64 random(seed);
    std::normal_distribution<double> distribution(0, deviation);
    std::vector<float> values;
    for (std::int64_t i = 0; i < count; i++) {
        values.push_back(static_cast<float>(distribution(random)));
    }
    return values;
}

double relative_rms(const std::vector<double> &got, const std::vector<double> &exact) {
    double errors = 0, values = 0;
    for (std::size_t i = 0; i < got.size(); i++) {
        errors += (got[i] - exact[i]) * (got[i] - exact[i]);
        values += exact[i] * exact[i];
    }
    return std::sqrt(errors / values);
}

struct Matrix {
    std::int64_t size;
    std::vector<float> weights, x;  // [size, size], [rows, size]
    std::vector<double> exact;      // [rows, size]: x times the weights

    explicit Matrix(std::int64_t n)
        : size(n), weights(normal(n * n, 1 / std::sqrt(static_cast<double>(n)), 1)), x(normal(rows * n, 1, 2)) {
        exact = products(x, weights, false);
    }

    /** In float64, of the values or of their magnitudes. */
    std::vector<double> products(const std::vector<float> &left, const std::vector<float> &w,
                                 bool of_magnitudes) const {
        std::vector<double> result;
        for (std::int64_t row = 0; row < rows; row++) {
            for (std::int64_t n = 0; n < size; n++) {
                double sum = 0;
                for (std::int64_t k = 0; k < size; k++) {
                    const double term = static_cast<double>(left[static_cast<std::size_t>(row * size + k)]) *
                                        static_cast<double>(w[static_cast<std::size_t>(n * size + k)]);
                    sum += of_magnitudes ? std::abs(term) : term;
                }
                result.push_back(sum);
            }
        }
        return result;
    }

    /** The scale of each element of x in 8 bits. */
    std::vector<float> scales_of_x(std::int64_t unit) const {
        std::vector<float> scales(x.size());
        for (std::size_t first = 0; first < x.size(); first += static_cast<std::size_t>(unit)) {
            float largest = 0;
            for (std::size_t i = first; i < first + static_cast<std::size_t>(unit); i++) {
                largest = std::max(largest, std::abs(x[i]));
            }
            std::fill_n(&scales[first], unit, largest * (1.0f / 127.0f));
        }
        return scales;
    }

    std::vector<double> multiply(const Weights &packed, const std::vector<float> &input,
                                 Products products = Products::storage) const {
        Context context;
        context.set_products(products);
        std::vector<float> y(input.size());
        const Extents shape{static_cast<std::int64_t>(input.size()) / size, size};
        linear({input.data(), shape}, packed, {y.data(), shape}, context);
        return {y.begin(), y.end()};
    }
};

/** A matrix in blocks: its numbers, and its products as a part of their bounds. */
struct Result {
    std::vector<float> numbers;
    std::vector<double> y, rounded, in_8_bits;  // products, and those of x rounded to bf16 and to 8 bits
    double part_of_bound = 0, part_in_8_bits = 0;
};

Weights in_blocks(const Matrix &matrix, const models::BlockFormat &format, std::vector<float> &numbers) {
    const std::int64_t n = matrix.size, row_bytes = n / format.elements * format.bytes;
    std::vector<std::byte> blocks(static_cast<std::size_t>(n * row_bytes));
    for (std::int64_t row = 0; row < n; row++) {
        models::encode_blocks(format, &matrix.weights[static_cast<std::size_t>(row * n)], n,
                              &blocks[static_cast<std::size_t>(row * row_bytes)]);
    }
    Codes codes;
    codes.format = static_cast<CodeFormat>(*format.codes);
    codes.in_features = codes.out_features = n;
    codes.matrix = Integers(reinterpret_cast<const std::uint8_t *>(blocks.data()), {n, row_bytes});
    dequantize(codes, {numbers.data(), {n, n}});
    return Weights::pack_codes(codes);
}

Weights in_groups(const Matrix &matrix, const halyard_quantization &quantization, std::vector<float> &numbers) {
    const std::int64_t n = matrix.size;
    PackOptions options;
    options.quantization = quantization;
    Weights packed = Weights::pack({matrix.weights.data(), {n, n}}, options);
    // A row with a single 1 gives numbers as they are.
    std::vector<float> one(static_cast<std::size_t>(n));
    for (std::int64_t k = 0; k < n; k++) {
        one[static_cast<std::size_t>(k)] = 1;
        const std::vector<double> column = matrix.multiply(packed, one);
        for (std::int64_t out = 0; out < n; out++) {
            numbers[static_cast<std::size_t>(out * n + k)] = static_cast<float>(column[static_cast<std::size_t>(out)]);
        }
        one[static_cast<std::size_t>(k)] = 0;
    }
    return packed;
}

Result measure(const Matrix &matrix, const Weights &packed, std::vector<float> numbers) {
    Result result{std::move(numbers), matrix.multiply(packed, matrix.x), {}, {}};
    std::vector<bf16> narrow(matrix.x.size());
    cast(matrix.x, narrow);
    std::vector<float> y(narrow.size());
    linear({narrow.data(), {rows, matrix.size}}, packed, {y.data(), {rows, matrix.size}});
    result.rounded.assign(y.begin(), y.end());
    result.in_8_bits = matrix.multiply(packed, matrix.x, Products::int8);
    const std::int64_t group = packed.info().code_group == 0 ? 512 : packed.info().code_group;
    const auto g = static_cast<double>(group), groups = static_cast<double>((matrix.size + group - 1) / group);
    const std::vector<float> scales = matrix.scales_of_x(std::min<std::int64_t>(group, 32));
    const std::vector<double> exact = matrix.products(matrix.x, result.numbers, false),
                              magnitudes = matrix.products(matrix.x, result.numbers, true),
                              in_scales = matrix.products(scales, result.numbers, true);
    for (std::size_t i = 0; i < exact.size(); i++) {
        // |s| |x c| + |o| |x| is no less than |x w|, so that this is no more than the bound.
        const double bound = (g + 2 + 2 * groups) * 0x1p-24 * magnitudes[i];
        result.part_of_bound = std::max(result.part_of_bound, std::abs(result.y[i] - exact[i]) / bound);
        // The part of the bound that rounding x has: what f32 sums add to it is left out.
        const double of_x = (0.5 + 0x1p-15) * in_scales[i];
        result.part_in_8_bits = std::max(result.part_in_8_bits, std::abs(result.in_8_bits[i] - exact[i]) / of_x);
    }
    return result;
}

bool print(const std::string &name, double bits, const Matrix &matrix, const Result &result) {
    const std::vector<double> weights(matrix.weights.begin(), matrix.weights.end()),
        numbers(result.numbers.begin(), result.numbers.end());
    std::printf("| %s | %.2f | %.5f | %.5f | %.5f | %.5f | %.3f | %.3f |\n", name.c_str(), bits,
                relative_rms(numbers, weights), relative_rms(result.y, matrix.exact),
                relative_rms(result.rounded, matrix.exact), relative_rms(result.in_8_bits, matrix.exact),
                result.part_of_bound, result.part_in_8_bits);
    return result.part_of_bound <= 1 && result.part_in_8_bits <= 1;
}

}  // namespace

int main(int count, char **arguments) {
    const std::int64_t size = count > 1 ? std::atoll(arguments[1]) : 2048;
    if (size < 256 || size % 256 != 0 || size > 1 << 14) {
        std::fprintf(stderr, "halyard-format-accuracy: the argument is a multiple of 256 from 256 to 16384\n");
        return 2;
    }
    const Matrix matrix(size);
    std::vector<float> numbers(matrix.weights.size());
    bool is_right = true;
    std::printf(
        "| format | bits of a weight | error of weights | of products | of products with bf16 x | with x in 8 bits "
        "| f32 products, part of their bound | x in 8 bits, part of its |\n"
        "|---|---:|---:|---:|---:|---:|---:|---:|\n");
    for (const char *const name : {"Q8_0", "Q6_K", "Q5_K", "Q5_1", "Q5_0", "Q4_K", "Q4_1", "Q4_0"}) {
        const models::BlockFormat &format = *models::block_format(name);
        const Weights packed = in_blocks(matrix, format, numbers);
        const double bits = 8.0 * static_cast<double>(format.bytes) / static_cast<double>(format.elements);
        is_right = print(name, bits, matrix, measure(matrix, packed, numbers)) && is_right;
    }
    const struct {
        const char *name;
        halyard_quantization quantization;
    } others[] = {{"8 bits, a scale for an output", {8, 0, 0, {}}},
                  {"4 bits, groups of 32 with zeros", {4, 32, 1, {}}},
                  {"4 bits, groups of 128", {4, 128, 0, {}}},
                  {"4 bits, groups of 128 with zeros", {4, 128, 1, {}}}};
    for (const auto &[name, quantization] : others) {
        const Weights packed = in_groups(matrix, quantization, numbers);
        const double of_group = quantization.group == 0 ? static_cast<double>(size) : quantization.group;
        const double bits =
            quantization.bits + (16 + (quantization.asymmetric != 0 ? quantization.bits : 0)) / of_group;
        is_right = print(name, bits, matrix, measure(matrix, packed, numbers)) && is_right;
    }
    return is_right ? 0 : 1;
}
