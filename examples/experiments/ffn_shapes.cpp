// Experiment 3: widths and parameter counts of feed-forward networks, and what the gates of a SwiGLU let through.
#include "csv.h"
#include "experiments.h"
#include "normal.h"

#include <halyard/halyard.hpp>

#include <cmath>
#include <vector>

namespace experiments {
namespace {

struct Network {
    std::int64_t d, ff;
    bool gated;

    std::int64_t parameters() const { return (gated ? 3 : 2) * d * ff; }

    /** Of the weights as the library packs them, for a storage type. */
    template<class Element>
    std::int64_t packed_bytes() const {
        // Only shapes are read: no matrix is made.
        const Element *none = nullptr;
        halyard::PackOptions options;
        if (gated) {
            options.up = {none, {ff, d}};
        }
        return halyard::Weights::packed_bytes({none, {ff, d}}, options) +
               halyard::Weights::packed_bytes({none, {d, ff}});
    }
};

/** The hidden width of the standard form in nearly all models. */
std::int64_t standard_width(std::int64_t d) {
    return 4 * d;
}

void write_shapes(const std::filesystem::path &directory) {
    Csv csv(directory / "ffn_shapes.csv", {"model", "form", "d", "ff", "multiple_of", "matrices", "parameters",
                                           "packed_bytes_f32", "packed_bytes_bf16"});
    const auto line = [&](const char *model, const Network &network, std::int64_t multiple_of) {
        csv.line(model, network.gated ? "gated" : "standard", network.d, network.ff, multiple_of, network.gated ? 3 : 2,
                 network.parameters(), network.packed_bytes<float>(), network.packed_bytes<halyard::bf16>());
    };
    const auto standard = [&](const char *model, std::int64_t d) { line(model, {d, standard_width(d), false}, 0); };
    const auto gated = [&](const char *model, std::int64_t d, std::int64_t multiple_of) {
        line(model, {d, halyard::ffn_hidden_size(d, multiple_of), true}, multiple_of);
    };
    standard("experiment 1", 32);
    gated("experiment 1", 32, 1);
    standard("Vaswani 2017", 512);
    standard("GPT-2 and T5-base", 768);
    gated("T5-base, gated", 768, 1);
    standard("d 4096", 4096);
    gated("d 4096", 4096, 1);
    gated("d 4096", 4096, 64);
    gated("d 4096", 4096, 128);
    gated("Llama 7B", 4096, 256);
    gated("Llama 13B", 5120, 256);
    gated("Llama 65B", 8192, 256);
    csv.close();
}

void write_rounding(const std::filesystem::path &directory) {
    Csv csv(directory / "ffn_rounding.csv", {"d", "multiple_of", "ff", "parameters", "standard_parameters"});
    for (std::int64_t d = 256; d <= 8192; d += 256) {
        for (const std::int64_t multiple_of : {64, 128, 256}) {
            const Network network{d, halyard::ffn_hidden_size(d, multiple_of), true};
            csv.line(d, multiple_of, network.ff, network.parameters(),
                     Network{d, standard_width(d), false}.parameters());
        }
    }
    csv.close();
}

/** Tokens on a circle: the input turns from one random direction to another, orthogonal one, and on, with RMS 1 as
 *  behind a norm. A unit's gate is then a wave over the tokens, open on one side of the circle and shut on the other.
 */
std::vector<float> tokens_on_a_circle(std::int64_t tokens, std::int64_t d, Normal &normal) {
    std::vector<double> a(static_cast<std::size_t>(d)), b(a.size());
    const auto scale_to_unit_rms = [](std::vector<double> &v) {
        double squares = 0;
        for (const double value : v) {
            squares += value * value;
        }
        for (double &value : v) {
            value /= std::sqrt(squares / static_cast<double>(v.size()));
        }
    };
    double product = 0;
    for (double &value : a) {
        value = normal();
    }
    scale_to_unit_rms(a);
    for (std::size_t i = 0; i < b.size(); i++) {
        b[i] = normal();
        product += a[i] * b[i];
    }
    for (std::size_t i = 0; i < b.size(); i++) {
        b[i] -= product / static_cast<double>(d) * a[i];
    }
    scale_to_unit_rms(b);

    std::vector<float> x;
    for (std::int64_t t = 0; t < tokens; t++) {
        const double angle = 6.283185307179586 * static_cast<double>(t) / static_cast<double>(tokens);
        for (std::size_t i = 0; i < a.size(); i++) {
            x.push_back(static_cast<float>(std::cos(angle) * a[i] + std::sin(angle) * b[i]));
        }
    }
    return x;
}

void write_maps(const std::filesystem::path &directory) {
    constexpr std::int64_t tokens = 32, d = 16;
    const std::int64_t ff = halyard::ffn_hidden_size(d, 1);
    Normal normal(1);
    const std::vector<float> x = tokens_on_a_circle(tokens, d, normal);
    // Gates of deviation 2: wide enough to see open ones from shut ones, as those of trained networks are.
    const std::vector<float> gate_weights = normal.values(ff * d, 2 / std::sqrt(d));
    const std::vector<float> up_weights = normal.values(ff * d, 1 / std::sqrt(d));

    std::vector<float> gate(static_cast<std::size_t>(tokens * ff)), up(gate.size()), opened(gate.size()),
        product(gate.size());
    halyard::linear({x, {tokens, d}}, halyard::Weights::pack({gate_weights, {ff, d}}), {gate, {tokens, ff}});
    halyard::linear({x, {tokens, d}}, halyard::Weights::pack({up_weights, {ff, d}}), {up, {tokens, ff}});
    halyard::silu(gate, opened);
    halyard::swiglu({gate, {tokens, ff}}, {up, {tokens, ff}}, {product, {tokens, ff}});

    Csv csv(directory / "swiglu_maps.csv", {"token", "unit", "gate", "silu_gate", "up", "product"});
    for (std::int64_t t = 0; t < tokens; t++) {
        for (std::int64_t unit = 0; unit < ff; unit++) {
            const auto i = static_cast<std::size_t>(t * ff + unit);
            csv.line(t, unit, gate[i], opened[i], up[i], product[i]);
        }
    }
    csv.close();
}

}  // namespace

void ffn_shapes(const std::filesystem::path &directory) {
    write_shapes(directory);
    write_rounding(directory);
    write_maps(directory);
}

}  // namespace experiments
