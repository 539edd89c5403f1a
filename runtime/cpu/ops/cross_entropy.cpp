// Cross entropy on the processor: kernels reduce a few rows and write their gradients, and what concerns the target alone is done here.
#include <algorithm>

#include "core/calls/row_vector.h"
#include "core/kernel_call.h"
#include "core/row_iterator.h"
#include "cpu/backend.h"

namespace halyard {
namespace {

constexpr int64_t most_rows = 64;

/** Rows that are reduced before their gradients are written: so few that they are still in cache then. */
int64_t rows_at_once(int64_t width) {
    constexpr int64_t cached_elements = 1 << 16;
    return std::clamp<int64_t>(cached_elements / width, 1, most_rows);
}

/** One per task, as it holds the buffers. */
class CrossEntropyRows {
public:
    CrossEntropyRows(const CrossEntropyCall &call, halyard_isa isa)
        : call_(call), reduce_(kernel_function(kernels::cross_entropy_statistics, DType::f32, isa)),
          differentiate_(kernel_function(kernels::cross_entropy_gradient, DType::f32, isa)) {}

    /** Rows from number `first` on: of logits and, if gradients are wanted, of these. */
    void run(int64_t first, const Rows::Piece &piece) {
        const auto *const logits = reinterpret_cast<const float *>(piece.data[0]);
        rows_ = piece.rows;
        logits_.set(logits, piece.columns, rows_, piece.pitch[0]);
        reduced_.set(&row_[0].maximum, 3, rows_, 3);
        reduce_({logits_, reduced_});
        for (int64_t i = 0; i < rows_; i++) {
            target_[i] = call_.counted.targets.in_order(first + i);
            target_logit_[i] = counts(i) ? logits[i * piece.pitch[0] + target_[i]] : 0.0f;
        }
        if (call_.losses.data) {
            write_losses(first);
        }
        if (call_.dlogits.data) {
            write_gradients(piece);
        }
    }

private:
    /** What the kernel leaves of a row. */
    struct Reduced {
        float maximum, rest, log1p_rest;
    };

    bool counts(int64_t i) const { return call_.counted.counts(target_[i]); }

    void write_losses(int64_t first) {
        float losses[most_rows];
        for (int64_t i = 0; i < rows_; i++) {
            losses[i] = counts(i) ? (row_[i].maximum - target_logit_[i]) + row_[i].log1p_rest : 0.0f;
        }
        scatter(call_.losses, first, rows_, losses);
    }

    void write_gradients(const Rows::Piece &piece) {
        float of_row[most_rows][2];
        for (int64_t i = 0; i < rows_; i++) {
            of_row[i][0] = row_[i].maximum;
            of_row[i][1] = call_.scale / (1.0f + row_[i].rest);
        }
        factors_.set(of_row[0], 2, rows_, 2);
        auto *const gradients = reinterpret_cast<float *>(piece.data[1]);
        gradients_.set(gradients, piece.columns, rows_, piece.pitch[1]);
        differentiate_({logits_, factors_, gradients_});
        for (int64_t i = 0; i < rows_; i++) {
            float *const gradient = gradients + i * piece.pitch[1];
            if (!counts(i)) {
                std::fill_n(gradient, piece.columns, 0.0f);
                continue;
            }
            // The target's probability p is at most 1/2 unless its logit is the maximum, and then 1 - p is rest / (1 + rest).
            float &of_target = gradient[target_[i]];
            of_target = target_logit_[i] == row_[i].maximum ? -(row_[i].rest * of_row[i][1]) : of_target - call_.scale;
        }
    }

    const CrossEntropyCall &call_;
    const KernelCall<arguments::CrossEntropyStatistics> reduce_;
    const KernelCall<arguments::CrossEntropyGradient> differentiate_;
    Buffer<2, float> logits_, reduced_, factors_, gradients_;
    int64_t rows_ = 0;
    Reduced row_[most_rows];
    int64_t target_[most_rows];
    float target_logit_[most_rows];
};

}  // namespace

void cpu::cross_entropy(Checker &, const halyard_context &context, const CrossEntropyCall &call) {
    Rows rows(false);
    rows.add(call.logits);
    rows.add(call.dlogits.data ? call.dlogits : call.logits);
    rows.merge();
    const halyard_isa isa = best_isa(context.max_isa);
    Split(context, rows).run([&](const Part &part) {
        CrossEntropyRows work(call, isa);
        int64_t row = part.row;
        rows.for_each_piece(part, rows_at_once(rows.width()), rows.width(), [&](const Rows::Piece &piece) {
            work.run(row, piece);
            row += piece.rows;
        });
    });
}

}  // namespace halyard
