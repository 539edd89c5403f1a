// Calls of attention.
#include "support/attention.h"

#include <cmath>

#include "support/device_hooks.h"

namespace halyard::tests {
namespace {

constexpr float norm_eps = 1e-5f;

/** Rows (token, head) of one batch index, head by head. */
Matrix rows_of_head(const Tensor &tensor, const AttentionForm &form, std::int64_t tokens, std::int64_t heads,
                    std::int64_t batch, std::int64_t head) {
    Matrix rows;
    for (std::int64_t token = 0; token < tokens; token++) {
        ExpectedRow row;
        row.reserve(static_cast<std::size_t>(form.head_dim));
        for (const double value : tensor.row_values((batch * tokens + token) * heads + head)) {
            row.push_back({value, 0.0});
        }
        rows.push_back(std::move(row));
    }
    return rows;
}

void prepare(Matrix &rows, const AttentionForm &form, const Tensor *weight, std::int64_t first_position) {
    Row values;
    NormParameters parameters;
    parameters.eps = static_cast<double>(norm_eps);
    parameters.eps_outside_root = (form.norm_flags & HALYARD_RMS_EPS_OUTSIDE_ROOT) != 0;
    parameters.unit_offset = (form.norm_flags & HALYARD_RMS_UNIT_OFFSET) != 0;
    if (weight != nullptr) {
        values = weight->row_values(0);
        parameters.weight = &values;
    }
    RopeRule rule;
    rule.rotary_dim = form.rotary_dim;
    rule.interleaved = form.interleaved;
    for (std::size_t i = 0; i < rows.size(); i++) {
        if (weight != nullptr) {
            Row row;
            for (const Expected &each : rows[i]) {
                row.push_back(each.value);
            }
            rows[i] = rms_norm(row, parameters);
        }
        if (form.rotary_dim > 0) {
            rows[i] = rotated(rows[i], rule, first_position + static_cast<std::int64_t>(i));
        }
    }
}

/** As a cache stores the rows: what has no error is rounded as it is, of the rest only by how much is known. */
void store(Matrix &rows, Dtype type) {
    for (ExpectedRow &row : rows) {
        for (Expected &each : row) {
            if (type == Dtype::f32) {
                continue;
            }
            if (each.error == 0) {
                each.value = round_to(type, each.value);
            } else {
                each.error += unit_roundoff(type) * (std::fabs(each.value) + each.error) + min_denormal(type);
            }
        }
    }
}

/** Rows that are rounded for products, and are taken as they are elsewhere. */
void allow_rounding(Matrix &rows, Dtype type) {
    for (ExpectedRow &row : rows) {
        for (Expected &each : row) {
            if (type != Dtype::f32 && (each.error > 0 || round_to(type, each.value) != each.value)) {
                each.error += unit_roundoff(type) * (std::fabs(each.value) + each.error) + min_denormal(type);
            }
        }
    }
}

}  // namespace

Rope make_rope(std::int64_t head_dim, std::int64_t rotary_dim, bool interleaved, std::int64_t max_positions) {
    halyard_rope_options options{};
    options.head_dim = head_dim;
    options.rotary_dim = rotary_dim;
    options.max_positions = max_positions;
    options.rope_theta = 10000;
    options.interleaved = interleaved ? 1 : 0;
    halyard_rope *rope = nullptr;
    EXPECT_EQ(halyard_rope_create(&options, &rope), HALYARD_OK) << halyard_last_error();
    return Rope(rope);
}

Cache make_cache(Dtype type, std::int64_t sequences, std::int64_t kv_heads, std::int64_t head_dim,
                 std::int64_t max_positions, std::int64_t layers, DLDevice device) {
    const halyard_kv_cache_options options = {layers, sequences, kv_heads, head_dim, max_positions, dlpack_type(type)};
    halyard_kv_cache *cache = nullptr;
    const halyard_status created = device.device_type == kDLCPU
                                       ? halyard_kv_cache_create(&options, nullptr, 0, &cache)
                                       : halyard_kv_cache_create_on_device(&options, device, nullptr, 0, &cache);
    EXPECT_EQ(created, HALYARD_OK) << halyard_last_error();
    return Cache(cache);
}

AttentionForm square(std::int64_t tokens, std::int64_t heads, std::int64_t kv_heads, std::int64_t head_dim) {
    AttentionForm form;
    form.queries = form.keys = tokens;
    form.heads = heads;
    form.kv_heads = kv_heads;
    form.head_dim = head_dim;
    return form;
}

TokenView::TokenView(const Tensor &tensor, std::int64_t first, std::int64_t count, std::int64_t sequence,
                     std::size_t axes)
    : view(tensor.view), shape(tensor.shape()),
      strides(tensor.strides().empty() ? compact_strides(tensor.shape()) : tensor.strides()) {
    const std::size_t axis = shape.size() - axes - 1;
    std::int64_t offset = first * strides[axis];
    shape[axis] = count;
    if (sequence >= 0) {
        offset += sequence * strides[0];
        shape.erase(shape.begin());
        strides.erase(strides.begin());
    }
    view.ndim = static_cast<int>(shape.size());
    view.shape = shape.data();
    view.strides = strides.data();
    view.byte_offset += static_cast<std::uint64_t>(offset) * size_of(tensor.dtype());
}

AttentionCase::AttentionCase(const AttentionForm &form)
    : form(form), q(form.q, tensor_form(form.queries, form.heads)), k(form.k, tensor_form(form.keys, form.kv_heads)),
      v(form.v, tensor_form(form.keys, form.kv_heads)), y(form.y, tensor_form(form.queries, form.heads)),
      log_sum_exp(Dtype::f32, log_sum_exp_form()) {
    // Scores spread by about 2, so that some keys count more than others.
    const double size = form.norm ? 1.0 : std::sqrt(2.0);
    for (Tensor *tensor : {&q, &k, &v}) {
        const std::uint64_t seed = form.seed * 8 + (tensor == &q ? 0 : tensor == &k ? 1 : 2);
        tensor->fill(
            [=](std::int64_t row, std::int64_t i) { return bell(seed, row, i) * (tensor == &v ? 1.0 : size); });
    }
    options.causal = form.causal ? 1 : 0;
    options.sliding_window = form.window;
    options.scale = form.scale;
    options.softcap = form.softcap;
    options.qk_norm_eps = norm_eps;
    options.qk_norm_flags = form.norm_flags;
    if (form.norm) {
        const double one = (form.norm_flags & HALYARD_RMS_UNIT_OFFSET) != 0 ? 0.0 : 1.0;
        for (auto *weight : {&q_norm_weight, &k_norm_weight}) {
            *weight = std::make_unique<Tensor>(form.norm_type, compact_form({form.head_dim}));
            const std::uint64_t seed = form.seed * 8 + (weight == &q_norm_weight ? 3 : 4);
            (*weight)->fill([=](std::int64_t row, std::int64_t i) { return one + bell(seed, row, i) / 4; });
        }
        options.q_norm_weight = &q_norm_weight->view;
        options.k_norm_weight = &k_norm_weight->view;
    }
    if (form.rotary_dim > 0) {
        rope = make_rope(form.head_dim, form.rotary_dim, form.interleaved, form.keys);
        options.rope = rope.get();
    }
}

Form AttentionCase::tensor_form(std::int64_t tokens, std::int64_t heads) const {
    Shape shape = {tokens, heads, form.head_dim};
    if (form.batch > 0) {
        shape.insert(shape.begin(), form.batch);
    }
    return {shape, form.gap > 0 ? padded_strides(shape, form.gap) : Shape(), form.placement, 0, 0};
}

Form AttentionCase::log_sum_exp_form() const {
    Shape shape = {form.queries, form.heads};
    if (form.batch > 0) {
        shape.insert(shape.begin(), form.batch);
    }
    return {shape, form.gap > 0 ? padded_strides(shape, form.gap) : Shape(), form.placement, 0, 0};
}

halyard_status AttentionCase::run(const halyard_context *context, Tensor &result) {
    return finished(halyard_attention(context, &q.view, &k.view, &v.view, &options, &result.view));
}

halyard_status AttentionCase::run_cached(const halyard_context *context, halyard_kv_cache *cache, std::int64_t first,
                                         std::int64_t count, Tensor &result) {
    TokenView qs(q, first, count), ks(k, first, count), vs(v, first, count), ys(result, first, count);
    TokenView sums(log_sum_exp, first, count, -1, 1);
    halyard_attention_options of_tokens = options;
    of_tokens.log_sum_exp = options.log_sum_exp == nullptr ? nullptr : &sums.view;
    return finished(
        halyard_attention_cached(context, &qs.view, &ks.view, &vs.view, cache, 0, nullptr, &of_tokens, &ys.view));
}

Matrix AttentionCase::expected(Dtype cached, double sum_roundings, Dtype products, Matrix *log_sum_exp) const {
    AttentionRule rule;
    rule.causal = form.causal;
    rule.window = form.window;
    rule.scale = static_cast<double>(form.scale);
    rule.softcap = static_cast<double>(form.softcap);
    rule.sum_roundings = sum_roundings;
    rule.products = products;
    const std::int64_t first_query = form.keys - form.queries;
    Matrix result(static_cast<std::size_t>(y.rows()));
    if (log_sum_exp != nullptr) {
        log_sum_exp->assign(static_cast<std::size_t>(form.batches() * form.queries),
                            ExpectedRow(static_cast<std::size_t>(form.heads)));
    }
    for (std::int64_t batch = 0; batch < form.batches(); batch++) {
        for (std::int64_t kv_head = 0; kv_head < form.kv_heads; kv_head++) {
            Matrix keys = rows_of_head(k, form, form.keys, form.kv_heads, batch, kv_head);
            Matrix values = rows_of_head(v, form, form.keys, form.kv_heads, batch, kv_head);
            prepare(keys, form, k_norm_weight.get(), 0);
            store(keys, cached);
            store(values, cached);
            for (std::int64_t head = kv_head * form.group(); head < (kv_head + 1) * form.group(); head++) {
                Matrix queries = rows_of_head(q, form, form.queries, form.heads, batch, head);
                prepare(queries, form, q_norm_weight.get(), first_query);
                allow_rounding(queries, products);
                ExpectedRow sums;
                const Matrix rows = attention(queries, keys, values, first_query, rule, &sums);
                for (std::int64_t token = 0; token < form.queries; token++) {
                    const std::int64_t place = batch * form.queries + token;
                    result[static_cast<std::size_t>(place * form.heads + head)] = rows[static_cast<std::size_t>(token)];
                    if (log_sum_exp != nullptr) {
                        (*log_sum_exp)[static_cast<std::size_t>(place)][static_cast<std::size_t>(head)] =
                            sums[static_cast<std::size_t>(token)];
                    }
                }
            }
        }
    }
    return result;
}

testing::AssertionResult AttentionCase::check(const Matrix &expected) const {
    const testing::AssertionResult good = as_expected(y, expected);
    return good ? surroundings_intact() : good;
}

testing::AssertionResult AttentionCase::surroundings_intact() const {
    for (const Tensor *tensor : {&q, &k, &v, &y, &log_sum_exp}) {
        if (!tensor->surroundings_intact()) {
            return testing::AssertionFailure() << "memory outside an operand was written";
        }
    }
    return testing::AssertionSuccess();
}

std::string AttentionCase::describe() const {
    std::string text = std::string(name_of(form.q)) + " " + name_of(form.k) + " " + name_of(form.v) + " to " +
                       name_of(form.y) + ", batch " + std::to_string(form.batch) + ", " + std::to_string(form.queries) +
                       " of " + std::to_string(form.keys) + " positions, heads " + std::to_string(form.heads) + "/" +
                       std::to_string(form.kv_heads) + " of " + std::to_string(form.head_dim);
    text += form.causal ? ", causal" : ", full";
    text += form.window > 0 ? ", window " + std::to_string(form.window) : "";
    text += form.softcap > 0 ? ", softcap" : "";
    text += form.norm ? ", norm" : "";
    text += form.rotary_dim > 0 ? ", rope" : "";
    return text;
}

}  // namespace halyard::tests
