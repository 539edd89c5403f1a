// See attention_cases.h.
#include "attention_cases.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <map>
#include <stdexcept>
#include <tuple>

#include "bench/cases/attention.h"
#include "halyard/attention.h"
#include "operations/reference_attention.h"

namespace halyard::tune {
namespace {

using bench::BenchmarkCase;
using bench::CaseId;
using bench::HeadsView;
using bench::OperandSet;

void require(halyard_status status) {
    if (status != HALYARD_OK) {
        throw std::runtime_error(halyard_last_error());
    }
}

/** Heads of 128 features as most models have them; three of a width that is no multiple of that. */
constexpr std::int64_t usual_head_dim = 128, odd_heads = 3;

std::int64_t head_dim_of(const CaseId &id) {
    return id.d % usual_head_dim == 0 ? usual_head_dim : id.d / odd_heads;
}

std::int64_t heads_of(const CaseId &id) {
    return id.d / head_dim_of(id);
}

/** Rows as a shape has them, of whole heads. */
OwnShapes shapes_of_heads(std::vector<RowsAndWidth> checks) {
    OwnShapes own;
    own.probes = {{32, usual_head_dim}};
    own.checks = std::move(checks);
    own.timed = [](const Shape &shape) {
        const std::int64_t heads = (shape.d + usual_head_dim - 1) / usual_head_dim;
        return std::make_optional(RowsAndWidth{shape.rows, heads * usual_head_dim});
    };
    return own;
}

/** The worst of errors relative to the largest value beside them. */
class WorstError {
public:
    void add(const operations::Row &expected, const operations::Row &got) {
        double largest = std::numeric_limits<double>::min(), error = 0;
        for (std::size_t i = 0; i < expected.size(); i++) {
            largest = std::max(largest, std::fabs(expected[i]));
            error = std::isnan(got[i]) ? std::numeric_limits<double>::infinity()
                                       : std::max(error, std::fabs(got[i] - expected[i]));
        }
        worst = std::max(worst, error / largest);
    }

