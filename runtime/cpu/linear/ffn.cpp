// Feed-forward networks as one call: norm, first product with its activation or gated unit, second product, residual.
//
// A block of rows at a time: what lies between the products is written as the second one reads it, in f32, and does not
// leave the caches but for its size. Nothing of it is rounded to the storage type.
#include <climits>

#include "core/calls/norm.h"
#include "core/check_shapes.h"
#include "cpu/linear/gemm.h"
#include "cuda/linear/layers.h"

namespace halyard {
namespace {

FfnCall check_ffn(Checker &check, const DLTensor *x, const halyard_weights *up, const halyard_weights *down,
                  const halyard_ffn_options &o, DLTensor *y) {
    FfnCall call;
    call.up = up;
    call.down = down;
    call.options = o;
    call.x = check.tensor("x", x);
    check.not_null("up", up);
    check.not_null("down", down);
    call.y = check.output("y", y);
    if (check.failed()) {
        return call;
    }
    check_same_device(check, call.x, "up", *up);
    check_same_device(check, call.x, "down", *down);
    check_width(check, call.x, up->in_features, "the in_features of up");
    check.same_shape(call.x, call.y);
    if (!check.failed() && down->gated) {
        check.fail(HALYARD_INVALID_ARGUMENT, "down holds gate and up, but must hold one matrix");
    }
    if (!check.failed() && down->out_features != call.x.width()) {
        check.fail(HALYARD_INVALID_ARGUMENT, "down has %lld out_features, but must have %lld, the width of x",
                   static_cast<long long>(down->out_features), static_cast<long long>(call.x.width()));
    }
    if (!check.failed() && down->in_features != up->out_features) {
        check.fail(HALYARD_INVALID_ARGUMENT, "down has %lld in_features, but must have %lld, the out_features of up",
                   static_cast<long long>(down->in_features), static_cast<long long>(up->out_features));
    }

    if (!check.failed() && (o.norm < HALYARD_NORM_NONE || o.norm > HALYARD_NORM_LAYER)) {
        check.fail(HALYARD_INVALID_ARGUMENT, "norm is %d, which is no value of halyard_norm", static_cast<int>(o.norm));
    }
    if (!check.failed() && o.norm_weight && (o.norm == HALYARD_NORM_NONE || o.deferred_norm)) {
        check.fail(HALYARD_INVALID_ARGUMENT, o.deferred_norm
                                                 ? "norm_weight is given, but deferred_norm takes it from up"
                                                 : "norm_weight is given, but norm is HALYARD_NORM_NONE");
    }
    if (!check.failed() && o.norm_bias && (o.norm != HALYARD_NORM_LAYER || o.deferred_norm)) {
        check.fail(HALYARD_INVALID_ARGUMENT, o.deferred_norm
                                                 ? "norm_bias is given, but deferred_norm takes it from up"
                                                 : "norm_bias is given, but norm is not HALYARD_NORM_LAYER");
    }
    if (!check.failed() && o.deferred_norm && o.norm == HALYARD_NORM_NONE) {
        check.fail(HALYARD_INVALID_ARGUMENT, "deferred_norm is set, but norm is HALYARD_NORM_NONE");
    }
    if (!check.failed() && o.deferred_norm && !up->norm_folded) {
        check.fail(HALYARD_INVALID_ARGUMENT, "deferred_norm is set, but up was packed without the norm's weight");
    }
    call.norm_weight = check.row_parameter("norm_weight", o.norm_weight, call.x);
    call.norm_bias = check.row_parameter("norm_bias", o.norm_bias, call.x);
    if (o.norm == HALYARD_NORM_RMS) {
        call.rms = rms_norm_scalars(check, "norm_flags", call.x, o.eps, o.norm_flags, 1.0f);
        if (!check.failed() && o.deferred_norm && (o.norm_flags & HALYARD_RMS_UNIT_OFFSET)) {
            check.fail(HALYARD_INVALID_ARGUMENT,
                       "norm_flags has HALYARD_RMS_UNIT_OFFSET, but deferred_norm takes the weight from "
                       "up: pack it with norm_unit_offset");
        }
    } else {
        check.finite_not_negative("eps", o.eps);
        if (!check.failed() && o.norm_flags != 0) {
            check.fail(HALYARD_INVALID_ARGUMENT, "norm_flags is 0x%x, but must be 0 where norm is not HALYARD_NORM_RMS",
                       o.norm_flags);
        }
    }

    check_activation(check, o.activation, o.beta);
    call.bias = check_vector(check, "bias", o.bias, up->out_features);
    if (!check.failed() && o.bias_up && !up->gated) {
        check.fail(HALYARD_INVALID_ARGUMENT, "bias_up is given, but up holds one matrix, not gate and up");
    }
    call.bias_up = check_vector(check, "bias_up", o.bias_up, up->out_features);
    call.bias_down = check_vector(check, "bias_down", o.bias_down, down->out_features);
    if (o.residual) {
        check.same_dtype(call.x, call.y);
    }
    for (const View *input :
         {&call.x, &call.norm_weight, &call.norm_bias, &call.bias, &call.bias_up, &call.bias_down}) {
        check.no_overlap(call.y, *input, false);
    }
    check.no_overlap(call.y, memory_view("the packed bytes of up", up->block, up->bytes), false);
    check.no_overlap(call.y, memory_view("the packed bytes of down", down->block, down->bytes), false);
    return call;
}

/** Memory for f32 copies of a vector of `view`'s dtype; nothing where it is f32 already or not there. */
int64_t widened_floats(const View &view) {
    return view.data && view.dtype != DType::f32 ? view.width() : 0;
}

/** The vector in f32, in `memory` if it has to be converted. */
View widened(const View &view, halyard_isa isa, float *memory) {
    View result = view;
    if (widened_floats(view) > 0) {
        Buffer from, to;
        void *arguments[] = {from.argument(), to.argument()};
        from.set(view.data, view.width(), 1, 0);
        to.set(memory, view.width(), 1, 0);
        kernel_function(Kernel::cast_to_f32, view.dtype, isa)(arguments);
        result.dtype = DType::f32;
        result.data = reinterpret_cast<char *>(memory);
    }
    return result;
}

/** The norm before the first product. */
class InputNorm {
public:
    InputNorm(const halyard_context &context, halyard_isa isa, const FfnCall &call)
        : context_(context), isa_(isa), call_(call), width_(call.x.width()) {}

