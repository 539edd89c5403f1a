// Merging of axes, location of rows in memory, and the split over threads.
#include "core/row_iterator.h"

#include <climits>

#include "core/parameters.h"

namespace halyard {
void Rows::add(const View &view, int per_column) {
    Tensor &tensor = tensor_[tensors_++];
    tensor.data = view.data;
    tensor.element_size = size_of(view.dtype);
    tensor.per_column = per_column;
    axes_ = view.rank - 1;
    width_ = view.width() / per_column;
    for (int i = 0; i < axes_; i++) {
        tensor.strides[i] = view.strides[i];
        extents_[i] = view.shape[i];
    }
}

void Rows::merge() {
    int kept = 0;
    for (int i = 0; i < axes_; i++) {
        if (extents_[i] == 1) {
            continue;
        }
        // Merge axis i into the axis before it if, in every tensor, that one steps over exactly the whole of axis i.
        bool merges = kept > 0;
        for (int k = 0; k < tensors_ && merges; k++) {
            merges = tensor_[k].strides[kept - 1] == tensor_[k].strides[i] * extents_[i];
        }
        const int axis = merges ? kept - 1 : kept++;
        extents_[axis] = merges ? extents_[axis] * extents_[i] : extents_[i];
        for (int k = 0; k < tensors_; k++) {
            tensor_[k].strides[axis] = tensor_[k].strides[i];
        }
    }
    axes_ = kept;

    if (elementwise_ && axes_ > 0) {
        bool compact = true;
        for (int k = 0; k < tensors_; k++) {
            compact = compact && tensor_[k].strides[axes_ - 1] == width_ * tensor_[k].per_column;
        }
        if (compact) {
            axes_--;
            width_ *= extents_[axes_];
        }
    }
}

int64_t Rows::count() const {
    int64_t rows = 1;
    for (int i = 0; i < axes_; i++) {
        rows *= extents_[i];
    }
    return rows;
}

int64_t Rows::bytes_per_row() const {
    int64_t bytes = 0;
    for (int k = 0; k < tensors_; k++) {
        bytes += width_ * tensor_[k].per_column * tensor_[k].element_size;
    }
    return bytes;
}

int64_t Rows::locate(int64_t row, int64_t end, int64_t column, int64_t max_rows, Piece &piece) const {
    int64_t index[max_rank - 1];
    int64_t left = row;
    for (int i = axes_ - 1; i > 0; i--) {
        index[i] = left % extents_[i];
        left /= extents_[i];
    }
    index[0] = left;
    const int inner = axes_ - 1;
    int64_t rows = axes_ > 0 ? std::min(extents_[inner] - index[inner], end - row) : 1;
    rows = std::min(rows, max_rows);
    for (int k = 0; k < tensors_; k++) {
        const Tensor &tensor = tensor_[k];
        int64_t offset = column * tensor.per_column;
        for (int i = 0; i < axes_; i++) {
            offset += index[i] * tensor.strides[i];
        }
        piece.data[k] = tensor.data + offset * tensor.element_size;
        piece.pitch[k] = axes_ > 0 ? tensor.strides[inner] : 0;
        if (piece.pitch[k] > 0) {
            rows = std::min(rows, std::max<int64_t>(1, INT_MAX / piece.pitch[k] - 1));
        }
    }
    return rows;
}

int row_threads(const halyard_context &context, int64_t bytes) {
    if (bytes < parameters.second_thread_bytes) {
        return 1;
    }
    return static_cast<int>(
        std::max<int64_t>(1, std::min<int64_t>(bytes / parameters.task_bytes, thread_bound(context))));
}

Split::Split(const halyard_context &context, const Rows &rows)
    : context_(&context), rows_(rows.count()), columns_(rows.width()) {
    const int threads = row_threads(context, rows_ * rows.bytes_per_row());
    by_columns_ = rows.elementwise() && rows_ < threads;
    parts_ = by_columns_ ? threads : static_cast<int>(std::max<int64_t>(1, std::min<int64_t>(threads, rows_)));
}

int64_t Split::boundary(int part) const {
    if (!by_columns_) {
        return rows_ * part / parts_;
    }
    if (part == parts_) {
        return columns_;
    }
    return std::min(columns_, (columns_ / parts_ * part + column_granule - 1) / column_granule * column_granule);
}

}  // namespace halyard
