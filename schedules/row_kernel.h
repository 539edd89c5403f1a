// What a kernel over rows owns: its tensors, the parameters of its schedule, and the form in which the target reads, reduces
// and writes rows. A generator says what is reduced and written; what there is to schedule is noted on the way.
#ifndef HALYARD_SCHEDULES_ROW_KERNEL_H
#define HALYARD_SCHEDULES_ROW_KERNEL_H

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "Halide.h"
#include "schedules/gpu.h"
#include "schedules/kernel_tensors.h"
#include "schedules/machine.h"
#include "schedules/prefetch_ahead.h"
#include "schedules/row.h"
#include "schedules/values_first.h"

namespace halyard {

/** What is done with a row. */
enum class RowWork {
    light,       // a few operations an element: how these are read and written matters
    heavy,       // exponentials
    statistics,  // it is read, and a few numbers are the result
    gradient,    // rows of 16 bits are not read by pairs: sums in f32 may be written beside them
};

class RowKernel {
    using Expr = Halide::Expr;
    using Func = Halide::Func;

public:
    /** `read`: the type of the rows that are read, if not dtype. */
    explicit RowKernel(RowWork work = RowWork::light, std::optional<DType> read = {})
        : d(work == RowWork::statistics ? "value" : "d"), work_(work), read_(read) {}

    KernelTensors tensors;
    schedules::RowParams params;
    Halide::GeneratorParam<bool> staged{"staged", false};  // on a GPU: a row is read once, to shared memory
    Halide::Var d, t{"t"};                                 // feature, or which of the statistics; token

    /** To be called by configure(), with the tensors of rows and vectors. */
    template<typename... Tensors>
    void configure(Halide::Internal::GeneratorBase &generator, Tensors &...of) {
        tensors.configure(generator, of...);
        (note(of), ...);
        if (tensors.on_gpu()) {
            warps_ = generator.add_input<int>("warps");
            rows_ = generator.add_input<int>("rows_per_block");
        }
    }

    // ---- for configure(), where a kernel has not one output of rows ----

    /** `count` numbers per row. On a GPU each is an output of its own: nothing brings them together there. */
    void add_statistics(Halide::Internal::GeneratorBase &generator, int count) {
        add_outputs(generator, std::vector<Halide::Type>(tensors.on_gpu() ? count : 1, Halide::Float(32)));
    }

    /** Two outputs of rows, on a GPU. */
    void add_two_outputs(Halide::Internal::GeneratorBase &generator) {
        add_outputs(generator, {tensors.type(), tensors.type()});
    }

    /** Rows, and `sums` in f32 that continue what is there: outputs whose rows are one (0 elements from each to the next). */
    void add_gradient(Halide::Internal::GeneratorBase &generator, int sums) {
        stages_.sums = sums;
        std::vector<Halide::Type> types(1 + sums, Halide::Float(32));
        types[0] = tensors.type();
        add_outputs(generator, types);
    }

    // ---- for generate() ----

    /** Features in a row of a tensor. */
    Expr width_of(const Halide::OutputImageParam &tensor) const { return access().elements(tensor.dim(0).extent()); }

    ElementAccess access() const { return tensors.access({t}, read_); }

    /** The reduction of features 0 to width - 1 over so many virtual lanes (row_reduction.h). */
    Halide::FuncRef reduce(const std::string &name, const Expr &width, int lanes, const Accumulation &accumulation,
                           const Element &feature) {
        return reduced(reduce_row(name, width, lanes, t, accumulation, {feature}, form()));
    }

    /** The sums of several elements side by side. */
    Halide::FuncRef sums(const std::string &name, const Expr &width, int lanes, const std::vector<Element> &elements) {
        return reduced(reduce_row(name, width, lanes, t, sums_of_elements(elements.size()), elements, form()));
    }

    /** The mean of the first `count` features. */
    Expr mean_of_some(const std::string &name, const Expr &width, int count, const Element &feature) {
        RowForm own = form();
        own.pairs.reset();
        const Expr features = min(width, count);
        const Expr sum = reduced(reduce_row(name + "_sum", features, count, t, sum_of_elements(), {feature}, own));
        return scalar(name, sum / Halide::cast<float>(features));
    }

