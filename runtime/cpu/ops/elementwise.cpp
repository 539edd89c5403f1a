// Elementwise kernels on the processor: the work split over threads, streamed where it fits no cache.
#include <climits>

#include "core/whole_columns.h"
#include "cpu/backend.h"
#include "cpu/ops/streaming.h"

namespace halyard {
namespace {

// Bytes of rows that are streamed at least.
constexpr int64_t min_streamed_row_bytes = 1536;

/** A kernel with what it takes: a buffer for each operand of the call. */
class ElementwiseKernel {
public:
    ElementwiseKernel(const ElementwiseCall &call, KernelFunction function)
        : function_(function), call_(call), beta_(call.beta) {
        for (int i = 0, operand = 0; i < call.parameter_count; i++) {
            arguments_[i] = call.parameters[i].rank < 0 ? &beta_ : BufferArgument<2>(buffers_[operand++]).pointer();
        }
    }
    ElementwiseKernel(const ElementwiseKernel &) = delete;
    ElementwiseKernel &operator=(const ElementwiseKernel &) = delete;

    /** Some columns of some rows of the operands. */
    void operator()(const Rows::Piece &piece) {
        for (int i = 0; i < call_.count(); i++) {
            buffers_[i].set(piece.data[i], piece.columns * call_.operands[i].per_column, piece.rows, piece.pitch[i]);
        }
        if (__builtin_expect(verbose_level > 1, false)) {
            run_verbosely(function_, arguments_, call_.parameters, call_.parameter_count);
        } else {
            function_(arguments_);
        }
    }

private:
    const KernelFunction function_;
    const ElementwiseCall &call_;
    float beta_;
    Buffer<2> buffers_[ElementwiseCall::max_operands];
    void *arguments_[ElementwiseCall::max_operands + 1];
};

/** Whether an output takes the place of an input, whose lines are in cache already. */
bool is_in_place(const ElementwiseCall &call) {
    for (int i = 0; i < call.input_count; i++) {
        for (int k = 0; k < call.output_count; k++) {
            if (call.input(i).data == call.output(k).data) {
                return true;
            }
        }
    }
    return false;
}

/** How many columns come before all outputs are at the beginning of a line; all of them if they never are at once. */
int64_t columns_to_line(const ElementwiseCall &call, const Rows &rows, const Rows::Piece &piece) {
    constexpr int64_t line = 64;
    const auto bytes_to_line = [&](int output, int64_t column) {
        const int64_t begin = reinterpret_cast<intptr_t>(piece.data[output]);
        return -(begin + column * rows.column_bytes(output)) & (line - 1);
    };
    for (int64_t column = 0; column < std::min(line, piece.columns); column++) {
        int outputs = 0;
        while (outputs < call.output_count && bytes_to_line(call.input_count + outputs, column) == 0) {
            outputs++;
        }
        if (outputs == call.output_count) {
            return column;
        }
    }
    return piece.columns;
}

}  // namespace

void cpu::elementwise(Checker &, const halyard_context &c, const ElementwiseCall &call) {
    Rows rows(true);
    for (int i = 0; i < call.count(); i++) {
        rows.add(*call.operands[i].view, call.operands[i].per_column);
    }
    rows.merge();

    const KernelFunction function = kernel_function(call.kernel, call.input(0).dtype, best_isa(c.max_isa));
    const bool streams = rows.width() * size_of(call.y.dtype) >= min_streamed_row_bytes &&
                         should_stream(c, rows.count() * rows.bytes_per_row(), outputs_stream) && !is_in_place(call);
    const KernelFunction streamed_function = streams ? streamed_form(function) : nullptr;
    const WholeColumns whole(rows, call.input_count, call.input_count);
    Split(c, rows).run([&](const Part &part) {
        ElementwiseKernel kernel(call, function);
        if (!streamed_function) {
            rows.for_each_piece(part, INT_MAX, max_columns,
                                [&](const Rows::Piece &piece) { whole.run(piece, kernel); });
            return;
        }
        ElementwiseKernel streamed(call, streamed_function);
        rows.for_each_piece(part, 1, max_columns, [&](Rows::Piece piece) {
            int64_t left = piece.columns;
            const auto next = [&](int64_t columns, ElementwiseKernel &of) {
                piece.columns = columns;
                whole.run(piece, of);
                whole.skip_columns(piece, columns);
                left -= columns;
            };
            next(columns_to_line(call, rows, piece), kernel);
            next(left / column_granule * column_granule, streamed);
            next(left, kernel);
        });
        stream_fence();
    });
}

}  // namespace halyard
