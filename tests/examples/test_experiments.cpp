// The program of examples/experiments: what its files must hold, whatever the machine.
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

#include "support/files.h"
#include "support/operations.h"

namespace halyard::tests {
namespace {

/** Starts the program without a shell, which folders with any character need. */
pid_t start(const std::vector<std::string> &arguments) {
    std::vector<std::string> words = {HALYARD_EXPERIMENTS};
    words.insert(words.end(), arguments.begin(), arguments.end());
    std::vector<char *> pointers;
    for (std::string &word : words) {
        pointers.push_back(word.data());
    }
    pointers.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    pid_t process = -1;
    if (posix_spawnp(&process, pointers[0], &actions, nullptr, pointers.data(), environ) != 0) {
        process = -1;
    }
    posix_spawn_file_actions_destroy(&actions);
    return process;
}

/** Its exit status. */
int end_of(pid_t process) {
    int status = 0;
    return process > 0 && waitpid(process, &status, 0) == process && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

int run(const std::vector<std::string> &arguments) {
    return end_of(start(arguments));
}

/** A line of a file by the names of its columns. */
class Line {
public:
    explicit Line(std::map<std::string, std::string> values) : fields(std::move(values)) {}
    const std::string &text(const std::string &column) const { return fields.at(column); }
    double number(const std::string &column) const { return std::stod(text(column)); }

private:
    std::map<std::string, std::string> fields;
};

/** The fields of one line; a field in quotes may hold commas. */
std::vector<std::string> fields_of(const std::string &line) {
    std::vector<std::string> fields(1);
    bool quoted = false;
    for (const char c : line) {
        if (c == '"') {
            quoted = !quoted;
        } else if (c == ',' && !quoted) {
            fields.emplace_back();
        } else {
            fields.back() += c;
        }
    }
    return fields;
}

std::vector<Line> lines_of(const std::filesystem::path &path) {
    std::istringstream text(read_text(path));
    std::string line;
    std::getline(text, line);
    const std::vector<std::string> columns = fields_of(line);
    std::vector<Line> lines;
    while (std::getline(text, line)) {
        const std::vector<std::string> fields = fields_of(line);
        std::map<std::string, std::string> values;
        for (std::size_t i = 0; i < columns.size(); i++) {
            values[columns[i]] = fields.at(i);
        }
        lines.emplace_back(values);
    }
    return lines;
}

/** All experiments, run once: times are measured in one short round, on few tokens. */
class Experiments : public testing::Test {
protected:
    static void SetUpTestSuite() {
        folder = new TemporaryFolder;
        // Means over seeds are within a fifth of what they should be, of twelve as of more.
        status = run({"--output", folder->path(), "depth", "--seeds", "12", "norms", "--rounds", "1", "--tokens", "40",
                      "--threads", "2", "ffn", "activations"});
    }
    static void TearDownTestSuite() { delete folder; }

    void SetUp() override { ASSERT_EQ(status, 0); }
    static std::vector<Line> lines(const std::string &name) { return lines_of(*folder / name); }

    static TemporaryFolder *folder;
    static int status;
};
TemporaryFolder *Experiments::folder = nullptr;
int Experiments::status = -1;

// ---- 1: norm by depth ----

constexpr int blocks = 20;
const std::string kinds[] = {"original_2017", "pre_ln",           "pre_rms",     "modern",  "modern_plain",
                             "post_sublayer", "post_sublayer_ln", "double_norm", "no_norm", "no_norm_no_residual"};
const std::string rotary_kinds[] = {"modern", "post_sublayer"};  // whose heads share keys, and so are several
const std::string variances[] = {"0.02^2", "1/fan_in", "1"};

/** What is measured, by form, variance of the weights, kind, seed and layer. */
using Norms = std::map<std::tuple<std::string, std::string, std::string, int>, std::vector<double>>;
Norms norms_of(const std::vector<Line> &lines, const std::string &column = "norm") {
    Norms norms;
    for (const Line &line : lines) {
        auto &of_seed = norms[{line.text("form"), line.text("weight_variance"), line.text("kind"),
                               static_cast<int>(line.number("seed"))}];
        EXPECT_EQ(of_seed.size(), line.number("layer"));
        of_seed.push_back(line.number(column));
    }
    return norms;
}

/** Picks those of one kind, seed by seed. */
std::vector<std::vector<double>> of_kind(const Norms &norms, const std::string &form, const std::string &variance,
                                         const std::string &kind) {
    std::vector<std::vector<double>> seeds;
    for (const auto &[key, of_seed] : norms) {
        if (std::get<0>(key) == form && std::get<1>(key) == variance && std::get<2>(key) == kind) {
            seeds.push_back(of_seed);
        }
    }
    EXPECT_GT(seeds.size(), 1u) << form << " " << variance << " " << kind;
    return seeds;
}

double mean_at(const Norms &norms, const std::string &variance, const std::string &kind, int layer) {
    double sum = 0;
    const auto seeds = of_kind(norms, "multi_head", variance, kind);
    for (const std::vector<double> &of_seed : seeds) {
        sum += of_seed.at(static_cast<std::size_t>(layer));
    }
    return sum / static_cast<double>(seeds.size());
}

const double unit_norm = std::sqrt(2.0 * 8 * 32);  // of 2 x 8 tokens with RMS 1

TEST_F(Experiments, DepthHasEveryKindAndLayer) {
    const std::vector<Line> all = lines("activation_norm.csv");
    for (const Line &line : all) {
        ASSERT_NEAR(line.number("unit_norm"), unit_norm, 1e-5);
        const double norm = line.number("norm"), mean = line.number("mean"), deviation = line.number("deviation");
        if (std::isfinite(norm)) {
            ASSERT_NEAR(unit_norm * std::hypot(mean, deviation), norm, 1e-9 * norm);
        }
    }
    std::set<std::tuple<std::string, std::string, std::string>> found;
    for (const auto &[key, of_seed] : norms_of(all)) {
        const auto &[form, variance, kind, seed] = key;
        ASSERT_EQ(of_seed.size(), blocks + 1u);
        // Tokens of RMS 1, or 512 numbers N(0, 1), whose norm has the deviation 0.7.
        ASSERT_NEAR(of_seed[0], unit_norm, form == "multi_head" ? 1e-4 : 4) << form;
        found.emplace(form, variance, kind);
    }
    EXPECT_EQ(found.size(), std::size(kinds) * std::size(variances) + std::size(kinds) - std::size(rotary_kinds));
}

/** LayerNorm's rows have the norm sqrt(d v / (v + eps)), where v, the variance before it, is about 1 or more. */
TEST_F(Experiments, WhatEndsInANormKeepsItsNorm) {
    for (const Line &line : lines("activation_norm.csv")) {
        if ((line.text("kind") == "original_2017" || line.text("kind") == "double_norm") && line.number("layer") > 0) {
            ASSERT_NEAR(line.number("norm") / unit_norm, 1, 2e-5) << "layer " << line.text("layer");
            ASSERT_NEAR(line.number("mean"), 0, 1e-6);
            ASSERT_NEAR(line.number("deviation"), 1, 2e-5);
        }
    }
}

TEST_F(Experiments, PreNormsGrowWithDepth) {
    const Norms norms = norms_of(lines("activation_norm.csv"));
    for (const std::string kind : {"pre_ln", "pre_rms", "modern", "modern_plain"}) {
        for (const std::string &variance : variances) {
            EXPECT_GT(mean_at(norms, variance, kind, blocks), mean_at(norms, variance, kind, 1))
                << kind << " " << variance;
        }
        // Weights that keep a vector's length: not only in the mean, but with every seed and by far.
        for (const std::vector<double> &of_seed : of_kind(norms, "multi_head", "1/fan_in", kind)) {
            EXPECT_GT(of_seed.back(), 2 * of_seed[1]) << kind;
        }
    }
}

/** Each of the 2 n sublayers adds a vector of the unit norm, at least nearly orthogonal to the others. */
TEST_F(Experiments, PostSublayerNormAddsUnitVectors) {
    const Norms norms = norms_of(lines("activation_norm.csv"));
    for (const std::string kind : {"post_sublayer", "post_sublayer_ln"}) {
        for (const std::string &variance : variances) {
            for (const int layer : {1, 5, blocks}) {
                const double expected = unit_norm * std::sqrt(1 + 2.0 * layer);
                EXPECT_NEAR(mean_at(norms, variance, kind, layer) / expected, 1, 0.2)
                    << kind << " " << variance << ", " << layer;
            }
            for (const std::vector<double> &of_seed : of_kind(norms, "multi_head", variance, kind)) {
                for (std::size_t layer = 1; layer <= blocks; layer++) {
                    EXPECT_LE(of_seed[layer], of_seed[layer - 1] + 2.0001 * unit_norm) << kind;
                }
            }
        }
    }
}

/** What texts warn of: 1e6 and NaN, 1e-6 and nothing. With norms the same weights do no harm. */
TEST_F(Experiments, WithoutNormsActivationsDriftToNanOrToNothing) {
    const Norms deviations = norms_of(lines("activation_norm.csv"), "deviation");
    const auto some = [](const std::vector<double> &of_seed, const auto &holds) {
        return std::any_of(of_seed.begin(), of_seed.end(), holds);
    };
    for (const std::vector<double> &of_seed : of_kind(deviations, "multi_head", "1", "no_norm")) {
        EXPECT_TRUE(some(of_seed, [](double each) { return each > 1e6; }));
        EXPECT_TRUE(std::isnan(of_seed.back()));
    }
    for (const std::vector<double> &of_seed : of_kind(deviations, "multi_head", "0.02^2", "no_norm_no_residual")) {
        EXPECT_TRUE(some(of_seed, [](double each) { return each > 0 && each < 1e-6; }));
        EXPECT_EQ(of_seed.back(), 0);
    }
    // Residuals carry the input through small weights.
    for (const std::vector<double> &of_seed : of_kind(deviations, "multi_head", "0.02^2", "no_norm")) {
        EXPECT_NEAR(of_seed.back(), 1, 0.1);
    }
    for (const std::string kind : {"original_2017", "pre_ln", "pre_rms", "modern", "post_sublayer"}) {
        for (const std::vector<double> &of_seed : of_kind(deviations, "multi_head", "1", kind)) {
            EXPECT_GT(of_seed.back(), 0.9) << kind;
            EXPECT_LT(of_seed.back(), 5000) << kind;
        }
    }
}

TEST_F(Experiments, DriftWithoutNormsBesideThePublishedOne) {
    std::map<int, Line> of;
    for (const Line &line : lines("activation_drift.csv")) {
        of.emplace(static_cast<int>(line.number("layer")), line);
    }
    ASSERT_EQ(of.size(), 4u);
    EXPECT_EQ(of.at(8).number("published_deviation"), 4.2);
    EXPECT_EQ(of.at(16).number("published_mean"), 1.7);
    EXPECT_TRUE(std::isnan(of.at(32).number("published_deviation")));
    EXPECT_GT(of.at(8).number("deviation"), 4.2);
    EXPECT_GT(of.at(32).number("deviation"), 1e6);
    EXPECT_NEAR(of.at(16).number("deviation_at_published_growth"), 18.1, 1e-9);
    EXPECT_NEAR(of.at(32).number("deviation_at_published_growth"), 4.2 * std::pow(18.1 / 4.2, 3), 1e-9);
}

/** x_L = x_0 + the sum of what the sublayers put out. The stream is rounded at each of 2 L additions, and so is what is
 *  added, whose order of operations a block may choose. */
TEST_F(Experiments, APreNormStreamIsTheSumOfItsSublayers) {
    std::set<std::tuple<std::string, std::string, std::string>> found;
    for (const Line &line : lines("activation_sums.csv")) {
        const double norm = line.number("norm");
        EXPECT_LE(line.number("largest_difference"), 2e-6 * norm) << line.text("kind") << ", " << line.text("layer");
        EXPECT_NEAR(line.number("sum_norm"), norm, 1e-6 * norm);
        if (line.number("layer") == blocks) {
            found.emplace(line.text("form"), line.text("weight_variance"), line.text("kind"));
        }
    }
    EXPECT_EQ(found.size(), 3u * 3 + 2);
    EXPECT_EQ(found.count({"multi_head", "1/fan_in", "pre_ln"}), 1u);
    EXPECT_EQ(found.count({"multi_head", "0.02^2", "no_norm"}), 1u);
}

TEST_F(Experiments, SeedsGiveTheSameNormsAgain) {
    const TemporaryFolder again;
    ASSERT_EQ(run({"--output", again.path(), "depth", "--seeds", "2", "--layers", "3"}), 0);
    const Norms expected = norms_of(lines("activation_norm.csv")),
                norms = norms_of(lines_of(again / "activation_norm.csv"));
    EXPECT_EQ(norms.size(), 2 * (std::size(kinds) * (std::size(variances) + 1) - std::size(rotary_kinds)));
    for (const auto &[key, of_seed] : norms) {
        const std::vector<double> &all = expected.at(key);
        ASSERT_EQ(of_seed.size(), 4u);
        EXPECT_EQ(of_seed[0], all[0]);
        EXPECT_EQ(of_seed[3], all[3]);
    }
}

// ---- 2: RMSNorm against LayerNorm ----

TEST_F(Experiments, EveryCaseOfTheNormsIsTimed) {
    std::map<std::string, std::set<std::string>> operations;
    for (const Line &line : lines("norm_speed.csv")) {
        EXPECT_EQ(line.number("d"), 4096);
        EXPECT_GT(line.number("seconds"), 0);
        operations[line.text("dtype") + " " + line.text("rows") + " " + line.text("threads")].insert(
            line.text("operation"));
    }
    EXPECT_EQ(operations.size(), 8u);
    for (const auto &[name, of_case] : operations) {
        EXPECT_EQ(of_case.size(), 5u) << name;
    }
    EXPECT_EQ(operations.count("f32 40 2"), 1u);
}

/** By hand, from the formulas. */
TEST_F(Experiments, OperationsOfANorm) {
    constexpr double d = 4096;
    std::map<std::string, Line> of;
    for (const Line &line : lines("norm_operations.csv")) {
        of.emplace(line.text("algorithm"), line);
    }
    const auto expect = [&](const char *name, double additions, double multiplications, double fused, double divisions,
                            double loads) {
        const Line &line = of.at(name);
        EXPECT_EQ(line.number("additions"), additions) << name;
        EXPECT_EQ(line.number("multiplications"), multiplications) << name;
        EXPECT_EQ(line.number("fused"), fused) << name;
        EXPECT_EQ(line.number("divisions"), divisions) << name;
        EXPECT_EQ(line.number("roots"), 1) << name;
        EXPECT_EQ(line.number("loads"), loads) << name;
        EXPECT_EQ(line.number("stores"), d) << name;
        EXPECT_EQ(line.number("flops"), additions + multiplications + 2 * fused + divisions + 1) << name;
    };
    // Sum; difference and square; difference, scale, weight, bias; eps.
    expect("LayerNorm, textbook", 5 * d + 1, 3 * d, 0, 3, 5 * d);
    expect("RMSNorm, textbook", d + 1, 3 * d, 0, 2, 3 * d);
    // 64 lanes of the pivot and their joining; difference and sum, their 31 joinings twice; difference; variance, eps.
    expect("LayerNorm", 64 + 63 + 2 * d + 2 * 31 + d + 2, 4, 3 * d, 3, 64 + d + 3 * d);
    // 63 joinings, eps, 0 + weight; the mean, scale and weight.
    expect("RMSNorm", 63 + 1 + d, 1 + 2 * d, d, 2, 3 * d);
    expect("pRMSNorm", 63 + 1 + d, 1 + 2 * d, d / 16, 2, d / 16 + 2 * d);

    // What is counted is what the library computes: to the bit where it has fused multiply-add.
    const bool fused = halyard_context_isa(nullptr) >= HALYARD_ISA_AVX2;
    for (const char *name : {"LayerNorm", "RMSNorm", "pRMSNorm"}) {
        EXPECT_LE(of.at(name).number("largest_difference"), fused ? 0 : 1e-5) << name;
    }
    for (const char *name : {"LayerNorm, textbook", "RMSNorm, textbook", "LayerNorm, a notebook's list",
                             "LayerNorm, a lesson's list", "RMSNorm, a lesson's list"}) {
        EXPECT_LE(of.at(name).number("largest_difference"), 1e-4) << name;
    }
    // d additions; d subtractions; d multiplications and d additions; d subtractions and d divisions; 2 d: 8 d, and what
    // is done once, which is two divisions, eps and the root.
    EXPECT_EQ(of.at("LayerNorm, a notebook's list").number("flops"), 8 * d + 4);
    EXPECT_EQ(of.at("LayerNorm, a lesson's list").number("steps"), 7);
    EXPECT_EQ(of.at("RMSNorm, a lesson's list").number("steps"), 4);
    for (const auto &[name, line] : of) {
        EXPECT_EQ(line.number("parameters"), (name.rfind("LayerNorm", 0) == 0 ? 2 : 1) * d) << name;
    }
}

/** A published number and the one that was computed. */
using Pair = std::pair<double, double>;
std::map<std::string, Pair> published_in(const std::vector<Line> &lines) {
    std::map<std::string, Pair> of;
    for (const Line &line : lines) {
        of[line.text("what")] = {line.number("published"), line.number("here")};
    }
    return of;
}

TEST_F(Experiments, NormsBesideWhatTextsSay) {
    const auto of = published_in(lines("norm_published.csv"));
    EXPECT_EQ(of.size(), 10u);
    const auto expect = [&](const char *what, double published, double here, double tolerance = 0) {
        EXPECT_EQ(of.at(what).first, published) << what;
        EXPECT_NEAR(of.at(what).second, here, tolerance) << what;
    };
    expect("operations of LayerNorm per feature", 6, 8, 0.01);
    expect("the same, by its own list of steps", 6, 8, 0.01);
    expect("operations of RMSNorm per feature", 4, 4, 0.01);
    expect("fewer operations, %", 33, 50, 0.1);
    expect("steps of LayerNorm", 7, 7);
    expect("steps of RMSNorm", 4, 4);
    expect("parameters of LayerNorm per feature", 2, 2);
    expect("parameters of RMSNorm per feature", 1, 1);
    expect("norms of Llama 3 8B", 64, 64 + 1);
    expect("biases that they do without, at least", 1e6, 65 * 4096);
}

/** The parameters of the models are those that their publisher counts. */
TEST_F(Experiments, BiasesThatLlamasDoWithout) {
    std::map<std::string, Line> of;
    for (const Line &line : lines("norm_parameters.csv")) {
        of.emplace(line.text("model"), line);
    }
    EXPECT_EQ(of.at("Llama 3 8B").number("parameters"), 8030261248);
    EXPECT_EQ(of.at("Llama 3 70B").number("parameters"), 70553706496);
    EXPECT_EQ(of.at("Llama 3.1 405B").number("parameters"), 405853388800);
    EXPECT_EQ(of.at("Llama 3 8B").number("dropped_biases"), 266240);
    EXPECT_EQ(of.at("Llama 3 70B").number("dropped_biases"), 161 * 8192);
    EXPECT_EQ(of.at("Llama 3.1 405B").number("dropped_biases"), 253 * 16384);
}

// ---- 3: feed-forward networks ----

TEST_F(Experiments, WidthsAndParametersOfFeedForwardNetworks) {
    std::map<std::tuple<int, std::string, int>, std::pair<double, double>> of;
    for (const Line &line : lines("ffn_shapes.csv")) {
        const double d = line.number("d"), ff = line.number("ff"), parameters = line.number("parameters");
        const double matrices = line.text("form") == "gated" ? 3 : 2;
        EXPECT_EQ(line.number("matrices"), matrices);
        EXPECT_EQ(parameters, matrices * d * ff);
        EXPECT_GE(line.number("packed_bytes_f32"), 4 * parameters);
        EXPECT_GE(line.number("packed_bytes_bf16"), 2 * parameters);
        of[{static_cast<int>(d), line.text("form"), static_cast<int>(line.number("multiple_of"))}] = {ff, parameters};
    }
    using Shape = std::pair<double, double>;
    EXPECT_EQ(of.at({4096, "standard", 0}), Shape(16384, 134217728));
    EXPECT_EQ(of.at({4096, "gated", 1}).first, 10922);
    EXPECT_EQ(of.at({4096, "gated", 256}), Shape(11008, 135266304));
    EXPECT_EQ(of.at({768, "standard", 0}), Shape(3072, 4718592));
    EXPECT_EQ(of.at({768, "gated", 1}), Shape(2048, 4718592));
    EXPECT_EQ(of.at({32, "gated", 1}).first, 85);
}

TEST_F(Experiments, RoundingsOfTheWidth) {
    std::map<std::tuple<int, std::string, int>, double> of;
    for (const Line &line : lines("ffn_rounding.csv")) {
        const double d = line.number("d"), ff = line.number("ff"), multiple = line.number("multiple_of");
        EXPECT_EQ(std::fmod(ff, multiple), 0);
        if (line.text("rounding") == "nearest") {
            EXPECT_LE(std::fabs(ff - 8 * d / 3), multiple / 2);
        } else {  // the integer below 8 d/3, up to a multiple
            EXPECT_GE(ff, std::floor(8 * d / 3));
            EXPECT_LT(ff, std::floor(8 * d / 3) + multiple);
        }
        EXPECT_EQ(line.number("parameters"), 3 * d * ff);
        EXPECT_EQ(line.number("standard_parameters"), 8 * d * d);
        of[{static_cast<int>(d), line.text("rounding"), static_cast<int>(multiple)}] = ff;
    }
    EXPECT_EQ(of.at({4096, "down", 1}), 10922);
    EXPECT_EQ(of.at({4096, "nearest", 1}), 10923);
    EXPECT_EQ(of.at({4096, "up", 64}), 10944);
    EXPECT_EQ(of.at({4096, "nearest", 64}), 10944);
    EXPECT_EQ(of.at({4096, "up", 128}), 11008);
    EXPECT_EQ(of.at({4096, "nearest", 128}), 10880);
    EXPECT_EQ(of.at({4096, "up", 256}), 11008);
    EXPECT_EQ(of.at({4096, "nearest", 256}), 11008);
    EXPECT_EQ(of.at({256, "up", 256}), 768);
}

TEST_F(Experiments, WidthOfEqualParameters) {
    for (const Line &line : lines("ffn_widths.csv")) {
        const double d = line.number("d"), ff = line.number("ff");
        EXPECT_EQ(line.number("standard_parameters"), 2 * d * ff);
        EXPECT_EQ(line.number("gated_parameters"), 3 * d * ff);
        EXPECT_EQ(line.number("gated_parameters") == 8 * d * d, 3 * ff == 8 * d);
    }
}

TEST_F(Experiments, FeedForwardNetworksBesideWhatTextsSay) {
    const auto of = published_in(lines("ffn_published.csv"));
    EXPECT_EQ(of.size(), 16u);
    for (const auto &[what, pair] : of) {
        EXPECT_NEAR(pair.first, pair.second, what == "d 16, SwiGLU over ReLU" ? 0.005 : 1e-9) << what;
    }
    EXPECT_EQ(of.at("d 16, ReLU, width 64, with biases: parameters").second, 2128);
    EXPECT_EQ(of.at("d 16, SwiGLU: parameters").second, 2016);
    EXPECT_EQ(of.at("d 256, ReLU, width 1024, with biases: parameters").second, 525568);
    EXPECT_EQ(of.at("d 256, SwiGLU: parameters").second, 589824);
    EXPECT_EQ(of.at("d 4096: width, 8 d/3 rounded").second, 10923);
}

TEST_F(Experiments, MapsOfASwiGlu) {
    const std::vector<Line> all = lines("swiglu_maps.csv");
    ASSERT_EQ(all.size(), 32u * 42u);
    for (const Line &line : all) {
        const double gate = line.number("silu_gate"), product = gate * line.number("up");
        EXPECT_NEAR(gate, reference::silu(line.number("gate")), 1e-6 * std::max(1.0, std::fabs(gate)));
        EXPECT_NEAR(line.number("product"), product, 1e-6 * std::max(1.0, std::fabs(product)));
    }
}

// ---- 4: activations ----

using Function = double (*)(double);
const std::map<std::string, Function> functions = {
#define HALYARD_KERNEL(name) {#name, reference::name},
#include "kernels/unary.inc"
#undef HALYARD_KERNEL
};

using Curve = std::vector<Line>;
std::map<std::pair<std::string, double>, Curve> curves_of(const std::vector<Line> &lines) {
    std::map<std::pair<std::string, double>, Curve> curves;
    for (const Line &line : lines) {
        curves[{line.text("function"), line.number("beta")}].push_back(line);
    }
    return curves;
}

TEST_F(Experiments, CurvesOfEveryActivation) {
    const auto curves = curves_of(lines("activation_curves.csv"));
    std::set<std::string> drawn;
    for (const auto &[name, curve] : curves) {
        const auto &[function, beta] = name;
        drawn.insert(function);
        ASSERT_EQ(curve.size(), 8u * 64 + 1) << function;
        for (std::size_t i = 0; i < curve.size(); i++) {
            const double x = curve[i].number("x"), value = curve[i].number("value");
            ASSERT_EQ(x, -4 + static_cast<double>(i) / 64);
            const bool swish = function == "swish";
            const double expected = swish ? reference::swish(x, beta) : functions.at(function)(x);
            const double slope =
                swish ? reference::swish_derivative(x, beta) : functions.at(function + "_derivative")(x);
            ASSERT_NEAR(value, expected, 2e-6 * std::max(1.0, std::fabs(expected))) << function << " at " << x;
            ASSERT_NEAR(curve[i].number("derivative"), slope, 2e-6 * std::max(1.0, std::fabs(slope)))
                << function << " at " << x;
        }
    }
    std::set<std::string> all = {"swish"};
    for (const auto &[name, function] : functions) {
        if (name.find("_derivative") == std::string::npos) {
            all.insert(name);
        }
    }
    EXPECT_EQ(drawn, all);
}

/** Differences over five points are off by h^4/30 times the fifth derivative, which is at most 55 (exp's at 4) times
 *  beta^4, and by 1.5/h times the error of a value. */
TEST_F(Experiments, DerivativesAreTheSlopesOfTheCurves) {
    constexpr double h = 1.0 / 64, value_error = 4e-7;
    for (const auto &[name, curve] : curves_of(lines("activation_curves.csv"))) {
        const double beta = name.second;
        for (std::size_t i = 2; i + 2 < curve.size(); i++) {
            const double x = curve[i].number("x");
            if ((name.first == "relu" || name.first == "relu2") && std::fabs(x) <= 2 * h) {
                continue;  // its kink, or that of its derivative
            }
            const auto value = [&curve = curve](std::size_t at) { return curve[at].number("value"); };
            const double slope = (value(i - 2) - 8 * value(i - 1) + 8 * value(i + 1) - value(i + 2)) / (12 * h);
            const double size = std::max(1.0, std::fabs(value(i + 2)));
            const double tolerance = h * h * h * h / 30 * 55 * std::pow(beta, 4) + 1.5 / h * value_error * size;
            ASSERT_NEAR(curve[i].number("derivative"), slope, tolerance)
                << name.first << ", beta " << beta << " at " << x;
        }
    }
}

// ---- the program ----

TEST_F(Experiments, OnlyWhatIsNamedIsRun) {
    const TemporaryFolder some;
    ASSERT_EQ(run({"--output", some / "new/folder", "ffn"}), 0);
    EXPECT_TRUE(std::filesystem::exists(some / "new/folder/ffn_shapes.csv"));
    EXPECT_TRUE(std::filesystem::exists(some / "new/folder/run.csv"));
    EXPECT_FALSE(std::filesystem::exists(some / "new/folder/activation_curves.csv"));
}

TEST_F(Experiments, WrongArgumentsAndPlacesAreRefused) {
    EXPECT_NE(run({"--output", folder->path(), "nothing"}), 0);
    EXPECT_NE(run({"--output", folder->path(), "depth", "--seeds", "0"}), 0);
    EXPECT_NE(run({"--output", folder->path(), "depth", "--layers", "101"}), 0);
    EXPECT_EQ(run({"--output", "/dev/null/folder", "activations"}), 1);
}

// ---- 5 and 6: training, in little ----

/** Runs that take a minute; in an emulator or under a sanitizer they would take many. */
class Training : public testing::Test {
protected:
    static void SetUpTestSuite() {
#ifndef HALYARD_TESTS_REDUCED
        folder = new TemporaryFolder;
        status = run({"--output", folder->path(), "training", "--quick", "ablation", "--quick", "--activations",
                      "relu,swiglu", "--seeds", "1"});
#endif
    }
    static void TearDownTestSuite() {
        delete folder;
    }

    void SetUp() override {
        if (folder == nullptr) {
            GTEST_SKIP() << "it takes long here";
        }
        ASSERT_EQ(status, 0);
    }
    static std::vector<Line> lines(const std::string &name) {
        return lines_of(*folder / name);
    }

    static TemporaryFolder *folder;
    static int status;
};
TemporaryFolder *Training::folder = nullptr;
int Training::status = -1;

/** Xiong et al. 2020: the gradient of the last network's second matrix does not change with depth where norms come behind, and falls
 *  where they come before, as 1/sqrt(depth) in the limit. */
TEST_F(Training, GradientsAtTheStartFallWithDepthWhereNormsComeFirst) {
    std::map<std::string, std::map<int, double>> of_last_layer;
    for (const Line &line : lines("training_gradients.csv")) {
        EXPECT_GT(line.number("gradient_norm"), 0);
        if (line.text("start") == "torch" && line.number("layer") == line.number("layers") - 1) {
            of_last_layer[line.text("norm_position")][static_cast<int>(line.number("layers"))] =
                line.number("ffn_down_gradient_norm");
        }
    }
    const auto slope = [&](const std::string &norm_position) {
        return std::log(of_last_layer[norm_position].at(24) / of_last_layer[norm_position].at(6)) / std::log(4);
    };
    EXPECT_NEAR(slope("post"), 0, 0.15);
    EXPECT_LT(slope("pre"), -0.2);
    EXPECT_GT(slope("pre"), -0.7);
}

TEST_F(Training, LossesOfRandomTargetsBeginNearTwo) {
    std::map<std::pair<std::string, int>, std::vector<Line>> steps;
    for (const Line &line : lines("training_stability.csv")) {
        steps[{line.text("norm_position"), static_cast<int>(line.number("layers"))}].push_back(line);
    }
    EXPECT_EQ(steps.size(), 4u);
    for (const auto &[run, of_run] : steps) {
        EXPECT_EQ(of_run.size(), 10u);
        // y has variance 1 behind a norm, and so has the target; that it is not to be foreseen is learnt first.
        EXPECT_NEAR(of_run.front().number("loss"), 2, 0.1) << run.first;
        EXPECT_LT(of_run.back().number("gradient_norm"), of_run.front().number("gradient_norm")) << run.first;
    }
}

TEST_F(Training, LanguageModelsLearnDownToNoLessThanTheEntropy) {
    std::map<std::string, double> parameters;
    for (const Line &line : lines("ablation_models.csv")) {
        parameters[line.text("activation")] = line.number("parameters");
    }
    EXPECT_NEAR(parameters.at("swiglu") / parameters.at("relu"), 1, 0.005);
    std::map<std::string, std::vector<Line>> curves;
    for (const Line &line : lines("ablation.csv")) {
        curves[line.text("activation")].push_back(line);
    }
    for (const std::string activation : {"relu", "swiglu"}) {
        const std::vector<Line> &curve = curves.at(activation);
        ASSERT_EQ(curve.size(), 10u);
        EXPECT_NEAR(curve.front().number("loss"), std::log(223), 0.5);  // a word of so many
        EXPECT_LT(curve.back().number("loss"), curve.front().number("loss") - 1);
        for (std::size_t i = 0; i < curve.size(); i++) {
            EXPECT_GT(curve[i].number("loss"), curve[i].number("floor"));
            EXPECT_GT(curve[i].number("floor"), 1);
            EXPECT_EQ(curve[i].number("floor"),
                      curves.at("relu")[i].number("floor"));  // runs of a seed share the data
        }
    }
    for (const Line &line : lines("ablation_final.csv")) {
        if (line.text("activation") == "relu") {
            EXPECT_GE(line.number("dead_share"), 0);
            EXPECT_LT(line.number("dead_share"), 0.5);
        }
    }
}

// Runs go side by side, and come to the same whatever the threads.
TEST_F(Training, AblationDoesNotDependOnTheThreads) {
#ifdef HALYARD_TESTS_REDUCED
    const std::string activations = "gelu";
#else
    const std::string activations = "relu,gelu,swiglu";
#endif
    for (const char *const threads : {"1", "3"}) {
        ASSERT_EQ(run({"--output", *folder / threads, "ablation", "--quick", "--activations", activations, "--threads",
                       threads}),
                  0);
    }
    for (const char *const name : {"ablation.csv", "ablation_final.csv"}) {
        EXPECT_EQ(read_text(*folder / "1" / name), read_text(*folder / "3" / name)) << name;
    }
}

TEST_F(Training, TextsOfAFileAreLearntByteByByte) {
    const std::filesystem::path text = *folder / "text";
    std::string bytes;
    for (int i = 0; i < 500; i++) {
        bytes += "a word and another ";
    }
    write_text(text, bytes);
    ASSERT_EQ(run({"--output", *folder / "of_text", "ablation", "--quick", "--activations", "gelu", "--seeds", "1",
                   "--text", text}),
              0);
    const std::vector<Line> curve = lines_of(*folder / "of_text" / "ablation.csv");
    EXPECT_NEAR(curve.front().number("loss"), std::log(10), 0.5);  // so many different letters
    EXPECT_LT(curve.back().number("loss"), 0.7);
    EXPECT_TRUE(std::isnan(curve.back().number("floor")));
    write_text(text, "too short");
    EXPECT_EQ(run({"--output", *folder / "of_text", "ablation", "--quick", "--text", text}), 1);
}

// A model written in f32 differs in nothing, and fewer bits say less of it, of weights and of activations.
TEST_F(Training, FewerBitsSayLessOfATrainedModel) {
    const std::filesystem::path other = *folder / "quantized";
    ASSERT_EQ(run({"--output", other, "quantization", "--quick"}), 0);
    std::map<std::string, double> divergence, in_8_bits;
    for (const Line &line : lines_of(other / "quantization.csv")) {
        const double agreement = line.number("agreement");
        (line.number("activation_bits") == 8 ? in_8_bits : divergence)[line.text("format")] = line.number("divergence");
        EXPECT_LT(line.number("perplexity"), 60);  // of 191 tokens
        EXPECT_LE(line.number("median_divergence"), line.number("divergence_99"));
        EXPECT_TRUE(agreement > 0.9 && agreement <= 1) << agreement;
    }
    EXPECT_EQ(divergence.size(), 13u);
    EXPECT_EQ(divergence.at("F32"), 0);
    const char *const order[] = {"F16", "BF16", "Q8_0", "Q6_K", "Q5_K", "Q4_K", "Q4_0"};
    for (std::size_t i = 1; i < std::size(order); i++) {
        EXPECT_GT(divergence.at(order[i]), divergence.at(order[i - 1])) << order[i];
    }
    EXPECT_EQ(in_8_bits.size(), 4u);
    EXPECT_GT(in_8_bits.at("Q8_0"), divergence.at("Q8_0"));
    EXPECT_LT(in_8_bits.at("Q8_0"), divergence.at("Q5_K"));
    EXPECT_GT(in_8_bits.at("Q4_0"), in_8_bits.at("Q8_0"));
}

TEST_F(Training, AnInterruptionKeepsWhatIsDone) {
    const std::filesystem::path other = *folder / "interrupted", file = other / "training_stability.csv";
    const pid_t process = start({"--output", other, "training", "--quick"});
    while (!std::filesystem::exists(file) && waitpid(process, nullptr, WNOHANG) == 0) {
        usleep(10000);
    }
    usleep(200000);
    kill(process, SIGINT);
    EXPECT_EQ(end_of(process), 0);
    const std::vector<Line> steps = lines_of(file);
    EXPECT_LT(steps.size(), 40u);
    for (const Line &line : steps) {
        EXPECT_GT(line.number("loss"), 0);
    }
    EXPECT_EQ(lines_of(other / "training_gradients.csv").size(), 2 * 2 * (6 + 12 + 24));
}

}  // namespace
}  // namespace halyard::tests
