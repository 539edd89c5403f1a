// Quantized matrices in the tests: codes and scales, the values that they stand for, and the packed bytes that hold them, written
// down a second time from the description in runtime/layout/code_panels.h.
#ifndef HALYARD_TESTS_CODED_MATRIX_H
#define HALYARD_TESTS_CODED_MATRIX_H

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "operations/quantized.h"
#include "support/packing.h"

namespace halyard::tests {

struct CodeForm {
    std::int64_t in = 1, out = 1;
    int bits = 8;
    halyard_scale_kind kind = HALYARD_SCALE_PLAIN;
    Dtype scales = Dtype::f16;
    int group = 32;
    bool gated = false;

    std::string describe() const {
        return "in " + std::to_string(in) + " out " + std::to_string(out) + (gated ? " gated " : " ") +
               std::to_string(bits) + " bits, kind " + std::to_string(kind) + ", groups of " + std::to_string(group) +
               " with scales in " + name_of(scales);
    }
    bool two_levels() const { return kind == HALYARD_SCALE_TWO_LEVELS || kind == HALYARD_SCALE_TWO_LEVELS_SIGNED; }
    std::int64_t group_of(std::int64_t k) const { return group == 0 ? 0 : k / group; }
    std::int64_t wide_group_of(std::int64_t k) const { return two_levels() ? k / 256 : group_of(k); }
};

class CodedMatrix {
public:
    explicit CodedMatrix(const CodeForm &f) : form(f) {
        const auto elements = static_cast<std::size_t>(f.in * f.out);
        for (Numbers &numbers : matrices) {
            numbers.codes.resize(elements);
            for (auto *const part : {&numbers.scales, &numbers.minima}) {
                part->resize(elements);  // as many as there can be
            }
            for (auto *const part : {&numbers.factors, &numbers.zeros}) {
                part->resize(elements);
            }
        }
    }

    /** Any codes and scales. Those of two levels are as GGUF has them: q of 5 bits and sc, mn of 6. */
    static CodedMatrix random(const CodeForm &f, std::uint64_t seed) {
        CodedMatrix made(f);
        for (int m = 0; m < 2; m++) {
            const auto draw = [&](std::uint64_t what, std::int64_t i, std::int64_t n) {
                return hash(seed * 64 + what * 2 + static_cast<std::uint64_t>(m), static_cast<std::uint64_t>(i),
                            static_cast<std::uint64_t>(n));
            };
            const bool gguf = f.kind == HALYARD_SCALE_TWO_LEVELS;
            for (std::int64_t k = 0; k < f.in; k++) {
                for (std::int64_t n = 0; n < f.out; n++) {
                    const std::uint64_t q = draw(1, k, n);
                    const std::uint64_t codes = f.bits == 4 ? 16 : gguf ? 32 : f.kind == HALYARD_SCALE_MIN ? 128 : 256;
                    made.code(m, k, n) = static_cast<std::uint8_t>(q % codes);
                    const std::int64_t g = f.group_of(k), w = f.wide_group_of(k);
                    made.scale(m, k, n) = encode(f.scales, (bell(seed + 1, w, n) + 0.1) / 64);
                    made.minimum(m, k, n) = encode(f.scales, bell(seed + 2, w, n) / 16);
                    made.factor(m, k, n) = static_cast<std::uint8_t>(draw(2, g, n) % (gguf ? 64 : 256));
                    made.zero(m, k, n) = static_cast<std::uint8_t>(draw(3, g, n) % (gguf          ? 64
                                                                                    : f.bits == 4 ? 17
                                                                                                  : 256));
                }
            }
        }
        return made;
    }

    const CodeForm form;

