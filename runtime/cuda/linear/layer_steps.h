// The steps that linear layers and feed-forward networks on a device have in common.
#ifndef HALYARD_RUNTIME_CUDA_LINEAR_LAYER_STEPS_H
#define HALYARD_RUNTIME_CUDA_LINEAR_LAYER_STEPS_H

#include "core/calls/linear.h"
#include "core/view.h"
#include "core/workspace.h"
#include "cuda/launch.h"

namespace halyard::cuda {

/** Elements from row to row where each begins at a multiple of 16 bytes. */
int64_t aligned_pitch(int64_t width, DType dtype);

/** Elements between rows, of whatever axes; negative if there is no such number, or rows share memory. */
int64_t even_pitch(const View &view);

/** Whether a value of one type is the same in another. */
inline bool exact(DType from, DType to) {
    return from == to || to == DType::f32;
}

/** The type that a GEMM of x and weights is computed from. */
inline DType common(DType x, DType w) {
    return x == w ? x : DType::f32;
}

struct Matrix {
    const char *data;
    int64_t pitch;
};

/** What an epilogue adds and multiplies beside the sums; null where there is nothing. */
struct EpilogueArgs {
    const float *row_scale = nullptr, *row_mean = nullptr;  // side by side
    const float *bias = nullptr;                            // by column of the matrix
};

struct Activation {
    halyard_activation activation;
    float beta;
};

class Steps {
public:
    Steps(Launches &launches, const halyard_context &context) : launches_(launches), context_(context) {}

    void set_workspace(void *workspace) { workspace_ = workspace; }

    /** y = x, of any types and strides, one shape. */
    void cast(const View &x, const View &y);
    void add(const View &a, const View &b, const View &y);
    View rows(const void *data, DType dtype, int64_t count, int64_t columns, int64_t pitch) const {
        return view_of(const_cast<void *>(data), dtype, {true, launches_.ordinal()}, {count, columns}, {pitch, 1});
    }

    /** The matrix of weights in f32, whose memory has widened_bytes(). */
    void widen(const halyard_weights &w, char *memory);
    static int64_t widened_bytes(const halyard_weights &w) {
        return (w.transposed ? w.columns : w.in_features) * w.pitch * static_cast<int64_t>(sizeof(float));
    }

    /** The f32 vector by column of what a call adds to the sums: the norm's bias and the call's. `memory`: columns. */
    const float *join_biases(const halyard_weights &w, const View &bias, const View &bias_up, float *memory);

    /** sums = x w + bias + c. `matrix`: the weights' own or widened; c is null or has the type of the sums. */
    void multiply(const halyard_weights &w, const char *matrix, DType dtype, Matrix x, int64_t count, char *sums,
                  DType sums_dtype, int64_t sums_pitch, const void *bias, Matrix c);

    /** y = unit(sums); y may be the gate's half of the sums. All are of one type. */
    void finish(const halyard_weights &w, const Activation &unit, const EpilogueArgs &shifts, const char *sums,
                DType dtype, int64_t sums_pitch, int64_t count, char *y, int64_t y_pitch);

private:
    void launch_epilogue(const halyard_weights &w, const Activation &unit, const EpilogueArgs &shifts, const char *sums,
                         DType dtype, int64_t sums_pitch, int64_t first_row, int64_t count, char *y, int64_t y_pitch);

    Launches &launches_;
    const halyard_context &context_;
    void *workspace_ = nullptr;
};

}  // namespace halyard::cuda

#endif
