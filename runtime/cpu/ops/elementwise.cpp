// Activations and their derivatives, gated units, add and cast.
#include <climits>
#include <initializer_list>

#include "core/row_iterator.h"
#include "cpu/ops/streaming.h"
#include "cuda/ops/operations.h"

namespace halyard {
namespace {

// Elements of a tile: so few that the copy out of one, which waits in the core's store buffer, overlaps the arithmetic of
// the next, and a multiple of what any kernel takes at once (1, 2, 3, 4 or 6 vectors of 4 to 16, by pairs in 16 bits),
// since the rest of a row takes longer than its share. (Two threads of a Zen 3, kernels with 6 vectors: SiLU of
// 2048 x 8192 in bf16 takes 4.2 ms so, 5.6 by tiles of 512 when a rest was one masked step, as it still is in f32; there
// all sizes from 256 to 768 are alike.)
constexpr int64_t tile_elements(int64_t size) {
    return size == 4 ? 384 : 576;
}
constexpr int64_t tile_bytes = 1536;

// Tiles between the one that is done and the one whose inputs are asked for, where they are: memory answers later than
// the arithmetic of one tile takes. (Two threads of a Xeon with AVX-512, tiles of 256: SiLU of 2048 x 8192 in f32 takes
// 5.5 ms so, 6.2 with 1; 6.0 with 8. The same loop in intrinsics gains nothing more from a fetch for every line inside
// the loop, or from no tile at all.)
constexpr int64_t tiles_ahead = 4;

// beta = 1, the value in every published model, has kernels of its own: two thirds of the time of the general ones.
Kernel without_beta(Kernel kernel, float beta) {
    if (beta == 1.0f) {
        switch (kernel) {
        case Kernel::swish:
            return Kernel::silu;
        case Kernel::swish_derivative:
            return Kernel::silu_derivative;
        case Kernel::swiglu:
            return Kernel::swiglu_beta1;
        case Kernel::swiglu_interleaved:
            return Kernel::swiglu_beta1_interleaved;
        default:
            break;
        }
    }
    return kernel;
}

// Runs a kernel on inputs and an output of one shape. Arguments of every elementwise kernel: the inputs, beta if it has
// one, the output. An element of y takes `pair` elements of the first input (2 where gate and up are interleaved).
void run(Checker &check, const halyard_context *context, Kernel kernel, std::initializer_list<View> inputs,
         const float *beta, const View &y, int pair = 1) {
    if (y.empty()) {
        return;
    }
    if constexpr (has_cuda) {
        if (y.on_cuda) {
            cuda::elementwise(check, context, beta ? without_beta(kernel, *beta) : kernel, inputs, beta, y, pair);
            return;
        }
    }
    Rows rows(true);
    for (const View &input : inputs) {
        rows.add(input, rows.tensors() == 0 ? pair : 1);
    }
    rows.add(y);
    rows.merge();

    const halyard_context &c = context_or_default(context);
    const DType dtype = inputs.begin()->dtype;
    const halyard_isa isa = best_isa(c.max_isa);
    const KernelFunction function = kernel_function(beta ? without_beta(kernel, *beta) : kernel, dtype, isa);
    const int input_count = static_cast<int>(inputs.size());

    bool stream =
        rows.width() * size_of(y.dtype) >= tile_bytes && should_stream(c, rows.count() * rows.bytes_per_row());
    for (const View &input : inputs) {
        stream = stream && input.data != y.data;  // in place, the lines of y are in cache already
    }

    Split(c, rows).run([&](const Part &part) {
        Buffer first, second, output;
        float beta_value = beta ? *beta : 0.0f;
        void *arguments[max_tensors];
        int n = 0;
        arguments[n++] = first.argument();
        if (input_count > 1) {
            arguments[n++] = second.argument();
        }
        if (beta) {
            arguments[n++] = &beta_value;
        }
        arguments[n] = output.argument();

        if (!stream) {
            rows.for_each_piece(part, INT_MAX, max_columns, [&](const Rows::Piece &piece) {
                first.set(piece.data[0], piece.columns * pair, piece.rows, piece.pitch[0]);
                second.set(piece.data[1], piece.columns, piece.rows, piece.pitch[1]);
                output.set(piece.data[input_count], piece.columns, piece.rows, piece.pitch[input_count]);
                function(arguments);
            });
            return;
        }
        Tile<tile_bytes> tile(true, isa);
        const bool ask_ahead = asks_ahead(isa);
        const int64_t size = size_of(y.dtype), input_size = size_of(dtype);
        rows.for_each_piece(part, 1, max_columns, [&](const Rows::Piece &piece) {
            char *a = piece.data[0], *b = piece.data[input_count - 1], *out = piece.data[input_count];
            // The first tile is shorter, so that all others begin at a cache line.
            const int64_t misaligned = static_cast<int64_t>(reinterpret_cast<uintptr_t>(out) % 64) / size;
            int64_t columns = tile_elements(size) - misaligned;
            for (int64_t left = piece.columns; left > 0; left -= columns, columns = tile_elements(size)) {
                columns = std::min(columns, left);
                const int64_t a_bytes = columns * pair * input_size, b_bytes = columns * input_size;
                first.set(a, columns * pair, 1, 0);
                second.set(b, columns, 1, 0);
                output.set(tile.data(), columns, 1, 0);
                function(arguments);
                a += a_bytes;
                b += b_bytes;
                if (ask_ahead) {
                    fetch(a + tiles_ahead * a_bytes, a_bytes);
                    if (input_count > 1) {
                        fetch(b + tiles_ahead * b_bytes, b_bytes);
                    }
                }
                tile.store(out, columns * size, 1, 0);
                out += columns * size;
            }
        });
    });
}

halyard_status unary(const char *name, Kernel kernel, const halyard_context *context, const DLTensor *x, float beta,
                     DLTensor *y) {
    Checker check(name, Devices::cpu_or_cuda);
    const View xs = check.tensor("x", x);
    const View ys = check.output("y", y);
    check.same_shape(xs, ys);
    check.same_dtype(xs, ys);
    check.no_overlap(ys, xs, true);
    check.swish_beta("beta", beta);
    if (!check.failed()) {
        run(check, context, kernel, {xs}, &beta, ys);
    }
    return check.status();
}

halyard_status gated(const char *name, Kernel kernel, const halyard_context *context, const DLTensor *gate,
                     const DLTensor *up, float beta, DLTensor *y) {
    Checker check(name, Devices::cpu_or_cuda);
    const View gates = check.tensor("gate", gate);
    const View ups = check.tensor("up", up);
    const View ys = check.output("y", y);
    for (const View *other : {&ups, &ys}) {
        check.same_shape(gates, *other);
        check.same_dtype(gates, *other);
    }
    check.no_overlap(ys, gates, true);
    check.no_overlap(ys, ups, true);
    check.swish_beta("beta", beta);
    if (!check.failed()) {
        run(check, context, kernel, {gates, ups}, &beta, ys);
    }
    return check.status();
}

halyard_status gated_packed(const char *name, Kernel kernel, Kernel interleaved, const halyard_context *context,
                            const DLTensor *x, halyard_glu_layout layout, float beta, DLTensor *y) {
    Checker check(name, Devices::cpu_or_cuda);
    const View xs = check.tensor("x", x);
    const View ys = check.output("y", y);
    if (!check.failed() && (layout < HALYARD_GLU_GATE_UP || layout > HALYARD_GLU_INTERLEAVED)) {
        check.fail(HALYARD_INVALID_ARGUMENT, "layout is %d, which is no value of halyard_glu_layout",
                   static_cast<int>(layout));
    }
    if (!check.failed() && xs.width() % 2 != 0) {
        check.fail(HALYARD_INVALID_ARGUMENT,
                   "x has %lld columns, but must have an even number: gate and up of equal width",
                   static_cast<long long>(xs.width()));
    }
    // x as the two halves of its columns, each with the shape that y must have
    View first = xs;
    first.shape[xs.rank - 1] /= 2;
    first.elements /= 2;
    first.span -= first.empty() ? 0 : first.width();
    View second = first;
    if (!check.failed()) {
        if (ys.rank != xs.rank || ys.width() != first.width()) {
            check.fail(HALYARD_INVALID_ARGUMENT,
                       "y has rank %d and width %lld, but must have the rank of x, %d, and half its width, %lld",
                       ys.rank, static_cast<long long>(ys.width()), xs.rank, static_cast<long long>(first.width()));
        }
        if (!second.empty()) {
            second.data += first.width() * size_of(xs.dtype);
        }
    }
    check.same_shape(first, ys);
    check.same_dtype(xs, ys);
    if (layout == HALYARD_GLU_INTERLEAVED) {
        check.no_overlap(ys, xs, false);
    } else {
        check.no_overlap(ys, first, true);
        check.no_overlap(ys, second, true);
    }
    check.swish_beta("beta", beta);
    if (check.failed()) {
        return check.status();
    }
    switch (layout) {
    case HALYARD_GLU_GATE_UP:
        run(check, context, kernel, {first, second}, &beta, ys);
        break;
    case HALYARD_GLU_UP_GATE:
        run(check, context, kernel, {second, first}, &beta, ys);
        break;
    case HALYARD_GLU_INTERLEAVED:
        run(check, context, interleaved, {xs}, &beta, ys, 2);
        break;
    }
    return check.status();
}

}  // namespace
}  // namespace halyard