    std::uint8_t &code(int m, std::int64_t k, std::int64_t n) { return of(m).codes[at(k, n)]; }
    /** What the group of input k has: the bits of s or d, those of m or dmin, sc, and z or mn. */
    std::uint32_t &scale(int m, std::int64_t k, std::int64_t n) { return of(m).scales[at(form.wide_group_of(k), n)]; }
    std::uint32_t &minimum(int m, std::int64_t k, std::int64_t n) { return of(m).minima[at(form.wide_group_of(k), n)]; }
    std::uint8_t &factor(int m, std::int64_t k, std::int64_t n) { return of(m).factors[at(form.group_of(k), n)]; }
    std::uint8_t &zero(int m, std::int64_t k, std::int64_t n) { return of(m).zeros[at(form.group_of(k), n)]; }

    /** The value of a weight by its formula, in float64. */
    double value(int m, std::int64_t k, std::int64_t n) {
        const auto q = static_cast<double>(code(m, k, n)), z = static_cast<double>(zero(m, k, n));
        const double s = decode(form.scales, scale(m, k, n)), low = decode(form.scales, minimum(m, k, n));
        switch (form.kind) {
        case HALYARD_SCALE_PLAIN:
            return s * (q - (form.bits == 8 ? 128 : 8));
        case HALYARD_SCALE_ZERO:
            return s * (q - z);
        case HALYARD_SCALE_MIN:
            return s * q + low;
        case HALYARD_SCALE_TWO_LEVELS:
            return s * factor(m, k, n) * q - low * z;
        default:
            return s * static_cast<std::int8_t>(factor(m, k, n)) * (q - 128);
        }
    }

    /** As products take it: scale c + offset. */
    struct Parts {
        float c, scale, offset;
    };
    Parts parts(int m, std::int64_t k, std::int64_t n) {
        const auto s = static_cast<float>(decode(form.scales, scale(m, k, n))),
                   low = static_cast<float>(decode(form.scales, minimum(m, k, n))),
                   z = static_cast<float>(zero(m, k, n));
        const bool minima = form.kind == HALYARD_SCALE_MIN || form.kind == HALYARD_SCALE_TWO_LEVELS;
        const float center = form.bits == 4 ? 8.0f : minima ? 0.0f : 128.0f;
        Parts all = {static_cast<float>(code(m, k, n)) - center, s, 0};
        switch (form.kind) {
        case HALYARD_SCALE_PLAIN:
            break;
        case HALYARD_SCALE_ZERO:
            all.offset = s * (center - z);
            break;
        case HALYARD_SCALE_MIN:
            all.offset = std::fmaf(center, s, low);
            break;
        case HALYARD_SCALE_TWO_LEVELS:
            all.scale = s * static_cast<float>(factor(m, k, n));
            all.offset = std::fmaf(center, all.scale, -(low * z));
            break;
        default:
            all.scale = s * static_cast<float>(static_cast<std::int8_t>(factor(m, k, n)));
        }
        return all;
    }

    /** Inputs [first, end) that share parts, and k blocks of 512 their sums. */
    template<typename Visit>
    void each_group(const Visit &visit) const {
        for (std::int64_t block = 0; block < form.in; block += 512) {
            const std::int64_t last = std::min(form.in, block + 512), step = form.group == 0 ? 512 : form.group;
            for (std::int64_t first = block; first < last; first += step) {
                visit(first, std::min(last, first + step));
            }
        }
    }

