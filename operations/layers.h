// Linear layers and feed-forward networks: what they compute, the work of it, and the call.
#ifndef HALYARD_OPERATIONS_LAYERS_H
#define HALYARD_OPERATIONS_LAYERS_H

#include <functional>
#include <string>
#include <vector>

#include "cost.h"
#include "halyard/halyard.h"
#include "operations.h"
#include "quantized.h"

namespace halyard::operations {

/** Products with weight matrices and what surrounds them: d -> d_out, or d -> d_out -> d. */
struct LayerForm {
    bool is_ffn = false;  // two products
    bool gated = false;   // the first product is a gate and an up matrix
    bool has_bias = false;
    halyard_activation activation = HALYARD_IDENTITY;  // of the first product, or of its gate
    float beta = 0;                                    // of HALYARD_SWISH
    halyard_norm norm = HALYARD_NORM_NONE;             // of x, before the first product
    bool deferred_norm = false;                        // folded into the weights
    bool has_residual = false;                         // a tensor of its own for one product; x for an FFN
    halyard_quantization quantization{};               // of the matrices
    bool q4_k = false;                                 // the one matrix is in blocks of Q4_K
    bool int8_products = false;                        // rows of x are rounded to 8 bits: HALYARD_PRODUCTS_INT8

    int matrices() const { return 1 + (gated ? 1 : 0) + (is_ffn ? 1 : 0); }
    bool is_quantized() const { return quantization.bits != 0 || q4_k; }
    /** What d must be a multiple of. */
    std::int64_t d_step() const { return q4_k ? Q4KMatrix::block_inputs : 1; }
    double bytes_of_quantized_weight(std::int64_t d) const;
    /** Whether there is a tensor `residual`. */
    bool takes_residual() const { return has_residual && !is_ffn; }
    std::int64_t output_width(std::int64_t d, std::int64_t d_out) const { return is_ffn ? d : d_out; }
    float eps() const { return norm == HALYARD_NORM_RMS ? rms_norm_eps : layer_norm_eps; }
};

struct Layer {
    const char *name;
    LayerForm form;
};

/** The layers that models have. */
const std::vector<Layer> &layers();
/** The layer of that name, or null. */
const LayerForm *find_layer(const std::string &name);

/** The tensors of one call, null where the form has none. */
struct LayerTensors {
    const DLTensor *x = nullptr, *residual = nullptr, *norm_weight = nullptr, *norm_bias = nullptr;
    const DLTensor *bias = nullptr, *bias_down = nullptr;
    const halyard_weights *first = nullptr, *down = nullptr;  // packed
    DLTensor *y = nullptr;
};

/** How the first product's matrix is packed beside `up`, which may be null. */
halyard_pack_options pack_options(const LayerForm &form, const DLTensor *up, const DLTensor *norm_weight,
                                  const DLTensor *norm_bias);
/** The context says whether rows of x are rounded to 8 bits. */
halyard_status call_layer(const halyard_context *context, const LayerForm &form, const LayerTensors &tensors);

/** A matrix [out, in] of which products are asked one output at a time, so that it need not lie in memory. */
using Products = std::function<double(const Row &x, std::int64_t output)>;

/** A layer's values in float64; empty where it has none. */
struct LayerReference {
    Products first, up, down;
    Row norm_weight, norm_bias, bias, bias_down;
    std::int64_t d_out = 0;
};

/** What y should be for one row, at these columns. */
Row expected_of_layer(const LayerForm &form, const LayerReference &values, const Row &x, const Row &residual,
                      const std::vector<std::int64_t> &columns);

}  // namespace halyard::operations

#endif
