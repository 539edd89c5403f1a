// The matrices of a layer: their values, their packed forms, and what the layer should give.
#ifndef HALYARD_BENCH_LAYER_H
#define HALYARD_BENCH_LAYER_H

#include <memory>
#include <vector>

#include "work.h"

namespace halyard::bench {

class Layer {
public:
    enum Part {
        first,
        up,
        down
    };  // the matrix of the first product or its gate; `up` beside a gate; the second product

    /** For the x of `work`'s first operand set and its norm's parameters, which must be there. */
    explicit Layer(const Work &work);

    /** Matrix `part` as torch.nn.Linear holds it, [out, in]. */
    Matrix source(Part part) const;
    /** [1, random_period]: what it repeats. */
    Matrix period(Part part) const;
    std::int64_t in(Part part) const { return part == down ? id.d_out : id.d; }
    std::int64_t out(Part part) const { return part == down ? id.d : id.d_out; }
    /** Of the first product and of the second; null where the layer has none. */
    const Matrix *bias(Part part) const { return part == down ? bias_down.get() : bias_first.get(); }

    /** Gives every operand set of `work` packed matrices of its own. */
    void pack(Work &work) const;

    /** As Work::worst_error: y against the reference in a sample of rows and columns, and NaN wherever it stands. */
    double worst_error(const Matrix &y) const;

private:
    Matrix filled(Part part, std::int64_t rows, std::int64_t width) const;
    tests::Row expected_row(const Work &work, std::int64_t row) const;
    double first_product(const tests::Row &x, std::int64_t column) const;
    double dot(Part part, const tests::Row &x, std::int64_t column) const;

    WorkId id;
    LayerForm form;
    tests::Row values[3];  // by part: what the matrix repeats
    std::unique_ptr<Matrix> bias_first, bias_down;
    tests::Row bias_first_values, bias_down_values;  // zeros where there is none
    std::vector<std::int64_t> rows, columns;         // the sample
    std::vector<tests::Row> expected;                // [row of the sample][column of the sample]
};

/** Packs a matrix into memory of the library's; throws if it refuses. */
std::shared_ptr<const halyard_weights> pack_weights(const Work &work, const Matrix &matrix,
                                                    const halyard_pack_options &options = {});

/** The options of our call for the whole layer, with pointers into `work`. */
halyard_linear_options linear_options(const Work &work, const Operands &set);
halyard_ffn_options ffn_options(const Work &work);

}  // namespace halyard::bench

#endif