    /** The products of rows of x with a matrix, [row][out], to the bit, where there is a fused multiply-add. */
    std::vector<std::vector<float>> products(int m, const std::vector<std::vector<float>> &x) {
        const auto in_order = [](std::int64_t count, const auto &value, const auto &number) {
            float sum = 0;
            for (std::int64_t i = 0; i < count; i++) {
                sum = std::fmaf(value(i), number(i), sum);
            }
            return sum;
        };
        return products(m, x, in_order, [](float a, float b, float c) { return std::fmaf(a, b, c); });
    }
    /** With other sums of a group, sum(count, x, numbers), and another multiply-add of these. */
    template<typename Sum, typename MultiplyAdd>
    std::vector<std::vector<float>> products(int m, const std::vector<std::vector<float>> &x, const Sum &sum_of,
                                             const MultiplyAdd &multiply_add) {
        std::vector<std::vector<float>> all(x.size(), std::vector<float>(static_cast<std::size_t>(form.out)));
        for (std::int64_t n = 0; n < form.out; n++) {
            each_group([&](std::int64_t first, std::int64_t end) {
                std::vector<Parts> weights;
                for (std::int64_t k = first; k < end; k++) {
                    weights.push_back(parts(m, k, n));
                }
                for (std::size_t row = 0; row < x.size(); row++) {
                    const auto value = [&](std::int64_t i) { return x[row][static_cast<std::size_t>(first + i)]; };
                    const float of_group = sum_of(
                        end - first, value, [&](std::int64_t i) { return weights[static_cast<std::size_t>(i)].c; });
                    float lanes[16] = {};
                    for (std::int64_t i = 0; i < end - first; i++) {
                        lanes[i % 16] += value(i);
                    }
                    for (int half = 8; half > 0; half /= 2) {
                        for (int lane = 0; lane < half; lane++) {
                            lanes[lane] += lanes[lane + half];
                        }
                    }
                    float &sum = all[row][static_cast<std::size_t>(n)];
                    sum = multiply_add(weights[0].offset, lanes[0], multiply_add(weights[0].scale, of_group, sum));
                }
            });
        }
        return all;
    }

