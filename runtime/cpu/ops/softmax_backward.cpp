// The backward pass of softmax on the processor, row by row.
#include <climits>

#include "core/row_iterator.h"
#include "cpu/backend.h"
#include "cpu/ops/norm_rows.h"
#include "cpu/ops/streaming.h"

namespace halyard {

void cpu::softmax_backward(Checker &, const halyard_context &c, const SoftmaxBackwardCall &call) {
    Rows rows(false);
    for (const View *view : {&call.softmax, &call.dy, &call.y}) {
        rows.add(*view);
    }
    rows.merge();
    const auto kernel = kernel_function(kernels::softmax_backward, call.y.dtype, best_isa(c.max_isa));
    const int64_t size = size_of(call.y.dtype);
    const bool in_place = call.y.data == call.softmax.data || call.y.data == call.dy.data;
    const bool stream = should_stream(c, rows.count() * rows.bytes_per_row(), rows_stream()) && !in_place;
    const auto streamed = stream ? kernel.streamed() : std::nullopt;
    const Split split(c, rows);
    const RowOrder order = row_order(split.parts(), rows);
    split.run([&](const Part &part) {
        Buffer<2> tensors[3];
        rows.for_each_piece(part, INT_MAX, rows.width(), [&](const Rows::Piece &piece) {
            const bool streams_itself = streamed && begins_lines(piece.data[2], piece.pitch[2] * size);
            in_row_order(order, piece.rows, [&](int64_t first, int64_t count) {
                for (int i = 0; i < 3; i++) {
                    tensors[i].set(piece.data[i] + first * piece.pitch[i] * size, piece.columns, count, piece.pitch[i]);
                }
                (streams_itself ? *streamed : kernel)({tensors[0], tensors[1], call.scale, tensors[2]});
            });
        });
        if (streamed) {
            stream_fence();
        }
    });
}

}  // namespace halyard
