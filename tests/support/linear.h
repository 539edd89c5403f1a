// Linear layers in the tests: packed weights whose values are known, and calls of halyard_linear on guarded tensors.
#ifndef HALYARD_TESTS_LINEAR_H
#define HALYARD_TESTS_LINEAR_H

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "operations/isas.h"
#include "operations/reference_linear.h"
#include "support/invocation.h"

namespace halyard::tests {

/** The types of a call's operands. */
struct Types {
    Dtype x, w, y;
};
std::vector<Types> all_types();

/** A matrix to pack. */
struct WeightForm {
    Dtype dtype = Dtype::f32;
    std::int64_t in = 1, out = 1;
    bool gated = false;
    std::uint64_t seed = 1;
    halyard_weight_layout layout = HALYARD_WEIGHT_OUT_IN;
    // The norm before the layer, to be folded.
    bool norm_weight = false, unit_offset = false, norm_bias = false;
    bool f32_norm_weight = false, f32_norm_bias = false;  // whatever `dtype` is, with what 16 bits do not hold
    /** Values of at most four significant bits, which are the same in every type and stay exact when a norm's weight is
     *  folded into them. */
    bool coarse = false;
    /** Where the packed matrix is to be, and whether its sources are there too. */
    DLDevice device = {kDLCPU, 0};
    bool sources_on_device = true;

    bool folds() const { return norm_weight || unit_offset || norm_bias; }
};

/** The norm's parameters that are folded, the same in every type unless they are f32 for sure: the weight has few enough
 *  significant bits that its products with coarse values are exact, also after 1 is added to the one with a unit offset. */
double norm_weight_value(std::uint64_t seed, std::int64_t k, bool unit_offset);
double norm_bias_value(std::uint64_t seed, std::int64_t k);

WeightForm weight_form(Dtype dtype, std::int64_t in, std::int64_t out, bool gated = false, std::uint64_t seed = 1);

class Weights {
public:
    /** From matrix (0, or 1 for up), input and output to a value, which is then rounded to the type. */
    using Value = std::function<double(int matrix, std::int64_t k, std::int64_t n)>;

    /** Values around 0 whose products with rows of x stay around 1, those of the first and last input larger. */
    explicit Weights(const WeightForm &form);
    Weights(const WeightForm &form, const Value &value);
    ~Weights();
    Weights(const Weights &) = delete;
    Weights &operator=(const Weights &) = delete;

    const halyard_weights *get() const { return weights; }
    const WeightForm form;
    LayerValues values;
    /** The folded norm's parameters as values; empty without them. */
    Row norm_weight, norm_bias;
    /** The packed bytes, which may be written in tests that overlap them. */
    char *packed() const { return block; }
    std::int64_t packed_bytes() const { return bytes; }
    /** True if nothing but packing has written to them. */
    bool intact() const;

private:
    halyard_weights *weights = nullptr;
    char *mapping = nullptr, *block = nullptr;  // the block ends at a guard page, or up to 63 bytes before it
    std::size_t mapping_size = 0;
    std::int64_t bytes = 0;
    std::vector<char> as_packed;
};

/** Compact, next to the guard page behind it. */
Form compact_form(const Shape &shape);

/** How x and y of a call lie in memory. */
struct CallForm {
    Dtype x = Dtype::f32, y = Dtype::f32;
    Shape leading = {1};
    std::int64_t x_gap = 0, y_gap = 0;  // elements between rows
    Placement placement = Placement::ends_at_guard;
    std::int64_t shift = 0;  // elements between data and guard page

    Form form_of(std::int64_t width, std::int64_t gap) const;
};

CallForm call_form(Dtype x, Dtype y, const Shape &leading, std::int64_t x_gap = 0, std::int64_t y_gap = 0);
CallForm f32_rows(std::int64_t rows);

/** Ordinary rows: bell-shaped, the first and last feature larger than the rest. */
void fill_rows(Tensor &x, std::uint64_t seed);

class LinearCall {
public:
    LinearCall(const Weights &weights, const CallForm &form, std::uint64_t seed = 1);

    const Weights &weights;
    const CallForm form;
    const std::uint64_t seed;
    Tensor x, y;
    std::unique_ptr<Tensor> row_scale, row_mean, bias, bias_up, residual;
    halyard_linear_options options{};

    /** Says of all tensors that they are there. */
    void move_to(DLDevice device);

    // Each makes an option and fills it.
    void add_row_scale();
    void add_row_mean();
    void add_bias(Dtype type);
    void add_bias_up(Dtype type);
    void add_residual();
    /** y holds the residual, which the call adds to and overwrites. */
    void add_residual_in_place();
    void activate(halyard_activation activation, float beta = 0);

    halyard_status run(const halyard_context *context) { return run(context, x); }
    /** As run(), of another x with the same leading shape. */
    halyard_status run(const halyard_context *context, const Tensor &rows);
    /** From the present contents of the operands; before the call where the residual is y. */
    Matrix expected() const;
    /** Success if y is as expected and nothing else was written. */
    testing::AssertionResult check(const Matrix &expected) const;
    testing::AssertionResult surroundings_intact() const;
    std::string describe() const;

private:
    std::unique_ptr<Tensor> row_vector() const;
};

std::vector<Row> rows_of(const Tensor &tensor);

/** Success if every element of y may stand where `expected` was computed. */
testing::AssertionResult as_expected(const Tensor &y, const Matrix &expected);

/** Success if rows [0, count) of two tensors of one type and width have the same bits. */
testing::AssertionResult same_rows(const Tensor &expected, const Tensor &got, std::int64_t count);
/** Success if all rows, of which there are equally many, have the same bits. */
testing::AssertionResult same_rows(const Tensor &expected, const Tensor &got);

/** Success if a call failed with this status, and its message begins with the function's name and names one of the
 *  arguments, which are separated by '|'. */
testing::AssertionResult refused(halyard_status got, halyard_status status, const std::string &function,
                                 const std::string &arguments);

}  // namespace halyard::tests

#endif
