// Models in the tests: what transformers computed with the files of data/models, what halyard computes with them, and
// how far the two may be apart.
#ifndef HALYARD_TESTS_SUPPORT_MODELS_H
#define HALYARD_TESTS_SUPPORT_MODELS_H

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "halyard/model.hpp"

namespace halyard::tests {

/** The fixtures of all architectures, each with "_f32" or "_bf16" behind its name. */
extern const std::filesystem::path model_fixtures;
extern const char *const architectures[9];

// ---- What transformers computed ----

/** Hidden states by layer as in halyard_hidden_state_observer, then the logits: each [T, features]. */
using States = std::vector<std::vector<float>>;

struct Transformers {
    explicit Transformers(const std::filesystem::path &folder)
        : files(SafeTensors::open(folder / "expected.safetensors")), input_ids(integers("input_ids")) {}

    std::vector<std::int64_t> integers(const std::string &name) const;
    /** prefix: "", or "exact." for what the same weights give in float32 arithmetic. */
    States states(const std::string &prefix = "") const;

    SafeTensors files;
    std::vector<std::int64_t> input_ids;
};

// ---- What halyard computes ----

/** Gathers hidden states of calls with some of the tokens each. */
class Observer {
public:
    Observer(const Model &model, std::size_t tokens);

    /** Runs tokens [first, first + count); all of them are known. */
    void run(const Model &model, const std::vector<std::int64_t> &tokens, std::size_t first, std::size_t count,
             KvCache *cache, const halyard_context *context);

    const States &states() const { return states_; }

private:
    static void see(void *user, std::int64_t layer, std::int64_t first_token, const DLTensor *hidden);

    States states_;
    std::vector<std::size_t> widths_;
    std::size_t first_ = 0;
};

States run_prompt(const Model &model, const std::vector<std::int64_t> &tokens, KvCache *cache = nullptr,
                  const halyard_context *context = nullptr);
States run_token_by_token(const Model &model, const std::vector<std::int64_t> &tokens, KvCache &cache,
                          const halyard_context *context = nullptr);
/** The most likely tokens after a prompt. */
std::vector<std::int64_t> generate(const Model &model, const std::vector<std::int64_t> &prompt, std::size_t count,
                                   const halyard_context *context = nullptr);

// ---- How far they may be apart ----

// Roundings are as good as independent: n of them, each of at most u of what is rounded, come to about sqrt(n) u
// (Higham and Mary 2019), with a standard deviation of 0.58 sqrt(n) u. Twice that, or three and a half deviations, is
// the bound for the largest of the few hundred differences of a tensor.
//
// Measured, as a part of the bound: float32 at most 0.41; bfloat16 at most 0.48, with a cache 0.58, and 0.29 in float32
// arithmetic; caches in 16 bits at most 0.53. A configuration with one field changed by a few percent is beyond it 26
// times at least, mostly hundreds.
double bound(double unit_roundoff, double roundings);

constexpr double f32_roundoff = 0x1p-24, bf16_roundoff = 0x1p-8, f16_roundoff = 0x1p-11;

/** Roundings on the way to hidden state `layer` where arithmetic is in float32: one for each term of a sum. */
double f32_roundings(const ModelConfig &config, std::size_t layer, std::size_t tokens);
/** Roundings on the way to hidden state `layer` where transformers rounds every result to bfloat16. */
double bf16_roundings(const ModelConfig &config, std::size_t layer);

/** The largest difference over the largest number that is expected. */
double distance(const std::vector<float> &got, const std::vector<float> &want);

/** The largest distance of all states, each as a part of its bound. */
template<class Bound>
double part_of_bound(const States &got, const States &want, const Bound &bound_of) {
    if (got.size() != want.size()) {
        return INFINITY;
    }
    double largest = 0;
    for (std::size_t layer = 0; layer < want.size(); layer++) {
        const double part = distance(got[layer], want[layer]) / bound_of(layer);
        largest = part > largest || std::isnan(part) ? part : largest;
    }
    return largest;
}

double f32_part(const Model &model, const States &got, const States &want, std::size_t tokens);

}  // namespace halyard::tests

#endif
