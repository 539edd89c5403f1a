// Matrices to pack, in guarded memory, and the packed bytes that are expected: a second implementation of the format that
// runtime/core/handles/weights.h describes.
#ifndef HALYARD_TESTS_PACKING_H
#define HALYARD_TESTS_PACKING_H

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "support/invocation.h"
#include "support/packed_block.h"

namespace halyard::tests {

using Bytes = std::vector<std::uint8_t>;

struct DestroyWeights {
    void operator()(halyard_weights *weights) const { halyard_weights_destroy(weights); }
};
using PackedWeights = std::unique_ptr<halyard_weights, DestroyWeights>;

/** Memory for a block. */
class AlignedMemory {
public:
    explicit AlignedMemory(std::int64_t bytes) : bytes_(static_cast<std::size_t>(bytes) + 63), size_(bytes) {}

    std::uint8_t *data() const {
        return bytes_.data() + (64 - reinterpret_cast<std::uintptr_t>(bytes_.data()) % 64) % 64;
    }
    std::int64_t size() const { return size_; }

    testing::AssertionResult holds_no_weights() const {
        halyard_weights *weights = nullptr;
        const halyard_status status = halyard_weights_from_memory(data(), size_, &weights);
        halyard_weights_destroy(weights);
        return status == HALYARD_INVALID_ARGUMENT ? testing::AssertionSuccess()
                                                  : testing::AssertionFailure() << "it is a block of weights";
    }

private:
    mutable Bytes bytes_;
    std::int64_t size_;
};

struct MatrixForm {
    Dtype type = Dtype::f32;
    std::int64_t in = 1, out = 1;
    halyard_weight_layout layout = HALYARD_WEIGHT_OUT_IN;
    bool gated = false, norm_weight = false, norm_bias = false, unit_offset = false;
    std::int64_t gap = 0;  // elements between rows
    Placement placement = Placement::ends_at_guard;
    bool f32_norm_weight = false, f32_norm_bias = false;  // whatever the matrix is

    std::string describe() const {
        return std::string(name_of(type)) + (layout == HALYARD_WEIGHT_OUT_IN ? " [out, in] " : " [in, out] ") + "in " +
               std::to_string(in) + " out " + std::to_string(out) + (gated ? " gated" : "") +
               (norm_weight ? " weight" : "") + (norm_bias ? " bias" : "") + (unit_offset ? " offset" : "") + " gap " +
               std::to_string(gap) + (f32_norm_weight ? " f32 weight" : "") + (f32_norm_bias ? " f32 bias" : "");
    }
};

/** The bits of an element: of matrix 0 or 1, or of norm weight (2) and bias (3). */
using Contents = std::function<std::uint32_t(Dtype type, int which, std::int64_t k, std::int64_t n)>;

inline std::uint32_t ordinary(Dtype type, int which, std::int64_t k, std::int64_t n) {
    return encode(type, bell(static_cast<std::uint64_t>(which) + 5, k, n) / 2 + (which == 2 ? 1 : 0));
}

/** Any bits at all: NaN, Inf and denormals among them. */
inline std::uint32_t any_bits(Dtype type, int which, std::int64_t k, std::int64_t n) {
    const std::uint64_t random =
        hash(static_cast<std::uint64_t>(which) + 50, static_cast<std::uint64_t>(k), static_cast<std::uint64_t>(n));
    const auto bits = static_cast<std::uint32_t>(random >> 20);
    switch (random % 8) {
    case 0:
        return encode(type, std::numeric_limits<double>::infinity()) | (bits & 1 ? encode(type, -0.0) : 0);
    case 1:
        return encode(type, random & 64 ? -0.0 : 0.0);
    default:
        return type == Dtype::f32 ? bits : bits & 0xffff;
    }
}

/** What is to be packed, in guarded memory. */
class PackSource {
public:
    explicit PackSource(const MatrixForm &f, const Contents &contents = ordinary)
        : form(f), weight(f.type, matrix_form()), up(f.type, matrix_form()),
          norm_weight(f.f32_norm_weight ? Dtype::f32 : f.type, vector_form()),
          norm_bias(f.f32_norm_bias ? Dtype::f32 : f.type, vector_form()) {
        Tensor *const matrices[] = {&weight, &up};
        for (int which = 0; which < 2; which++) {
            for (std::int64_t k = 0; k < f.in; k++) {
                for (std::int64_t n = 0; n < f.out; n++) {
                    if (f.layout == HALYARD_WEIGHT_OUT_IN) {
                        matrices[which]->set_bits(n, k, contents(f.type, which, k, n));
                    } else {
                        matrices[which]->set_bits(k, n, contents(f.type, which, k, n));
                    }
                }
            }
        }
        for (std::int64_t k = 0; k < f.in; k++) {
            norm_weight.set_bits(0, k, contents(norm_weight.dtype(), 2, k, 0));
            norm_bias.set_bits(0, k, contents(norm_bias.dtype(), 3, k, 0));
        }
        options.layout = f.layout;
        options.up = f.gated ? &up.view : nullptr;
        options.norm_weight = f.norm_weight ? &norm_weight.view : nullptr;
        options.norm_bias = f.norm_bias ? &norm_bias.view : nullptr;
        options.norm_unit_offset = f.unit_offset ? 7 : 0;
    }

