// Independent float64 references of linear layers and feed-forward networks, with the error that f32 arithmetic in the
// promised order may make on the way, bounded element by element.
#ifndef HALYARD_OPERATIONS_REFERENCE_LINEAR_H
#define HALYARD_OPERATIONS_REFERENCE_LINEAR_H

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "halyard/halyard.h"
#include "reference.h"

namespace halyard::operations {

/** An activation of linear layers. */
struct LayerActivation {
    halyard_activation value;
    const char *name;
    std::string_view function;  // row of the accuracy table; empty: exact
    double (*at)(double x, double beta);
    double (*slope)(double x, double beta);
    /** A bound on the second derivative's magnitude between x - error and x + error. */
    double (*curvature)(double x, double error, double beta);
    /** The function of the C interface; `beta` is ignored where there is none. */
    halyard_status (*call)(const halyard_context *context, const DLTensor *x, float beta, DLTensor *y);
};

const std::vector<LayerActivation> &layer_activations();
const LayerActivation &layer_activation(halyard_activation value);

/** One weight matrix as it was packed, and what a folded norm left beside it. */
struct WeightMatrix {
    std::int64_t in = 0, out = 0;
    Row values;     // [in][out]; with a norm folded, as packing rounds them
    Row norm_bias;  // [in], or empty
    Row unfolded;   // [in][out], the values before folding; empty without norm_bias
    /** Columns [first, first + count) as [in][count]: a block has this in place of values where there are too many. */
    std::function<Row(std::int64_t first, std::int64_t count)> columns = {};
};

/** A layer's matrix or, with `up`, its gated pair. */
struct LayerValues {
    WeightMatrix matrix;
    std::optional<WeightMatrix> up;
};

/** Null and identity stand for what a call does not ask for. */
struct EpilogueValues {
    const ExpectedRow *row_scale = nullptr, *row_mean = nullptr;  // by row
    const Row *bias = nullptr, *bias_up = nullptr;
    halyard_activation activation = HALYARD_IDENTITY;
    double beta = 0;
    const std::vector<Row> *residual = nullptr;
    /** Relative error of a rounding of the sums before anything is done with them, or when they have their bias. */
    double sum_roundoff = 0;
};

/** What halyard_linear must give before it is rounded to y's type. */
Matrix linear(const Matrix &x, const LayerValues &layer, const EpilogueValues &epilogue);

/** What products of rows in 8 bits (docs/numerics.md) must give of exact rows. `magnitudes` [in][out] is that of a weight or, where
 *  that is a code times a scale plus an offset, the sum of both magnitudes; `offsets` says that groups of 32 inputs have them. */
Matrix products_in_8_bits(const std::vector<Row> &x, const WeightMatrix &matrix, const Row &magnitudes, bool offsets);

/** From rows [out][in]. */
WeightMatrix matrix_of(const std::vector<Row> &rows);

/** The rows as they are, without error. */
Matrix exact_rows(const std::vector<Row> &rows);

/** The rows with the error of a rounding to the type that is still to come. */
Matrix rounded(Matrix rows, Dtype type);

/** The largest relative error of one rounding to the type: 2^-24, 2^-11, 2^-8. */
double unit_roundoff(Dtype type);

}  // namespace halyard::operations

#endif
