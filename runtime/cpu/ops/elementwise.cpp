// Elementwise kernels on the processor: the work split over threads, streamed where it fits no cache.
#include <climits>

#include "core/row_iterator.h"
#include "cpu/backend.h"
#include "cpu/ops/streaming.h"

namespace halyard {
namespace {

// Bytes of a tile at most, and of rows that are streamed at least.
constexpr int64_t max_tile_bytes = 6144, min_streamed_row_bytes = 1536;

int64_t tile_elements(int64_t size) {
    return std::min(size == 4 ? parameters.elementwise_tile_f32 : parameters.elementwise_tile_16_bit,
                    max_tile_bytes / size);
}

/** Tiles between the one that is done and the one whose inputs are prefetched; 0 if they are not. */
int64_t tiles_ahead(halyard_isa isa) {
    const int64_t tiles = parameters.elementwise_prefetch_tiles;
    return tiles >= 0 ? tiles : prefetches_ahead(isa) ? 4 : 0;
}

/** A kernel with what it takes: a buffer for each operand of the call. */
class ElementwiseKernel {
public:
    ElementwiseKernel(const ElementwiseCall &call, halyard_isa isa)
        : function_(kernel_function(call.kernel, call.input(0).dtype, isa)), parameters_(call.parameters),
          count_(call.parameter_count), beta_(call.beta) {
        for (int i = 0, operand = 0; i < count_; i++) {
            arguments_[i] = parameters_[i].rank < 0 ? &beta_ : BufferArgument<2>(buffers_[operand++]).pointer();
        }
    }
    ElementwiseKernel(const ElementwiseKernel &) = delete;
    ElementwiseKernel &operator=(const ElementwiseKernel &) = delete;

    Buffer<2> &buffer(int operand) { return buffers_[operand]; }

    void operator()() {
        if (__builtin_expect(verbose_level > 1, false)) {
            run_verbosely(function_, arguments_, parameters_, count_);
        } else {
            function_(arguments_);
        }
    }

private:
    const KernelFunction function_;
    const Parameter *const parameters_;
    const int count_;
    float beta_;
    Buffer<2> buffers_[ElementwiseCall::max_operands];
    void *arguments_[ElementwiseCall::max_operands + 1];
};

/** Whether an output takes the place of an input, whose lines are in cache already. */
bool in_place(const ElementwiseCall &call, const View &output) {
    for (int i = 0; i < call.input_count; i++) {
        if (call.input(i).data == output.data) {
            return true;
        }
    }
    return false;
}

/** Which outputs are streamed. */
struct Streamed {
    bool outputs[ElementwiseCall::max_outputs] = {}, any = false;

    Streamed(const halyard_context &c, const Rows &rows, const ElementwiseCall &call, halyard_isa isa) {
        const bool large = rows.width() * size_of(call.y.dtype) >= min_streamed_row_bytes &&
                           should_stream(c, rows.count() * rows.bytes_per_row(),
                                         family_streams(parameters.elementwise_streams, elementwise_streams(isa)));
        for (int k = 0; large && k < call.output_count; k++) {
            outputs[k] = !in_place(call, call.output(k));
            any |= outputs[k];
        }
    }
};

/** A part of the work by tiles in cache, from where the outputs are streamed. */
void run_streamed(const ElementwiseCall &call, const Rows &rows, const Part &part, halyard_isa isa,
                  const Streamed &streamed) {
    const int count = call.count(), input_count = call.input_count;
    ElementwiseKernel kernel(call, isa);
    Tile<max_tile_bytes> tiles[ElementwiseCall::max_outputs] = {{true, isa}, {true, isa}};
    int64_t column_bytes[ElementwiseCall::max_operands];
    for (int i = 0; i < count; i++) {
        column_bytes[i] = call.operands[i].per_column * size_of(call.operands[i].view->dtype);
    }
    // The first of the outputs that are streamed decides where tiles begin.
    const int first = input_count + (streamed.outputs[0] ? 0 : 1);
    const int64_t whole = tile_elements(size_of(call.y.dtype)) / call.operands[first].per_column;
    const int64_t ahead = tiles_ahead(isa);
    rows.for_each_piece(part, 1, max_columns, [&](const Rows::Piece &piece) {
        char *data[ElementwiseCall::max_operands];
        std::copy_n(piece.data, count, data);
        // The first tile is shorter, so that all others begin at a cache line.
        const int64_t misaligned =
            static_cast<int64_t>(reinterpret_cast<uintptr_t>(data[first]) % 64) / column_bytes[first];
        int64_t columns = whole - misaligned;
        for (int64_t left = piece.columns; left > 0; left -= columns, columns = whole) {
            columns = std::min(columns, left);
            for (int i = 0; i < count; i++) {
                const bool in_tile = i >= input_count && streamed.outputs[i - input_count];
                kernel.buffer(i).set(in_tile ? tiles[i - input_count].data() : data[i],
                                     columns * call.operands[i].per_column, 1, 0);
            }
            kernel();
            for (int i = 0; i < count; i++) {
                const int64_t bytes = columns * column_bytes[i];
                if (i >= input_count && streamed.outputs[i - input_count]) {
                    tiles[i - input_count].store(data[i], bytes, 1, 0);
                }
                data[i] += bytes;
                if (i < input_count && ahead > 0) {
                    prefetch(data[i] + ahead * bytes, bytes);
                }
            }
        }
    });
}

}  // namespace

void cpu::elementwise(Checker &, const halyard_context &c, const ElementwiseCall &call) {
    Rows rows(true);
    for (int i = 0; i < call.count(); i++) {
        rows.add(*call.operands[i].view, call.operands[i].per_column);
    }
    rows.merge();

    const halyard_isa isa = best_isa(c.max_isa);
    const Streamed streamed(c, rows, call, isa);
    Split(c, rows).run([&](const Part &part) {
        if (streamed.any) {
            run_streamed(call, rows, part, isa, streamed);
            return;
        }
        ElementwiseKernel kernel(call, isa);
        rows.for_each_piece(part, INT_MAX, max_columns, [&](const Rows::Piece &piece) {
            for (int i = 0; i < call.count(); i++) {
                kernel.buffer(i).set(piece.data[i], piece.columns * call.operands[i].per_column, piece.rows,
                                     piece.pitch[i]);
            }
            kernel();
        });
    });
}

}  // namespace halyard
