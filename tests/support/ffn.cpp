// Feed-forward networks.
#include "support/ffn.h"

#include "support/device_hooks.h"

namespace halyard::tests {
namespace {

template<typename Function>
std::unique_ptr<Tensor> vector(Dtype type, std::int64_t width, const Function &value) {
    auto tensor = std::make_unique<Tensor>(type, compact_form({width}));
    tensor->fill(value);
    return tensor;
}

}  // namespace

WeightForm up_form(const FfnForm &ffn, bool folded) {
    WeightForm form;
    form.dtype = ffn.up;
    form.in = ffn.d_model;
    form.out = ffn.d_ff;
    form.gated = ffn.gated;
    form.seed = ffn.seed * 2;
    form.device = ffn.device;
    form.coarse = true;
    form.norm_weight = folded && ffn.has_norm_weight();
    form.norm_bias = folded && ffn.has_norm_bias();
    form.f32_norm_weight = form.norm_weight && ffn.f32_norm_weight;
    form.f32_norm_bias = form.norm_bias && ffn.f32_norm_bias;
    form.unit_offset = folded && (ffn.norm_flags & HALYARD_RMS_UNIT_OFFSET) != 0;
    return form;
}

WeightForm down_form(const FfnForm &ffn) {
    WeightForm form;
    form.dtype = ffn.down;
    form.in = ffn.d_ff;
    form.out = ffn.d_model;
    form.seed = ffn.seed * 2 + 1;
    form.device = ffn.device;
    return form;
}

Ffn::Ffn(const FfnForm &form)
    : form(form), up(up_form(form, form.deferred)), down(down_form(form)), x(form.x, rows_form(form.x_gap)),
      y(form.y, rows_form(form.y_gap)) {
    fill_rows(x, form.seed * 16);
    // What folding takes, so that both forms have the same weights; but in f32 what 16 bits do not hold.
    constexpr double finer = 0x1p-18;
    if (form.has_norm_weight()) {
        const bool unit_offset = (form.norm_flags & HALYARD_RMS_UNIT_OFFSET) != 0;
        norm_weight =
            vector(form.f32_norm_weight ? Dtype::f32 : form.x, form.d_model, [&](std::int64_t, std::int64_t k) {
                return norm_weight_value(up.form.seed, k, unit_offset) + (form.f32_norm_weight ? finer : 0);
            });
    }
    if (form.has_norm_bias()) {
        norm_bias = vector(form.f32_norm_bias ? Dtype::f32 : form.x, form.d_model, [&](std::int64_t, std::int64_t k) {
            return norm_bias_value(up.form.seed, k) + (form.f32_norm_bias ? finer : 0);
        });
    }
    const auto values = [&](std::uint64_t seed) {
        return [=](std::int64_t row, std::int64_t i) { return bell(seed, row, i) / 2; };
    };
    if (form.bias) {
        bias = vector(form.bias_type, form.d_ff, values(form.seed * 16 + 1));
        options.bias = &bias->view;
    }
    if (form.bias_up) {
        bias_up = vector(form.bias_type, form.d_ff, values(form.seed * 16 + 2));
        options.bias_up = &bias_up->view;
    }
    if (form.bias_down) {
        bias_down = vector(form.bias_type, form.d_model, values(form.seed * 16 + 3));
        options.bias_down = &bias_down->view;
    }
    options.norm = form.norm;
    options.eps = form.eps;
    // A unit offset that is folded is not asked for again.
    options.norm_flags = form.deferred ? form.norm_flags & ~unsigned{HALYARD_RMS_UNIT_OFFSET} : form.norm_flags;
    options.deferred_norm = form.deferred ? 1 : 0;
    if (!form.deferred) {
        options.norm_weight = norm_weight ? &norm_weight->view : nullptr;
        options.norm_bias = norm_bias ? &norm_bias->view : nullptr;
    }
    options.activation = form.activation;
    options.beta = form.beta;
    options.residual = form.residual ? 1 : 0;
    for (Tensor *tensor : {&x, &y, norm_weight.get(), norm_bias.get(), bias.get(), bias_up.get(), bias_down.get()}) {
        if (tensor != nullptr) {
            tensor->view.device = form.device;
        }
    }
}

Form Ffn::rows_form(std::int64_t gap) const {
    CallForm rows;
    rows.leading = form.leading;
    return rows.form_of(form.d_model, gap);
}

halyard_status Ffn::run(const halyard_context *context) {
    return finished(halyard_ffn(context, &x.view, up.get(), down.get(), &options, &y.view));
}

Matrix Ffn::expected() const {
    const std::vector<Row> rows = rows_of(x);
    Row weight, beta;
    NormParameters parameters;
    parameters.eps = static_cast<double>(form.eps);
    parameters.eps_outside_root = (form.norm_flags & HALYARD_RMS_EPS_OUTSIDE_ROOT) != 0;
    parameters.unit_offset = (form.norm_flags & HALYARD_RMS_UNIT_OFFSET) != 0;
    if (norm_weight) {
        weight = norm_weight->row_values(0);
        parameters.weight = &weight;
    }
    if (norm_bias) {
        beta = norm_bias->row_values(0);
        parameters.bias = &beta;
    }

    Matrix input = exact_rows(rows);
    ExpectedRow scales, means;
    EpilogueValues first;
    for (std::size_t row = 0; row < rows.size(); row++) {
        if (form.norm == HALYARD_NORM_RMS && !form.deferred) {
            input[row] = rms_norm(rows[row], parameters);
        } else if (form.norm == HALYARD_NORM_LAYER && !form.deferred) {
            input[row] = layer_norm(rows[row], parameters);
        } else if (form.norm == HALYARD_NORM_RMS) {
            scales.push_back(rms_scale(rows[row], parameters));
        } else if (form.norm == HALYARD_NORM_LAYER) {
            const Moments moments = layer_moments(rows[row], parameters.eps);
            scales.push_back(moments.scale);
            means.push_back(moments.mean);
        }
    }
    first.row_scale = scales.empty() ? nullptr : &scales;
    first.row_mean = means.empty() ? nullptr : &means;
    Row bias_values, bias_up_values, bias_down_values;
    const auto values = [](const std::unique_ptr<Tensor> &tensor, Row &row) -> const Row * {
        if (!tensor) {
            return nullptr;
        }
        row = tensor->row_values(0);
        return &row;
    };
    first.bias = values(bias, bias_values);
    first.bias_up = values(bias_up, bias_up_values);
    first.activation = form.activation;
    first.beta = static_cast<double>(form.beta);
    // On a device what lies between the steps is of the type of all the others, if they have one; on a processor what is
    // multiplied, if that is bf16.
    const bool on_device = form.device.device_type == kDLCUDA;
    const bool stored = on_device ? form.x == form.up && form.x == form.down : rounds();
    if (stored && !form.deferred && form.norm != HALYARD_NORM_NONE) {
        input = rounded(input, form.x);
    }
    first.sum_roundoff = stored && on_device ? unit_roundoff(form.x) : 0;
    Matrix hidden = linear(input, up.values, first);
    if (stored) {
        hidden = rounded(hidden, form.x);
    }
    EpilogueValues second;
    second.bias = values(bias_down, bias_down_values);
    second.residual = form.residual ? &rows : nullptr;
    return linear(hidden, down.values, second);
}

void Ffn::compose(const halyard_context *context, Tensor &result) const {
    const Shape model = x.shape();
    Shape ff = model;
    ff.back() = form.d_ff;
    Tensor x32(Dtype::f32, compact_form(model)), normed(Dtype::f32, compact_form(model)),
        multiplied(rounds() ? Dtype::bf16 : Dtype::f32, compact_form(model)),
        hidden(multiplied.dtype(), compact_form(ff)), y32(Dtype::f32, compact_form(model));
    const auto ok = [](halyard_status status) { EXPECT_EQ(status, HALYARD_OK) << halyard_last_error(); };
    ok(halyard_cast(context, &x.view, &x32.view));
    const auto widened = [&](const std::unique_ptr<Tensor> &tensor) {
        std::unique_ptr<Tensor> wide;
        if (tensor) {
            wide = std::make_unique<Tensor>(Dtype::f32, compact_form(tensor->shape()));
            ok(halyard_cast(context, &tensor->view, &wide->view));
        }
        return wide;
    };
    const std::unique_ptr<Tensor> weight = widened(norm_weight), beta = widened(norm_bias);
    const Shape leading(model.begin(), model.end() - 1);
    const Shape vector_shape = leading.empty() ? Shape{1} : leading;
    Tensor scale(Dtype::f32, compact_form(vector_shape)), mean(Dtype::f32, compact_form(vector_shape));

    halyard_linear_options first{}, second{};
    const DLTensor *input = &x.view;
    if (form.deferred && form.norm == HALYARD_NORM_RMS) {
        ok(halyard_rms_norm_scale(context, &x32.view, form.eps, options.norm_flags, &scale.view));
        first.row_scale = &scale.view;
    } else if (form.deferred) {
        ok(halyard_layer_norm_scale(context, &x32.view, form.eps, &mean.view, &scale.view));
        first.row_scale = &scale.view;
        first.row_mean = &mean.view;
    } else if (form.norm == HALYARD_NORM_RMS) {
        ok(halyard_rms_norm(context, &x32.view, weight ? &weight->view : nullptr, form.eps, form.norm_flags,
                            &normed.view));
        input = &normed.view;
    } else if (form.norm == HALYARD_NORM_LAYER) {
        ok(halyard_layer_norm(context, &x32.view, weight ? &weight->view : nullptr, beta ? &beta->view : nullptr,
                              form.eps, &normed.view));
        input = &normed.view;
    }
    if (input == &normed.view) {
        ok(halyard_cast(context, input, &multiplied.view));
        input = &multiplied.view;
    }
    first.bias = options.bias;
    first.bias_up = options.bias_up;
    first.activation = form.activation;
    first.beta = form.beta;
    ok(halyard_linear(context, input, up.get(), &first, &hidden.view));
    second.bias = options.bias_down;
    second.residual = form.residual ? &x32.view : nullptr;
    ok(halyard_linear(context, &hidden.view, down.get(), &second, &y32.view));
    ok(halyard_cast(context, &y32.view, &result.view));
}

testing::AssertionResult Ffn::surroundings_intact() const {
    for (const Tensor *tensor : {&x, &y}) {
        if (!tensor->surroundings_intact()) {
            return testing::AssertionFailure() << "memory outside a tensor was written by " << describe();
        }
    }
    return up.intact() && down.intact() ? testing::AssertionSuccess()
                                        : testing::AssertionFailure() << "weights were written by " << describe();
}

std::string Ffn::describe() const {
    static const char *const norms[] = {"no norm", "RMSNorm", "LayerNorm"};
    std::string text = std::string("halyard_ffn x ") + name_of(form.x) + " " + to_string(x.shape()) + ", up " +
                       name_of(form.up) + (form.gated ? " gated" : "") + ", d_ff " + std::to_string(form.d_ff) +
                       ", down " + name_of(form.down) + ", y " + name_of(form.y) + ", " + norms[form.norm] +
                       (form.f32_norm_weight ? " f32 weight" : "") + (form.f32_norm_bias ? " f32 bias" : "") +
                       (form.deferred ? " deferred" : "") + " flags " + std::to_string(form.norm_flags) + ", " +
                       layer_activation(form.activation).name;
    return text + (form.bias ? ", bias" : "") + (form.bias_up ? ", bias_up" : "") +
           (form.bias_down ? ", bias_down" : "") + (form.residual ? ", residual" : "");
}

}  // namespace halyard::tests