    /** What several passes use in f32: where rows are staged it is computed once, and kept beside them. */
    Element once(const std::string &name, const Element &element) {
        if (!staged) {
            return element;
        }
        // The words of a vector side by side, so that their first elements are one access, and their second.
        const int parts = tensors.by_vectors() ? tensors.vector_elements() / tensors.vector_words() : 1;
        const Halide::Var part("part");
        Func kept(name);
        kept(d, part, t) = Halide::strict_float(element(access(), d * parts + part));
        kept.bound(part, 0, parts).unroll(part);
        stages_.staged.push_back(kept);
        return [kept, parts, t = t](const ElementAccess &, const Expr &i) {
            return kept(Halide::Internal::simplify(i / parts), Halide::Internal::simplify(i % parts), t);
        };
    }

    /** A number that is computed once per row. */
    Expr scalar(const std::string &name, const Expr &value) { return scalar_of(name, value, true); }

    /** As scalar(); where threads share a row, each computes it for itself. */
    Expr derived_scalar(const std::string &name, const Expr &value) {
        return scalar_of(name, value, !tensors.on_gpu());
    }

    /** As scalar(), for what the compiler for GPUs moves ahead of the last pass by itself. */
    Expr hoisted_scalar(const std::string &name, const Expr &value) {
        return tensors.on_gpu() ? Halide::strict_float(value) : scalar(name, value);
    }

    /** y(d, t) = element d of row t, stored as dtype or as what `stored` says. */
    void write(Func y, const Element &element, std::optional<DType> stored = {}) {
        const auto [access, pairs, rotated, threads] = form();
        const Element exact = strict(element);
        const auto of_access = [&exact, &at = access](const ElementAccess &, const Expr &i) { return exact(at, i); };
        const Expr single = tensors.access({t}, stored).store(of_access, d);
        if (pairs) {
            stages_.pairs = Func("pairs");
            stages_.pairs(d, t) = pairs->store(exact, d);
            const auto width = y.output_buffer().dim(0).set_min(0).extent();
            // The schedule has a branch of its own for such rows, where nothing is left of the condition.
            y(d, t) = select(width % 64 == 0, half_of_pair(stages_.pairs(d / 2, t), d % 2), single);
        } else {
            y(d, t) = single;
        }
        stages_.y = y;
    }

    /** While a row is written, processors prefetch what lies so many elements behind the features of `input` that it is made of. */
    void prefetch_ahead(const Func &input, const Expr &elements) { ahead_ = {input, elements}; }

    /** The statistics of row t. */
    void write_statistics(const std::vector<Expr> &values) {
        Func y = stages_.y;
        if (tensors.on_gpu() || values.size() == 1) {
            y(d, t) = Halide::Tuple(values);
        } else {
            Expr value = values.back();
            for (size_t k = values.size() - 1; k-- > 0;) {
                value = select(d == static_cast<int>(k), values[k], value);
            }
            y(d, t) = value;
        }
        y.output_buffers()[0].dim(0).set_bounds(0, tensors.on_gpu() ? 1 : static_cast<int>(values.size()));
        *outputs_ = y;
    }

    /** The first of two outputs; what it is made of may lie where either is written. Returns it as it is stored, which where rows are
     *  staged is what all passes read. */
    Func write_first(const Element &element) {
        stages_.first = Func("stored");
        stages_.first(d, t) = access().store(element, d);
        return stages_.first;
    }

    void write_second(const Element &element) {
        stages_.y(d, t) = Halide::Tuple(stages_.first(d, t), access().store(strict(element), d));
        *outputs_ = stages_.y;
    }

    /** Element d of row t of the gradient, which may take the place of any input, and what becomes of each sum with row t. */
    void write_gradient(const Element &gradient,
                        const std::vector<std::function<Expr(const Expr &sum, const Expr &i)>> &added) {
        Func y = stages_.y;
        std::vector<Expr> values = {access().store(strict(gradient), d)};
        if (stages_.sums == 0) {
            y(d, t) = values[0];
        } else {
            // A sum's element of row t is that of the row before. Halide takes rows to be apart, but keeps the order of loads and stores.
            std::vector<Expr> before = {Halide::undef(tensors.type())};
            before.resize(1 + stages_.sums, Halide::undef<float>());
            y(d, t) = Halide::Tuple(before);
            for (int k = 0; k < stages_.sums; k++) {
                values.push_back(Halide::strict_float(added[k](y(d, t)[k + 1], d)));
            }
            y(d, t) = Halide::Tuple(values);
            for (int k = 0; k < stages_.sums; k++) {
                y.output_buffers()[k + 1].dim(1).set_stride(0);
            }
        }
        stages_.y = y;
        *outputs_ = y;
    }

