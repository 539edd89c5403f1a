// The norm of gradients on the processor: sums of squares by chunks of a tensor's elements, which are added in order whatever the
// threads. An element's place in a chunk follows from the tensor's shape alone, so that a pitch changes no bit.
#include <algorithm>
#include <cmath>

#include "core/calls/optimizers.h"
#include "core/row_iterator.h"
#include "cpu/backend.h"
#include "layout/square_sum.h"

namespace halyard {
namespace {

// Chunks whose sums are kept until they are added.
constexpr int64_t group = 512;

/** The chunks of a tensor. */
class SquareSums {
public:
    SquareSums(const View &x, halyard_isa isa)
        : kernel_(kernel_function(kernels::square_sum, DType::f32, isa)), elements_(x.elements), rows_(true) {
        rows_.add(x);
        rows_.merge();
    }

    int64_t chunks() const { return (elements_ + square_sum_chunk - 1) / square_sum_chunk; }

    double chunk(int64_t index) const {
        const int64_t first = index * square_sum_chunk, count = std::min<int64_t>(square_sum_chunk, elements_ - first);
        alignas(64) float staged[square_sum_chunk];
        const bool in_place = count % square_sum_lanes == 0 && rows_.width() - first % rows_.width() >= count;
        const int64_t rows = (count + square_sum_lanes - 1) / square_sum_lanes;
        if (!in_place) {
            copy(first, count, staged);
            std::fill(staged + count, staged + rows * square_sum_lanes, 0.0f);
        }
        Buffer<2, float> x;
        x.set(in_place ? at(first, count) : staged, square_sum_lanes, rows, square_sum_lanes);
        Buffer<1, double> sums;
        double lanes[square_sum_lanes];
        sums.set(lanes, square_sum_lanes);
        kernel_({x, sums});
        for (int half = square_sum_lanes / 2; half > 0; half /= 2) {
            for (int lane = 0; lane < half; lane++) {
                lanes[lane] += lanes[lane + half];
            }
        }
        return lanes[0];
    }

private:
    /** `count` elements that lie side by side. */
    const float *at(int64_t first, int64_t count) const {
        const int64_t row = first / rows_.width(), column = first % rows_.width();
        const float *data = nullptr;
        rows_.for_each_piece({row, row + 1, column, column + count}, 1, count,
                             [&](const Rows::Piece &piece) { data = reinterpret_cast<const float *>(piece.data[0]); });
        return data;
    }

    void copy(int64_t first, int64_t count, float *to) const {
        while (count > 0) {
            const int64_t part = std::min(count, rows_.width() - first % rows_.width());
            to = std::copy_n(at(first, part), part, to);
            first += part;
            count -= part;
        }
    }

    const KernelCall<arguments::SquareSum> kernel_;
    const int64_t elements_;
    Rows rows_;
};

/** Adds the chunks of a tensor to a sum. */
void add_squares(const halyard_context &context, const View &x, double &sum) {
    const SquareSums squares(x, best_isa(context.max_isa));
    const int64_t chunks = squares.chunks();
    for (int64_t first = 0; first < chunks; first += group) {
        const int64_t count = std::min(group, chunks - first);
        double sums[group];
        const int64_t bytes = count * square_sum_chunk * static_cast<int64_t>(sizeof(float));
        const int64_t tasks = std::min<int64_t>(row_threads(context, bytes), count);
        run_tasks(context, static_cast<int>(tasks), [&](int task) {
            for (int64_t i = count * task / tasks; i < count * (task + 1) / tasks; i++) {
                sums[i] = squares.chunk(first + i);
            }
        });
        for (int64_t i = 0; i < count; i++) {
            sum += sums[i];
        }
    }
}

}  // namespace

void cpu::gradient_norm(Checker &, const halyard_context &context, const GradientNormCall &call) {
    double sum = 0;
    for (int64_t i = 0; i < call.count; i++) {
        add_squares(context, call.gradients[i], sum);
    }
    *call.norm = std::sqrt(sum);
}

}  // namespace halyard
