// The matrices of a layer: their values, their packed forms, and what the layer should give.
#ifndef HALYARD_BENCH_LAYER_H
#define HALYARD_BENCH_LAYER_H

#include <memory>
#include <vector>

#include "sample.h"
#include "work.h"

namespace halyard::bench {

class Layer {
public:
    enum Part {
        first,
        up,
        down
    };  // the matrix of the first product or its gate; `up` beside a gate; the second product

    explicit Layer(const WorkId &id);

    /** [out, in]. */
    const PeriodicMatrix &matrix(Part part) const { return matrices[part]; }
    Matrix source(Part part) const { return matrices[part].whole(); }
    /** Of the first product and of the second; null where the layer has none. */
    const Matrix *bias(Part part) const { return part == down ? bias_down.get() : bias_first.get(); }

    /** Gives every operand set of `work` packed matrices of its own. */
    void pack(Work &work) const;

    /** What y should be for the x of `work`. */
    Sample sample(const Work &work) const;

private:
    tests::Row expected_row(const Work &work, std::int64_t row, const std::vector<std::int64_t> &columns) const;
    double first_product(const tests::Row &x, std::int64_t column) const;

    WorkId id;
    LayerForm form;
    PeriodicMatrix matrices[3];  // by part
    std::unique_ptr<Matrix> bias_first, bias_down;
    tests::Row bias_first_values, bias_down_values;  // zeros where there is none
};

// Steps of a float64 reference; `weight` and `bias` may be empty, `beta` is that of HALYARD_SWISH.
tests::Row normalize(halyard_norm norm, const tests::Row &x, const tests::Row &weight, const tests::Row &bias);
double activate(halyard_activation activation, double x, double beta = 1);

/** Packs a matrix into memory of the library's; throws if it refuses. */
std::shared_ptr<const halyard_weights> pack_weights(const Work &work, const Matrix &matrix,
                                                    const halyard_pack_options &options = {});

/** The options of our call for the whole layer, with pointers into `work`. */
halyard_linear_options linear_options(const Work &work, const Operands &set);
halyard_ffn_options ffn_options(const Work &work);

}  // namespace halyard::bench

#endif
