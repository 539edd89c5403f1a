// The upper halves of 32-bit words on AVX-512, by which f32 is rounded to bf16.
#ifndef HALYARD_SCHEDULES_HIGH_HALVES_H
#define HALYARD_SCHEDULES_HIGH_HALVES_H

#include <string>

#include "Halide.h"

namespace halyard::schedules {

/** Takes the halves out of two vectors by one instruction. Of a shift and a cast LLVM makes seven steps: it shifts and narrows each
 *  vector, and joins what is left of them. */
class HighHalves : public Halide::Internal::IRMutator {
    using IRMutator::visit;

public:
    /** The upper half of a word, for kernels that are lowered by this. */
    static Halide::Expr of(const Halide::Expr &word) {
        return Halide::Internal::Call::make(Halide::UInt(16), name, {word}, Halide::Internal::Call::PureExtern);
    }

private:
    static constexpr const char *name = "high_half";

    Halide::Expr visit(const Halide::Internal::Call *call) override {
        using namespace Halide::Internal;
        if (call->name != name) {
            return IRMutator::visit(call);
        }
        const Halide::Expr words = mutate(call->args[0]);
        const int lanes = call->type.lanes();
        if (lanes % 32 != 0) {
            return Cast::make(call->type, words >> 16);
        }
        return Shuffle::make_slice(Reinterpret::make(Halide::UInt(16, 2 * lanes), words), 1, 2, lanes);
    }
};

}  // namespace halyard::schedules

#endif
