// See operands.h.
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "halyard/model.hpp"
#include "operands.h"

namespace halyard::bench {

/** A stack, and what it needs. */
class Model {
public:
    explicit Model(std::shared_ptr<const halyard_stack> made) : stack(std::move(made)) {}

    /** Runs tokens [first, first + count) of the row; logits of the last, or with `all` of each. */
    halyard_status forward(const BenchmarkCase &bench_case, const halyard_context *context, halyard_kv_cache *cache,
                           std::int64_t first, std::int64_t count, bool all, DLTensor logits) const {
        DLTensor tokens = {const_cast<std::int64_t *>(bench_case.tokens.data() + first),
                           {kDLCPU, 0},
                           1,
                           {kDLInt, 64, 1},
                           &count,
                           nullptr,
                           0};
        if (!all) {
            logits.ndim = 1;
            logits.shape++;
        }
        halyard_stack_options options{};
        options.all_logits = all ? 1 : 0;
        return halyard_stack_forward(context, stack.get(), &tokens, cache, nullptr, &options, &logits);
    }

private:
    const std::shared_ptr<const halyard_stack> stack;
};

namespace {

constexpr unsigned embedding_seed = 500, head_seed = 501, norm_seed = 502;
constexpr std::int64_t sampled_columns = 256;
constexpr std::size_t judged_tokens = 2;  // of a prompt in float64: a second each

/** What the library makes of the parameters. */
struct MadeStack {
    explicit MadeStack(const BenchmarkCase &bench_case)
        : embedding(bench_case.parameters.matrices.at("embedding").whole()) {
        const BlockForm &form = *bench_case.id.kernel->block;
        std::vector<const halyard_block *> pointers;
        for (std::int64_t i = 0; i < form.layers; i++) {
            blocks.push_back(make_block(bench_case, std::to_string(i) + "."));
            pointers.push_back(blocks.back().get());
        }
        const Matrix head = bench_case.parameters.matrices.at("head").whole();
        halyard_stack_config config{};
        config.vocab_size = form.vocabulary;
        config.hidden_size = form.d;
        config.norm = form.norm;
        config.rms_norm_eps = form.eps();
        halyard_stack_weights weights{};
        weights.embed_tokens = &embedding.view;
        weights.norm = bench_case.parameters.vector("norm");
        weights.lm_head = &head.view;
        weights.quantization = form.quantization;
        require(
            halyard_stack_create(bench_case.context.get(), &config, &weights, pointers.data(), form.layers, &stack));
    }
    ~MadeStack() { halyard_stack_destroy(stack); }
    MadeStack(const MadeStack &) = delete;
    MadeStack &operator=(const MadeStack &) = delete;