    const MatrixForm form;
    Tensor weight, up, norm_weight, norm_bias;
    halyard_pack_options options{};

    std::int64_t size() const {
        std::int64_t bytes = -1;
        EXPECT_EQ(halyard_weights_size(&weight.view, &options, &bytes), HALYARD_OK) << halyard_last_error();
        return bytes;
    }

    std::uint32_t source_bits(int matrix, std::int64_t k, std::int64_t n) const {
        const Tensor &tensor = matrix == 0 ? weight : up;
        return form.layout == HALYARD_WEIGHT_OUT_IN ? tensor.bits(n, k) : tensor.bits(k, n);
    }

    std::uint32_t packed_bits(int matrix, std::int64_t k, std::int64_t n) const {
        const std::uint32_t bits = source_bits(matrix, k, n);
        if (!form.norm_weight) {
            return bits;
        }
        const auto w = static_cast<float>(decode(form.type, bits));
        const float factor = static_cast<float>(norm_weight.get(0, k)) + (form.unit_offset ? 1.0f : 0.0f);
        const float product = w * factor;
        return encode(form.type,
                      std::isnan(product) ? std::numeric_limits<double>::quiet_NaN() : static_cast<double>(product));
    }

    Bytes expected() const { return expected(version_of(static_cast<std::uint32_t>(form.type))); }

    Bytes expected(std::uint32_t version) const {
        const auto dtype = static_cast<std::uint32_t>(form.type);
        const std::size_t matrices = form.gated ? 2 : 1, element = size_of(form.type),
                          panel_bytes = panel_size(version, dtype, static_cast<std::size_t>(form.in));
        const std::size_t panels = (static_cast<std::size_t>(form.out) + 15) / 16 * matrices;
        const std::size_t begin = panels_begin(16 * panels);
        Bytes block(begin + panels * panel_bytes);
        std::memcpy(block.data(), "HALYARDW", 8);
        store_to(block.data(), packed::version, version);
        store_to(block.data(), packed::dtype, dtype);
        store_to<std::uint32_t>(block.data(), packed::gated, form.gated);
        store_to<std::uint32_t>(block.data(), packed::norm_folded,
                                form.norm_weight || form.norm_bias || form.unit_offset);
        store_to(block.data(), packed::in_features, form.in);
        store_to(block.data(), packed::out_features, form.out);
        store_to(block.data(), packed::bytes, static_cast<std::int64_t>(block.size()));
        for (int matrix = 0; matrix < static_cast<int>(matrices); matrix++) {
            for (std::int64_t n = 0; n < form.out; n++) {
                const std::size_t panel =
                    static_cast<std::size_t>(n) / 16 * matrices + static_cast<std::size_t>(matrix);
                const std::size_t column = static_cast<std::size_t>(n) % 16;
                double sum = 0, bias = 0;
                for (std::int64_t k = 0; k < form.in; k++) {
                    const std::uint32_t bits = packed_bits(matrix, k, n);
                    std::memcpy(block.data() + begin + panel * panel_bytes +
                                    place_in_panel(version, dtype, static_cast<std::size_t>(k), column),
                                &bits, element);
                    sum += decode(form.type, bits);
                    if (form.norm_bias) {
                        bias += norm_bias.get(0, k) * decode(form.type, source_bits(matrix, k, n));
                    }
                }
                const auto rounded = [](double value) {
                    return std::isnan(value) ? std::numeric_limits<float>::quiet_NaN() : static_cast<float>(value);
                };
                store_to(block.data(), packed::header_size + 4 * (16 * panel + column), rounded(sum));
                store_to(block.data(), packed::header_size + 4 * (16 * (panels + panel) + column), rounded(bias));
            }
        }
        sign(block.data(), block.size());
        return block;
    }

