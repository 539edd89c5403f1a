// From checked tensors to kernel calls: brings any rank and strides to the kernels' two axes (d, rows), splits the work
// over threads and calls the kernel for each piece.
#ifndef HALYARD_RUNTIME_CORE_ROW_ITERATOR_H
#define HALYARD_RUNTIME_CORE_ROW_ITERATOR_H

#include <algorithm>

#include "core/check.h"
#include "core/context.h"

namespace halyard {

constexpr int max_tensors = 5;

/** Kernels count elements in 32 bits; a row piece stays far below, so that pairs of columns fit too. */
constexpr int64_t max_columns = int64_t{1} << 29;

/** Threads' parts of a row begin at multiples of so many columns: at whole cache lines, so that none is written by two threads. Elementwise
 *  kernels take a multiple of them (whole_columns.h). */
constexpr int64_t column_granule = 64;

/** A rectangle of the work, half open. */
struct Part {
    int64_t row, row_end, column, column_end;
};

/** The tensors of one call, all with the same leading shape, as rows of `width` elements.
 *
 *  Leading axes that lie evenly in memory in every tensor are merged; where elements do not depend on their row
 *  (`elementwise`), rows that touch are joined, so that a compact tensor is one long row. */
class Rows {
public:
    explicit Rows(bool elementwise) : elementwise_(elementwise) {}

    /** Adds a tensor; `per_column` elements of its rows belong to one column of the result (2 for interleaved pairs).
     *  Tensors are numbered in the order in which they are added. */
    void add(const View &view, int per_column = 1);

    /** To be called once, when all tensors are there. */
    void merge();

    int tensors() const { return tensors_; }
    bool elementwise() const { return elementwise_; }
    int64_t width() const { return width_; }
    int64_t count() const;
    int64_t bytes_per_row() const;
    int64_t element_bytes(int tensor) const { return tensor_[tensor].element_size; }
    int64_t column_bytes(int tensor) const { return tensor_[tensor].per_column * tensor_[tensor].element_size; }

    /** A rectangle of the work that one kernel call can do: `rows` rows at an even pitch, from column `column` on. */
    struct Piece {
        char *data[max_tensors];
        int64_t pitch[max_tensors];  // elements between rows
        int64_t columns, rows;
    };

    /** Calls visit(piece) for pieces of at most `max_rows` rows and `max_piece_columns` columns that cover `part`. */
    template<typename Visit>
    void for_each_piece(const Part &part, int64_t max_rows, int64_t max_piece_columns, Visit visit) const {
        for (int64_t row = part.row; row < part.row_end;) {
            Piece piece;
            int64_t column = part.column;
            do {
                piece.columns = std::min(part.column_end - column, max_piece_columns);
                piece.rows = locate(row, part.row_end, column, max_rows, piece);
                visit(static_cast<const Piece &>(piece));
                column += piece.columns;
            } while (column < part.column_end);
            row += piece.rows;
        }
    }

private:
    int64_t locate(int64_t row, int64_t end, int64_t column, int64_t max_rows, Piece &piece) const;

    struct Tensor {
        char *data;
        int64_t element_size;
        int per_column;
        int64_t strides[max_rank - 1];
    };

    bool elementwise_;
    int tensors_ = 0;
    Tensor tensor_[max_tensors];
    int axes_ = 0;  // leading axes
    int64_t extents_[max_rank - 1];
    int64_t width_ = 0;
};

/** Threads that rows of so many bytes are worth. */
int row_threads(const halyard_context &context, int64_t bytes);

/** Calls task(part) for parts that cover the work, on the context's threads if it is large enough. Elementwise work of
 *  few rows is split by columns. */
class Split {
public:
    Split(const halyard_context &context, const Rows &rows);

    /** How many tasks there are. */
    int parts() const { return parts_; }

    template<typename Task>
    void run(const Task &task) const {
        if (parts_ == 1) {
            task(Part{0, rows_, 0, columns_});
            return;
        }
        run_tasks(*context_, parts_, [&](int index) {
            const int64_t begin = boundary(index), end = boundary(index + 1);
            if (begin < end) {
                task(by_columns_ ? Part{0, rows_, begin, end} : Part{begin, end, 0, columns_});
            }
        });
    }

private:
    int64_t boundary(int part) const;

    const halyard_context *context_;
    int64_t rows_, columns_;
    bool by_columns_;
    int parts_;
};

}  // namespace halyard

#endif
