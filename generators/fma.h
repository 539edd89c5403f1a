// Fused multiply-adds, as targets have them.
#ifndef HALYARD_GENERATORS_FMA_H
#define HALYARD_GENERATORS_FMA_H

#include "Halide.h"

namespace halyard {

/** Sums with a product, rounded once where the target can. The target must have the feature strict_float. */
class Fma {
public:
    using Expr = Halide::Expr;

    explicit Fma(const Halide::Target &target)
        : has_fma(target.arch != Halide::Target::X86 || target.has_feature(Halide::Target::FMA) ||
                  target.has_gpu_feature()),
          is_arm(target.arch == Halide::Target::ARM),
          name(target.has_feature(Halide::Target::OpenCL) ? "fma" : "llvm.fma.f32") {
        if (!target.has_feature(Halide::Target::StrictFloat)) {
            throw Halide::CompileError("halyard::Fma needs a target with the feature strict_float");
        }
    }

    /** For kernels that say strict_float expression by expression. */
    static Fma of_strict(const Halide::Target &target) { return Fma(target.with_feature(Halide::Target::StrictFloat)); }

    /** a·b + c, rounded once where the target has FMA, twice on the x86 baseline. Halide has no FMA of its own and
     * passes the scalar intrinsic on; LLVM's SLP vectorizer turns the lanes back into full-width instructions. */
    Expr fma(Expr a, Expr b, Expr c) const {
        if (!has_fma) {
            return a * b + c;
        }
        using Halide::Internal::Call;
        return Call::make(Halide::Float(32), name, {a, b, c}, Call::PureExtern);
    }

    /** 0 - x: +0 for both zeros. LLVM makes -x of it on ARM, whose sign differs where x is +0, but for the form with fma. */
    Expr minus(Expr x) const { return is_arm ? fma(x, -1.0f, 0.0f) : 0.0f - x; }

protected:
    bool has_fma, is_arm;

private:
    const char *name;
};

/** `sum + a * b`, of which a fused multiply-add is to become; where there is none, only strict sums keep their order. */
inline Halide::Expr contracted(const Halide::Target &target, const Halide::Expr &sum) {
    using Halide::Target;
    const bool has_fma = !target.has_feature(Target::SSE41) || target.has_feature(Target::FMA);
    return has_fma ? sum : Halide::strict_float(sum);
}

}  // namespace halyard

#endif
