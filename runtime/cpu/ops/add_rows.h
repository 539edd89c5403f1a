// Sums of rows for the operations that are made of them, on the calling thread.
#ifndef HALYARD_RUNTIME_CPU_OPS_ADD_ROWS_H
#define HALYARD_RUNTIME_CPU_OPS_ADD_ROWS_H

#include "core/cast.h"
#include "core/whole_columns.h"

namespace halyard {

class AddRows {
public:
    AddRows(halyard_isa isa, DType dtype) : add_(kernel_function(kernels::add, dtype, isa)), whole_(size_of(dtype)) {}

    /** sum = a + b, which may be in the place of either; all have the dtype. */
    void operator()(const TypedRows &a, const TypedRows &b, const TypedRows &sum, int64_t columns, int64_t rows) const {
        const Rows::Piece piece = {{a.data, b.data, sum.data}, {a.pitch, b.pitch, sum.pitch}, columns, rows};
        whole_.run(piece, [&](const Rows::Piece &part) {
            Buffer<2> operand[3];
            for (int i = 0; i < 3; i++) {
                operand[i].set(part.data[i], part.columns, part.rows, part.pitch[i]);
            }
            add_({operand[0], operand[1], operand[2]});
        });
    }

private:
    const KernelCall<arguments::Add> add_;
    const WholeColumns whole_;
};

}  // namespace halyard

#endif
