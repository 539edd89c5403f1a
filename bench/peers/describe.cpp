// See describe.h.
#include "peers/describe.h"

#include "block.h"
#include "layer.h"
#include "model.h"

namespace halyard::bench {
namespace {

using nlohmann::json;

const char *const norm_names[] = {"none", "rms", "layer"};

const char *name_of(halyard_activation activation) {
    return activation == HALYARD_SILU ? "silu" : activation == HALYARD_GELU_TANH ? "gelu_tanh" : "identity";
}

json describe(const Process &process, const std::string &name, const PeriodicMatrix &matrix) {
    return {{"path", process.send(name, matrix.period())}, {"out", matrix.out()}, {"in", matrix.in()}};
}

/** The path of a vector, or nothing. */
json send_vector(const Process &process, const std::string &name, const Matrix *vector) {
    return vector != nullptr ? json(process.send(name, *vector)) : json();
}

json describe_layer(const Process &process, const BenchmarkCase &bench_case) {
    const LayerForm &form = *bench_case.id.kernel->layer;
    json layer = {{"is_ffn", form.is_ffn},
                  {"gated", form.gated},
                  {"has_residual", form.has_residual},
                  {"norm", norm_names[form.norm]},
                  {"activation", name_of(form.activation)},
                  {"d_out", bench_case.id.d_out},
                  {"bias", send_vector(process, "layer_bias", bench_case.layer->bias(Layer::first))},
                  {"bias_down", send_vector(process, "layer_bias_down", bench_case.layer->bias(Layer::down))}};
    for (const Layer::Part part : {Layer::first, Layer::up, Layer::down}) {
        if ((part == Layer::up && !form.gated) || (part == Layer::down && !form.is_ffn)) {
            continue;
        }
        json matrix = describe(process, "matrix" + std::to_string(part), bench_case.layer->matrix(part));
        matrix["seed"] = static_cast<int>(part);
        layer["matrices"].push_back(matrix);
    }
    return layer;
}

/** Heads, sequences and positions, and the keys and values of those that are cached. */
json describe_positions(const Process &process, const CaseId &id, const History *history) {
    const HeadShape &shape = id.heads();
    json positions = {{"heads", shape.heads},        {"kv_heads", shape.kv_heads}, {"head_dim", shape.head_dim},
                      {"sequences", id.sequences()}, {"tokens", id.tokens()},      {"cached", id.cached}};
    if (history != nullptr) {
        positions["history"] = {describe(process, "history_keys", history->keys()),
                                describe(process, "history_values", history->values())};
    }
    return positions;
}

/** `prefix` keeps the files of one block from those of another. */
json describe_block(const Process &process, const std::string &prefix, const BlockForm &form, const Block &block) {
    json result = {{"d", form.d},
                   {"d_ff", form.d_ff},
                   {"norm", norm_names[form.norm]},
                   {"eps", form.eps()},
                   {"activation", name_of(form.activation)},
                   {"gated", form.gated},
                   {"rope_theta", form.rope_theta}};
    const char *parts[] = {"q", "k", "v", "o", "gate", "up", "down"};
    for (int i = 0; i < Block::part_count; i++) {
        const auto part = static_cast<Block::Part>(i);
        if (block.has(part)) {
            result["matrices"][parts[i]] = describe(process, prefix + parts[i], block.matrix(part));
            result["biases"][parts[i]] = send_vector(process, prefix + parts[i] + "_bias", block.bias(part));
        }
    }
    for (const Block::Norm norm : {Block::before_attention, Block::before_ffn}) {
        const std::string name = prefix + "norm" + std::to_string(norm);
        result["norms"].push_back({send_vector(process, name, &block.norm_weight(norm)),
                                   send_vector(process, name + "_bias", block.norm_bias(norm))});
    }
    return result;
}

json describe_model(const Process &process, const BenchmarkCase &bench_case) {
    const Model &model = *bench_case.model;
    const BlockForm &form = model.form();
    json request = {{"vocabulary", form.vocabulary},
                    {"cached", bench_case.id.cached},
                    {"heads", form.heads.heads},
                    {"kv_heads", form.heads.kv_heads},
                    {"head_dim", form.heads.head_dim},
                    {"token_ids", model.tokens()},
                    {"embedding", describe(process, "embedding", model.embedding())},
                    {"head", describe(process, "head", model.head())},
                    {"last_norm", process.send("last_norm", model.last_norm())}};
    for (std::size_t i = 0; i < model.blocks().size(); i++) {
        const std::string prefix = "block" + std::to_string(i) + "_";
        request["blocks"].push_back(describe_block(process, prefix, form, *model.blocks()[i]));
    }
    return request;
}

}  // namespace

json describe_row(const Process &process, const BenchmarkCase &bench_case) {
    const Kernel &kernel = *bench_case.id.kernel;
    const char *layouts[] = {"gate_up", "up_gate", "interleaved"};
    json request = {{"operation", kernel.operation},
                    {"dtype", operations::name_of(bench_case.id.dtype)},
                    {"output_dtype", operations::name_of(bench_case.id.output_dtype())},
                    {"rows", bench_case.id.rows},
                    {"d", bench_case.id.d},
                    {"input_width", bench_case.id.d * kernel.input_width},
                    {"outputs", kernel.outputs},
                    {"sets", bench_case.sets.size()},
                    {"layout", layouts[kernel.layout]},
                    {"layer_norm_eps", layer_norm_eps},
                    {"rms_norm_eps", rms_norm_eps}};
    for (std::size_t i = 0; i < bench_case.sets[0].inputs.size(); i++) {
        request["inputs"].push_back(process.send("input" + std::to_string(i), bench_case.sets[0].inputs[i]));
    }
    if (bench_case.weight) {
        request["weight"] = process.send("weight", *bench_case.weight);
    }
    if (bench_case.bias) {
        request["bias"] = process.send("bias", *bench_case.bias);
    }
    if (kernel.layer) {
        request["layer"] = describe_layer(process, bench_case);
    } else if (kernel.attention) {
        request["attention"] = describe_positions(process, bench_case.id, bench_case.attention->history());
    } else if (bench_case.id.is_model()) {
        request["model"] = describe_model(process, bench_case);
    } else if (kernel.block) {
        request["block"] = describe_block(process, "", *kernel.block, *bench_case.block);
        request["block"].update(describe_positions(process, bench_case.id, bench_case.block->history()));
    }
    return request;
}

}  // namespace halyard::bench
