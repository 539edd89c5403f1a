// Rows of a table by their numbers, for GPUs: what a stack begins with. The numbers are arguments of the launch, so
// that nothing is copied to the device for them, and a graph that holds the launch holds them too.
#include "Halide.h"

#include "runtime/embed_rows_layout.h"
#include "schedules/gpu.h"
#include "schedules/kernel_tensors.h"

namespace halyard {
namespace {

using namespace Halide;

// y(., t) = table(., row t) * multiplier
class EmbedRows : public Generator<EmbedRows> {
public:
    KernelTensors tensors;
    Input<Buffer<void, 2>> table{"table"};  // (feature, row)
    Input<float> multiplier{"multiplier"};
    Input<int32_t[embedded_rows]> rows{"rows"};
    Output<Buffer<float, 2>> y{"y"};

    void configure() { tensors.configure(*this, table); }

    void generate() {
        begin_at_zero(table);
        Expr row = rows[0];
        for (int i = 1; i < embedded_rows; i++) {
            row = select(t == i, rows[i], row);
        }
        const Expr known = clamp(row, 0, table.dim(1).extent() - 1);
        y(d, t) = tensors.storage().widen(table(d, known)) * multiplier;
    }

    void schedule() { schedules::gpu::elementwise({y, d, t}, false, get_target()); }

private:
    Var d{"d"}, t{"t"};
};

}  // namespace
}  // namespace halyard

HALIDE_REGISTER_GENERATOR(halyard::EmbedRows, embed_rows)
