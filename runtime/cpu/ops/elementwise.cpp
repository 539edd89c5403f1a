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

/** An elementwise kernel of any form. */
class ElementwiseKernel {
public:
    ElementwiseKernel(const ElementwiseCall &call, halyard_isa isa)
        : form_(call.form), function_(kernel_function(call.kernel, call.inputs[0]->dtype, isa)), beta_(call.beta) {}

    // Inlined into a loop, it would have GCC prepare the arguments of all forms in front of that.
    [[gnu::noinline]] void operator()(const Buffer<2> &first, const Buffer<2> &second, const Buffer<2> &y) const {
        switch (form_) {
        case ElementwiseCall::Form::activation:
            return KernelCall<arguments::Activation>(function_)({first, beta_, y});
        case ElementwiseCall::Form::gated_unit:
            return KernelCall<arguments::Glu>(function_)({.gate = first, .up = second, .beta = beta_, .y = y});
        case ElementwiseCall::Form::interleaved_unit:
            return KernelCall<arguments::GluInterleaved>(function_)({first, beta_, y});
        case ElementwiseCall::Form::add:
            return KernelCall<arguments::Add>(function_)({first, second, y});
        case ElementwiseCall::Form::cast:
            return KernelCall<arguments::CastToF16>(function_)({first, y});  // or to another dtype
        }
    }

private:
    const ElementwiseCall::Form form_;
    const KernelFunction function_;
    const float beta_;
};

}  // namespace

void cpu::elementwise(Checker &, const halyard_context &c, const ElementwiseCall &call) {
    const View &y = call.y;
    const int pair = call.pair(), input_count = call.input_count();
    Rows rows(true);
    for (int i = 0; i < input_count; i++) {
        rows.add(*call.inputs[i], i == 0 ? pair : 1);
    }
    rows.add(y);
    rows.merge();

    const DType dtype = call.inputs[0]->dtype;
    const halyard_isa isa = best_isa(c.max_isa);
    const ElementwiseKernel kernel(call, isa);

    bool stream = rows.width() * size_of(y.dtype) >= min_streamed_row_bytes &&
                  should_stream(c, rows.count() * rows.bytes_per_row(), parameters.elementwise_streams);
    for (int i = 0; i < input_count; i++) {
        stream = stream && call.inputs[i]->data != y.data;  // in place, the lines of y are in cache already
    }

    Split(c, rows).run([&](const Part &part) {
        Buffer<2> first, second, output;
        if (!stream) {
            rows.for_each_piece(part, INT_MAX, max_columns, [&](const Rows::Piece &piece) {
                first.set(piece.data[0], piece.columns * pair, piece.rows, piece.pitch[0]);
                second.set(piece.data[1], piece.columns, piece.rows, piece.pitch[1]);
                output.set(piece.data[input_count], piece.columns, piece.rows, piece.pitch[input_count]);
                kernel(first, second, output);
            });
            return;
        }
        Tile<max_tile_bytes> tile(true, isa);
        const int64_t size = size_of(y.dtype), input_size = size_of(dtype);
        const int64_t whole = tile_elements(size), ahead = tiles_ahead(isa);
        rows.for_each_piece(part, 1, max_columns, [&](const Rows::Piece &piece) {
            char *a = piece.data[0], *b = piece.data[input_count - 1], *out = piece.data[input_count];
            // The first tile is shorter, so that all others begin at a cache line.
            const int64_t misaligned = static_cast<int64_t>(reinterpret_cast<uintptr_t>(out) % 64) / size;
            int64_t columns = whole - misaligned;
            for (int64_t left = piece.columns; left > 0; left -= columns, columns = whole) {
                columns = std::min(columns, left);
                const int64_t a_bytes = columns * pair * input_size, b_bytes = columns * input_size;
                first.set(a, columns * pair, 1, 0);
                second.set(b, columns, 1, 0);
                output.set(tile.data(), columns, 1, 0);
                kernel(first, second, output);
                a += a_bytes;
                b += b_bytes;
                if (ahead > 0) {
                    prefetch(a + ahead * a_bytes, a_bytes);
                    if (input_count > 1) {
                        prefetch(b + ahead * b_bytes, b_bytes);
                    }
                }
                tile.store(out, columns * size, 1, 0);
                out += columns * size;
            }
        });
    });
}

}  // namespace halyard
