// GEMMs with packed weights, the core of halyard_linear and halyard_ffn.
#ifndef HALYARD_RUNTIME_CPU_LINEAR_GEMM_H
#define HALYARD_RUNTIME_CPU_LINEAR_GEMM_H

#include "cpu/linear/blocked_rows.h"
#include "cpu/linear/gemm_epilogue.h"
#include "cpu/linear/gemm_plan.h"

namespace halyard {

/** The GEMMs of a layer, of a block of rows each. */
class LayerGemm {
public:
    LayerGemm(const halyard_context &context, halyard_isa isa, int64_t max_rows, const Layer &layer);

    /** The most that run() takes. */
    int threads() const { return threads_; }
    /** Memory of all threads. */
    int64_t scratch_bytes() const { return threads_ * thread_bytes_; }

    /** y[row] = epilogue(x[row]) for the first `rows` rows of x. row_scale and row_mean: [rows], or null. A left operand with a
     *  source has memory for a copy by each of threads(). */
    void run(const LeftOperand &x, const Tiling &tiling, int64_t rows, const float *row_scale, const float *row_mean,
             const OutputView &y, char *scratch) const;

private:
    template<typename Right>
    void run(const Right &right, const LeftOperand &x, const Tiling &tiling, int64_t rows, const EpilogueCall &epilogue,
             char *scratch) const;

    const halyard_context &context_;
    const Layer &layer_;
    halyard_isa isa_;
    int threads_;
    int64_t thread_bytes_;
};

}  // namespace halyard

#endif
