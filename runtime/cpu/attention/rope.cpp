// Rotary position embedding on the processor.
#include <algorithm>
#include <climits>
#include <functional>

#include "core/cast.h"
#include "core/row_iterator.h"
#include "cpu/attention/rope.h"
#include "cpu/backend.h"

namespace halyard {
namespace {

/** The kernels that rotate heads of a dtype. */
class Rotation {
public:
    /** `back`: by the negative angles. */
    Rotation(halyard_isa isa, const halyard_rope &rope, DType dtype, bool back = false)
        : isa_(isa), dtype_(dtype), back_(back), rope_(rope), pairs_(rope.options.rotary_dim / 2),
          rest_(rope.options.head_dim - rope.options.rotary_dim), size_(size_of(dtype)),
          rotate_(kernel_function(rope.options.interleaved ? kernels::rope_interleaved : kernels::rope, dtype, isa)) {
        cosines_.set_dim(0, pairs_, 1);
        sines_.set_dim(0, pairs_, 1);
        for (Buffer<3> *buffer : {&x_, &y_}) {
            buffer->set_dim(0, pairs_, rope.options.interleaved ? 2 : 1);
            buffer->set_dim(1, 2, rope.options.interleaved ? 1 : pairs_);
        }
    }

    /** One token's heads; pitches in elements. */
    void operator()(int64_t position, const char *x, int64_t x_pitch, int64_t heads, char *y, int64_t y_pitch) {
        // So many that the kernels can count the elements from the first to the last.
        const int64_t at_once = std::max<int64_t>(1, INT_MAX / std::max<int64_t>({x_pitch, y_pitch, 1}) - 1);
        cosines_.set_data(rope_.cosines + position * pairs_);
        const float *const sines = rope_.sines + position * pairs_;
        if (back_) {
            std::transform(sines, sines + pairs_, negative_sines_, std::negate<float>());
        }
        sines_.set_data(back_ ? negative_sines_ : sines);
        for (int64_t head = 0; head < heads; head += at_once) {
            const int64_t count = std::min(at_once, heads - head);
            const char *from = x + head * x_pitch * size_;
            char *to = y + head * y_pitch * size_;
            x_.set_data(from);
            x_.set_dim(2, count, count > 1 ? x_pitch : 0);
            y_.set_data(to);
            y_.set_dim(2, count, count > 1 ? y_pitch : 0);
            rotate_({.cosines = cosines_, .sines = sines_, .x = x_, .y = y_});
            if (rest_ > 0 && from != to) {
                const int64_t rotated = 2 * pairs_ * size_;
                cast(isa_, {const_cast<char *>(from) + rotated, dtype_, x_pitch}, {to + rotated, dtype_, y_pitch},
                     rest_, count);
            }
        }
    }

private:
    const halyard_isa isa_;
    const DType dtype_;
    const bool back_;
    const halyard_rope &rope_;
    const int64_t pairs_, rest_, size_;
    const KernelCall<arguments::Rope> rotate_;
    float negative_sines_[max_rope_head_dim / 2];
    Buffer<1, float> cosines_, sines_;
    Buffer<3> x_, y_;
};

}  // namespace

void rotate(halyard_isa isa, const halyard_rope &rope, int64_t position, const float *x, int64_t x_pitch, int64_t heads,
            float *y, int64_t y_pitch) {
    Rotation(isa, rope, DType::f32)(position, reinterpret_cast<const char *>(x), x_pitch, heads,
                                    reinterpret_cast<char *>(y), y_pitch);
}

void cpu::rope(Checker &, const halyard_context &context, const RopeCall &call) {
    const Heads &x = call.x;
    const View &y = call.y;
    const Heads to(y);
    const halyard_isa isa = best_isa(context.max_isa);
    run_ranges(context, x.batch * x.tokens, 2 * y.elements * size_of(y.dtype), [&](int64_t begin, int64_t end) {
        Rotation rotation(isa, *call.rope, y.dtype, call.back);
        for (int64_t i = begin; i < end; i++) {
            const int64_t b = i / x.tokens, t = i % x.tokens;
            rotation(call.position(b, t), x.at(b, t, 0), x.head_stride, x.heads, to.at(b, t, 0), to.head_stride);
        }
    });
}

}  // namespace halyard
