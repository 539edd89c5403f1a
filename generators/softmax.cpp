// Softmax over a row, y = exp(-scale (m - x)) / sum(exp(-scale (m - x))), m the feature of the row for which scale x is
// largest. The difference comes first: scale x alone would round away what a large mean leaves of the row. Exponentials are
// 2^64 times as large, in all terms of the quotient.
//
// Best in two kernels, so that each exponential is computed once: the first writes the exponentials in f32 to a row in
// cache, the second (softmax_normalize.cpp) normalizes it. One kernel that computes them twice serves rows too wide for
// that. On a GPU one kernel keeps them in shared memory. The bits are the same.
#include "Halide.h"

#include "math.h"
#include "schedules/row_kernel.h"

namespace halyard {
namespace {

using namespace Halide;

class Softmax : public Generator<Softmax> {
public:
    RowKernel row{RowWork::heavy};
    GeneratorParam<bool> normalize{"normalize", true};  // false: the exponentials in f32
    Input<Buffer<void, 2>> x{"x"};
    Input<float> score_scale{"score_scale"};
    GeneratorInput<int> *next = nullptr;  // of the exponentials: elements from a row of x to what is prefetched
    Output<Buffer<void, 2>> y{"y"};

    void configure() {
        row.configure(*this, x);
        if (!normalize) {
            next = add_input<int>("next");
        }
        row.tensors.add(*this, y, normalize ? row.tensors.dtype.value() : DType::f32);
    }

    void generate() {
        // For f16 where bf16 would do: two of its errors meet in the quotient.
        const DType dtype = row.tensors.dtype;
        const Math math = Math::of_strict(get_target(), dtype == DType::f32 ? DType::f32 : DType::f16);
        x.dim(0).set_extent(y.dim(0).extent());
        const Expr width = row.width_of(y);
        constexpr int lanes = 64;

        // With a negative scale m is the least feature.
        const Expr direction = select(score_scale < 0.0f, -1.0f, 1.0f);
        const Element directed = [&](const ElementAccess &at, const Expr &i) {
            return strict_float(at(x, i) * direction);
        };
        const Expr row_max = row.reduce("maximum", width, lanes, largest_element(Float(32).min()), directed);
        const Expr m = strict_float(row_max * direction);
        const Element exponential = row.once("exponentials", [&](const ElementAccess &at, const Expr &i) {
            return strict_float(math.exp_minus_by_64(strict_float((m - at(x, i)) * score_scale)));
        });
        if (normalize) {
            const Expr sum = row.reduce("sum", width, lanes, sum_of_elements(), exponential);
            const Expr inverse = row.scalar("inverse", 1.0f / sum);
            row.write(y, [&](const ElementAccess &at, const Expr &i) { return exponential(at, i) * inverse; });
        } else {
            row.write(y, exponential, DType::f32);
            row.prefetch_ahead(x, *next);
        }
    }

    void schedule() { row.schedule(*this); }
};

}  // namespace
}  // namespace halyard

HALIDE_REGISTER_GENERATOR(halyard::Softmax, softmax)
