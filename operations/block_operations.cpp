// See block_operations.h.
#include "block_operations.h"

#include <memory>

#include "quantized.h"

namespace halyard::operations {
namespace {

constexpr std::int64_t most_positions = 4096;

/** The form with the sizes of one call. */
BlockForm with_sizes(BlockForm form, std::int64_t d, std::int64_t d_ff, std::int64_t head_dim) {
    form.d = d;
    form.d_ff = d_ff;
    form.heads.head_dim = head_dim;
    return form;
}

Operation::Call prepared_block(const BlockForm &form, DLTensor *const *tensors) {
    const halyard_block_weights weights = block_weights(form, tensors + 1);
    const std::int64_t *const q = weights.q_proj->shape;
    halyard_block_config config{};
    halyard_status status =
        with_sizes(form, q[1], weights.up_proj->shape[0], q[0] / form.heads.heads).config(most_positions, config);
    halyard_block *made = nullptr;
    if (status == HALYARD_OK) {
        status = halyard_block_create(nullptr, &config, &weights, &made);
    }
    const std::shared_ptr<halyard_block> block(made, halyard_block_destroy);
    const std::size_t y = block_parameters(form).size() + 1;
    return [=](const halyard_context *context, DLTensor *const *t, const double *) {
        return status == HALYARD_OK ? halyard_block_forward(context, block.get(), t[0], nullptr, 0, nullptr, t[y])
                                    : status;
    };
}

WeightMatrix packed_values(const BlockForm &form, Rows rows) {
    for (Row &row : rows) {
        row = form.quantization.bits != 0 ? quantized_values(row, form.quantization) : row;
    }
    return matrix_of(rows);
}

Matrix expected_block(const BlockForm &form, const std::vector<Rows> &values, const Sizes &sizes, Dtype type) {
    BlockValues of_block;
    with_sizes(form, sizes.d, sizes.d_out, sizes.head_dim).config(most_positions, of_block.config);
    std::size_t operand = 1;
    for (const BlockParameter &each : block_parameters(form)) {
        const Rows &rows = values[operand++];
        if (each.matrix) {
            each.matrix(of_block) = packed_values(form, rows);
        } else {
            each.vector(of_block) = rows[0];
        }
    }
    Rounding rounding;
    // What is multiplied is rounded between products of bf16 weights.
    rounding.products = type == Dtype::bf16 && form.quantization.bits == 0 ? type : Dtype::f32;
    Matrix y;
    for (auto first = values[0].begin(); first != values[0].end(); first += sizes.queries) {
        const Matrix sequence = block(of_block, {first, first + sizes.queries}, rounding);
        y.insert(y.end(), sequence.begin(), sequence.end());
    }
    return y;
}

Operation block_operation(const std::string &label, const BlockForm &form) {
    const std::vector<Axis> tokens = {Extent::batch, Extent::queries, Extent::d};
    Operation operation;
    operation.label = label;
    operation.function = "halyard_block_forward";
    operation.group = "blocks";
    operation.operands = {{"x", Role::input, false, tokens}};
    for (const BlockParameter &each : block_parameters(form)) {
        operation.operands.push_back(each.operand);
    }
    operation.operands.push_back({"y", Role::output, false, tokens});
    operation.in_place = {{{operation.operands.size() - 1, 0}}};
    operation.needs_features = true;
    operation.prepare = [form](DLTensor *const *t) { return prepared_block(form, t); };
    operation.reference = [form](const std::vector<Rows> &values, const Sizes &sizes, const double *, Dtype type) {
        return std::vector<Matrix>{expected_block(form, values, sizes, type)};
    };
    operation.flops = [form](const Sizes &sizes) {
        return with_sizes(form, sizes.d, sizes.d_out, sizes.head_dim)
            .cost({sizes.batch, sizes.queries, sizes.queries}, Dtype::f32)
            .flops;
    };
    return operation;
}

}  // namespace

std::vector<BlockParameter> block_parameters(const BlockForm &form) {
    using Values = BlockValues;
    using Weights = halyard_block_weights;
    const Axis queries(Extent::head_dim, static_cast<int>(form.heads.heads));
    const Axis keys(Extent::head_dim, static_cast<int>(form.heads.kv_heads));
    std::vector<BlockParameter> all;
    const auto add_vector = [&](bool present, const char *name, Axis width, const DLTensor *Weights::*tensor,
                                auto vector) {
        if (present) {
            all.push_back({{name, Role::parameter, true, {width}}, tensor, {}, vector});
        }
    };
    const auto add_matrix = [&](const char *name, Axis out, Axis in, const DLTensor *Weights::*tensor,
                                WeightMatrix Values::*matrix) {
        Operand operand{name, Role::parameter, false, {out, in}};
        if (form.quantization.bits != 0) {
            operand.element_bytes = [in, quantization = form.quantization](const Sizes &sizes) {
                return bytes_of_weight(quantization, in.times * sizes.of(in.extent));
            };
        }
        all.push_back({operand, tensor, matrix, {}});
    };
    const bool has_bias = form.has_bias;
    add_matrix("q_proj", queries, Extent::d, &Weights::q_proj, &Values::q);
    add_vector(has_bias, "q_proj_bias", queries, &Weights::q_proj_bias, &Values::q_bias);
    add_matrix("k_proj", keys, Extent::d, &Weights::k_proj, &Values::k);
    add_vector(has_bias, "k_proj_bias", keys, &Weights::k_proj_bias, &Values::k_bias);
    add_matrix("v_proj", keys, Extent::d, &Weights::v_proj, &Values::v);
    add_vector(has_bias, "v_proj_bias", keys, &Weights::v_proj_bias, &Values::v_bias);
    add_matrix("o_proj", Extent::d, queries, &Weights::o_proj, &Values::o);
    add_vector(has_bias, "o_proj_bias", Extent::d, &Weights::o_proj_bias, &Values::o_bias);
    if (form.gated) {
        add_matrix("gate_proj", Extent::d_out, Extent::d, &Weights::gate_proj, &Values::gate);
        add_vector(has_bias, "gate_proj_bias", Extent::d_out, &Weights::gate_proj_bias, &Values::gate_bias);
    }
    add_matrix("up_proj", Extent::d_out, Extent::d, &Weights::up_proj, &Values::up);
    add_vector(has_bias, "up_proj_bias", Extent::d_out, &Weights::up_proj_bias, &Values::up_bias);
    add_matrix("down_proj", Extent::d, Extent::d_out, &Weights::down_proj, &Values::down);
    add_vector(has_bias, "down_proj_bias", Extent::d, &Weights::down_proj_bias, &Values::down_bias);

    const bool has_norm = form.norm != HALYARD_NORM_NONE, is_centred = form.norm == HALYARD_NORM_LAYER;
    add_vector(has_norm, "attention_norm", Extent::d, &Weights::attention_norm,
               [](Values &values) -> Row & { return values.attention_norm.weight; });
    add_vector(is_centred, "attention_norm_bias", Extent::d, &Weights::attention_norm_bias,
               [](Values &values) -> Row & { return values.attention_norm.bias; });
    add_vector(has_norm, "ffn_norm", Extent::d, &Weights::ffn_norm,
               [](Values &values) -> Row & { return values.ffn_norm.weight; });
    add_vector(is_centred, "ffn_norm_bias", Extent::d, &Weights::ffn_norm_bias,
               [](Values &values) -> Row & { return values.ffn_norm.bias; });
    return all;
}

halyard_block_weights block_weights(const BlockForm &form, const DLTensor *const *tensors) {
    halyard_block_weights weights{};
    weights.layout = HALYARD_WEIGHT_OUT_IN;
    weights.quantization = form.quantization;
    for (const BlockParameter &each : block_parameters(form)) {
        weights.*each.tensor = *tensors++;
    }
    return weights;
}

std::vector<Operation> block_operations() {
    const HeadShape grouped = {4, 2, 0}, separate = {3, 3, 0};
    const BlockForm llama = {"llama", 0, 0, grouped, HALYARD_NORM_RMS, HALYARD_SILU, true, false, 1e4};
    const BlockForm gpt2 = {"gpt2", 0, 0, separate, HALYARD_NORM_LAYER, HALYARD_GELU_TANH, false, true, 0};
    BlockForm bert = {"bert", 0, 0, separate, HALYARD_NORM_LAYER, HALYARD_GELU, false, true, 0};
    bert.causal = false;
    BlockForm q8_0 = llama;
    q8_0.quantization = {8, 32, 0, {}};
    return {block_operation("block.llama", llama), block_operation("block.gpt2", gpt2),
            block_operation("block.bert", bert), block_operation("block.llama.q8_0", q8_0)};
}

}  // namespace halyard::operations
