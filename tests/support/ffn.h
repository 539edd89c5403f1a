// Feed-forward networks in the tests: a network with its operands, what it must give, and the same by separate calls.
#ifndef HALYARD_TESTS_FFN_H
#define HALYARD_TESTS_FFN_H

#include <memory>
#include <string>

#include "support/linear.h"

namespace halyard::tests {

/** A network and how it is called. */
struct FfnForm {
    Dtype x = Dtype::f32, y = Dtype::f32, up = Dtype::f32, down = Dtype::f32;
    Shape leading = {3};
    std::int64_t d_model = 24, d_ff = 40;
    bool gated = false;
    halyard_norm norm = HALYARD_NORM_NONE;
    unsigned norm_flags = 0;
    bool norm_weight = true, norm_bias = true;            // as far as the norm has them
    bool f32_norm_weight = false, f32_norm_bias = false;  // whatever the dtype of x or, deferred, of the weights
    float eps = 1e-5f;
    bool deferred = false;
    halyard_activation activation = HALYARD_IDENTITY;
    float beta = 0;
    bool bias = false, bias_up = false, bias_down = false;
    Dtype bias_type = Dtype::f32;
    bool residual = false;
    std::int64_t x_gap = 0, y_gap = 0;
    std::uint64_t seed = 1;
    DLDevice device = {kDLCPU, 0};  // of everything

    bool has_norm_weight() const { return norm != HALYARD_NORM_NONE && norm_weight; }
    bool has_norm_bias() const { return norm == HALYARD_NORM_LAYER && norm_bias; }
};

/** The weights of the first product; `folded`: with the norm in them. */
WeightForm up_form(const FfnForm &ffn, bool folded);
WeightForm down_form(const FfnForm &ffn);

class Ffn {
public:
    explicit Ffn(const FfnForm &form);

    const FfnForm form;
    const Weights up, down;
    Tensor x, y;
    std::unique_ptr<Tensor> norm_weight, norm_bias, bias, bias_up, bias_down;
    halyard_ffn_options options{};

    halyard_status run(const halyard_context *context);
    /** What y must be before it is rounded to its type. */
    Matrix expected() const;
    /** Fills `result`, of y's shape and type, by separate calls that pass f32 on. */
    void compose(const halyard_context *context, Tensor &result) const;
    testing::AssertionResult surroundings_intact() const;
    std::string describe() const;
    /** Whether what is multiplied is rounded to bf16, in a context that says nothing else. */
    bool rounds() const {
        return !full_products && form.device.device_type == kDLCPU && form.x == Dtype::bf16 && form.up == Dtype::bf16 &&
               form.down == Dtype::bf16;
    }
    bool full_products = false;  // what the contexts of the calls say

private:
    Form rows_form(std::int64_t gap) const;
};

}  // namespace halyard::tests

#endif
