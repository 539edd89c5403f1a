// What a peer is told of a row: what it computes, with its tensors in files; of a matrix only what it repeats is sent.
#include <filesystem>

#include "peers/peer.h"

namespace halyard::bench {
namespace {

using nlohmann::json;

const char *const norm_names[] = {"none", "rms", "layer"};

const char *name_of(halyard_activation activation) {
    return activation == HALYARD_SILU ? "silu" : activation == HALYARD_GELU_TANH ? "gelu_tanh" : "identity";
}

json describe(const LayerForm &form, const CaseId &id) {
    return {{"is_ffn", form.is_ffn},
            {"gated", form.gated},
            {"has_residual", form.has_residual},
            {"norm", norm_names[form.norm]},
            {"activation", name_of(form.activation)},
            {"d_out", id.d_out}};
}

/** The shape of attention; of blocks and models what they consist of too. */
json describe_heads(const CaseId &id) {
    json shape = {{"heads", id.heads().heads},   {"kv_heads", id.heads().kv_heads}, {"head_dim", id.heads().head_dim},
                  {"sequences", id.sequences()}, {"tokens", id.tokens()},           {"cached", id.cached}};
    if (const auto &form = id.kernel->block) {
        shape.update({{"d", form->d},
                      {"d_ff", form->d_ff},
                      {"norm", norm_names[form->norm]},
                      {"activation", name_of(form->activation)},
                      {"gated", form->gated},
                      {"rope_theta", form->rope_theta},
                      {"layers", form->layers},
                      {"vocabulary", form->vocabulary}});
    }
    return shape;
}

float eps_of(const Kernel &kernel) {
    return kernel.layer                                        ? kernel.layer->eps()
           : kernel.block                                      ? kernel.block->eps()
           : kernel.operation.find("rms") != std::string::npos ? operations::rms_norm_eps
                                                               : operations::layer_norm_eps;
}

}  // namespace

json describe_row(const Process &process, const BenchmarkCase &bench_case) {
    const CaseId &id = bench_case.id;
    const Kernel &kernel = *id.kernel;
    const char *layouts[] = {"gate_up", "up_gate", "interleaved"};
    json request = {{"operation", kernel.operation},
                    {"dtype", operations::name_of(id.dtype)},
                    {"output_dtype", operations::name_of(id.output_dtype())},
                    {"rows", id.rows},
                    {"d", id.d},
                    {"outputs", kernel.outputs},
                    {"sets", bench_case.sets.size()},
                    {"layout", layouts[kernel.layout]},
                    {"eps", eps_of(kernel)},
                    {"tensors", json::object()}};
    if (!kernel.state.empty() || id.is_training_step()) {
        request["numbers"] = kernel.scalars;  // of an optimizer
    }
    for (std::size_t i = 0; i < bench_case.sets[0].inputs.size(); i++) {
        request["inputs"].push_back(process.send("input" + std::to_string(i), bench_case.sets[0].inputs[i]));
    }
    const auto send = [&](const std::string &name, const Matrix &values, const std::vector<std::int64_t> &shape) {
        request["tensors"][name] = {{"path", process.send(name, values)}, {"shape", shape}};
    };
    for (const auto &[name, matrix] : bench_case.parameters.matrices) {
        if (bench_case.parameters.blocks.count(name) == 0) {
            send(name, matrix.period(), {matrix.out(), matrix.in()});
        }
    }
    for (const auto &[name, blocks] : bench_case.parameters.blocks) {
        request["tensors"][name] = {{"path", process.send(name, blocks.bytes().data(), blocks.bytes().size())},
                                    {"shape", {blocks.out(), blocks.bytes_of_row()}},
                                    {"dtype", "u8"}};
    }
    for (const auto &[name, vector] : bench_case.parameters.vectors) {
        send(name, *vector, {vector->width()});
    }
    if (bench_case.weight) {
        send("norm_weight", *bench_case.weight, {id.d});
    }
    if (bench_case.bias) {
        send("norm_bias", *bench_case.bias, {id.d});
    }
    if (kernel.layer) {
        request["layer"] = describe(*kernel.layer, id);
    } else if (id.has_heads()) {
        request[kernel.attention ? "attention" : id.is_model() ? "model" : "block"] = describe_heads(id);
    }
    if (id.is_model()) {
        request["model"]["token_ids"] = bench_case.tokens;
        if (!kernel.file.empty()) {
            request["model"]["file"] = std::filesystem::absolute(kernel.file).string();
        }
    } else if (kernel.group == "training") {
        request["ids"] = bench_case.tokens;
        request["vocabulary"] = kernel.vocabulary;
    }
    return request;
}

}  // namespace halyard::bench
