// The left operand of a GEMM: rows as the kernels read them.
#ifndef HALYARD_RUNTIME_CPU_LINEAR_BLOCKED_ROWS_H
#define HALYARD_RUNTIME_CPU_LINEAR_BLOCKED_ROWS_H

#include "core/cast.h"
#include "core/context.h"
#include "core/handles/weights.h"
#include "core/row_iterator.h"
#include "cpu/linear/gemm_plan.h"
#include "cpu/linear/microkernels.h"

namespace halyard {

/** What products with quantized weights ask of x beside its values. */
struct XGroups {
    int inputs = 0;     // of a group: zeros follow the last one to the end of its group; 0: there are no groups
    bool sums = false;  // the sums of x over the groups are read too
    const int32_t *order = nullptr;  // where the weights' inputs are in a row of x; null: in order
    int center = 0;                  // of the codes

    /** For these weights. */
    static XGroups of(const halyard_weights &weights) {
        const CodeLayout &codes = weights.codes;
        return codes ? XGroups{codes.block_group(), codes.has_offsets(), weights.order,
                               code_center(codes.bits, codes.has_minima())}
                     : XGroups();
    }
    /** Inputs that share a scale where x is in 8 bits. */
    int unit() const { return std::min(inputs, max_int8_unit); }
};

/** Rows of x as the matmul kernels read them: the inputs in blocks, [k block][row][x_pitch] of f32, [k block][row][x_pair_pitch] of
 *  pairs or [k block][row][x_int8_pitch] bytes. The pair of an odd last input has 0 beside it. */
struct BlockedRows {
    char *data;
    int64_t rows;  // of memory, whole tiles: those beyond the last row of x are zeros
    XForm form;
    bool rounded = false;  // values are rounded to bf16 when they are stored; pairs are
    XGroups groups = {};

    int64_t row_bytes() const { return row_bytes(form); }
    char *at(int64_t row, int64_t block) const { return data + (block * rows + row) * row_bytes(); }
    float *floats_at(int64_t row, int64_t block) const { return reinterpret_cast<float *>(at(row, block)); }

    static constexpr int64_t row_bytes(XForm form) {
        return form == XForm::int8 ? x_int8_pitch : 4 * (form == XForm::pairs ? x_pair_pitch : x_pitch);
    }
    static int64_t blocks(int64_t features) { return (features + k_block - 1) / k_block; }
    static int64_t bytes(XForm form, int64_t rows, int64_t features, const XGroups &groups = {}) {
        const int64_t of_sums = groups.sums ? k_block / groups.inputs * static_cast<int64_t>(sizeof(float)) : 0;
        return (blocks(features) * rows * (row_bytes(form) + of_sums) + 63) / 64 * 64;
    }

    /** The sums of a row's groups in a block, [k block][row][sums_pitch()], behind the rows; null where there are none. */
    float *sums_at(int64_t row, int64_t block, int64_t features) const {
        return groups.sums ? reinterpret_cast<float *>(data + blocks(features) * rows * row_bytes()) +
                                 (block * rows + row) * sums_pitch()
                           : nullptr;
    }
    int64_t sums_pitch() const { return groups.sums ? k_block / groups.inputs : 0; }

    /** Makes zeros of the rows from `used` on. */
    void clear_from(int64_t used, int64_t features) const;
    /** Does for rows [begin, end), which are stored whole, what `groups` asks for; once. */
    void complete(int64_t begin, int64_t end, int64_t features) const;
    /** Stores rows of at most k_block features, the first of which is `feature`, the first of a pair; in 8 bits, of all that a k
     *  block has. */
    void store(halyard_isa isa, int64_t row, int64_t feature, const TypedRows &values, int64_t features,
               int64_t rows) const;
    /** Stores a whole row, in the order of the weights. */
    void store_row(halyard_isa isa, int64_t row, const TypedRows &values, int64_t features) const;

private:
    /** Stores the sums of units where corrections are to be. */
    void store_int8(halyard_isa isa, int64_t row, int64_t feature, const TypedRows &values, int64_t features,
                    int64_t rows) const;
    /** Makes sums of groups and corrections of the sums of units. */
    void complete_int8(int64_t row, int64_t block, int64_t features) const;
};

/** What products of x in `dtype` with weights read: pairs if the instruction set multiplies them. */
XForm form_of_x(halyard_isa isa, DType x, DType weights);
/** As above; with codes x is in 8 bits where the context says so. */
XForm form_of_x(const halyard_context &context, halyard_isa isa, DType x, const halyard_weights &weights);

/** Rows of x, whatever their dtype, as the caller gave them. */
struct SourceRows {
    const Rows &rows;
    DType dtype;
    int64_t first;

    /** Stores rows [begin, end) in blocks. */
    void copy(halyard_isa isa, int64_t begin, int64_t end, int64_t features, const BlockedRows &blocked) const;
};

/** Stores rows of x in blocks, on the context's threads. */
void load_rows(const halyard_context &context, halyard_isa isa, const SourceRows &x, int64_t rows, int64_t features,
               const BlockedRows &blocked);

/** Completes the first `rows` rows, on the context's threads, and clears the others. */
void complete_rows(const halyard_context &context, const BlockedRows &blocked, int64_t rows, int64_t features);

/** Stores rows of f32 that are in blocks, in the order of their features, in the form and order of others, on the context's
 *  threads. */
void restore_rows(const halyard_context &context, halyard_isa isa, const BlockedRows &from, int64_t rows,
                  int64_t features, const BlockedRows &to);

/** Memory for x in `dtype` in blocks of at most `rows` rows. */
int64_t x_bytes(const halyard_context &context, halyard_isa isa, DType dtype, const halyard_weights &weights,
                int64_t rows);

/** Bytes of blocks up to which each thread of a GEMM makes its own copy of x: what another core has just written takes longer to
 *  fetch than x to copy. */
constexpr int64_t own_copy_bytes = 512 << 10;

/** The left operand: rows in blocks; or, with a source, memory in which every thread makes a copy of that. */
struct LeftOperand {
    BlockedRows blocked;
    const SourceRows *source = nullptr;
    int64_t copy_bytes = 0;  // from one thread's copy to the next

    /** For one thread. */
    BlockedRows of(int thread, halyard_isa isa, int64_t rows, int64_t features) const {
        BlockedRows copy = blocked;
        if (source) {
            copy.data += thread * copy_bytes;
            source->copy(isa, 0, rows, features, copy);
            copy.clear_from(rows, features);
        }
        return copy;
    }
};

}  // namespace halyard

#endif