    double worst = 0;
};

operations::ExpectedRow exact(const operations::Row &row, std::size_t begin, std::size_t count) {
    operations::ExpectedRow part;
    for (std::size_t i = begin; i < begin + count; i++) {
        part.push_back({row[i], 0});
    }
    return part;
}

// ---- attention ----

constexpr bench::HeadShape small_heads{2, 2, 16};
constexpr double softcap = 20;

/** Two blocks of keys in part, so that some are merged, and softmax with a mask and without. */
OwnShapes shapes_of_attention() {
    constexpr std::int64_t timed_tokens = 1024, two_blocks = 600;
    const std::int64_t width = small_heads.query_width();
    OwnShapes own;
    own.probes = {{two_blocks, width}};
    own.checks = {{1, width}, {67, width}, {two_blocks, width}};
    own.timed = [width](const Shape &shape) {
        return shape.cold ? std::nullopt : std::make_optional(RowsAndWidth{timed_tokens, width});
    };
    return own;
}

CaseFamily attention_kind(double cap) {
    CaseFamily kind;
    kind.kernel = bench::make_attention(small_heads, cap);
    kind.own = shapes_of_attention();
    return kind;
}

// ---- rotary embedding ----

constexpr double rope_theta = 10000;

/** A table for so many positions. */
const halyard_rope *rope_of(const CaseId &id, bool interleaved) {
    static std::map<std::tuple<std::int64_t, std::int64_t, bool>, std::shared_ptr<halyard_rope>> all;
    std::shared_ptr<halyard_rope> &rope = all[{head_dim_of(id), id.rows, interleaved}];
    if (rope == nullptr) {
        halyard_rope_options options{};
        options.head_dim = head_dim_of(id);
        options.max_positions = id.rows;
        options.rope_theta = rope_theta;
        options.interleaved = interleaved ? 1 : 0;
        halyard_rope *made = nullptr;
        require(halyard_rope_create(&options, &made));
        rope.reset(made, halyard_rope_destroy);
    }
    return rope.get();
}

CaseFamily rope_kind(const char *name, bool interleaved) {
    CaseFamily kind;
    kind.kernel.name = kind.kernel.operation = name;
    kind.kernel.call = [interleaved](BenchmarkCase &bench_case, OperandSet &set) {
        const HeadsView x(set.inputs[0], 1, heads_of(bench_case.id), head_dim_of(bench_case.id));
        HeadsView y(set.outputs[0], 1, heads_of(bench_case.id), head_dim_of(bench_case.id));
        return halyard_rope_apply(bench_case.context.get(), rope_of(bench_case.id, interleaved), &x.view, nullptr,
                                  &y.view);
    };
    kind.error = [interleaved](const BenchmarkCase &bench_case) {
        const auto dim = static_cast<std::size_t>(head_dim_of(bench_case.id));
        operations::RopeRule rule;
        rule.rotary_dim = head_dim_of(bench_case.id);
        rule.theta = rope_theta;
        rule.interleaved = interleaved;
        WorstError error;
        for (std::int64_t row = 0; row < bench_case.id.rows; row++) {
            const operations::Row x = bench_case.sets[0].inputs[0].row(row);
            operations::Row expected;
            for (std::size_t begin = 0; begin < x.size(); begin += dim) {
                for (const operations::Expected &each : operations::rotated(exact(x, begin, dim), rule, row)) {
                    expected.push_back(each.value);
                }
            }
            error.add(expected, bench_case.sets[0].outputs[0].row(row));
        }
        return error.worst;
    };
    kind.own = shapes_of_heads({{5, 198}, {3, 640}, {4, 1024}});
    return kind;
}

// ---- keys and values into a cache and out of it ----

enum CacheInput { keys, values };

/** An f32 row for the keys and one for the values of each position, so that nothing but the kernels converts; and a
 *  cache of the case's type. */
void prepare_cache(BenchmarkCase &bench_case) {
    const CaseId &id = bench_case.id;
    for (std::size_t i = 0; i < id.set_count(bench_case.cold_set); i++) {
        OperandSet operands;
        for (const CacheInput input : {keys, values}) {
            operands.inputs.emplace_back(bench::Dtype::f32, id.rows, id.d);
            operands.inputs.back().fill_random(static_cast<unsigned>(input) + 1, 0.0, 1.5);
            operands.outputs.emplace_back(bench::Dtype::f32, id.rows, id.d);
        }
        halyard_kv_cache_options options{};
        options.n_layers = options.n_sequences = 1;
        options.n_kv_heads = heads_of(id);
        options.head_dim = head_dim_of(id);
        options.max_positions = id.rows;
        options.dtype = operations::dlpack_type(id.dtype);
        halyard_kv_cache *cache = nullptr;
        require(halyard_kv_cache_create(&options, nullptr, 0, &cache));
        operands.cache.reset(cache, halyard_kv_cache_destroy);
        bench_case.sets.push_back(std::move(operands));
    }
}

halyard_status append(BenchmarkCase &bench_case, OperandSet &set) {
    const HeadsView k(set.inputs[keys], 1, heads_of(bench_case.id), head_dim_of(bench_case.id));
    const HeadsView v(set.inputs[values], 1, heads_of(bench_case.id), head_dim_of(bench_case.id));
    const halyard_status status = halyard_kv_cache_truncate(set.cache.get(), 0, 0);
    return status != HALYARD_OK
               ? status
               : halyard_kv_cache_append(bench_case.context.get(), set.cache.get(), 0, nullptr, &k.view, &v.view);
}

/** Which of the two are read. */
halyard_status read(BenchmarkCase &bench_case, OperandSet &set, std::initializer_list<CacheInput> which) {
    HeadsView views[] = {{set.outputs[keys], 1, heads_of(bench_case.id), head_dim_of(bench_case.id)},
                         {set.outputs[values], 1, heads_of(bench_case.id), head_dim_of(bench_case.id)}};
    DLTensor *outputs[] = {nullptr, nullptr};
    for (const CacheInput each : which) {
        DLTensor &view = views[each].view;
        view.ndim--;  // no axis of sequences
        view.shape++;
        view.strides++;
        outputs[each] = &view;
    }
    return halyard_kv_cache_read(bench_case.context.get(), set.cache.get(), 0, 0, 0, outputs[keys], outputs[values]);
}

/** What went into the cache must come out of it, rounded to its type. */
double error_of_copies(const BenchmarkCase &bench_case, std::initializer_list<CacheInput> which) {
    const OperandSet &set = bench_case.sets[0];
    WorstError error;
    for (const CacheInput each : which) {
        for (std::int64_t row = 0; row < bench_case.id.rows; row++) {
            error.add(set.inputs[each].row(row), set.outputs[each].row(row));
        }
    }
    return error.worst;
}

CaseFamily cache_kind(const char *name) {
    CaseFamily kind;
    kind.kernel.name = kind.kernel.operation = name;
    kind.kernel.inputs = kind.kernel.outputs = 2;
    kind.kernel.prepare = prepare_cache;
    kind.own = shapes_of_heads({{1, 256}, {37, 198}, {600, 256}});
    return kind;
}

CaseFamily append_kind() {
    CaseFamily kind = cache_kind("kv_append");
    kind.kernel.call = append;
    kind.finish = [](BenchmarkCase &bench_case) { require(read(bench_case, bench_case.sets[0], {keys, values})); };
    kind.error = [](const BenchmarkCase &bench_case) { return error_of_copies(bench_case, {keys, values}); };
    return kind;
}

CaseFamily read_kind(const char *name, CacheInput which) {
    CaseFamily kind = cache_kind(name);
    kind.kernel.call = [which](BenchmarkCase &bench_case, OperandSet &set) {
        if (halyard_kv_cache_length(set.cache.get(), 0, 0) == 0) {
            const halyard_status status = append(bench_case, set);
            if (status != HALYARD_OK) {
                return status;
            }
        }
        return read(bench_case, set, {which});
    };
    kind.error = [which](const BenchmarkCase &bench_case) { return error_of_copies(bench_case, {which}); };
    return kind;
}

}  // namespace

std::vector<CaseFamily> attention_case_families() {
    return {attention_kind(0),
            attention_kind(softcap),
            rope_kind("rope", false),
            rope_kind("rope_interleaved", true),
            append_kind(),
            read_kind("kv_read_keys", keys),
            read_kind("kv_read_values", values)};
}

}  // namespace halyard::tune
