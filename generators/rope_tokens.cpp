// Rotary position embedding of all tokens of a call in one launch, for GPUs: each thread looks up its token's position.
#include "Halide.h"

#include "rotation.h"
#include "schedules/pair_kernel.h"

namespace halyard {
namespace {

using namespace Halide;

class RopeTokens : public Generator<RopeTokens> {
public:
    PairKernel kernel;
    Input<Buffer<void, 2>> cosines{"cosines"}, sines{"sines"};  // (pair, position), f32
    // Positions of tokens, where they are given: (0 or 1, token, batch), the halves of 64 bits where they are `wide`. Else
    // token t has the position first + t. A position that is not in the table makes NaN of its token.
    Input<Buffer<int32_t, 3>> positions{"positions"};
    Input<bool> given{"given"};
    Input<bool> wide{"wide"};
    Input<int> first{"first"};

    void configure() {
        kernel.configure(*this);
        for (auto *table : {&cosines, &sines}) {
            kernel.tensors.add(*this, *table, DType::f32);
        }
    }

    void generate() {
        const Fma fused(get_target());
        const Var pair = kernel.pair, token = kernel.token, batch = kernel.batch;
        const Expr low = positions(0, token, batch), high = positions(1, token, batch);
        const Expr position = select(given, select(wide && high != 0, -1, low), first + token);
        const Expr entry = clamp(position, 0, cosines.dim(1).extent() - 1);
        const Expr nan = reinterpret<float>(cast<uint32_t>(0x7fc00000));
        cosine(pair, token, batch) = select(position == entry, cosines(pair, entry), nan);
        sine(pair, token, batch) = select(position == entry, sines(pair, entry), nan);

        const auto rotated = [&](decltype(&rotated_first) part) -> PairResult {
            return [=](const Expr &p, const Expr &x0, const Expr &x1) {
                return part(fused, x0, x1, cosine(p, token, batch), sine(p, token, batch));
            };
        };
        kernel.write(rotated(rotated_first), rotated(rotated_second));
    }

    void schedule() {
        begin_at_zero(cosines, sines);
        positions.dim(0).set_bounds(0, 2).set_stride(Expr());
        kernel.schedule(*this, {cosine, sine});
    }

private:
    Func cosine{"cosine"}, sine{"sine"};
};

}  // namespace
}  // namespace halyard

HALIDE_REGISTER_GENERATOR(halyard::RopeTokens, rope_tokens)
