// Rotary position embedding: its handles, and the rotation of tensors.
#include "core/handles/rope.h"

#include <sys/mman.h>

#include <climits>
#include <cmath>
#include <cstdlib>
#include <new>

#include "core/check_options.h"
#include "core/handles/packed_weights.h"
#include "core/handles/rope_table.h"
#include "core/integers.h"
#include "core/row_iterator.h"
#include "core/system/huge_pages.h"
#include "cuda/attention/rope.h"

namespace halyard {
namespace {

constexpr int64_t max_rope_head_dim = 1024;
constexpr int64_t max_rope_positions = int64_t{1} << 24;

void check_even(Checker &check, const char *name, int64_t value) {
    if (!check.failed() && value % 2 != 0) {
        check.fail(HALYARD_INVALID_ARGUMENT, "%s is %lld, but must be even", name, static_cast<long long>(value));
    }
}

void check_scaling(Checker &check, const halyard_rope_options &o) {
    if (check.failed() || o.scaling == HALYARD_ROPE_UNSCALED) {
        return;
    }
    if (o.scaling < HALYARD_ROPE_UNSCALED || o.scaling > HALYARD_ROPE_LLAMA3) {
        check.fail(HALYARD_INVALID_ARGUMENT, "scaling is %d, which is no value of halyard_rope_scaling", o.scaling);
    } else if (!(o.factor >= 1 && std::isfinite(o.factor))) {
        check.fail(HALYARD_INVALID_ARGUMENT, "factor is %g, but must be finite and at least 1", o.factor);
    } else if (o.scaling == HALYARD_ROPE_LLAMA3) {
        if (!(o.low_freq_factor > 0 && std::isfinite(o.low_freq_factor))) {
            check.fail(HALYARD_INVALID_ARGUMENT, "low_freq_factor is %g, but must be finite and positive",
                       o.low_freq_factor);
        } else if (!(o.high_freq_factor > o.low_freq_factor && std::isfinite(o.high_freq_factor))) {
            check.fail(HALYARD_INVALID_ARGUMENT,
                       "high_freq_factor is %g, but must be finite and more than low_freq_factor, %g",
                       o.high_freq_factor, o.low_freq_factor);
        }
        check_range(check, "original_max_position_embeddings", o.original_max_position_embeddings, 1, INT64_MAX);
    }
}

/** The options with what is left out filled in. */
halyard_rope_options check_rope_options(Checker &check, const halyard_rope_options &given) {
    halyard_rope_options o = given;
    check_range(check, "head_dim", o.head_dim, 2, max_rope_head_dim);
    check_even(check, "head_dim", o.head_dim);
    check_range(check, "rotary_dim", o.rotary_dim, 0, o.head_dim);
    check_even(check, "rotary_dim", o.rotary_dim);
    if (o.rotary_dim == 0) {
        o.rotary_dim = o.head_dim;
    }
    check_range(check, "max_positions", o.max_positions, 1, max_rope_positions);
    if (!check.failed() && !(o.rope_theta > 1 && std::isfinite(o.rope_theta))) {
        check.fail(HALYARD_INVALID_ARGUMENT, "rope_theta is %g, but must be finite and more than 1", o.rope_theta);
    }
    check_scaling(check, o);
    return o;
}

/** A checked tensor of heads: [(batch,) T, n_heads, head_dim]. */
struct HeadsOf {
    const View &view;

    int64_t batch() const { return view.rank == 4 ? view.shape[0] : 1; }
    int64_t tokens() const { return view.shape[view.rank - 3]; }
    int64_t heads() const { return view.shape[view.rank - 2]; }
    /** Elements from head to head. */
    int64_t pitch() const { return view.strides[view.rank - 2]; }
    int64_t batch_stride() const { return view.rank == 4 ? view.strides[0] : 0; }
    cuda::DeviceHeads on_device() const {
        return {view.data, view.dtype,   batch(),        tokens(),
                heads(),   view.width(), batch_stride(), view.strides[view.rank - 3],
                pitch()};
    }
    char *token(int64_t b, int64_t t) const {
        const int64_t offset = (view.rank == 4 ? b * view.strides[0] : 0) + t * view.strides[view.rank - 3];
        return view.data + offset * size_of(view.dtype);
    }
};

/** Positions of the tokens of x; without a tensor, token t has position t. */
class Positions {
public:
    Positions(Checker &check, const DLTensor *tensor, const HeadsOf &x, int64_t max_positions);

