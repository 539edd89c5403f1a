// Rows of a table by their numbers, for GPUs: what a stack begins with. The numbers are arguments of the launch, so
// that nothing is copied to the device for them, and a graph that holds the launch holds them too.
#include "Halide.h"

#include "runtime/layout/embed_rows.h"
#include "schedules/elementwise.h"
#include "schedules/gpu.h"
#include "storage.h"

namespace halyard {
namespace {

using namespace Halide;

// y(., t) = table(., row t) * multiplier
class EmbedRows : public Generator<EmbedRows> {
public:
    GeneratorParam<DType> dtype{"dtype", DType::f32, dtype_names};

    Input<Buffer<void, 2>> table{"table"};  // (feature, row)
    Input<float> multiplier{"multiplier"};
    Input<int32_t[embedded_rows]> rows{"rows"};
    Output<Buffer<float, 2>> y{"y"};

    void configure() { table.set_type(storage().type()); }

    void generate() {
        Expr row = rows[0];
        for (int i = 1; i < embedded_rows; i++) {
            row = select(t == i, rows[i], row);
        }
        const Expr known = clamp(row, 0, table.dim(1).extent() - 1);
        y(d, t) = strict_float(storage().widen(table(d, known)) * multiplier);
    }

    void schedule() {
        if (using_autoscheduler()) {
            return;
        }
        table.dim(0).set_min(0);
        table.dim(1).set_min(0);
        schedules::gpu::elementwise({y, d, t}, false, get_target());
    }

private:
    Storage storage() const { return Storage(dtype, get_target()); }

    Var d{"d"}, t{"t"};
};

}  // namespace
}  // namespace halyard

HALIDE_REGISTER_GENERATOR(halyard::EmbedRows, embed_rows)
