// What an elementwise kernel owns: its tensors, the parameters of its schedule, and the form in which the target computes
// elements.
#ifndef HALYARD_SCHEDULES_ELEMENTWISE_KERNEL_H
#define HALYARD_SCHEDULES_ELEMENTWISE_KERNEL_H

#include <optional>

#include "Halide.h"
#include "schedules/elementwise.h"
#include "schedules/gpu.h"
#include "schedules/kernel_tensors.h"

namespace halyard {

class ElementwiseKernel {
    using Expr = Halide::Expr;
    using Func = Halide::Func;

public:
    KernelTensors tensors;
    schedules::ElementwiseParams params;
    Halide::Var d{"d"}, t{"t"};

    /** To be called by configure(), with the tensors of rows. */
    template<typename... Tensors>
    void configure(Halide::Internal::GeneratorBase &generator, Tensors &...of) {
        tensors.configure(generator, of...);
    }

    /** Access to row t, of the storage type or another. */
    ElementAccess access(std::optional<DType> stored = {}) const { return tensors.access({t}, stored); }

    /** y(d, t) = element d of row t, a result of arithmetic in f32. */
    void write(Func y, const Element &element) {
        const auto pair_access = tensors.pair_access({t});
        if (!pair_access) {
            write_stored(y, access().store(element, d));
            return;
        }
        Func pairs("pairs");
        pairs(d, t) = pair_access->store(element, d);

        // Whole chunks in pairs, and the rest of the row by elements.
        const int chunk = schedules::elements_per_chunk(params, tensors.target());
        const Expr width = y.output_buffer().dim(0).set_min(0).extent();
        const Halide::RDom whole(0, 2, 0, chunk / 2, 0, width / chunk, "whole");
        const Halide::RDom rest(width / chunk * chunk, width % chunk, "rest");
        y(d, t) = Halide::undef<uint16_t>();
        y(chunk * whole.z + 2 * whole.y + whole.x, t) = half_of_pair(pairs(chunk / 2 * whole.z + whole.y, t), whole.x);
        y(rest, t) = access().store(element, rest);
        stages_ = {y, d, t, pairs, whole, rest};
    }

    /** y(d, t) = what is to be stored there. */
    void write_stored(Func y, const Expr &stored) {
        y(d, t) = stored;
        stages_ = {y, d, t};
    }

    /** To be called by schedule(). */
    void schedule(Halide::Internal::GeneratorBase &generator) {
        tensors.begin_schedule(generator);
        if (tensors.on_gpu()) {
            schedules::gpu::elementwise(stages_, tensors.by_vectors(), tensors.target());
        } else {
            schedules::elementwise(stages_, params, tensors.target(), generator.get_pipeline());
        }
    }

private:
    schedules::Elementwise stages_;
};

}  // namespace halyard

#endif
