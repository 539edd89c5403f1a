// From the sums of a GEMM to its outputs: scale and mean of a deferred norm, bias, activation or gated unit, residual.
#ifndef HALYARD_RUNTIME_CPU_LINEAR_GEMM_EPILOGUE_H
#define HALYARD_RUNTIME_CPU_LINEAR_GEMM_EPILOGUE_H

#include "core/check.h"
#include "core/handles/weights.h"
#include "core/kernel_call.h"
#include "cpu/linear/blocked_rows.h"
#include "cpu/linear/gemm_plan.h"

namespace halyard {

/** Where the rows of a GEMM go. */
struct OutputView {
    const BlockedRows *blocked = nullptr;  // f32, for another GEMM; or:
    const Rows *rows = nullptr;            // y, and after it the residual if there is one
    DType dtype = DType::f32;              // of y
    bool has_residual = false;
    int64_t first_row = 0;       // of y
    const Rows *sums = nullptr;  // or f32: what the activation is applied to, of the gate and then of up
};

/** What OutputView::sums points to, of views that may be empty. */
inline Rows rows_of_sums(const View &sums, const View &sums_up) {
    Rows rows(false);
    for (const View *view : {&sums, &sums_up}) {
        if (view->data) {
            rows.add(*view);
        }
    }
    rows.merge();
    return rows;
}

/** The epilogue of one GEMM, whose right operand has so many columns; with pairs of panels for each where it is gated. */
struct EpilogueCall {
    KernelOf<arguments::Epilogue> kernel;
    int64_t columns;
    bool gated;
    const OutputView &y;
    float beta = 1;
    const float *bias = nullptr;                                 // these may be null: [16 panels]
    const float *column_sums = nullptr, *column_bias = nullptr;  // [16 panels]
    const float *row_scale = nullptr, *row_mean = nullptr;       // [rows]

    /** What rounding outputs for another GEMM takes of a worker's scratch memory, for so many rows. */
    static int64_t scratch_floats(int64_t rows) { return rows * max_group_columns / 2; }
};

/** A linear layer bound to everything but the rows of a call. */
struct Layer {
    const halyard_weights *weights;
    KernelOf<arguments::Epilogue> epilogue;
    float beta;
    const float *bias;  // [16 panels] in the order of the packed columns, or null

    /** `bias` and `bias_up` may be empty views. */
    Layer(const halyard_weights *weights, halyard_activation activation, float beta);

    /** f32 values of the vector that `bias` points to. */
    int64_t bias_floats() const { return weights->panels * panel_width; }
    /** Fills `memory`, bias_floats() long, with what the views hold, and points `bias` to it. Either view may be empty.
     */
    void set_bias(const View &bias, const View &bias_up, halyard_isa isa, float *memory);
    /** row_scale and row_mean: [rows], or null. */
    EpilogueCall bound_to(const float *row_scale, const float *row_mean, const OutputView &y) const;
};

/** One thread's. */
class EpilogueWriter {
public:
    /** `sums`: of the panels of a group, as plan.sums_pitch() says. `scratch`: free when sums are complete. */
    EpilogueWriter(const GemmPlan &plan, const EpilogueCall &call, const float *sums, float *scratch);

    /** From the sums of panels [begin, end) to outputs. */
    void operator()(int64_t begin, int64_t end);

private:
    /** Where a rectangle of outputs goes, and its residual if there is one; or that of sums, which are f32. */
    struct Target {
        char *data;
        int64_t pitch;
        const char *residual = nullptr;
        int64_t residual_pitch = 0;
        bool is_sums = false;
    };

    void store(int64_t begin, int64_t packed, int64_t row, int64_t rows, int64_t columns, const Target &to);
    /** As store(), of whole panels. */
    void store_panels(int64_t begin, int64_t packed, int64_t row, int64_t rows, int64_t columns, const Target &to);
    void store_blocked(int64_t begin, int64_t first_column, int64_t columns_end);
    void store_sums(int64_t begin, int64_t end);

    const GemmPlan &plan_;
    const EpilogueCall &call_;
    const KernelCall<arguments::Epilogue> kernel_, kernel_of_sums_;
    const float *const sums_;
    float *const scratch_;
    Buffer<2> residual_, y_;
    Buffer<2, float> sum_;
    Buffer<1, float> scale_, mean_, column_sums_, column_bias_, bias_;
};

}  // namespace halyard

#endif