    int64_t scratch_floats() const {
        return widened_floats(call_.norm_weight) + widened_floats(call_.norm_bias) +
               2 * width_ * thread_bound(context_);
    }

    void prepare(float *memory) {
        weight_ = widened(call_.norm_weight, isa_, memory);
        memory += widened_floats(call_.norm_weight);
        bias_ = widened(call_.norm_bias, isa_, memory);
        memory += widened_floats(call_.norm_bias);
        rows_ = memory;
        scalars_ = call_.rms;
        eps_ = call_.options.eps;
        operation_ =
            call_.options.norm == HALYARD_NORM_RMS ? rms_norm(weight_, &scalars_) : layer_norm(weight_, bias_, &eps_);
    }

    /** Normalized rows of x into blocks. */
    void load(const Rows &x, int64_t first_row, int64_t rows, const BlockedRows &blocked) const {
        const int threads = static_cast<int>(std::min<int64_t>(threads_for(context_, rows * width_ * 4), rows));
        run_tasks(context_, threads, [&](int index) {
            BoundRowKernel kernel(operation_, DType::f32, isa_);
            float *const wide = rows_ + 2 * width_ * index, *const normalized = wide + width_;
            Buffer from, to;
            void *arguments[] = {from.argument(), to.argument()};
            const KernelFunction widen = kernel_function(Kernel::cast_to_f32, call_.x.dtype, isa_);
            int64_t row = rows * index / threads;
            const Part part = {first_row + row, first_row + rows * (index + 1) / threads, 0, width_};
            x.for_each_piece(part, 1, width_, [&](const Rows::Piece &piece) {
                char *source = piece.data[0];
                if (call_.x.dtype != DType::f32) {
                    from.set(source, width_, 1, 0);
                    to.set(wide, width_, 1, 0);
                    widen(arguments);
                    source = reinterpret_cast<char *>(wide);
                }
                kernel(source, 0, reinterpret_cast<char *>(normalized), 0, width_, 1);
                blocked.store_row(row++, normalized, width_);
            });
        });
        blocked.clear_from(rows, width_);
    }

private:
    const halyard_context &context_;
    const halyard_isa isa_;
    const FfnCall &call_;
    const int64_t width_;
    View weight_, bias_;
    RmsNormScalars scalars_;
    float eps_ = 0.0f;
    RowOperation operation_;
    float *rows_ = nullptr;  // two for each thread
};

halyard_status run_ffn(Checker &check, const halyard_context &context, const FfnCall &call) {
    const halyard_isa isa = best_isa(context.max_isa);
    const halyard_ffn_options &o = call.options;
    const int64_t rows = row_count(call.x), block = std::min(rows, block_rows());
    const int64_t d_model = call.x.width(), d_ff = call.up->out_features;
    const bool plain_norm = o.norm != HALYARD_NORM_NONE && !o.deferred_norm;

    Layer up(call.up, o.activation, o.beta), down(call.down, HALYARD_IDENTITY, 1.0f);
    const Product up_product(context, isa, rows, up), down_product(context, isa, rows, down);
    const int64_t product_bytes = std::max(up_product.scratch_bytes(), down_product.scratch_bytes());
    InputNorm norm(context, isa, call);
    const int64_t x_floats = BlockedRows::floats(Tiling::max_rows(block), d_model);
    const int64_t hidden_floats = BlockedRows::floats(Tiling::max_rows(block), d_ff);
    const bool has_bias = call.bias.data || call.bias_up.data, has_bias_down = call.bias_down.data;
    const int64_t floats[] = {x_floats,
                              hidden_floats,
                              has_bias ? up.bias_floats() : 0,
                              has_bias_down ? down.bias_floats() : 0,
                              plain_norm ? norm.scratch_floats() : 0,
                              o.deferred_norm ? block : 0,
                              o.deferred_norm ? block : 0};
    int64_t bytes = Scratch::piece_bytes(product_bytes);
    for (const int64_t count : floats) {
        bytes += Scratch::piece_bytes(count * static_cast<int64_t>(sizeof(float)));
    }
    Scratch scratch(context.scratch, bytes);
    if (scratch.failed()) {
        return check.fail(HALYARD_OUT_OF_MEMORY, "no memory for a block of %lld rows of x",
                          static_cast<long long>(block));
    }
    float *memory[7];
    for (int i = 0; i < 7; i++) {
        memory[i] = scratch.take<float>(floats[i]);
    }
    char *const product_memory = scratch.take<char>(product_bytes);
    if (has_bias) {
        up.set_bias(call.bias, call.bias_up, isa, memory[2]);
    }
    if (has_bias_down) {
        down.set_bias(call.bias_down, View(), isa, memory[3]);
    }
    if (plain_norm) {
        norm.prepare(memory[4]);
    }
    float *const scale = memory[5], *const mean = memory[6];

    Rows x(false), y(false);
    x.add(call.x);
    x.merge();
    y.add(call.y);
    if (o.residual) {
        y.add(call.x);
    }
    y.merge();
    for (int64_t row = 0; row < rows; row += block) {
        const int64_t count = std::min(block, rows - row);
        const Tiling tiling(isa, count);
        const BlockedRows input = {memory[0], tiling.rows()}, hidden = {memory[1], tiling.rows()};
        if (plain_norm) {
            norm.load(x, row, count, input);
        } else {
            load_rows(context, isa, x, call.x.dtype, row, count, d_model, input);
        }
        if (o.deferred_norm) {
            const int threads = static_cast<int>(
                std::min<int64_t>(threads_for(context, count * d_model * size_of(call.x.dtype)), count));
            run_tasks(context, threads, [&](int index) {
                const int64_t begin = count * index / threads, end = count * (index + 1) / threads;
                row_statistics(isa, x, call.x.dtype, o.norm, call.rms, o.eps, row + begin, end - begin, scale + begin,
                               mean + begin);
            });
        }
        Destination between;
        between.blocked = &hidden;
        const bool has_mean = o.deferred_norm && o.norm == HALYARD_NORM_LAYER;
        up_product.run(input, tiling, count, o.deferred_norm ? scale : nullptr, has_mean ? mean : nullptr, between,
                       product_memory);
        hidden.clear_from(count, d_ff);

        Destination destination;
        destination.rows = &y;
        destination.dtype = call.y.dtype;
        destination.has_residual = o.residual != 0;
        destination.first_row = row;
        down_product.run(hidden, tiling, count, nullptr, nullptr, destination, product_memory);
    }
    return HALYARD_OK;
}

}  // namespace
}  // namespace halyard

using namespace halyard;

halyard_status halyard_ffn(const halyard_context *context, const DLTensor *x, const halyard_weights *up,
                           const halyard_weights *down, const halyard_ffn_options *options, DLTensor *y) {
    Checker check("halyard_ffn", Devices::cpu_or_cuda);
    const halyard_ffn_options none = {};
    const FfnCall call = check_ffn(check, x, up, down, options ? *options : none, y);
    if (check.failed() || call.y.empty()) {
        return check.status();
    }
    if constexpr (has_cuda) {
        if (call.y.on_cuda) {
            cuda::ffn(check, context_or_default(context), call);
            return check.status();
        }
    }
    return run_ffn(check, context_or_default(context), call);
}

int64_t halyard_ffn_hidden_size(int64_t d_model, int64_t multiple_of) {
    if (d_model < 1 || multiple_of < 1 || d_model / 3 > INT64_MAX / 8) {
        return 0;
    }
    const int64_t hidden = d_model / 3 * 8 + d_model % 3 * 8 / 3, over = hidden % multiple_of;
    const int64_t add = over == 0 ? 0 : multiple_of - over;
    return hidden > INT64_MAX - add ? 0 : hidden + add;
}