    const Matrix embedding;  // the stack reads it
    std::vector<std::shared_ptr<const halyard_block>> blocks;
    halyard_stack *stack = nullptr;
};

/** Runs the row's first tokens as a prompt. */
Matrix logits_of_two_tokens(const BenchmarkCase &bench_case, const Model &model, const halyard_context *context) {
    const auto count = static_cast<std::int64_t>(std::min(judged_tokens, bench_case.tokens.size()));
    Matrix logits(Dtype::f32, count, bench_case.id.kernel->block->vocabulary);
    std::memset(logits.data(), 0xff, logits.bytes());
    require(model.forward(bench_case, context, nullptr, 0, count, true, logits.view));
    return logits;
}

double error_of_two_tokens(const BenchmarkCase &bench_case) {
    const BlockForm &form = *bench_case.id.kernel->block;
    const Parameters &parameters = bench_case.parameters;
    std::vector<std::int64_t> tokens = bench_case.tokens;
    tokens.resize(std::min(judged_tokens, tokens.size()));
    std::vector<operations::BlockValues> blocks;
    for (std::int64_t i = 0; i < form.layers; i++) {
        blocks.push_back(block_values(bench_case, std::to_string(i) + "."));
    }
    operations::StackValues values;
    values.config.norm = form.norm;
    values.config.rms_norm_eps = form.eps();
    values.embed_tokens.resize(static_cast<std::size_t>(form.vocabulary));
    for (const std::int64_t token : tokens) {
        values.embed_tokens[static_cast<std::size_t>(token)] = parameters.matrices.at("embedding").row(token);
    }
    values.norm.weight = parameters.values("norm");
    values.lm_head = parameters.matrices.at("head").weights(form.quantization);
    for (const operations::BlockValues &block : blocks) {
        values.blocks.push_back(&block);
    }

    const Matrix logits = logits_of_two_tokens(bench_case, *bench_case.model, bench_case.context.get());
    const std::int64_t count = logits.rows();
    Sample sample(count, count, form.vocabulary, sampled_columns);
    for (const operations::ExpectedRow &row : operations::stack(values, tokens).logits) {
        sample.expect(operations::values_of(row));
    }
    return sample.worst_error(logits);
}

/** Fills a row's operand set and sample. `make` makes the stack; `error` says how far it is from the truth. */
template<class Make, class Error>
void run_model(BenchmarkCase &bench_case, const Make &make, const Error &error) {
    const CaseId &id = bench_case.id;
    const BlockForm &form = *id.kernel->block;
    // Tokens far apart in the vocabulary, none twice in a row: a prompt's, or those that are cached and then the one that is
    // decoded.
    for (std::int64_t i = 0; i < id.cached + id.tokens(); i++) {
        bench_case.tokens.push_back((i * 7919 + 17) % form.vocabulary);
    }
    const std::size_t before = resident_bytes();
    bench_case.model = std::make_shared<Model>(make());
    OperandSet &set = bench_case.sets.emplace_back();
    set.outputs.emplace_back(Dtype::f32, 1, form.vocabulary);
    set.cache = make_cache(id, form.layers);
    if (id.decodes()) {
        require(bench_case.model->forward(bench_case, bench_case.context.get(), set.cache.get(), 0, id.cached, false,
                                          set.outputs[0].view));
    }
    require(call_model(bench_case, set));
    bench_case.resident = resident_bytes() - before;

    Sample sample(1, 1, form.vocabulary, form.vocabulary);
    sample.known_error = error();
    sample.expect(set.outputs[0].row(0));
    bench_case.samples.push_back(std::move(sample));
}

}  // namespace

std::size_t resident_bytes() {
    malloc_trim(0);
    std::size_t total = 0, resident = 0;
    std::ifstream("/proc/self/statm") >> total >> resident;
    return resident * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

void prepare_model(BenchmarkCase &bench_case) {
    const CaseId &id = bench_case.id;
    const BlockForm &form = *id.kernel->block;
    Parameters &parameters = bench_case.parameters;
    parameters.add_matrix("embedding", id.dtype, form.vocabulary, form.d, embedding_seed, 1.0);
    parameters.add_matrix("head", id.dtype, form.vocabulary, form.d, head_seed);
    parameters.add_vector("norm", id.dtype, form.d, norm_seed, 1.0);
    for (std::int64_t i = 0; i < form.layers; i++) {
        add_block(parameters, std::to_string(i) + ".", form, id.dtype, static_cast<unsigned>(i));
    }
    run_model(
        bench_case,
        [&] {
            const auto made = std::make_shared<const MadeStack>(bench_case);
            return std::shared_ptr<const halyard_stack>(made, made->stack);
        },
        [&] { return error_of_two_tokens(bench_case); });
}

void prepare_model_file(BenchmarkCase &bench_case) {
    const CaseId &id = bench_case.id;
    LoadOptions options;
    options.context = bench_case.context.get();
    options.max_positions = id.cached + id.tokens();
    const auto load = [&] {
        const auto model = std::make_shared<const halyard::Model>(halyard::Model::load(id.kernel->file, options));
        return std::shared_ptr<const halyard_stack>(model, model->stack().get());
    };
    run_model(bench_case, load, [&] {
        options.unpacked_dtype = element<float>::dtype;
        const std::shared_ptr<const Model> quantized = bench_case.model;
        const Matrix got = logits_of_two_tokens(bench_case, *quantized, bench_case.context.get());
        Context exact;
        exact.set_products(Products::full);
        const Matrix expected = logits_of_two_tokens(bench_case, Model(load()), exact);
        Sample sample(got.rows(), got.rows(), got.width(), sampled_columns);
        for (std::int64_t row = 0; row < got.rows(); row++) {
            sample.expect(expected.row(row));
        }
        return sample.worst_error(got);
    });
}

halyard_status call_model(BenchmarkCase &bench_case, OperandSet &set) {
    const CaseId &id = bench_case.id;
    return rewind_cache(id, set.cache.get(),
                        bench_case.model->forward(bench_case, bench_case.context.get(), set.cache.get(), id.cached,
                                                  id.tokens(), false, set.outputs[0].view));
}

}  // namespace halyard::bench
