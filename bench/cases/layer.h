// The matrices of a layer: their values, their packed forms, and what the layer should give.
#ifndef HALYARD_BENCH_CASES_LAYER_H
#define HALYARD_BENCH_CASES_LAYER_H

#include <memory>
#include <vector>

#include "benchmark_case.h"
#include "sample.h"

namespace halyard::bench {

class Layer {
public:
    enum Part {
        first,
        up,
        down
    };  // the matrix of the first product or its gate; `up` beside a gate; the second product

    explicit Layer(const CaseId &id);

    /** [out, in]. */
    const PeriodicMatrix &matrix(Part part) const { return matrices[part]; }
    /** Of the first product and of the second; null where the layer has none. */
    const Matrix *bias(Part part) const { return part == down ? bias_down.get() : bias_first.get(); }

    /** Gives every operand set of `bench_case` packed matrices of its own. */
    void pack(BenchmarkCase &bench_case) const;

    /** What y should be for the x of `bench_case`. */
    Sample sample(const BenchmarkCase &bench_case) const;

private:
    CaseId id;
    LayerForm form;
    PeriodicMatrix matrices[3];  // by part
    std::unique_ptr<Matrix> bias_first, bias_down;
};

/** Packs a matrix into memory of the library's; throws if it refuses. */
std::shared_ptr<const halyard_weights> pack_weights(const BenchmarkCase &bench_case, const Matrix &matrix,
                                                    const halyard_pack_options &options = {});

halyard_status call_layer(BenchmarkCase &bench_case, OperandSet &set);

}  // namespace halyard::bench

#endif