using halyard::Checker;
using halyard::Kernel;
using halyard::View;

#define HALYARD_KERNEL(name)                                                                                           \
    halyard_status halyard_##name(const halyard_context *context, const DLTensor *x, DLTensor *y) {                    \
        return halyard::unary("halyard_" #name, Kernel::name, context, x, 0.0f, y);                                    \
    }
#include "kernels/unary.inc"
#undef HALYARD_KERNEL

#define HALYARD_KERNEL(name)                                                                                           \
    halyard_status halyard_##name(const halyard_context *context, const DLTensor *x, float beta, DLTensor *y) {        \
        return halyard::unary("halyard_" #name, Kernel::name, context, x, beta, y);                                    \
    }
#include "kernels/unary_beta.inc"
#undef HALYARD_KERNEL

#define HALYARD_KERNEL(name)                                                                                           \
    halyard_status halyard_##name(const halyard_context *context, const DLTensor *gate, const DLTensor *up,            \
                                  DLTensor *y) {                                                                       \
        return halyard::gated("halyard_" #name, Kernel::name, context, gate, up, 0.0f, y);                             \
    }                                                                                                                  \
    halyard_status halyard_##name##_packed(const halyard_context *context, const DLTensor *x,                          \
                                           halyard_glu_layout layout, DLTensor *y) {                                   \
        return halyard::gated_packed("halyard_" #name "_packed", Kernel::name, Kernel::name##_interleaved, context, x, \
                                     layout, 0.0f, y);                                                                 \
    }