    /** The packed bytes. */
    Bytes block() {
        const auto kind = static_cast<std::uint32_t>(form.kind), bits = static_cast<std::uint32_t>(form.bits),
                   dtype = static_cast<std::uint32_t>(form.scales);
        const auto group = static_cast<std::size_t>(form.group);
        const std::size_t matrices_there = form.gated ? 2 : 1, number = size_of(form.scales);
        const std::size_t panels = (static_cast<std::size_t>(form.out) + 15) / 16 * matrices_there;
        const std::size_t begin = panels_begin(16 * panels),
                          panel_bytes = code_panel_size(bits, kind, dtype, group, static_cast<std::size_t>(form.in));
        Bytes bytes(begin + panels * panel_bytes);
        std::uint8_t *const data = bytes.data();
        std::memcpy(data, "HALYARDW", 8);
        store_to<std::uint32_t>(data, packed::version, 3);
        store_to<std::uint32_t>(data, packed::gated, form.gated);
        store_to(data, packed::in_features, form.in);
        store_to(data, packed::out_features, form.out);
        store_to(data, packed::bytes, static_cast<std::int64_t>(bytes.size()));
        store_to(data, packed::code_bits, bits);
        store_to(data, packed::scale_kind, kind);
        store_to(data, packed::scale_dtype, dtype);
        store_to(data, packed::code_group, static_cast<std::uint32_t>(form.group));
        for (std::size_t panel = 0; panel < panels; panel++) {
            const int m = static_cast<int>(panel % matrices_there);
            std::uint8_t *place = data + begin + panel * panel_bytes;
            for (std::int64_t first = 0; first < form.in; first += 512) {
                const std::int64_t inputs = std::min<std::int64_t>(512, form.in - first);
                const std::int64_t span = form.group == 0 ? inputs : form.group,
                                   wide_span = form.two_levels() ? 256 : span;
                std::uint8_t *part = place;
                // One part after the other, each [groups][16].
                const auto put = [&](std::int64_t step, std::size_t size, const auto &stored) {
                    for (std::int64_t k = first; k < first + inputs; k += step) {
                        for (std::int64_t column = 0; column < 16; column++, part += size) {
                            const std::int64_t n = static_cast<std::int64_t>(panel / matrices_there) * 16 + column;
                            const std::uint32_t all = n < form.out ? stored(k, n) : 0;
                            std::memcpy(part, &all, size);
                        }
                    }
                };
                const auto put_zeros = [&] {
                    put(span, 1, [&](std::int64_t k, std::int64_t n) { return std::uint32_t{zero(m, k, n)}; });
                };
                put(wide_span, number, [&](std::int64_t k, std::int64_t n) { return scale(m, k, n); });
                if (form.kind == HALYARD_SCALE_MIN || form.kind == HALYARD_SCALE_TWO_LEVELS) {
                    put(wide_span, number, [&](std::int64_t k, std::int64_t n) { return minimum(m, k, n); });
                }
                if (form.two_levels()) {
                    put(span, 1, [&](std::int64_t k, std::int64_t n) { return std::uint32_t{factor(m, k, n)}; });
                }
                if (form.kind == HALYARD_SCALE_ZERO || form.kind == HALYARD_SCALE_TWO_LEVELS) {
                    put_zeros();
                }
                place += scale_bytes(kind, dtype, group, static_cast<std::size_t>(inputs));
                const std::int64_t in_row = 32 / form.bits, rows = (inputs + in_row - 1) / in_row;
                for (std::int64_t i = 0; i < rows * in_row; i++) {
                    for (std::int64_t column = 0; column < 16; column++) {
                        const std::int64_t n = static_cast<std::int64_t>(panel / matrices_there) * 16 + column,
                                           k = first + i;
                        const std::uint32_t q =
                            n < form.out && i < inputs ? code(m, k, n) : code_of_nothing(m, n, first + inputs - 1);
                        std::uint8_t *const word = place + i / in_row * 64 + column * 4;
                        if (form.bits == 8) {
                            word[i % 4] = static_cast<std::uint8_t>(q);
                        } else {
                            word[i % 4] = static_cast<std::uint8_t>(word[i % 4] | q << (i % 8 < 4 ? 0 : 4));
                        }
                    }
                }
                place += code_bytes(bits, static_cast<std::size_t>(inputs));
            }
            for (std::int64_t column = 0; column < 16; column++) {
                const std::int64_t n = static_cast<std::int64_t>(panel / matrices_there) * 16 + column;
                double sum = 0;
                each_group([&](std::int64_t group, std::int64_t end) {
                    double codes = 0;
                    for (std::int64_t k = group; n < form.out && k < end; k++) {
                        codes += static_cast<double>(parts(m, k, n).c);
                    }
                    const Parts all = n < form.out ? parts(m, group, n) : Parts{};
                    sum += static_cast<double>(all.scale) * codes +
                           static_cast<double>(all.offset) * static_cast<double>(end - group);
                });
                store_to(data, packed::header_size + 4 * (16 * panel + static_cast<std::size_t>(column)),
                         static_cast<float>(sum));
            }
        }
        sign(data, bytes.size());
        return bytes;
    }

private:
    struct Numbers {
        std::vector<std::uint8_t> codes, factors, zeros;
        std::vector<std::uint32_t> scales, minima;
    };

    Numbers &of(int m) { return matrices[m]; }
    std::size_t at(std::int64_t row, std::int64_t n) const { return static_cast<std::size_t>(row * form.out + n); }
    /** What fills a panel up: the code of 0 where there is one, in the group of input k. */
    std::uint32_t code_of_nothing(int m, std::int64_t n, std::int64_t k) {
        return form.kind == HALYARD_SCALE_PLAIN                  ? (form.bits == 8 ? 128 : 8)
               : form.kind == HALYARD_SCALE_TWO_LEVELS_SIGNED    ? 128
               : form.kind == HALYARD_SCALE_ZERO && n < form.out ? zero(m, k, n)
                                                                 : 0;
    }

