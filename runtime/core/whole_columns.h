// Calls of elementwise kernels, which take whole iterations alone to be short: multiples of column_granule columns. What is left of rows
// is computed side by side in memory of its own.
#ifndef HALYARD_RUNTIME_CORE_WHOLE_COLUMNS_H
#define HALYARD_RUNTIME_CORE_WHOLE_COLUMNS_H

#include <algorithm>
#include <cstring>

#include "core/row_iterator.h"

namespace halyard {

class WholeColumns {
public:
    /** The tensors of `rows`, of which a kernel reads the first, so many, and writes all from `first_written` on. */
    WholeColumns(const Rows &rows, int read, int first_written)
        : tensors_(rows.tensors()), read_(read), first_written_(first_written) {
        for (int i = 0; i < tensors_; i++) {
            bytes_[i] = {rows.element_bytes(i), rows.column_bytes(i)};
        }
    }

    /** Two tensors that a kernel reads and one that it writes, with elements of so many bytes. */
    explicit WholeColumns(int64_t element_bytes) : tensors_(3), read_(2), first_written_(2) {
        std::fill_n(bytes_, tensors_, Bytes{element_bytes, element_bytes});
    }

    /** Calls kernel(piece) for pieces that cover `piece`. */
    template<typename Kernel>
    void run(const Rows::Piece &piece, Kernel &&kernel) const {
        if (piece.columns % column_granule == 0) {
            kernel(piece);
        } else {
            run_with_rests(piece, kernel);
        }
    }

    /** Lets a piece begin so many columns further on. */
    void skip_columns(Rows::Piece &piece, int64_t columns) const {
        for (int i = 0; i < tensors_; i++) {
            piece.data[i] += columns * bytes_[i].column;
        }
    }

private:
    static constexpr int64_t capacity = 512;             // columns
    static constexpr int64_t most_column_bytes = 2 * 4;  // a pair of f32

    struct Bytes {
        int64_t element, column;
    };

    /** Not a part of its callers, which would all clear the way for its memory. */
    template<typename Kernel>
    [[gnu::noinline]] void run_with_rests(Rows::Piece piece, Kernel &kernel) const {
        const int64_t rest = piece.columns % column_granule, whole = piece.columns - rest;
        if (whole > 0) {
            piece.columns = whole;
            kernel(static_cast<const Rows::Piece &>(piece));
            skip_columns(piece, whole);
            piece.columns = rest;
        }
        // As many rows at a time as there is room for.
        alignas(64) char memory[max_tensors][capacity * most_column_bytes];
        const int64_t most_rows = capacity / rest;
        for (int64_t left = piece.rows; left > 0; left -= piece.rows) {
            piece.rows = std::min(left, most_rows);
            const int64_t used = piece.rows * rest;
            Rows::Piece gathered;
            gathered.columns = (used + column_granule - 1) / column_granule * column_granule;
            gathered.rows = 1;
            for (int i = 0; i < tensors_; i++) {
                gathered.data[i] = memory[i];
                gathered.pitch[i] = 0;
                if (i < read_) {
                    for_each_row(piece, i,
                                 [&](char *row, int64_t at, int64_t size) { std::memcpy(memory[i] + at, row, size); });
                    std::memset(memory[i] + used * bytes_[i].column, 0, (gathered.columns - used) * bytes_[i].column);
                }
            }
            kernel(static_cast<const Rows::Piece &>(gathered));
            for (int i = 0; i < tensors_; i++) {
                if (i >= first_written_) {
                    for_each_row(piece, i,
                                 [&](char *row, int64_t at, int64_t size) { std::memcpy(row, memory[i] + at, size); });
                }
                piece.data[i] += piece.rows * piece.pitch[i] * bytes_[i].element;
            }
        }
    }

    /** move(row, at, size) for every row of a tensor: its bytes, and where they are among those of all rows. */
    template<typename Move>
    void for_each_row(const Rows::Piece &piece, int tensor, const Move &move) const {
        const int64_t size = piece.columns * bytes_[tensor].column;
        for (int64_t row = 0; row < piece.rows; row++) {
            move(piece.data[tensor] + row * piece.pitch[tensor] * bytes_[tensor].element, row * size, size);
        }
    }

    const int tensors_, read_, first_written_;
    Bytes bytes_[max_tensors];
};

}  // namespace halyard

#endif