    /** Of token t of batch b. */
    int64_t at(int64_t b, int64_t t) const { return given_.data ? given_.at(b, t) : t; }

    /** The same in memory of a device. */
    cuda::DevicePositions on_device() const {
        return {given_.data, given_.wide, given_.batch_stride, given_.token_stride, 0};
    }

    const View &memory() const { return given_.memory; }

private:
    Integers given_;
};

Positions::Positions(Checker &check, const DLTensor *tensor, const HeadsOf &x, int64_t max_positions) {
    if (check.failed()) {
        return;
    }
    if (!tensor) {
        if (x.tokens() > max_positions) {
            check.fail(HALYARD_INVALID_ARGUMENT, "x has %lld tokens, but rope has max_positions %lld",
                       static_cast<long long>(x.tokens()), static_cast<long long>(max_positions));
        }
        return;
    }
    given_ = check_integers(check, "positions", tensor);
    if (check.failed()) {
        return;
    }
    if ((given_.rank == 2 && x.view.rank != 4) || given_.tokens != x.tokens() ||
        (given_.rank == 2 && given_.batch != x.batch())) {
        check.fail(HALYARD_INVALID_ARGUMENT,
                   "positions has rank %d and width %lld, but must have the shape of x's tokens: "
                   "[%lld]%s",
                   given_.rank, static_cast<long long>(given_.tokens), static_cast<long long>(x.tokens()),
                   x.view.rank == 4 ? " or [batch, T]" : "");
        return;
    }
    if (x.view.on_cuda || !given_.data) {
        return;  // what only the device can read, or nothing
    }
    for (int64_t b = 0; b < given_.batch; b++) {
        for (int64_t t = 0; t < given_.tokens; t++) {
            const int64_t position = given_.at(b, t);
            if (position < 0 || position >= max_positions) {
                check.fail(HALYARD_INVALID_ARGUMENT,
                           "positions holds %lld, but must be in [0, %lld), rope's max_positions",
                           static_cast<long long>(position), static_cast<long long>(max_positions));
                return;
            }
        }
    }
}

/** The kernels that rotate heads of a dtype. */
class Rotation {
public:
    Rotation(halyard_isa isa, const halyard_rope &rope, DType dtype)
        : rope_(rope), pairs_(rope.options.rotary_dim / 2), rest_(rope.options.head_dim - rope.options.rotary_dim),
          size_(size_of(dtype)),
          rotate_(kernel_function(rope.options.interleaved ? Kernel::rope_interleaved : Kernel::rope, dtype, isa)),
          copy_(kernel_function(copy_kernel(dtype), dtype, isa)) {
        cosines_.set_dim(0, pairs_, 1);
        sines_.set_dim(0, pairs_, 1);
        for (BufferOf<3> *buffer : {&x_, &y_}) {
            buffer->set_dim(0, pairs_, rope.options.interleaved ? 2 : 1);
            buffer->set_dim(1, 2, rope.options.interleaved ? 1 : pairs_);
        }
    }

    /** One token's heads; pitches in elements. */
    void operator()(int64_t position, const char *x, int64_t x_pitch, int64_t heads, char *y, int64_t y_pitch) {
        // So many that the kernels can count the elements from the first to the last.
        const int64_t at_once = std::max<int64_t>(1, INT_MAX / std::max<int64_t>({x_pitch, y_pitch, 1}) - 1);
        cosines_.set_data(rope_.cosines + position * pairs_);
        sines_.set_data(rope_.sines + position * pairs_);
        for (int64_t head = 0; head < heads; head += at_once) {
            const int64_t count = std::min(at_once, heads - head);
            const char *from = x + head * x_pitch * size_;
            char *to = y + head * y_pitch * size_;
            x_.set_data(from);
            x_.set_dim(2, count, count > 1 ? x_pitch : 0);
            y_.set_data(to);
            y_.set_dim(2, count, count > 1 ? y_pitch : 0);
            void *arguments[] = {cosines_.argument(), sines_.argument(), x_.argument(), y_.argument()};
            rotate_(arguments);
            if (rest_ > 0 && from != to) {
                const int64_t rotated = 2 * pairs_ * size_;
                rest_x_.set(const_cast<char *>(from) + rotated, rest_, count, x_pitch);
                rest_y_.set(to + rotated, rest_, count, y_pitch);
                void *rest[] = {rest_x_.argument(), rest_y_.argument()};
                copy_(rest);
            }
        }
    }

private:
    const halyard_rope &rope_;
    const int64_t pairs_, rest_, size_;
    const KernelFunction rotate_, copy_;
    BufferOf<1> cosines_, sines_;
    BufferOf<3> x_, y_;
    Buffer rest_x_, rest_y_;
};

}  // namespace

void rotate(halyard_isa isa, const halyard_rope &rope, int64_t position, const float *x, int64_t x_pitch, int64_t heads,
            float *y, int64_t y_pitch) {
    Rotation(isa, rope, DType::f32)(position, reinterpret_cast<const char *>(x), x_pitch, heads,
                                    reinterpret_cast<char *>(y), y_pitch);
}

}  // namespace halyard

