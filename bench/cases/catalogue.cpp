// The operations as rows of the benchmark: those on tensors of rows and the layers as described, attention, blocks and
// models of whatever sizes a work list asks for.
#include <deque>
#include <filesystem>
#include <string_view>

#include "halyard/model.hpp"
#include "operands.h"

namespace halyard::bench {
namespace {

/** How names of kernels end that round rows of x to 8 bits. */
constexpr std::string_view int8_suffix = ".int8";

/** Rows point at their kernels, so these stay where they are, one of each name. */
const Kernel &kept(Kernel kernel) {
    static std::deque<Kernel> all;
    for (const Kernel &each : all) {
        if (each.name == kernel.name) {
            return each;
        }
    }
    return all.emplace_back(std::move(kernel));
}

}  // namespace

Kernel tensor_kernel(const operations::Operation &operation) {
    Kernel kernel;
    kernel.name = operation.label;
    kernel.operation = operation.function.substr(std::string_view("halyard_").size());
    kernel.group = operation.group;
    kernel.common = operation.use == operations::Use::usual;
    kernel.tensors = &operation;
    kernel.scalars = operation.scalar_values();
    kernel.inputs = kernel.outputs = 0;
    for (const operations::Operand &operand : operation.operands) {
        kernel.inputs += operand.role == operations::Role::input ? 1 : 0;
        const bool is_output = operand.role == operations::Role::output;
        kernel.outputs += is_output && operand.is_by_row() ? 1 : 0;
        kernel.row_sums += is_output && !operand.is_by_row() ? 1 : 0;
        kernel.input_width =
            std::max(kernel.input_width, operand.role == operations::Role::input ? operand.times() : 1);
        kernel.output_width =
            std::max(kernel.output_width, operand.role == operations::Role::output ? operand.times() : 1);
        kernel.has_weight |= operand.name == std::string_view("weight");
        kernel.has_bias |= operand.name == std::string_view("bias");
        if (operand.is_by_row()) {
            kernel.cast_to = operand.type;
        }
    }
    if (kernel.input_width == 2) {
        kernel.layout = static_cast<halyard_glu_layout>(static_cast<int>(kernel.scalars[0]));
    }
    kernel.call = [call = operation.call, values = kernel.scalars](BenchmarkCase &bench_case, OperandSet &set) {
        return call(bench_case.context.get(), set.arguments.data(), values.data());
    };
    return kernel;
}

Kernel layer_kernel(const std::string &name, const LayerForm &form) {
    Kernel kernel;
    kernel.name = name;
    // Peers know the format behind the dot, and round x to what they please.
    const std::string with_format = name.substr(0, name.size() - (form.int8_products ? int8_suffix.size() : 0));
    kernel.operation = form.is_ffn ? "ffn" : form.is_quantized() ? with_format : "linear";
    kernel.group = form.is_ffn ? "feed-forward" : form.is_quantized() ? "quantized linear" : "linear";
    kernel.layer = form;
    kernel.inputs = form.takes_residual() ? 2 : 1;
    kernel.has_weight = form.norm != HALYARD_NORM_NONE;
    kernel.has_bias = form.norm == HALYARD_NORM_LAYER;
    kernel.prepare = prepare_layer;
    kernel.call = [form](BenchmarkCase &bench_case, OperandSet &set) {
        return operations::call_layer(bench_case.context.get(), form, set.layer);
    };
    return kernel;
}

Kernel layer_gradient_kernel(const std::string &name, const LayerForm &form) {
    Kernel kernel;
    kernel.name = name;
    kernel.operation = "linear_backward";
    kernel.group = "linear";
    kernel.layer = form;
    kernel.is_gradient = true;
    kernel.inputs = form.gated ? 4 : 2;
    kernel.prepare = prepare_layer_gradient;
    kernel.call = call_layer_gradient;
    return kernel;
}

Kernel ffn_gradient_kernel(const std::string &name, const LayerForm &form) {
    Kernel kernel = layer_kernel(name, form);
    kernel.operation = "ffn_backward";
    kernel.is_gradient = true;
    kernel.inputs = form.gated ? 4 : 3;
    kernel.prepare = prepare_ffn_gradient;
    kernel.call = call_ffn_gradient;
    return kernel;
}

Kernel make_attention(const HeadShape &heads, double softcap) {
    const std::string shared = heads.kv_heads == heads.heads ? "" : "-" + std::to_string(heads.kv_heads);
    Kernel kernel;
    kernel.operation = kernel.group = "attention";
    kernel.name = std::string(softcap == 0 ? "attention." : "attention_softcap.") + std::to_string(heads.heads) +
                  shared + "x" + std::to_string(heads.head_dim);
    kernel.attention = heads;
    kernel.scalars = {softcap};
    kernel.prepare = prepare_attention;
    kernel.call = call_attention;
    return kernel;
}

const std::vector<Kernel> &catalogue() {
    static const std::vector<Kernel> kernels = [] {
        std::vector<Kernel> all;
        for (const operations::Operation &operation : operations::all_operations()) {
            if (operation.use != operations::Use::option) {
                all.push_back(tensor_kernel(operation));
            }
        }
        return all;
    }();
    return kernels;
}

const std::vector<Kernel> &layer_catalogue() {
    static const std::vector<Kernel> kernels = [] {
        std::vector<Kernel> all;
        for (const operations::Layer &layer : operations::layers()) {
            all.push_back(layer_kernel(layer.name, layer.form));
        }
        for (const char *const name : {"linear", "linear_swiglu", "linear_geglu_tanh"}) {
            all.push_back(layer_gradient_kernel(std::string(name) + "_backward", *operations::find_layer(name)));
        }
        for (const char *const name : {"layer_norm_ffn_gelu_tanh_residual", "rms_norm_ffn_swiglu_residual"}) {
            all.push_back(ffn_gradient_kernel(std::string(name) + "_backward", *operations::find_layer(name)));
        }
        return all;
    }();
    return kernels;
}

const std::vector<Kernel> &optimizer_catalogue() {
    static const std::vector<Kernel> kernels = [] {
        Kernel sgd, adamw;
        sgd.name = "sgd";
        sgd.operation = "sgd_step";
        sgd.scalars = {1e-3, 0.9, 1e-2};  // lr, momentum, weight decay
        sgd.inputs = 3;
        sgd.outputs = 2;
        sgd.state = {0, 2};
        sgd.prepare = prepare_sgd;
        sgd.call = call_sgd;
        adamw.name = "adamw";
        adamw.operation = "adamw_step";
        adamw.scalars = {1e-3, 0.9, 0.999, 1e-8, 1e-2};  // lr, betas, eps, weight decay
        adamw.inputs = 4;
        adamw.outputs = 3;
        adamw.state = {0, 2, 3};
        adamw.prepare = prepare_adamw;
        adamw.call = call_adamw;
        sgd.group = adamw.group = "optimizers";
        return std::vector<Kernel>{sgd, adamw};
    }();
    return kernels;
}

const Kernel &attention_kernel(const HeadShape &heads) {
    return kept(make_attention(heads));
}

const Kernel &attention_gradient_kernel(const HeadShape &heads) {
    Kernel kernel = make_attention(heads);
    kernel.operation = "attention_backward";
    kernel.name.replace(0, kernel.group.size(), kernel.operation);
    kernel.is_gradient = true;
    kernel.prepare = prepare_attention_gradient;
    kernel.call = call_attention_gradient;
    return kept(std::move(kernel));
}

const Kernel &cross_entropy_kernel() {
    Kernel kernel;
    kernel.name = kernel.operation = "cross_entropy";
    kernel.group = "training";
    kernel.prepare = prepare_cross_entropy;
    kernel.call = call_cross_entropy;
    return kept(std::move(kernel));
}

const Kernel &embedding_gradient_kernel(std::int64_t vocabulary) {
    Kernel kernel;
    kernel.operation = "embedding_backward";
    kernel.name = kernel.operation + "." + std::to_string(vocabulary);
    kernel.group = "training";
    kernel.vocabulary = vocabulary;
    kernel.prepare = prepare_embedding_gradient;
    kernel.call = call_embedding_gradient;
    return kept(std::move(kernel));
}

const Kernel &block_kernel(const std::string &model, const BlockForm &form) {
    Kernel kernel;
    kernel.operation = form.is_model() ? "model" : "block";
    kernel.name = kernel.operation + "." + model;
    kernel.group = kernel.operation + "s";
    if (form.quantization.bits != 0) {
        kernel.operation += form.quantization.bits == 8 ? ".q8_0" : ".q4_0";  // which a peer must know
    }
    kernel.block = form;
    kernel.prepare = form.is_model() ? prepare_model : prepare_block;
    kernel.call = form.is_model() ? call_model : call_block;
    return kept(std::move(kernel));
}

const Kernel &block_gradient_kernel(const std::string &model, const BlockForm &form) {
    Kernel kernel;
    kernel.operation = "block_backward";
    kernel.name = kernel.operation + "." + model;
    kernel.group = "blocks";
    kernel.block = form;
    kernel.inputs = 2;
    kernel.is_gradient = true;
    kernel.prepare = prepare_block_gradient;
    kernel.call = call_block_gradient;
    return kept(std::move(kernel));
}

const Kernel &training_step_kernel(const std::string &model, const BlockForm &form) {
    Kernel kernel;
    kernel.operation = "training_step";
    kernel.name = kernel.operation + "." + model;
    kernel.group = "training";
    kernel.block = form;
    kernel.is_gradient = true;
    kernel.scalars = {1e-4, 0.9, 0.999, 1e-8, 1e-2, 1};  // lr, betas, eps, weight decay, the largest norm
    kernel.prepare = prepare_training_step;
    kernel.call = call_training_step;
    return kept(std::move(kernel));
}

const Kernel &file_kernel(const std::string &path, bool int8_products) {
    const ModelConfig config = ModelConfig::load(path);
    const BlockConfig &block = config.blocks.front();
    BlockForm form{};
    form.preset = "llama";  // the report tells blocks by their name alone
    form.d = block.hidden_size;
    form.d_ff = block.intermediate_size;
    form.heads = {block.num_attention_heads, block.num_key_value_heads, block.head_dim};
    form.norm = static_cast<halyard_norm>(block.norm);
    form.activation = static_cast<halyard_activation>(block.hidden_act);
    form.gated = block.gated_mlp;
    form.rope_theta = block.rope.rope_theta;
    form.layers = static_cast<std::int64_t>(config.blocks.size());
    form.vocabulary = config.stack.vocab_size;
    // Vectors and metadata are small beside the matrices, an embedding that is not tied is a matrix like the others.
    const std::int64_t tables = config.tie_word_embeddings ? 1 : 2;
    const std::int64_t elements = form.layers * form.block_elements() + tables * form.vocabulary * form.d;
    form.int8_products = int8_products;
    form.element_bytes = static_cast<double>(std::filesystem::file_size(path)) / static_cast<double>(elements);
    Kernel kernel;
    kernel.name =
        "model." + std::filesystem::path(path).stem().string() + std::string(int8_products ? int8_suffix : "");
    kernel.operation = "model.gguf";
    kernel.group = "models";
    kernel.block = form;
    kernel.file = path;
    kernel.prepare = prepare_model_file;
    kernel.call = call_model;
    return kept(std::move(kernel));
}

}  // namespace halyard::bench
