// See tensor_operations.h.
#include "tensor_operations.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>

#include "block_operations.h"
#include "built.h"
#include "halyard/attention.h"
#include "reference_attention.h"
#include "reference_linear.h"
#include "transformers.h"

namespace halyard::operations {
namespace {

constexpr std::size_t absent = static_cast<std::size_t>(-1);

/** Where a layer's operands are among those of its operation. */
struct LayerPlaces {
    std::size_t x, residual, norm_weight, norm_bias, weight, up, weight_down, bias, bias_down, y;
};

template<typename Values>
auto *at(Values &values, std::size_t place) {
    return place == absent ? nullptr : &values[place];
}

const DLTensor *tensor_at(DLTensor *const *tensors, std::size_t place) {
    return place == absent ? nullptr : tensors[place];
}

/** Rows of what the first product multiplies by. */
Rows first_matrix(const LayerForm &form, const Rows &as_given) {
    Rows rows = as_given;
    for (Row &row : rows) {
        if (form.q4_k) {
            const auto in = static_cast<std::int64_t>(row.size());
            row = Q4KMatrix(1, in, [&](std::int64_t) { return row; }).row(0);
        } else if (form.quantization.bits != 0) {
            row = quantized_values(row, form.quantization);
        }
    }
    return rows;
}

/** A linear layer's products of rows in 8 bits. */
Matrix expected_in_8_bits(const LayerForm &form, const Rows &x, const Rows &as_given) {
    Rows magnitudes = first_matrix(form, as_given);
    for (std::size_t output = 0; output < magnitudes.size(); output++) {
        Row &row = magnitudes[output];
        if (form.q4_k) {
            const auto in = static_cast<std::int64_t>(row.size());
            row = Q4KMatrix(1, in, [&](std::int64_t) { return as_given[output]; }).magnitudes(0);
        } else {
            std::transform(row.begin(), row.end(), row.begin(), [](double weight) { return std::abs(weight); });
        }
    }
    return products_in_8_bits(x, matrix_of(first_matrix(form, as_given)), matrix_of(magnitudes).values, form.q4_k);
}

/** A context as another one, null: the default, that rounds rows of x to 8 bits. */
std::shared_ptr<halyard_context> with_int8_products(const halyard_context *context) {
    halyard_context *made = nullptr;
    if (halyard_context_create(&made) == HALYARD_OK) {
        halyard_context_set_max_isa(made, halyard_context_isa(context));
        halyard_context_set_num_threads(made, halyard_context_num_threads(context));
        halyard_context_set_products(made, HALYARD_PRODUCTS_INT8);
    }
    return {made, halyard_context_destroy};
}

using Weights = std::shared_ptr<halyard_weights>;

/** A row of a matrix in the memory of the process. */
Row row_of(const DLTensor &matrix, std::int64_t index) {
    const Dtype type = matrix.dtype.bits == 32 ? Dtype::f32 : matrix.dtype.code == kDLBfloat ? Dtype::bf16 : Dtype::f16;
    const std::int64_t pitch = matrix.strides != nullptr ? matrix.strides[0] : matrix.shape[1];
    const char *from = static_cast<const char *>(matrix.data) + matrix.byte_offset +
                       static_cast<std::size_t>(index * pitch) * size_of(type);
    Row values;
    for (std::int64_t k = 0; k < matrix.shape[1]; k++, from += size_of(type)) {
        std::uint32_t bits = 0;
        std::memcpy(&bits, from, size_of(type));
        values.push_back(decode(type, bits));
    }
    return values;
}

Weights packed_q4_k(const DLTensor &matrix, halyard_status &status) {
    halyard_weights *made = nullptr;
    const Q4KMatrix blocks(matrix.shape[0], matrix.shape[1], [&](std::int64_t i) { return row_of(matrix, i); });
    status = blocks.pack(nullptr, &made);
    return {made, halyard_weights_destroy};
}

Weights packed(const DLTensor *matrix, const halyard_pack_options &options, halyard_status &status) {
    halyard_weights *made = nullptr;
    if (status == HALYARD_OK) {
        status = halyard_weights_pack(nullptr, matrix, &options, nullptr, 0, &made);
    }
    return {made, halyard_weights_destroy};
}

Operation::Call prepared_layer(const LayerForm &form, const LayerPlaces &place, DLTensor *const *tensors) {
    halyard_status status = HALYARD_OK;
    const Weights first =
        form.q4_k ? packed_q4_k(*tensors[place.weight], status)
                  : packed(tensors[place.weight],
                           pack_options(form, tensor_at(tensors, place.up), tensor_at(tensors, place.norm_weight),
                                        tensor_at(tensors, place.norm_bias)),
                           status);
    const Weights down = form.is_ffn ? packed(tensors[place.weight_down], {}, status) : nullptr;
    return [=](const halyard_context *context, DLTensor *const *t, const double *) {
        LayerTensors of_call;
        of_call.x = t[place.x];
        of_call.residual = tensor_at(t, place.residual);
        of_call.norm_weight = tensor_at(t, place.norm_weight);
        of_call.norm_bias = tensor_at(t, place.norm_bias);
        of_call.bias = tensor_at(t, place.bias);
        of_call.bias_down = tensor_at(t, place.bias_down);
        of_call.first = first.get();
        of_call.down = down.get();
        of_call.y = t[place.y];
        if (status != HALYARD_OK) {
            return status;
        }
        return form.int8_products ? call_layer(with_int8_products(context).get(), form, of_call)
                                  : call_layer(context, form, of_call);
    };
}

std::vector<Matrix> expected_layer(const LayerForm &form, const LayerPlaces &place, const std::vector<Rows> &values,
                                   Dtype type) {
    if (form.int8_products) {
        return {expected_in_8_bits(form, values[place.x], values[place.weight])};
    }
    const auto vector_at = [&](std::size_t i) { return i == absent ? nullptr : &values[i][0]; };
    Matrix x = exact_rows(values[place.x]);
    if (form.norm != HALYARD_NORM_NONE) {
        NormParameters parameters;
        parameters.weight = vector_at(place.norm_weight);
        parameters.bias = vector_at(place.norm_bias);
        parameters.eps = static_cast<double>(form.eps());
        for (std::size_t row = 0; row < x.size(); row++) {
            const Row &values_of_row = values[place.x][row];
            x[row] = form.norm == HALYARD_NORM_RMS ? rms_norm(values_of_row, parameters)
                                                   : layer_norm(values_of_row, parameters);
        }
    }
    // What is multiplied is rounded between products of bf16 weights.
    const bool rounds = form.is_ffn && type == Dtype::bf16;
    LayerValues first = {matrix_of(first_matrix(form, values[place.weight])), {}};
    if (form.gated) {
        first.up = matrix_of(values[place.up]);
    }
    EpilogueValues epilogue;
    epilogue.bias = vector_at(place.bias);
    epilogue.activation = form.activation;
    epilogue.beta = static_cast<double>(form.beta);
    epilogue.residual = at(values, place.residual);
    const Matrix result = linear(rounds ? rounded(x, type) : x, first, epilogue);
    if (!form.is_ffn) {
        return {result};
    }
    EpilogueValues second;
    second.bias = vector_at(place.bias_down);
    second.residual = form.has_residual ? &values[place.x] : nullptr;
    return {linear(rounds ? rounded(result, type) : result, {matrix_of(values[place.weight_down]), {}}, second)};
}

// ---- Heads -----------------------------------------------------------------------------------------------------

const std::vector<Axis> queries_of_heads = {Extent::batch, Extent::queries, Extent::heads, Extent::head_dim};
const std::vector<Axis> keys_of_heads = {Extent::batch, Extent::keys, Extent::kv_heads, Extent::head_dim};

/** Rows (token, head) of one head of one batch index. */
Matrix rows_of_head(const Rows &rows, std::int64_t tokens, std::int64_t heads, std::int64_t batch, std::int64_t head) {
    std::vector<Row> picked;
    for (std::int64_t token = 0; token < tokens; token++) {
        picked.push_back(rows[static_cast<std::size_t>((batch * tokens + token) * heads + head)]);
    }
    return exact_rows(picked);
}

/** y and log_sum_exp. */
std::vector<Matrix> expected_attention(const Sizes &sizes, const std::vector<Rows> &values, const AttentionRule &rule) {
    Matrix y(values[0].size()), sums(static_cast<std::size_t>(sizes.batch * sizes.queries));
    for (std::int64_t b = 0; b < sizes.batch; b++) {
        for (std::int64_t head = 0; head < sizes.heads; head++) {
            const std::int64_t kv_head = head / (sizes.heads / sizes.kv_heads);
            ExpectedRow of_head;
            const Matrix rows = attention(rows_of_head(values[0], sizes.queries, sizes.heads, b, head),
                                          rows_of_head(values[1], sizes.keys, sizes.kv_heads, b, kv_head),
                                          rows_of_head(values[2], sizes.keys, sizes.kv_heads, b, kv_head),
                                          sizes.keys - sizes.queries, rule, &of_head);
            for (std::int64_t token = 0; token < sizes.queries; token++) {
                const std::int64_t place = b * sizes.queries + token;
                y[static_cast<std::size_t>(place * sizes.heads + head)] = rows[static_cast<std::size_t>(token)];
                sums[static_cast<std::size_t>(place)].push_back(of_head[static_cast<std::size_t>(token)]);
            }
        }
    }
    return {y, sums};
}

Operation attention_operation(const std::string &label, bool causal, double softcap) {
    Operation operation;
    operation.label = label;
    operation.function = "halyard_attention";
    operation.group = "attention";
    operation.operands = {
        {"q", Role::input, false, queries_of_heads},
        {"k", Role::input, false, keys_of_heads},
        {"v", Role::input, false, keys_of_heads},
        {"y", Role::output, false, queries_of_heads},
        {"log_sum_exp", Role::output, true, {Extent::batch, Extent::queries, Extent::heads}, Dtype::f32}};
    operation.scalars = {{"causal", causal ? 1.0 : 0.0, {}}, {"softcap", softcap, {-1.0, 1e31}}};
    operation.call = [](const halyard_context *context, DLTensor *const *t, const double *scalars) {
        halyard_attention_options options{};
        options.causal = scalars[0] != 0.0 ? 1 : 0;
        options.softcap = static_cast<float>(scalars[1]);
        options.log_sum_exp = t[4];
        return halyard_attention(context, t[0], t[1], t[2], &options, t[3]);
    };
    operation.reference = [](const std::vector<Rows> &values, const Sizes &sizes, const double *scalars, Dtype type) {
        AttentionRule rule;
        rule.causal = scalars[0] != 0.0;
        rule.softcap = scalars[1];
        rule.products = type == Dtype::bf16 ? type : Dtype::f32;
        return expected_attention(sizes, values, rule);
    };
    operation.flops = [causal](const Sizes &sizes) {
        return attention_cost({sizes.heads, sizes.kv_heads, sizes.head_dim}, {sizes.batch, sizes.queries, sizes.keys},
                              Dtype::f32, causal)
            .flops;
    };
    return operation;
}

Operation rope_operation(const std::string &label, bool interleaved) {
    constexpr std::int64_t most_positions = 4096;
    Operation operation;
    operation.label = label;
    operation.function = "halyard_rope_apply";
    operation.group = "attention";
    operation.operands = {{"x", Role::input, false, queries_of_heads}, {"y", Role::output, false, queries_of_heads}};
    operation.in_place = {{{1, 0}}};
    operation.prepare = [interleaved](DLTensor *const *t) -> Operation::Call {
        halyard_rope_options options{};
        options.head_dim = t[0]->shape[3];
        options.max_positions = most_positions;
        options.rope_theta = RopeRule().theta;
        options.interleaved = interleaved ? 1 : 0;
        halyard_rope *made = nullptr;
        const halyard_status status = halyard_rope_create(&options, &made);
        const std::shared_ptr<halyard_rope> rope(made, halyard_rope_destroy);
        return [=](const halyard_context *context, DLTensor *const *tensors, const double *) {
            return status == HALYARD_OK ? halyard_rope_apply(context, rope.get(), tensors[0], nullptr, tensors[1])
                                        : status;
        };
    };
    operation.reference = [interleaved](const std::vector<Rows> &values, const Sizes &sizes, const double *, Dtype) {
        const RopeRule rule = {sizes.head_dim, RopeRule().theta, interleaved};
        Matrix rows = exact_rows(values[0]);
        for (std::size_t row = 0; row < rows.size(); row++) {
            rows[row] = rotated(rows[row], rule, static_cast<std::int64_t>(row) / sizes.heads % sizes.queries);
        }
        return std::vector<Matrix>{rows};
    };
    operation.flops = [](const Sizes &sizes) {
        return 3 * static_cast<double>(sizes.batch * sizes.queries * sizes.heads * sizes.head_dim);
    };
    return operation;
}

/** Keys and values into a cache of their dtype, and out of it. */
Operation cache_operation() {
    Operation operation;
    operation.label = "kv_cache";
    operation.function = "halyard_kv_cache_append";
    operation.group = "attention";
    operation.operands = {{"k", Role::input, false, keys_of_heads},
                          {"v", Role::input, false, keys_of_heads},
                          {"k_out", Role::output, false, keys_of_heads},
                          {"v_out", Role::output, false, keys_of_heads}};
    operation.call = [](const halyard_context *context, DLTensor *const *t, const double *) {
        const std::int64_t *shape = t[0]->shape;
        const halyard_kv_cache_options options = {
            1, shape[0], shape[2], shape[3], std::max<std::int64_t>(shape[1], 1), t[0]->dtype};
        halyard_kv_cache *made = nullptr;
        halyard_status status = halyard_kv_cache_create(&options, nullptr, 0, &made);
        const std::shared_ptr<halyard_kv_cache> cache(made, halyard_kv_cache_destroy);
        if (status == HALYARD_OK) {
            status = halyard_kv_cache_append(context, made, 0, nullptr, t[0], t[1]);
        }
        const auto sequence_of = [](const DLTensor &tensor, std::int64_t b) {
            DLTensor view = tensor;
            const std::int64_t elements =
                tensor.strides != nullptr ? tensor.strides[0] : tensor.shape[1] * tensor.shape[2] * tensor.shape[3];
            view.byte_offset += static_cast<std::uint64_t>(b * elements * tensor.dtype.bits / 8);
            view.ndim--;
            view.shape++;
            view.strides += view.strides != nullptr ? 1 : 0;
            return view;
        };
        for (std::int64_t b = 0; b < shape[0] && status == HALYARD_OK; b++) {
            DLTensor k = sequence_of(*t[2], b), v = sequence_of(*t[3], b);
            status = halyard_kv_cache_read(context, made, 0, b, 0, &k, &v);
        }
        return status;
    };
    operation.reference = [](const std::vector<Rows> &values, const Sizes &, const double *, Dtype) {
        return std::vector<Matrix>{exact_rows(values[0]), exact_rows(values[1])};
    };
    return operation;
}

std::vector<Operation> make_tensor_operations() {
    std::vector<Operation> all;
    for (const Layer &layer : layers()) {
        if (!layer.form.deferred_norm) {
            all.push_back(layer_operation(layer));
        }
    }
    all.push_back(attention_operation("attention", false, 0));
    all.push_back(attention_operation("attention.causal", true, 0));
    all.push_back(attention_operation("attention.causal_softcap_30", true, 30));
    all.push_back(rope_operation("rope", false));
    all.push_back(rope_operation("rope.interleaved", true));
    all.push_back(cache_operation());
    for (Operation &operation : block_operations()) {
        all.push_back(std::move(operation));
    }
    for (Operation &operation : all) {
        if (operation.prepare) {
            operation.call = [prepare = operation.prepare](const halyard_context *context, DLTensor *const *t,
                                                           const double *scalars) {
                return prepare(t)(context, t, scalars);
            };
        }
    }
    const auto left_out = [](const Operation &operation) {
        return !is_built(operation.function.substr(std::string_view("halyard_").size()));
    };
    all.erase(std::remove_if(all.begin(), all.end(), left_out), all.end());
    return all;
}

}  // namespace

Operation layer_operation(const Layer &layer) {
    const LayerForm &form = layer.form;
    Operation operation;
    operation.label = layer.name;
    operation.function = form.is_ffn ? "halyard_ffn" : "halyard_linear";
    operation.group = form.is_ffn ? "feed-forward" : "linear";
    const Extent width = form.is_ffn ? Extent::d : Extent::d_out;
    const auto add = [&operation](bool present, const Operand &operand) {
        if (present) {
            operation.operands.push_back(operand);
        }
        return present ? operation.operands.size() - 1 : absent;
    };
    const bool has_norm = form.norm != HALYARD_NORM_NONE;
    LayerPlaces place;
    place.x = add(true, {"x"});
    place.residual = add(form.takes_residual(), {"residual", Role::input, true, {Extent::rows, width}});
    place.norm_weight = add(has_norm, {"norm_weight", Role::parameter, true, {Extent::d}});
    place.norm_bias = add(form.norm == HALYARD_NORM_LAYER, {"norm_bias", Role::parameter, true, {Extent::d}});
    place.weight = add(true, {"weight", Role::parameter, false, {Extent::d_out, Extent::d}});
    if (form.is_quantized()) {
        operation.operands[place.weight].element_bytes = [form](const Sizes &sizes) {
            return form.bytes_of_quantized_weight(sizes.d);
        };
    }
    place.up = add(form.gated, {"up", Role::parameter, true, {Extent::d_out, Extent::d}});
    place.weight_down = add(form.is_ffn, {"weight_down", Role::parameter, false, {Extent::d, Extent::d_out}});
    place.bias = add(form.has_bias, {"bias", Role::parameter, true, {Extent::d_out}});
    place.bias_down = add(form.has_bias && form.is_ffn, {"bias_down", Role::parameter, true, {Extent::d}});
    place.y = add(true, {"y", Role::output, false, {Extent::rows, width}});
    operation.needs_features = true;
    operation.d_step = form.d_step();
    operation.prepare = [form, place](DLTensor *const *t) { return prepared_layer(form, place, t); };
    operation.reference = [form, place](const std::vector<Rows> &values, const Sizes &, const double *, Dtype type) {
        return expected_layer(form, place, values, type);
    };
    operation.flops = [matrices = form.matrices()](const Sizes &sizes) {
        double rows = 1;
        for (const std::int64_t extent : sizes.rows) {
            rows *= static_cast<double>(extent);
        }
        return 2 * rows * static_cast<double>(matrices * sizes.d * sizes.d_out);
    };
    return operation;
}

const std::vector<Operation> &tensor_operations() {
    static const std::vector<Operation> all = make_tensor_operations();
    return all;
}

}  // namespace halyard::operations