    bool intact() const {
        return weight.surroundings_intact() && up.surroundings_intact() && norm_weight.surroundings_intact() &&
               norm_bias.surroundings_intact();
    }

private:
    Form matrix_form() const {
        const Shape shape = form.layout == HALYARD_WEIGHT_OUT_IN ? Shape{form.out, form.in} : Shape{form.in, form.out};
        return {shape, padded_strides(shape, form.gap), form.placement, 0, 0};
    }
    Form vector_form() const { return {{form.in}, {}, form.placement, 0, 0}; }
};

inline testing::AssertionResult same_bytes(const Bytes &expected, const void *got) {
    const auto *const bytes = static_cast<const std::uint8_t *>(got);
    if (std::memcmp(expected.data(), bytes, expected.size()) == 0) {
        return testing::AssertionSuccess();
    }
    // Behind the header first: its checksums differ wherever anything does.
    const auto at = [&](std::size_t from) {
        return std::mismatch(expected.begin() + static_cast<std::ptrdiff_t>(from), expected.end(), bytes + from).first -
               expected.begin();
    };
    auto different = at(packed::header_size);
    different = different < static_cast<std::ptrdiff_t>(expected.size()) ? different : at(0);
    return testing::AssertionFailure() << "byte " << different << " of " << expected.size() << " is "
                                       << int{bytes[different]} << " instead of "
                                       << int{expected[static_cast<std::size_t>(different)]};
}

inline Bytes bytes_of(const halyard_weights *weights) {
    halyard_weights_info info{};
    EXPECT_EQ(halyard_weights_get_info(weights, &info), HALYARD_OK);
    const auto *const first = static_cast<const std::uint8_t *>(halyard_weights_data(weights));
    return {first, first + info.bytes};
}

inline PackedWeights pack(const PackSource &sources, const halyard_context *context = nullptr) {
    halyard_weights *weights = nullptr;
    EXPECT_EQ(halyard_weights_pack(context, &sources.weight.view, &sources.options, nullptr, 0, &weights), HALYARD_OK)
        << halyard_last_error();
    return PackedWeights(weights);
}

/** The call failed like this, and says so: its message names the function and holds `word`. */
inline testing::AssertionResult refused(halyard_status got, halyard_status expected, const std::string &function,
                                        const std::string &word) {
    const std::string message = halyard_last_error();
    if (got != expected) {
        return testing::AssertionFailure() << "status " << halyard_status_name(got) << " instead of "
                                           << halyard_status_name(expected) << "; the last message is: " << message;
    }
    if (message.rfind(function + ": ", 0) != 0 || message.find(word, function.size()) == std::string::npos) {
        return testing::AssertionFailure()
               << "the message does not name " << function << " and " << word << ": " << message;
    }
    return testing::AssertionSuccess();
}

}  // namespace halyard::tests

#endif
