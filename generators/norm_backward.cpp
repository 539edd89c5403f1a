// The backward pass of the norms by rows. With g = dy (weight + offset), n = (x - mean) scale and m() the mean over a row,
//
//   LayerNorm   dx = scale (g - m(g) - n m(g n)) + added
//   RMSNorm     dx = scale (g - n m(g x) / root) + added
//
// root is that of the mean square, in which eps counts unless it is outside. Of a partial RMSNorm the last term holds for the
// features that enter the mean square alone, and m() divides by their number. With a weight, dy n and
// of a LayerNorm dy are added to sums, row by row.
#include "norms.h"

namespace halyard {
namespace {

using namespace Halide;

class RmsNormBackward : public Generator<RmsNormBackward> {
public:
    RowKernel row{RowWork::gradient};
    OptionalVector weight{"weight", true};
    Input<Buffer<void, 2>> x{"x"}, dy{"dy"}, added{"added"};
    Input<float> eps{"eps"};
    Input<bool> eps_outside_root{"eps_outside_root"};
    Input<float> weight_offset{"weight_offset"};
    Input<int> moment_width{"moment_width"};

    void configure() {
        row.configure(*this, x, dy, added, weight);
        row.add_gradient(*this, weight.has ? 1 : 0);
    }

    void generate() {
        const Fma fused = Fma::of_strict(get_target());
        const auto [mean_square, scale] = rms_statistics(row, elements_of(x), moment_width, eps, eps_outside_root);
        const Element g = [&](const ElementAccess &at, const Expr &i) {
            return weight ? strict_float(at(dy, i) * strict_float(at(weight, i) + weight_offset)) : at(dy, i);
        };
        const Element gx = [&](const ElementAccess &at, const Expr &i) { return g(at, i) * at(x, i); };
        const Element n = [&, scale = scale](const ElementAccess &at, const Expr &i) {
            return strict_float(at(x, i) * scale);
        };

        const Expr sum = row.reduce("products", row.width_of(x), 64, sum_of_elements(), gx);
        const Expr outside = select(mean_square == 0.0f, 0.0f, 1.0f / sqrt(mean_square));
        const Expr inverse_root = row.scalar("inverse_root", select(eps_outside_root, outside, scale));
        const Expr slope = row.scalar("slope", fused.minus(sum * (1.0f / cast<float>(moment_width)) * inverse_root));
        const Element dx = [&, scale = scale](const ElementAccess &at, const Expr &i) {
            const Expr centred = select(i < moment_width, fused.fma(n(at, i), slope, g(at, i)), g(at, i));
            return fused.fma(centred, scale, at(added, i));
        };
        const ElementAccess at = row.access();
        row.write_gradient(dx, {[&](const Expr &sum, const Expr &i) { return fused.fma(at(dy, i), n(at, i), sum); }});
    }

    void schedule() { row.schedule(*this); }
};

class LayerNormBackward : public Generator<LayerNormBackward> {
public:
    RowKernel row{RowWork::gradient};
    OptionalVector weight{"weight", true};
    Input<Buffer<void, 2>> x{"x"}, dy{"dy"}, added{"added"};
    Input<float> eps{"eps"};

    void configure() {
        row.configure(*this, x, dy, added, weight);
        row.add_gradient(*this, weight.has ? 2 : 0);
    }

    void generate() {
        const Fma fused = Fma::of_strict(get_target());
        const Expr width = row.width_of(x);
        const LayerStatistics statistics = layer_statistics(row, elements_of(x), width, eps);
        const Element n = layer_normalized(row, elements_of(x), statistics);
        const Element g = [&](const ElementAccess &at, const Expr &i) {
            return weight ? strict_float(at(dy, i) * at(weight, i)) : at(dy, i);
        };
        const Element gn = [&](const ElementAccess &at, const Expr &i) { return g(at, i) * strict_float(n(at, i)); };

        const Expr per_feature = strict_float(1.0f / cast<float>(width));
        const FuncRef sums = row.sums("sums", width, 32, {g, gn});
        const Expr mean = row.scalar("mean", sums[0] * per_feature);
        const Expr slope = row.scalar("slope", fused.minus(sums[1] * per_feature));
        const Element dx = [&](const ElementAccess &at, const Expr &i) {
            return fused.fma(fused.fma(n(at, i), slope, g(at, i) - mean), statistics.scale, at(added, i));
        };
        const ElementAccess at = row.access();
        row.write_gradient(dx, {[&](const Expr &sum, const Expr &i) { return fused.fma(at(dy, i), n(at, i), sum); },
                                [&](const Expr &sum, const Expr &i) { return sum + at(dy, i); }});
    }

    void schedule() { row.schedule(*this); }
};

}  // namespace
}  // namespace halyard

HALIDE_REGISTER_GENERATOR(halyard::RmsNormBackward, rms_norm_backward)
HALIDE_REGISTER_GENERATOR(halyard::LayerNormBackward, layer_norm_backward)
