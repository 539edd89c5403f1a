// Rows of x in 8 bits for products with quantized weights. The inputs of a unit share a scale:
//
//     scale = max |x| (1 / 127);   number = x (1 / scale) to the nearest whole number, ties to even
//
// where both quotients are rounded to f32. So a number is at most 127 in magnitude, and |x - scale number| is at most
// (1/2 + 2^-15) scale. A unit whose max |x| is below 2^-100 counts as zeros, with scale 0; one with an Inf or a NaN has numbers 0 and
// scale NaN.
#include "Halide.h"

#include "runtime/layout/matmul.h"
#include "schedules/kernel_tensors.h"
#include "schedules/pack.h"

namespace halyard {
namespace {

using namespace Halide;

class RoundToInt8 : public Generator<RoundToInt8> {
public:
    KernelTensors tensors;
    GeneratorParam<int> unit{"unit", max_int8_unit};
    schedules::PackParams params;  // of the family; it has nothing to choose here

    Input<Buffer<float, 2>> x{"x"};                // x(input, row), whole units
    Output<Buffer<float, 2>> scales{"scales"};     // scales(unit, row)
    Output<Buffer<int8_t, 2>> numbers{"numbers"};  // numbers(input, row)
    Output<Buffer<int32_t, 2>> sums{"sums"};       // sums(unit, row) of the numbers

    void configure() { tensors.configure(*this); }

    void generate() {
        // The bits of magnitudes are in their order, with Inf and NaN above all.
        const RDom in(0, unit, "in");
        const Expr bits = reinterpret<int32_t>(x(u * unit + in, row)) & 0x7fffffff;
        largest(u, row) = 0;
        largest(u, row) = max(largest(u, row), bits);
        const Expr all_finite = largest(u, row) < 0x7f800000, not_tiny = largest(u, row) >= (127 - 100) << 23;
        const Expr scale = strict_float(reinterpret<float>(largest(u, row)) * (1.0f / 127.0f));
        scales(u, row) = select(!all_finite, reinterpret<float>(0x7fc00000), not_tiny, scale, 0.0f);

        const Expr of_unit = scales(input / unit, row);
        const Expr nearest = round(strict_float(x(input, row) * strict_float(1.0f / of_unit)));
        numbers(input, row) = cast<int8_t>(cast<int32_t>(select(of_unit > 0.0f, nearest, 0.0f)));
        sum(u, row) = 0;
        sum(u, row) += cast<int32_t>(numbers(u * unit + in, row));
        sums(u, row) = sum(u, row);
    }

    void schedule() {
        begin_at_zero(x, scales, numbers, sums);
        tensors.begin_schedule(*this);
        schedules::round_to_int8({largest, sum, scales, numbers, sums, input, u, unit}, get_target());
    }

private:
    Var input{"input"}, row{"row"}, u{"u"};
    Func largest{"largest"}, sum{"sum"};
};

}  // namespace
}  // namespace halyard

HALIDE_REGISTER_GENERATOR(halyard::RoundToInt8, round_to_int8)
