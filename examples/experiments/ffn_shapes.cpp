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
    /** With a bias of each matrix. */
    std::int64_t with_biases() const { return parameters() + (gated ? 2 : 1) * ff + d; }

    /** Bytes of the weights as the library packs them, for a storage type. */
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

/** 8 d/3 in every way that texts and models make an integer of it. */
struct Rounding {
    const char *name;
    std::int64_t multiple_of;
    bool nearest;

    std::int64_t width(std::int64_t d) const {
        return nearest ? (16 * d / 3 + multiple_of) / (2 * multiple_of) * multiple_of
                       : halyard::ffn_hidden_size(d, multiple_of);
    }
};

constexpr Rounding roundings[] = {
    {"down", 1, false}, {"nearest", 1, true},   {"up", 64, false},  {"nearest", 64, true},
    {"up", 128, false}, {"nearest", 128, true}, {"up", 256, false}, {"nearest", 256, true},
};

void write_rounding(const std::filesystem::path &directory) {
    Csv csv(directory / "ffn_rounding.csv",
            {"d", "rounding", "multiple_of", "ff", "parameters", "standard_parameters"});
    for (std::int64_t d = 256; d <= 8192; d += 256) {
        for (const Rounding &rounding : roundings) {
            const Network network{d, rounding.width(d), true};
            csv.line(d, rounding.name, rounding.multiple_of, network.ff, network.parameters(),
                     Network{d, standard_width(d), false}.parameters());
        }
    }
    csv.close();
}

/** Parameters by hidden width. 3072 is a d of which 8 d/3 is an integer. */
constexpr std::int64_t exercise_d = 3072;

void write_widths(const std::filesystem::path &directory) {
    Csv csv(directory / "ffn_widths.csv", {"d", "ff", "standard_parameters", "gated_parameters"});
    for (std::int64_t ff = 0; ff <= 5 * exercise_d; ff += exercise_d / 3) {
        csv.line(exercise_d, ff, Network{exercise_d, ff, false}.parameters(),
                 Network{exercise_d, ff, true}.parameters());
    }
    csv.close();
}

/** The first width at which a gated network has the parameters of a standard one, found by trying. */
std::int64_t width_of_parity(std::int64_t d) {
    const std::int64_t standard = Network{d, standard_width(d), false}.parameters();
    std::int64_t ff = 1;
    while (Network{d, ff, true}.parameters() < standard) {
        ff++;
    }
    return ff;
}

/** Numbers of texts. Those that have biases in the standard form have none in the gated one. */
void write_published(const std::filesystem::path &directory) {
    const auto width = [](std::int64_t d, std::int64_t multiple_of, bool nearest) {
        return Rounding{"", multiple_of, nearest}.width(d);
    };
    const auto standard = [](std::int64_t d) { return Network{d, standard_width(d), false}; };
    const auto gated = [](std::int64_t d, std::int64_t multiple_of) {
        return Network{d, halyard::ffn_hidden_size(d, multiple_of), true};
    };
    const auto ratio = [](std::int64_t a, std::int64_t b) { return static_cast<double>(a) / static_cast<double>(b); };

    Csv csv(directory / "ffn_published.csv", {"source", "what", "published", "here"});
    csv.line("a notebook", "d 16, ReLU, width 64, with biases: parameters", 2128, standard(16).with_biases());
    csv.line("a notebook", "d 16, SwiGLU: width ⌊2 · 64/3⌋", 42, gated(16, 1).ff);
    csv.line("a notebook", "d 16, SwiGLU: parameters", 2016, gated(16, 1).parameters());
    csv.line("a notebook", "d 16, SwiGLU over ReLU", 0.95,
             ratio(gated(16, 1).parameters(), standard(16).with_biases()));
    csv.line("a course", "d 256, ReLU, width 1024, with biases: parameters", 525568, standard(256).with_biases());
    csv.line("a course", "d 256, SwiGLU: width before rounding", 682, width(256, 1, false));
    csv.line("a course", "d 256, SwiGLU: width up to 256s", 768, width(256, 256, false));
    csv.line("a course", "d 256, SwiGLU: parameters", 589824, gated(256, 256).parameters());
    csv.line("a text", "d 4096, gated at the width of the standard form: more parameters, %", 50,
             100 * (ratio(Network{4096, standard_width(4096), true}.parameters(), standard(4096).parameters()) - 1));
    csv.line("a text", "d 4096: width ⌊8 d/3⌋", 10922, width(4096, 1, false));
    csv.line("a textbook", "d 4096: width, 8 d/3 rounded", 10923, width(4096, 1, true));
    csv.line("a text", "d 4096: width up to 256s", 11008, width(4096, 256, false));
    csv.line("a text", "d 4096, standard: parameters", 134217728, standard(4096).parameters());
    csv.line("a text", "d 4096, SwiGLU: parameters", 135266304, gated(4096, 256).parameters());
    csv.line("Shazeer 2020", "d 768, gated: width", 2048, gated(768, 1).ff);
    csv.line("a textbook", "width of equal parameters over d", 8.0 / 3, ratio(width_of_parity(exercise_d), exercise_d));
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
    write_widths(directory);
    write_published(directory);
    write_maps(directory);
}

}  // namespace experiments