    // ---- for schedule() ----

    void schedule(Halide::Internal::GeneratorBase &generator) {
        tensors.begin_schedule(generator);
        const bool statistics = work_ == RowWork::statistics;
        if (stages_.sums > 0) {
            generator.get_pipeline().add_custom_lowering_pass(new schedules::ValuesFirst);
        }
        if (tensors.on_gpu()) {
            std::vector<Halide::OutputImageParam> outputs = stages_.y.output_buffers();
            if (outputs_ && tensors.by_vectors() && !statistics) {
                schedules::gpu::promise_vectors(outputs[0]);
                schedules::gpu::promise_pitches(outputs[1]);
            }
            if (staged) {
                stage();
            }
            schedules::gpu::row(stages_, {*warps_, *rows_, tensors.by_vectors(), statistics}, tensors.target());
        } else if (statistics) {
            schedules::row_statistics(stages_, params, tensors.target());
        } else {
            if (ahead_) {
                const auto &[input, elements] = *ahead_;
                generator.get_pipeline().add_custom_lowering_pass(new schedules::PrefetchAhead(
                    input.value().as<Halide::Internal::Call>()->name, stages_.y.name(), elements));
            }
            schedules::row(stages_, params, tensors.target(), generator.get_pipeline());
        }
    }

private:
    void note(Halide::GeneratorInput<Halide::Buffer<void, 2>> &row) {
        rows_read_.emplace_back([&row]() -> Func { return row; });
    }

    template<typename Other>
    void note(const Other &) {}

    /** What all passes read is the first output where there is one, else the rows. */
    void stage() {
        if (stages_.first.defined()) {
            stages_.staged.push_back(stages_.first);
            return;
        }
        for (const auto &row : rows_read_) {
            stages_.staged.push_back(row().in());
        }
    }

    RowForm form() const {
        RowForm form{access()};
        if (tensors.on_gpu()) {
            const DType read = read_.value_or(tensors.dtype);
            form.threads = RowThreads{*warps_, read == DType::f32 ? 1 : 2, tensors.by_vectors()};
        } else if (work_ == RowWork::light || work_ == RowWork::gradient) {
            if (work_ == RowWork::light) {
                form.pairs = tensors.pair_access({t});
            }
            if (tensors.target().arch == Halide::Target::X86) {
                form.rotated_lanes = schedules::f32_lanes(tensors.target());
            }
        }
        return form;
    }

    static Element strict(const Element &element) {
        return [element](const ElementAccess &at, const Expr &i) { return Halide::strict_float(element(at, i)); };
    }

    Expr scalar_of(const std::string &name, const Expr &value, bool once) {
        Func scalar(name);
        scalar(t) = Halide::strict_float(value);
        if (once) {
            stages_.scalars.push_back(scalar);
        }
        return scalar(t);
    }

    Halide::FuncRef reduced(RowReduction reduction) {
        stages_.reductions.push_back(std::move(reduction));
        return stages_.reductions.back().result(t);
    }

    void add_outputs(Halide::Internal::GeneratorBase &generator, const std::vector<Halide::Type> &types) {
        stages_.y = Func("y");
        outputs_ = generator.add_output<Func>("y", types, 2);
    }

    const RowWork work_;
    const std::optional<DType> read_;
    Halide::GeneratorInput<int> *warps_ = nullptr, *rows_ = nullptr;
    Halide::GeneratorOutput<Func> *outputs_ = nullptr;
    std::vector<std::function<Func()>> rows_read_;
    std::optional<std::pair<Func, Expr>> ahead_;
    schedules::Row stages_{{}, d, t, {}, {}};
};

}  // namespace halyard

#endif
