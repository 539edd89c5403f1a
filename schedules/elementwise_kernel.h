// What an elementwise kernel owns: its tensors, the parameters of its schedule, and the form in which the target computes
// elements.
#ifndef HALYARD_SCHEDULES_ELEMENTWISE_KERNEL_H
#define HALYARD_SCHEDULES_ELEMENTWISE_KERNEL_H

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "Halide.h"
#include "schedules/elementwise.h"
#include "schedules/gpu.h"
#include "schedules/kernel_tensors.h"
#include "schedules/values_first.h"

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

    /** For configure() of a kernel with `count` outputs, or one that write_interleaved() writes. */
    void add_outputs(Halide::Internal::GeneratorBase &generator, const std::string &name, int count) {
        outputs_ = generator.add_output<Func>(name, std::vector<Halide::Type>(count, tensors.type()), 2);
    }

    /** Access to row t, of the storage type or another. */
    ElementAccess access(std::optional<DType> stored = {}) const { return tensors.access({t}, stored); }

    /** y(d, t) = element d of row t, a result of arithmetic in f32. */
    void write(Func y, const Element &element) { write_all(y, {element}); }

    /** Element d of row t of each output, which may take the place of any input. */
    void write_each(const std::vector<Element> &elements) {
        Func y("y");
        write_all(y, elements);
        *outputs_ = y;
        values_first_ = true;
    }

    /** Elements 2d and 2d + 1 of row t of an output, which may take the place of an input of such pairs. */
    void write_interleaved(const Element &even, const Element &odd) {
        Func y("y"), pairs("pairs");
        pairs(d, t) = Halide::Tuple(access().store(even, d), access().store(odd, d));
        y(d, t) = select(d % 2 == 0, pairs(d / 2, t)[0], pairs(d / 2, t)[1]);
        y.output_buffer().dim(0).set_min(0);
        const int lanes = schedules::f32_lanes(tensors.target());
        stages_ = {y, d, t, pairs, 2 * lanes * params.vectors};
        *outputs_ = y;
        values_first_ = true;
    }

    /** y(d, t) = what is to be stored there, in rows of any width. */
    void write_stored(Func y, const Expr &stored) {
        y(d, t) = stored;
        stages_ = {y, d, t};
        stages_.any_width = true;
    }

    /** To be called by schedule(). */
    void schedule(Halide::Internal::GeneratorBase &generator) {
        tensors.begin_schedule(generator);
        if (values_first_) {
            generator.get_pipeline().add_custom_lowering_pass(new schedules::ValuesFirst);
        }
        if (tensors.on_gpu()) {
            schedules::gpu::elementwise(stages_, tensors.by_vectors(), tensors.target());
        } else {
            // What the runtime calls kernels with: column_granule in runtime/core/row_iterator.h.
            if (64 % (schedules::f32_lanes(tensors.target()) * params.vectors) != 0) {
                throw std::invalid_argument("the vectors of an iteration do not divide 64 elements");
            }
            schedules::elementwise(stages_, params, tensors.target());
        }
    }

private:
    void write_all(Func y, const std::vector<Element> &elements) {
        const auto stored = [&](const ElementAccess &at, const Expr &i) {
            std::vector<Expr> all;
            for (const Element &element : elements) {
                all.push_back(at.store(element, i));
            }
            return Halide::Tuple(all);
        };
        const auto pair_access = tensors.pair_access({t});
        if (!pair_access) {
            y(d, t) = stored(access(), d);
            stages_ = {y, d, t};
            return;
        }
        Func pairs("pairs");
        pairs(d, t) = stored(*pair_access, d);
        const Halide::FuncRef pair = pairs(d / 2, t);
        std::vector<Expr> halves;
        for (int i = 0; i < static_cast<int>(elements.size()); i++) {
            halves.push_back(half_of_pair(elements.size() == 1 ? Expr(pair) : Expr(pair[i]), d % 2));
        }
        y(d, t) = Halide::Tuple(halves);
        y.output_buffers()[0].dim(0).set_min(0);
        const int lanes = schedules::f32_lanes(tensors.target());
        stages_ = {y, d, t, pairs, lanes * std::max<int>(2, params.vectors)};
    }

    schedules::Elementwise stages_;
    Halide::GeneratorOutput<Func> *outputs_ = nullptr;
    bool values_first_ = false;
};

}  // namespace halyard

#endif
