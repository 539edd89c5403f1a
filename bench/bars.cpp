// The numbers to reach, as data, and what a run says about them.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "result.h"

namespace halyard::bench {
namespace {

/** Time of a peer over ours in one row. */
struct RatioBar {
    const char *row;  // without threads, which are all
    const char *peer;
    double least;
};
constexpr RatioBar ratio_bars[] = {
    {"rms_norm/f32/64x4096/hot", "onednn", 1.1},
    {"rms_norm/f32/64x4096/hot", "pytorch", 4},
    {"rms_norm/f32/64x4096/hot", "pytorch-compile", 2},
    {"layer_norm/f32/64x4096/hot", "onednn", 1.2},
    {"layer_norm/f32/64x4096/hot", "pytorch", 2},
    {"gelu/f32/64x4096/hot", "onednn", 1.1},
    {"gelu_tanh/f32/64x4096/hot", "onednn", 1.5},
    {"silu/f32/64x4096/hot", "onednn", 1.5},
    {"swiglu/f32/64x4096/hot", "pytorch", 2},
    {"swiglu/f32/64x4096/hot", "pytorch-compile", 2},
    {"add_rms_norm/f32/2048x8192/cold", "two calls", 1.5},
    {"ffn_swiglu/f32/8x4096x11008/hot", "pytorch-compile", 2.5},
    {"ffn_swiglu/f32/128x4096x11008/hot", "pytorch-compile", 1.15},
    {"ffn_swiglu/f32/512x4096x11008/hot", "pytorch-compile", 1.15},
    {"attention.32x128/f32/prompt512/hot", "pytorch", 1.3},
    {"attention.32x128/f32/prompt2048/hot", "pytorch", 1.3},
    {"block.llama2_7b/f32/prompt128/cold", "pytorch-compile", 1.2},
    {"block.llama2_7b/f32/prompt512/cold", "pytorch-compile", 1.1},
    {"block.gpt2/f32/prompt128/hot", "separate calls", 0.98},
    {"block.gpt2/f32/decode1x128/hot", "separate calls", 0.95},
};

/** Time of a call on one thread. */
struct TimeBar {
    const char *row;
    double most;  // seconds
};
constexpr TimeBar time_bars[] = {
    {"rms_norm/f32/1x64/hot/1t", 100e-9},
    {"rms_norm/f32/1x4096/hot/1t", 700e-9},
};

constexpr double least_fraction = 0.95;  // of a copy, out of cache
constexpr const char *large_shape = "/2048x8192/cold";

std::string with_threads(const char *row, int threads) {
    return std::string(row) + "/" + std::to_string(threads) + "t";
}

std::string format(const char *pattern, double value) {
    char text[64];
    std::snprintf(text, sizeof(text), pattern, value);
    return text;
}

const RowResult *find_row(const Run &run, const std::string &name) {
    for (const RowResult &row : run.rows) {
        if (row.id.name() == name && !row.is_wrong && row.rounds > 0) {
            return &row;
        }
    }
    return nullptr;
}

bool is_large(const Run &run, const RowResult &row, Dtype dtype) {
    const std::string ending = std::string(large_shape) + "/" + std::to_string(run.threads) + "t";
    const std::string name = row.id.name();
    return row.rounds > 0 && row.id.dtype == dtype && !row.id.kernel->cast_to && name.size() > ending.size() &&
           name.compare(name.size() - ending.size(), ending.size(), ending) == 0;
}

/** A bar that every row with a value above 0 must reach: the worst one speaks for all. */
template<typename Value>
Bar worst_of(const Run &run, const char *what, double least, const char *pattern, const Value &value_of) {
    Bar bar;
    const RowResult *worst = nullptr;
    double worst_value = 0;
    int count = 0, reached = 0;
    for (const RowResult &row : run.rows) {
        const double value = value_of(row);
        if (value > 0) {
            count++;
            reached += value >= least ? 1 : 0;
            if (worst == nullptr || value < worst_value) {
                worst = &row;
                worst_value = value;
            }
        }
    }
    bar.text = what;
    bar.bound = "at least " + format(pattern, least);
    if (worst != nullptr) {
        bar.text += " (" + std::to_string(reached) + " of " + std::to_string(count) + " rows; the worst)";
        bar.row = worst->id.name();
        bar.value = format(pattern, worst_value);
        bar.is_met = worst_value >= least;
    }
    return bar;
}

/** The same for large rows of one type. */
template<typename Value>
Bar worst_of_large(const Run &run, const char *what, Dtype dtype, double least, const char *pattern,
                   const Value &value_of) {
    return worst_of(run, what, least, pattern,
                    [&](const RowResult &row) { return is_large(run, row, dtype) ? value_of(row) : 0.0; });
}

// ---- Layers ----

double ratio_to(const RowResult &row, const char *name) {
    const PeerResult *peer = row.find(name);
    return peer != nullptr && peer->reason.empty() && !peer->is_wrong ? peer->ratio.median : 0;
}

/** Of the faster of the two libraries whose matrix products people use: PyTorch's are MKL's in f32. */
double ratio_to_better_peer(const RowResult &row) {
    const double onednn = ratio_to(row, "onednn"), pytorch = ratio_to(row, "pytorch");
    return onednn == 0 ? pytorch : pytorch == 0 ? onednn : std::min(onednn, pytorch);
}

double percent_of_roofline(const RowResult &row) {
    return 100 * row.fraction.median;
}

/** Which rows of layers a bar is for. */
struct LayerRows {
    enum Kind { product, ffn, ffn_with_norm } kind;
    std::int64_t least_rows, most_rows;
    Dtype dtype = Dtype::f32;