#include "kernels/gated.inc"
#undef HALYARD_KERNEL

#define HALYARD_KERNEL(name)                                                                                           \
    halyard_status halyard_##name(const halyard_context *context, const DLTensor *gate, const DLTensor *up,            \
                                  float beta, DLTensor *y) {                                                           \
        return halyard::gated("halyard_" #name, Kernel::name, context, gate, up, beta, y);                             \
    }                                                                                                                  \
    halyard_status halyard_##name##_packed(const halyard_context *context, const DLTensor *x,                          \
                                           halyard_glu_layout layout, float beta, DLTensor *y) {                       \
        return halyard::gated_packed("halyard_" #name "_packed", Kernel::name, Kernel::name##_interleaved, context, x, \
                                     layout, beta, y);                                                                 \
    }
#include "kernels/gated_beta.inc"
#undef HALYARD_KERNEL

halyard_status halyard_add(const halyard_context *context, const DLTensor *a, const DLTensor *b, DLTensor *y) {
    Checker check("halyard_add", halyard::Devices::cpu_or_cuda);
    const View as = check.tensor("a", a);
    const View bs = check.tensor("b", b);
    const View ys = check.output("y", y);
    for (const View *other : {&bs, &ys}) {
        check.same_shape(as, *other);
        check.same_dtype(as, *other);
    }
    check.no_overlap(ys, as, true);
    check.no_overlap(ys, bs, true);
    if (!check.failed()) {
        halyard::run(check, context, Kernel::add, {as, bs}, nullptr, ys);
    }
    return check.status();
}

halyard_status halyard_cast(const halyard_context *context, const DLTensor *x, DLTensor *y) {
    Checker check("halyard_cast", halyard::Devices::cpu_or_cuda);
    const View xs = check.tensor("x", x);
    const View ys = check.output("y", y);
    check.same_shape(xs, ys);
    check.no_overlap(ys, xs, xs.dtype == ys.dtype);
    if (!check.failed()) {
        constexpr Kernel to[] = {
#define HALYARD_DTYPE(name) Kernel::cast_to_##name,
#include "kernels/dtypes.inc"
#undef HALYARD_DTYPE
        };
        halyard::run(check, context, to[static_cast<int>(ys.dtype)], {xs}, nullptr, ys);
    }
    return check.status();
}
