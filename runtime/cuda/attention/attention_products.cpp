// scores = queries x keys, weights = exp(scores - the largest of the row), values = weights x values. The GEMMs have
// heads and sequences as their batch.
#include "cuda/attention/attention_products.h"

#include "cuda/kernel_call.h"
#include "cuda/linear/gemm.h"
#include "cuda/ops/operations.h"

namespace halyard::cuda {
namespace {

/** weights = exp(score_scale scores - top) by row, in their type. */
void launch_block_weights(Launches &launches, const View &scores, float score_scale, const float *top,
                          int64_t top_stride, char *weights, DType dtype) {
    // Both begin at whole cells, and have a multiple of positions.
    const int64_t rows = scores.shape[0], positions = scores.shape[1], per_word = 4 / size_of(dtype);
    Buffer<2, float> from;
    Buffer<1, float> tops;
    Buffer<2> to;
    from.set(scores.data, positions, rows, positions);
    tops.set_data(top);
    tops.set_dim(0, rows, top_stride);
    to.set(weights, positions / per_word, rows, positions / per_word);
    launches.run(kernels::attention_block_weights, dtype, Access::words, {from, score_scale, tops, to});
}

}  // namespace

void attend_by_products(const halyard_context &context, Launches &launches, const ProductSplit &split,
                        void *workspace) {
    const DeviceHeads &k = split.keys, &v = split.values;
    const int64_t positions = k.tokens, d = k.head_dim, rows = split.rows, padded = split.padded_rows;
    const int64_t heads = k.heads, sequences = k.batch, all_rows = sequences * heads * padded;

    DeviceProduct p;
    p.rows = rows;
    p.columns = positions;
    p.depth = d;
    p.dtype = k.dtype;
    p.y_dtype = DType::f32;
    p.x = split.queries;
    p.x_pitch = d;
    p.w = k.data;
    p.w_pitch = k.token_stride;
    p.w_transposed = true;
    p.y = split.scores;
    p.y_pitch = positions;
    p.alpha = split.softcap > 0.0f ? split.scale / split.softcap : split.scale;
    const int64_t head_scores = padded * positions;
    p.batches[0] = {heads, rows * d, k.head_stride, 0, head_scores};
    p.batches[1] = {sequences, heads * rows * d, k.batch_stride, 0, heads * head_scores};
    product(launches, p, workspace);

    // Rows of padding have whatever comes of what lies there, and nobody reads it.
    const View scores =
        view_of(split.scores, DType::f32, {true, launches.ordinal()}, {all_rows, positions}, {positions, 1});
    float score_scale = 1.0f;
    if (split.softcap > 0.0f) {
        constexpr float unused_beta = 1.0f;
        elementwise(launches.check(), context, {halyard::kernels::tanh, scores, unused_beta, scores});
        score_scale = split.softcap;
    }
    float *const top = reinterpret_cast<float *>(split.partial) + d;
    const auto number_of_rows = [&](float *first) {
        return view_of(first, DType::f32, {true, launches.ordinal()}, {all_rows}, {split.partial_pitch});
    };
    attention_block_sums(launches.check(), context, k.dtype, score_scale, scores, number_of_rows(top),
                         number_of_rows(top + 1));
    launch_block_weights(launches, scores, score_scale, top, split.partial_pitch, split.weights, k.dtype);

    p.columns = d;
    p.depth = positions;
    p.x = split.weights;
    p.x_pitch = positions;
    p.w = v.data;
    p.w_pitch = v.token_stride;
    p.w_transposed = false;
    p.y = split.partial;
    p.y_pitch = split.partial_pitch;
    p.alpha = 1.0f;
    const int64_t head_partial = padded * split.partial_pitch;
    p.batches[0] = {heads, head_scores, v.head_stride, 0, head_partial};
    p.batches[1] = {sequences, heads * head_scores, v.batch_stride, 0, heads * head_partial};
    product(launches, p, workspace);
}

}  // namespace halyard::cuda
