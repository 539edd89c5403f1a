// Linear layers: checks, blocks of rows, and the copy of x that the kernels read.
#include <climits>

#include "core/check_shapes.h"
#include "core/device.h"
#include "core/row_vector.h"
#include "cpu/linear/gemm.h"
#include "cuda/linear/layers.h"

namespace halyard {

int64_t row_count(const View &x) {
    int64_t rows = 1;
    for (int i = 0; i < x.rank - 1; i++) {
        rows *= x.shape[i];
    }
    return rows;
}

void check_width(Checker &check, const View &x, int64_t features, const char *what) {
    if (!check.failed() && x.width() != features) {
        check.fail(HALYARD_INVALID_ARGUMENT, "%s has rows of %lld features, but must have %lld, %s", x.name,
                   static_cast<long long>(x.width()), static_cast<long long>(features), what);
    }
}

void check_same_rows(Checker &check, const View &x, const View &y) {
    if (check.failed()) {
        return;
    }
    bool same = x.rank == y.rank;
    for (int i = 0; i < x.rank - 1 && same; i++) {
        same = x.shape[i] == y.shape[i];
    }
    if (!same) {
        check.fail(HALYARD_INVALID_ARGUMENT, "%s must have the rank and the leading shape of %s", y.name, x.name);
    }
}

void check_same_device(Checker &check, const View &x, const char *name, const halyard_weights &weights) {
    check_place(check, name, place_of(weights), x.name, place_of(x), "is packed for");
}

View check_vector(Checker &check, const char *name, const DLTensor *tensor, int64_t features) {
    if (check.failed() || !tensor) {
        return View();
    }
    const View view = check.tensor(name, tensor);
    if (!check.failed() && (view.rank != 1 || view.width() != features)) {
        check.fail(HALYARD_INVALID_ARGUMENT, "%s must have shape [%lld], but has rank %d and width %lld", name,
                   static_cast<long long>(features), view.rank, static_cast<long long>(view.width()));
    }
    return view;
}

void check_activation(Checker &check, int activation, float beta) {
    if (!check.failed() && (activation < HALYARD_IDENTITY || activation > HALYARD_EXP)) {
        check.fail(HALYARD_INVALID_ARGUMENT, "activation is %d, which is no value of halyard_activation", activation);
    }
    if (activation == HALYARD_SWISH) {
        check.swish_beta("beta", beta);
    }
}

namespace {

LinearCall check_linear(Checker &check, const DLTensor *x, const halyard_weights *weights,
                        const halyard_linear_options &o, DLTensor *y) {
    LinearCall call;
    call.weights = weights;
    call.activation = o.activation;
    call.beta = o.beta;
    call.x = check.tensor("x", x);
    check.not_null("weights", weights);
    call.y = check.output("y", y);
    if (check.failed()) {
        return call;
    }
    check_same_device(check, call.x, "weights", *weights);
    check_width(check, call.x, weights->in_features, "the in_features of weights");
    check_width(check, call.y, weights->out_features, "the out_features of weights");
    check_same_rows(check, call.x, call.y);
    call.row_scale = check_row_vector(check, "row_scale", o.row_scale, call.x, false);
    call.row_mean = check_row_vector(check, "row_mean", o.row_mean, call.x, false);
    call.bias = check_vector(check, "bias", o.bias, weights->out_features);
    if (!check.failed() && o.bias_up && !weights->gated) {
        check.fail(HALYARD_INVALID_ARGUMENT, "bias_up is given, but weights holds one matrix, not gate and up");
    }
    call.bias_up = check_vector(check, "bias_up", o.bias_up, weights->out_features);
    check_activation(check, o.activation, o.beta);
    if (!check.failed() && o.residual) {
        call.residual = check.tensor("residual", o.residual);
        check.same_shape(call.y, call.residual);
        check.same_dtype(call.y, call.residual);
        check.no_overlap(call.y, call.residual, true);
    }
    for (const View *input : {&call.x, &call.bias, &call.bias_up, &call.row_scale, &call.row_mean}) {
        check.no_overlap(call.y, *input, false);
    }
    check.no_overlap(call.y, memory_view("the packed bytes of weights", weights->block, weights->bytes), false);
    return call;
}

halyard_status run_linear(Checker &check, const halyard_context &context, const LinearCall &call) {
    const halyard_isa isa = best_isa(context.max_isa);
    const int64_t rows = row_count(call.x), features = call.x.width(), block = std::min(rows, block_rows());

    Layer layer(call.weights, call.activation, call.beta);
    const Product product(context, isa, rows, layer);
    const bool has_bias = call.bias.data || call.bias_up.data;
    const int64_t x_floats = BlockedRows::floats(Tiling::max_rows(block), features);
    const int64_t bias_floats = has_bias ? layer.bias_floats() : 0;
    constexpr int64_t size = sizeof(float);
    Scratch scratch(context.scratch, Scratch::piece_bytes(x_floats * size) + Scratch::piece_bytes(bias_floats * size) +
                                         2 * Scratch::piece_bytes(block * size) +
                                         Scratch::piece_bytes(product.scratch_bytes()));
    if (scratch.failed()) {
        return check.fail(HALYARD_OUT_OF_MEMORY, "no memory for a block of %lld rows of x",
                          static_cast<long long>(block));
    }
    float *const x_memory = scratch.take<float>(x_floats);
    float *const bias_memory = scratch.take<float>(bias_floats);
    float *const scale = scratch.take<float>(block), *const mean = scratch.take<float>(block);
    char *const product_memory = scratch.take<char>(product.scratch_bytes());
    if (has_bias) {
        layer.set_bias(call.bias, call.bias_up, isa, bias_memory);
    }

    Rows x(false), y(false);
    x.add(call.x);
    x.merge();
    y.add(call.y);
    if (call.residual.data) {
        y.add(call.residual);
    }
    y.merge();
    for (int64_t row = 0; row < rows; row += block) {
        const int64_t count = std::min(block, rows - row);
        const Tiling tiling(isa, count);
        const BlockedRows blocked = {x_memory, tiling.rows()};
        load_rows(context, isa, x, call.x.dtype, row, count, features, blocked);
        if (call.row_scale.data) {
            gather(call.row_scale, row, count, scale);
        }
        if (call.row_mean.data) {
            gather(call.row_mean, row, count, mean);
        }
        Destination destination;
        destination.rows = &y;
        destination.dtype = call.y.dtype;
        destination.has_residual = call.residual.data != nullptr;
        destination.first_row = row;
        product.run(blocked, tiling, count, call.row_scale.data ? scale : nullptr, call.row_mean.data ? mean : nullptr,
                    destination, product_memory);
    }
    return HALYARD_OK;
}

}  // namespace
}  // namespace halyard

using namespace halyard;

halyard_status halyard_linear(const halyard_context *context, const DLTensor *x, const halyard_weights *weights,
                              const halyard_linear_options *options, DLTensor *y) {
    Checker check("halyard_linear", Devices::cpu_or_cuda);
    const halyard_linear_options none = {};
    const LinearCall call = check_linear(check, x, weights, options ? *options : none, y);
    if (check.failed() || call.y.empty()) {
        return check.status();
    }
    if constexpr (has_cuda) {
        if (call.y.on_cuda) {
            cuda::linear(check, context_or_default(context), call);
            return check.status();
        }
    }
    return run_linear(check, context_or_default(context), call);
}
