// What surrounds the matrix products of linear layers on a GPU: the epilogue of their sums, and the folding of a norm's
// weight into a matrix.
#include "Halide.h"

#include "activations.h"
#include "roundings.h"
#include "row_storage.h"
#include "schedules/elementwise.h"
#include "schedules/gpu.h"

namespace halyard {
namespace {

using namespace Halide;

// y = f(gate) or f(gate) * up of sums that are centred and scaled row by row and have a bias added:
// (sum - row_mean * column_sum) * row_scale + bias.
class DeviceEpilogue : public Generator<DeviceEpilogue> {
public:
    GeneratorParam<DType> dtype{"dtype", DType::f32, dtype_names};
    GeneratorParam<bool> words{"words", false};  // see row_storage.h
    GeneratorParam<std::string> function{"function", "identity"};
    GeneratorParam<bool> gated{"gated", false};

    Input<Buffer<void, 2>> sums{"sums"};  // of the gate, where there are two
    Input<Buffer<float, 1>> column_sums{"column_sums"}, bias{"bias"};
    Input<Buffer<float, 1>> row_scale{"row_scale"},
        row_mean{"row_mean"};  // of any stride, so that one entry does for all
    Input<float> beta{"beta"};
    Input<Buffer<>> *sums_up = nullptr, *column_sums_up = nullptr, *bias_up = nullptr;
    Output<Buffer<void, 2>> y{"y"};  // may be sums

    void configure() {
        sums.set_type(storage().type());
        y.set_type(storage().type());
        if (gated) {
            sums_up = add_input<Buffer<>>("sums_up", storage().type(), 2);
            column_sums_up = add_input<Buffer<>>("column_sums_up", Float(32), 1);
            bias_up = add_input<Buffer<>>("bias_up", Float(32), 1);
        }
    }

    void generate() {
        const auto linear = [&](const auto &matrix, const auto &column_sum, const auto &column_bias, const Expr &i) {
            const Expr sum = storage().load([&](Expr index) { return matrix(index, t); }, i);
            const Expr centred = strict_float(sum - strict_float(row_mean(t) * column_sum(i)));
            return strict_float(strict_float(centred * row_scale(t)) + column_bias(i));
        };
        const auto element = [&](Expr i) {
            const Expr first = linear(sums, column_sums, bias, i);
            const Expr activated =
                function.value() == "identity" ? first : activation(function, get_target(), dtype, first, beta);
            return gated ? strict_float(activated * linear(*sums_up, *column_sums_up, *bias_up, i))
                         : strict_float(activated);
        };
        y(d, t) = storage().store_result(element, d);
    }

    void schedule() {
        keep_roundings(get_pipeline(), get_target());
        if (using_autoscheduler()) {
            return;
        }
        row_scale.dim(0).set_min(0).set_stride(Expr());
        row_mean.dim(0).set_min(0).set_stride(Expr());
        if (words) {
            schedules::gpu::promise_cells(sums, y, sums_up);
        }
        schedules::gpu::elementwise({y, d, t}, words, get_target());
    }

private:
    RowStorage storage() const { return RowStorage(dtype, get_target(), words); }

    Var d{"d"}, t{"t"};
};

// y = w * (factor + offset), factor by column or by row.
class DeviceFold : public Generator<DeviceFold> {
public:
    GeneratorParam<DType> dtype{"dtype", DType::f32, dtype_names};
    GeneratorParam<bool> by_row{"by_row", false};

    Input<Buffer<void, 2>> w{"w"};
    Input<Buffer<void, 1>> factor{"factor"};
    Input<float> offset{"offset"};
    Output<Buffer<void, 2>> y{"y"};  // may be w

    void configure() {
        w.set_type(storage().type());
        factor.set_type(storage().type());
        y.set_type(storage().type());
    }

    void generate() {
        const Expr by = strict_float(storage().widen(factor(by_row ? t : d)) + offset);
        const Expr product = reinterpret<uint32_t>(strict_float(storage().widen(w(d, t)) * by));
        // One NaN, as packing for processors has it.
        const Expr canonical = select((product & 0x7fffffff) > 0x7f800000, cast<uint32_t>(0x7fc00000), product);
        y(d, t) = storage().narrow_result(reinterpret<float>(canonical));
    }

    void schedule() {
        keep_roundings(get_pipeline(), get_target());
        if (using_autoscheduler()) {
            return;
        }
        schedules::gpu::elementwise({y, d, t}, false, get_target());
    }

private:
    Storage storage() const { return Storage(dtype, get_target()); }

    Var d{"d"}, t{"t"};
};

}  // namespace
}  // namespace halyard

HALIDE_REGISTER_GENERATOR(halyard::DeviceEpilogue, device_epilogue)
HALIDE_REGISTER_GENERATOR(halyard::DeviceFold, device_fold)