using halyard::Checker;

halyard_status halyard_rope_create(const halyard_rope_options *options, halyard_rope **rope) {
    using namespace halyard;
    Checker check("halyard_rope_create");
    check.not_null("options", options);
    if (!check.not_null("rope", rope)) {
        return check.status();
    }
    const halyard_rope_options o = check_rope_options(check, *options);
    if (check.failed()) {
        return check.status();
    }
    const int64_t entries = o.max_positions * (o.rotary_dim / 2);
    const int64_t bytes = 2 * entries * static_cast<int64_t>(sizeof(float));
    void *memory = malloc(sizeof(halyard_rope));
    float *table = memory ? reinterpret_cast<float *>(map_pages(bytes, true)) : nullptr;
    if (!table) {
        free(memory);
        return check.fail(HALYARD_OUT_OF_MEMORY, "no memory for a table of %lld bytes", static_cast<long long>(bytes));
    }
    fill_rope_table(o, table, table + entries);
    *rope = new (memory) halyard_rope{o, table, table + entries, table, bytes, {}};
    return HALYARD_OK;
}

void halyard_rope_destroy(halyard_rope *rope) {
    if (rope) {
        if constexpr (halyard::has_cuda) {
            rope->on_devices.release();
        }
        munmap(rope->mapped, rope->mapped_bytes);
        free(rope);
    }
}

halyard_status halyard_rope_get_options(const halyard_rope *rope, halyard_rope_options *options) {
    Checker check("halyard_rope_get_options");
    check.not_null("rope", rope);
    if (check.not_null("options", options)) {
        *options = rope->options;
    }
    return check.status();
}

halyard_status halyard_rope_apply(const halyard_context *context, const halyard_rope *rope, const DLTensor *x,
                                  const DLTensor *positions, DLTensor *y) {
    using namespace halyard;
    Checker check("halyard_rope_apply", Devices::cpu_or_cuda);
    check.not_null("rope", rope);
    const View xs = check.tensor("x", x), ys = check.output("y", y);
    check.same_shape(xs, ys);
    check.same_dtype(xs, ys);
    if (check.failed()) {
        return check.status();
    }
    if (xs.rank < 3) {
        return check.fail(HALYARD_INVALID_ARGUMENT,
                          "x has rank %d, but must have rank 3 or 4: [(batch,) T, n_heads, head_dim]", xs.rank);
    }
    if (xs.width() != rope->options.head_dim) {
        return check.fail(HALYARD_INVALID_ARGUMENT, "x has heads of %lld features, but rope has head_dim %lld",
                          static_cast<long long>(xs.width()), static_cast<long long>(rope->options.head_dim));
    }
    const HeadsOf from = {xs}, to = {ys};
    const Positions position(check, positions, from, rope->options.max_positions);
    check.no_overlap(ys, xs, true);
    check.no_overlap(ys, position.memory(), false);
    if (check.failed() || xs.empty()) {
        return check.status();
    }
    const halyard_context &c = context_or_default(context);
    if constexpr (has_cuda) {
        if (xs.on_cuda) {
            cuda::rotate(check, c, xs.device_id, *rope, position.on_device(), from.on_device(), to.on_device());
            return check.status();
        }
    }
    const halyard_isa isa = best_isa(c.max_isa);
    const int64_t tokens = from.tokens(), bytes = 2 * xs.elements * size_of(xs.dtype);
    run_ranges(c, from.batch() * tokens, bytes, [&](int64_t begin, int64_t end) {
        Rotation rotation(isa, *rope, xs.dtype);
        for (int64_t i = begin; i < end; i++) {
            const int64_t b = i / tokens, t = i % tokens;
            rotation(position.at(b, t), from.token(b, t), from.pitch(), from.heads(), to.token(b, t), to.pitch());
        }
    });
    return HALYARD_OK;
}
