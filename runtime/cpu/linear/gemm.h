// GEMMs with packed weights, the core of halyard_linear and halyard_ffn. Rows are f32, or pairs of bf16 where the instruction
// set multiplies these.
#ifndef HALYARD_RUNTIME_CPU_LINEAR_GEMM_H
#define HALYARD_RUNTIME_CPU_LINEAR_GEMM_H

#include "core/cast.h"
#include "core/check.h"
#include "core/context.h"
#include "core/handles/weights.h"
#include "core/kernel_call.h"
#include "core/row_iterator.h"
#include "cpu/linear/microkernels.h"
#include "layout/matmul.h"

namespace halyard {

/** Calls task(index) for every index in [0, count) on the context's threads; count at most thread_bound(). */
template<typename Task>
void run_tasks(const halyard_context &context, int count, const Task &task) {
    run_tasks(
        context, count, [](void *closure, int index) { (*static_cast<const Task *>(closure))(index); },
        const_cast<Task *>(&task));
}

/** Rows of x as the matmul kernels read them: the inputs in blocks, [k block][row][x_pitch] of f32 or [k block][row]
 *  [x_pair_pitch] of pairs. The pair of an odd last input has 0 beside it. */
struct BlockedRows {
    char *data;
    int64_t rows;  // of memory, whole tiles: those beyond the last row of x are zeros
    XForm form;
    bool rounded = false;  // values are rounded to bf16 when they are stored; pairs are

    int64_t row_bytes() const { return row_bytes(form); }
    char *at(int64_t row, int64_t block) const { return data + (block * rows + row) * row_bytes(); }
    float *floats_at(int64_t row, int64_t block) const { return reinterpret_cast<float *>(at(row, block)); }

    static constexpr int64_t row_bytes(XForm form) { return 4 * (form == XForm::pairs ? x_pair_pitch : x_pitch); }
    static int64_t blocks(int64_t features) { return (features + k_block - 1) / k_block; }
    static int64_t bytes(XForm form, int64_t rows, int64_t features) {
        return blocks(features) * rows * row_bytes(form);
    }

    /** Makes zeros of the rows from `used` on. */
    void clear_from(int64_t used, int64_t features) const;
    /** Stores rows of at most k_block features, the first of which is `feature`, the first of a pair. */
    void store(halyard_isa isa, int64_t row, int64_t feature, const TypedRows &values, int64_t features,
               int64_t rows) const;
};

/** What products of x in `dtype` with weights read: pairs if the instruction set multiplies them. */
XForm form_of_x(halyard_isa isa, DType x, DType weights);

/** How many of `rows` rows go through the GEMMs at a time, at most max_block_rows: half of the second-level cache holds them
 *  for one k block, if no parameter says otherwise. */
constexpr int max_block_rows = 256;
int64_t block_rows(int64_t rows);

/** Tiles of equal height that cover the rows of a block. */
struct Tiling {
    int tile_rows;
    int64_t tiles;

    Tiling(halyard_isa isa, XForm x, int64_t rows);
    int64_t rows() const { return tile_rows * tiles; }
    /** A bound on rows() for every call of at most `rows` rows. */
    static int64_t max_rows(int64_t rows) { return rows + std::max(max_tile_rows, amx_tile_rows); }
};

/** A linear layer bound to everything but the rows of a call. */
struct Layer {
    const halyard_weights *weights;
    KernelOf<arguments::Epilogue> epilogue;
    float beta;
    const float *bias;  // [16 panels] in the order of the packed columns, or null

    /** `bias` and `bias_up` may be empty views. */
    Layer(const halyard_weights *weights, halyard_activation activation, float beta);

    /** Of the vector that `bias` points to. */
    int64_t bias_floats() const { return weights->panels * panel_width; }
    /** Fills `memory`, bias_floats() long, with what the views hold, and points `bias` to it. Either view may be empty.
     */
    void set_bias(const View &bias, const View &bias_up, halyard_isa isa, float *memory);
};

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

/** Bytes of blocks up to which each thread of a GEMM makes its own copy of x: what another core has just written takes longer to
 *  fetch than x to copy. */
constexpr int64_t own_copy_bytes = 512 << 10;

/** Where the rows of a GEMM go. */
struct OutputView {
    const BlockedRows *blocked = nullptr;  // f32, for another GEMM; or:
    const Rows *rows = nullptr;            // y, and after it the residual if there is one
    DType dtype = DType::f32;              // of y
    bool has_residual = false;
    int64_t first_row = 0;  // of y
};

/** One GEMM of a block of rows. row_scale and row_mean: [rows], or null. */
class Product {
public:
    Product(const halyard_context &context, halyard_isa isa, int64_t max_rows, const Layer &layer);

    /** The most that run() takes. */
    int threads() const { return threads_; }
    /** Memory of all threads. */
    int64_t scratch_bytes() const { return threads_ * thread_bytes_; }

    /** y[row] = epilogue(x[row]) for the first `rows` rows of x. With a `source`, x is memory for a copy of it by each of
     *  threads(), `copy_bytes` from one to the next. */
    void run(const BlockedRows &x, const SourceRows *source, int64_t copy_bytes, const Tiling &tiling, int64_t rows,
             const float *row_scale, const float *row_mean, const OutputView &y, char *scratch) const;

private:
    struct Call;

    const halyard_context &context_;
    const Layer &layer_;
    halyard_isa isa_;
    int threads_;
    int64_t thread_bytes_;
};

/** Threads that work of `bytes` bytes is worth. */
int threads_for(const halyard_context &context, int64_t bytes);

}  // namespace halyard

#endif