    bool hold(const Run &run, const RowResult &row) const {
        const auto &form = row.id.kernel->layer;
        return form && row.rounds > 0 && row.id.threads == run.threads && row.id.dtype == dtype &&
               row.id.rows >= least_rows && row.id.rows <= most_rows &&
               kind == (!form->is_ffn                     ? product
                        : form->norm == HALYARD_NORM_NONE ? ffn
                                                          : ffn_with_norm);
    }
};

std::vector<Bar> judge_layers(const Run &run) {
    constexpr std::int64_t many = std::int64_t{1} << 40;
    const auto worst = [&run](const char *what, const LayerRows &rows, double least, const char *pattern,
                              const auto &value_of) {
        return worst_of(run, what, least, pattern,
                        [&](const RowResult &row) { return rows.hold(run, row) ? value_of(row) : 0.0; });
    };
    const double least_of_peak = run.isa == "avx512" ? 95 : 90;
    const auto separate_calls = [](const RowResult &row) { return ratio_to(row, "separate calls"); };
    const auto cold_in_f32 = [](const RowResult &row) { return row.id.cold ? ratio_to(row, "in f32") : 0.0; };
    return {
        worst("products of 128 rows and more: time of the better of oneDNN and PyTorch over ours",
              {LayerRows::product, 128, many}, 1, "%.2fx", ratio_to_better_peer),
        worst("products of 512 rows: fraction of the peak", {LayerRows::product, 512, 512}, least_of_peak, "%.0f %%",
              percent_of_roofline),
        worst("products of 2 to 32 rows: time of the better of oneDNN and PyTorch over ours",
              {LayerRows::product, 2, 32}, 1.3, "%.2fx", ratio_to_better_peer),
        worst("products of 2 to 32 rows: fraction of the roofline", {LayerRows::product, 2, 32}, 80, "%.0f %%",
              percent_of_roofline),
        worst("products of 1 row: fraction of the read bandwidth", {LayerRows::product, 1, 1}, 95, "%.0f %%",
              percent_of_roofline),
        worst("products of 1 row with bf16 weights out of cache: time of f32 over ours",
              {LayerRows::product, 1, 1, Dtype::bf16}, 1.9, "%.2fx", cold_in_f32),
        worst("products of 1 row with f16 weights out of cache: time of f32 over ours",
              {LayerRows::product, 1, 1, Dtype::f16}, 1.9, "%.2fx", cold_in_f32),
        worst("FFN: time of separate calls over one", {LayerRows::ffn, 1, many}, 1.03, "%.2fx", separate_calls),
        worst("norm, FFN and residual, up to 128 rows: time of separate calls over one",
              {LayerRows::ffn_with_norm, 1, 128}, 1.05, "%.2fx", separate_calls),
    };
}

// ---- Attention and blocks ----

std::vector<Bar> judge_transformers(const Run &run) {
    const auto worst = [&run](const char *what, double least, const char *pattern, const auto &holds,
                              const auto &value_of) {
        return worst_of(run, what, least, pattern, [&](const RowResult &row) {
            const bool counts = row.rounds > 0 && row.id.has_heads() && row.id.threads == run.threads;
            return counts && holds(row.id) ? value_of(row) : 0.0;
        });
    };
    const auto decodes_llama = [](const WorkId &id) {
        return id.kernel->name == "block.llama2_7b" && id.dtype == Dtype::f32 && id.decodes();
    };
    const auto compiled = [](const RowResult &row) { return ratio_to(row, "pytorch-compile"); };
    return {
        worst(
            "attention, decode with 8192 cached positions: fraction of the read bandwidth", 90, "%.0f %%",
            [](const WorkId &id) { return id.kernel->attention && id.cached == 8192; }, percent_of_roofline),
        worst(
            "Llama-2-7B block in f32, decode of one sequence: fraction of the read bandwidth", 90, "%.0f %%",
            [&](const WorkId &id) { return decodes_llama(id) && id.rows == 1; }, percent_of_roofline),
        worst(
            "Llama-2-7B block in f32, decode of one sequence: time of pytorch-compile over ours", 1.1, "%.2fx",
            [&](const WorkId &id) { return decodes_llama(id) && id.rows == 1; }, compiled),
        worst(
            "Llama-2-7B block in f32, decode of 8 sequences: time of pytorch-compile over ours", 2, "%.2fx",
            [&](const WorkId &id) { return decodes_llama(id) && id.rows == 8; }, compiled),
    };
}

}  // namespace

bool has_bar(const WorkId &id, const std::string &peer, int threads) {
    return std::any_of(std::begin(ratio_bars), std::end(ratio_bars), [&](const RatioBar &bar) {
        return bar.peer == peer && with_threads(bar.row, threads) == id.name();
    });
}

std::vector<Bar> judge_bars(const Run &run) {
    std::vector<Bar> bars;
    for (const RatioBar &each : ratio_bars) {
        Bar bar;
        const std::string name = with_threads(each.row, run.threads);
        bar.text = std::string("time of ") + each.peer + " over ours, " + name;
        bar.bound = "at least " + format("%.3gx", each.least);
        const RowResult *row = find_row(run, name);
        const PeerResult *peer = row != nullptr ? row->find(each.peer) : nullptr;
        if (peer != nullptr && peer->reason.empty() && !peer->is_wrong) {
            bar.row = name;
            bar.value = format("%.2fx", peer->ratio.median);
            bar.is_met = peer->ratio.median >= each.least;
        }
        bars.push_back(bar);
    }
    bars.push_back(worst_of_large(run, "f32 out of cache: fraction of a copy", Dtype::f32, 100 * least_fraction,
                                  "%.0f %%", [](const RowResult &row) { return 100 * row.fraction.median; }));
    // AVX-512 has the instructions to widen and narrow at twice AVX2's rate.
    const double bf16_gain = run.isa == "avx512" ? 1.8 : 1.6;
    bars.push_back(worst_of_large(run, "bf16 out of cache: elements per second over those of f32", Dtype::bf16,
                                  bf16_gain, "%.2fx", [](const RowResult &row) {
                                      const PeerResult *f32 = row.find("in f32");
                                      return f32 != nullptr && f32->reason.empty() ? f32->ratio.median : 0.0;
                                  }));
    const std::vector<Bar> layers = judge_layers(run);
    bars.insert(bars.end(), layers.begin(), layers.end());
    const std::vector<Bar> transformers = judge_transformers(run);
    bars.insert(bars.end(), transformers.begin(), transformers.end());
    for (const TimeBar &each : time_bars) {
        Bar bar;
        bar.text = std::string("time of a call, ") + each.row;
        bar.bound = "at most " + format("%.0f ns", each.most * 1e9);
        if (const RowResult *row = find_row(run, each.row)) {
            bar.row = each.row;
            bar.value = format("%.0f ns", row->seconds.median * 1e9);
            bar.is_met = row->seconds.median <= each.most;
        }
        bars.push_back(bar);
    }
    return bars;
}

}  // namespace halyard::bench
