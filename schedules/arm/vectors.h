// Loops over vectors on ARM.
#ifndef HALYARD_SCHEDULES_ARM_VECTORS_H
#define HALYARD_SCHEDULES_ARM_VECTORS_H

#include <map>
#include <string>

#include "Halide.h"

namespace halyard::schedules::arm {

constexpr int f32_lanes = 4;

/** Vectors of 16-bit outputs are of their own size where two or more f32 vectors are asked for. */
inline bool is_narrow(const Halide::Func &y, int vectors) {
    return y.types()[0].bits() == 16 && vectors > 1;
}

/** The tensors that y reads element by element, by name. */
class Inputs : public Halide::Internal::IRGraphVisitor {
public:
    explicit Inputs(const Halide::Func &y) : dimensions_(y.dimensions()) {
        const Halide::Tuple values = y.values();
        for (const Halide::Expr &value : values.as_vector()) {
            value.accept(this);
        }
    }
    std::map<std::string, Halide::Parameter> found;

private:
    using IRGraphVisitor::visit;
    void visit(const Halide::Internal::Call *call) override {
        using Halide::Internal::Call;
        // A generator's input is read by way of a Func that stands for it.
        const Call *read = call;
        if (call->func.defined()) {
            const Halide::Internal::Function stands_for(call->func);
            read = stands_for.values().size() == 1 ? stands_for.values()[0].as<Call>() : nullptr;
        }
        if (read != nullptr && read->param.defined() && read->param.dimensions() == dimensions_) {
            found.emplace(read->name, read->param);
        }
        IRGraphVisitor::visit(call);
    }
    int dimensions_;
};

/** Elements of a vector that is stored, and vectors of an iteration, for so many f32 vectors per iteration. */
inline int stored_lanes(const Halide::Func &y, int vectors) {
    return is_narrow(y, vectors) ? 2 * f32_lanes : f32_lanes;
}
inline int stored_vectors(const Halide::Func &y, int vectors) {
    return is_narrow(y, vectors) ? vectors / 2 : vectors;
}

/** Whether the rest of a row may be `elements` whole ones that end with the row, some of which have been computed
 *  already: they must still be there to be read, and the row must have as many. */
inline Halide::Expr may_overlap(const Halide::Func &y, int elements) {
    using namespace Halide;
    using Internal::Call;
    const auto address = [](const std::string &name, const Parameter &parameter) {
        const Expr buffer = Internal::Variable::make(type_of<halide_buffer_t *>(), name + ".buffer", parameter);
        return reinterpret<uint64_t>(Call::make(Handle(), Call::buffer_get_host, {buffer}, Call::PureExtern));
    };
    const OutputImageParam output = y.output_buffer();
    Expr may = output.dim(0).extent() >= elements;
    const Inputs inputs(y);
    for (const auto &[name, parameter] : inputs.found) {
        may = may && address(name, parameter) != address(output.name(), output.parameter());
    }
    return may;
}

/** Vectorizes a stage of y over d, so many f32 vectors per iteration. A last vector that is not whole is masked, each
 *  of its elements loaded and stored by itself, or with ShiftInwards it overlaps the one before it. */
inline void by_vectors(const Halide::Func &y, Halide::Stage stage, const Halide::Var &d, int vectors,
                       Halide::TailStrategy rest = Halide::TailStrategy::GuardWithIf) {
    const Halide::Var vector("vector"), block("block");
    stage.split(d, vector, d, stored_lanes(y, vectors), rest).vectorize(d);
    if (stored_vectors(y, vectors) > 1) {
        stage.split(vector, block, vector, stored_vectors(y, vectors), Halide::TailStrategy::GuardWithIf)
            .unroll(vector);
    }
}

/** The same for the rows whose rest may overlap. That is a whole iteration, for which one address is computed, or for
 *  rows shorter than that a vector. */
inline void by_overlapping_vectors(Halide::Func y, const Halide::Var &d, int vectors) {
    const Halide::Var vector("vector"), block("block");
    const int lanes = stored_lanes(y, vectors), unrolled = stored_vectors(y, vectors);
    if (unrolled > 1) {
        y.specialize(may_overlap(y, lanes * unrolled))
            .split(d, block, d, lanes * unrolled, Halide::TailStrategy::ShiftInwards)
            .split(d, vector, d, lanes)
            .vectorize(d)
            .unroll(vector);
    }
    by_vectors(y, y.specialize(may_overlap(y, lanes)), d, vectors, Halide::TailStrategy::ShiftInwards);
}

}  // namespace halyard::schedules::arm

#endif
