// Products that stay products on NVIDIA GPUs.
#ifndef HALYARD_SCHEDULES_NO_CONTRACTION_H
#define HALYARD_SCHEDULES_NO_CONTRACTION_H

#include "Halide.h"

namespace halyard {

/** LLVM's code generator for these GPUs makes one fused multiply-add of a product and the sum that it goes into, though
 *  strict_float says that both are rounded: Halide 21 allows it to. What this makes of such a product, an intrinsic that
 *  is the instruction, it leaves alone. A sign turned by a product has no rounding to lose, and costs nothing so. */
class RoundedProducts : public Halide::Internal::IRMutator {
    using IRMutator::visit;

    static bool is_minus_one(const Halide::Expr &e) { return Halide::Internal::as_const_float(e) == -1.0; }

    Halide::Expr visit(const Halide::Internal::Call *op) override {
        using namespace Halide;
        using Internal::Call;
        if (op->is_intrinsic(Call::strict_mul) && op->type.element_of() == Float(32) && !is_minus_one(op->args[0]) &&
            !is_minus_one(op->args[1])) {
            return Call::make(op->type, "llvm.nvvm.mul.rn.f", mutate(op->args), Call::PureExtern);
        }
        return IRMutator::visit(op);
    }
};

/** To be called by schedule(). */
inline void forbid_contraction(Halide::Pipeline pipeline, const Halide::Target &target) {
    if (target.has_feature(Halide::Target::CUDA)) {
        pipeline.add_custom_lowering_pass(new RoundedProducts);
    }
}

}  // namespace halyard

#endif
