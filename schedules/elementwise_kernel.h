// What an elementwise kernel owns: its tensors, the parameters of its schedule, and the form in which the target computes
// elements.
#ifndef HALYARD_SCHEDULES_ELEMENTWISE_KERNEL_H
#define HALYARD_SCHEDULES_ELEMENTWISE_KERNEL_H

#include <optional>
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
        stages_.once = true;
        *outputs_ = y;
        values_first_ = true;
    }

    /** Elements 2d and 2d + 1 of row t of an output, which may take the place of an input of such pairs. */
    void write_interleaved(const Element &even, const Element &odd) {
        Func y("y"), pairs("pairs");
        const auto stored = [&](const Expr &i) {
            return Halide::Tuple(access().store(even, i), access().store(odd, i));
        };
        pairs(d, t) = stored(d);
        const int chunk = schedules::f32_lanes(tensors.target()) * params.vectors;  // pairs
        y(d, t) = Halide::undef(tensors.type());
        const Expr count = y.output_buffer().dim(0).set_min(0).extent() / 2;
        const Halide::RDom whole(0, 2, 0, chunk, 0, count / chunk, "whole");
        const Halide::RDom rest(0, 2, count / chunk * chunk, count % chunk, "rest");
        const Expr i = chunk * whole.z + whole.y;
        y(2 * i + whole.x, t) = select(whole.x == 0, pairs(i, t)[0], pairs(i, t)[1]);
        const Halide::Tuple last = stored(rest.y);
        y(2 * rest.y + rest.x, t) = select(rest.x == 0, last[0], last[1]);
        stages_ = {y, d, t, pairs, whole, rest};
        *outputs_ = y;
        values_first_ = true;
    }

    /** y(d, t) = what is to be stored there. */
    void write_stored(Func y, const Expr &stored) {
        y(d, t) = stored;
        stages_ = {y, d, t};
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
            schedules::elementwise(stages_, params, tensors.target(), generator.get_pipeline());
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

        // Whole chunks in pairs, and the rest of the row by elements.
        y(d, t) = Halide::Tuple(std::vector<Expr>(elements.size(), Halide::undef<uint16_t>()));
        const int chunk = schedules::elements_per_chunk(params, tensors.target());
        const Expr width = y.output_buffers()[0].dim(0).set_min(0).extent();
        const Halide::RDom whole(0, 2, 0, chunk / 2, 0, width / chunk, "whole");
        const Halide::RDom rest(width / chunk * chunk, width % chunk, "rest");
        const Halide::FuncRef pair = pairs(chunk / 2 * whole.z + whole.y, t);
        std::vector<Expr> halves;
        for (int i = 0; i < static_cast<int>(elements.size()); i++) {
            halves.push_back(half_of_pair(elements.size() == 1 ? Expr(pair) : Expr(pair[i]), whole.x));
        }
        y(chunk * whole.z + 2 * whole.y + whole.x, t) = Halide::Tuple(halves);
        y(rest, t) = stored(access(), rest);
        stages_ = {y, d, t, pairs, whole, rest};
    }

    schedules::Elementwise stages_;
    Halide::GeneratorOutput<Func> *outputs_ = nullptr;
    bool values_first_ = false;
};

}  // namespace halyard

#endif
