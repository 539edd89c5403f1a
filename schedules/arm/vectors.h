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

/** Whether the rest of a row may be the whole vector that ends with the row, some elements of which the vector before
 *  it has computed already: they must still be there to be read, and the row must have as many. */
inline Halide::Expr may_overlap(const Halide::Func &y, int vectors) {
    using namespace Halide;
    using Internal::Call;
    const auto address = [](const std::string &name, const Parameter &parameter) {
        const Expr buffer = Internal::Variable::make(type_of<halide_buffer_t *>(), name + ".buffer", parameter);
        return reinterpret<uint64_t>(Call::make(Handle(), Call::buffer_get_host, {buffer}, Call::PureExtern));
    };
    const OutputImageParam output = y.output_buffer();
    const int lanes = is_narrow(y, vectors) ? 2 * f32_lanes : f32_lanes;
    Expr may = output.dim(0).extent() >= lanes;
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
    const int unrolled = is_narrow(y, vectors) ? vectors / 2 : vectors;
    stage.split(d, vector, d, is_narrow(y, vectors) ? 2 * f32_lanes : f32_lanes, rest).vectorize(d);
    if (unrolled > 1) {
        stage.split(vector, block, vector, unrolled, Halide::TailStrategy::GuardWithIf).unroll(vector);
    }
}

}  // namespace halyard::schedules::arm

#endif