    Numbers matrices[2];
};

/** What quantization at packing must make of a matrix. */
template<typename Element>
CodedMatrix quantized(const CodeForm &form, const Element &element) {
    CodedMatrix made(form);
    const std::int64_t span = form.group == 0 ? form.in : form.group;
    for (int m = 0; m <= (form.gated ? 1 : 0); m++) {
        for (std::int64_t n = 0; n < form.out; n++) {
            for (std::int64_t first = 0; first < form.in; first += span) {
                Row weights;
                for (std::int64_t k = first; k < std::min(form.in, first + span); k++) {
                    weights.push_back(static_cast<double>(element(m, k, n)));
                }
                const operations::QuantizedGroup group =
                    operations::quantized_group(weights, form.bits, form.kind == HALYARD_SCALE_ZERO);
                made.scale(m, first, n) = encode(form.scales, static_cast<double>(group.scale));
                made.zero(m, first, n) = static_cast<std::uint8_t>(group.zero);
                for (std::size_t i = 0; i < group.codes.size(); i++) {
                    made.code(m, first + static_cast<std::int64_t>(i), n) = static_cast<std::uint8_t>(group.codes[i]);
                }
            }
        }
    }
    return made;
}

/** Bytes at an address that is a multiple of 64. */
class AlignedBytes {
public:
    AlignedBytes(const std::uint8_t *source, std::size_t size)
        : count(size), memory(std::aligned_alloc(64, (std::max<std::size_t>(size, 1) + 63) / 64 * 64)) {
        if (size > 0) {
            std::memcpy(memory, source, size);
        }
    }
    explicit AlignedBytes(const Bytes &source) : AlignedBytes(source.data(), source.size()) {}
    ~AlignedBytes() { std::free(memory); }
    AlignedBytes(const AlignedBytes &) = delete;
    AlignedBytes &operator=(const AlignedBytes &) = delete;

    std::uint8_t *data() const { return static_cast<std::uint8_t *>(memory); }
    std::size_t size() const { return count; }

private:
    std::size_t count;
    void *memory;
};

inline halyard_status from_memory(const AlignedBytes &bytes, halyard_weights **weights) {
    return halyard_weights_from_memory(bytes.data(), static_cast<std::int64_t>(bytes.size()), weights);
}

/** Packed bytes in memory of their own, and a handle. */
class Loaded {
public:
    explicit Loaded(const Bytes &bytes) : memory(bytes) {
        EXPECT_EQ(from_memory(memory, &weights), HALYARD_OK) << halyard_last_error();
    }
    ~Loaded() { halyard_weights_destroy(weights); }
    Loaded(const Loaded &) = delete;
    Loaded &operator=(const Loaded &) = delete;

    const halyard_weights *get() const { return weights; }

private:
    const AlignedBytes memory;
    halyard_weights *weights = nullptr;
};

inline std::vector<std::vector<float>> floats_of(const Tensor &x) {
    std::vector<std::vector<float>> rows;
    for (std::int64_t row = 0; row < x.rows(); row++) {
        rows.emplace_back();
        for (std::int64_t k = 0; k < x.width(); k++) {
            rows.back().push_back(static_cast<float>(x.get(row, k)));
        }
    }
    return rows;
}

inline const std::vector<int> code_groups = {16, 32, 64, 128, 256, 0};

/** Every kind with every width, group and dtype of scales that it may have. */
inline std::vector<CodeForm> all_code_forms() {
    std::vector<CodeForm> forms;
    for (const int bits : {8, 4}) {
        for (const halyard_scale_kind kind : {HALYARD_SCALE_PLAIN, HALYARD_SCALE_ZERO, HALYARD_SCALE_MIN}) {
            for (const int group : code_groups) {
                for (const Dtype scales : all_dtypes) {
                    if (kind != HALYARD_SCALE_MIN || scales != Dtype::f32) {
                        forms.push_back({1, 1, bits, kind, scales, group, false});
                    }
                }
            }
        }
        forms.push_back({1, 1, bits, HALYARD_SCALE_TWO_LEVELS, Dtype::f16, 32, false});
    }
    forms.push_back({1, 1, 8, HALYARD_SCALE_TWO_LEVELS_SIGNED, Dtype::f16, 16, false});
    return forms;
}

}  // namespace halyard::tests

#endif
