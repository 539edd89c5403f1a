// The end of attention: y = values / sum, what attention_combine.cpp leaves; 0 where the sum is 0.
#include "Halide.h"

#include "schedules/attention.h"
#include "schedules/kernel_tensors.h"

namespace halyard {
namespace {

using namespace Halide;

class AttentionFinish : public Generator<AttentionFinish> {
public:
    KernelTensors tensors;
    schedules::AttentionParams params;

    Input<Buffer<float, 2>> values{"values"};
    Input<Buffer<float, 1>> sum{"sum"};
    Output<Buffer<void, 2>> y{"y"};

    void configure() { tensors.configure(*this, y); }

    void generate() {
        // A sum is 0 or at least about 1: it holds exp(0) of the maximum.
        inverse(row) = select(sum(row) == 0.0f, 0.0f, strict_float(1.0f / sum(row)));
        // Adding 0 makes +0 of the -0 that the products of a row may or may not have added up to, depending on how many
        // zeros came with them.
        const Expr value = strict_float(values(feature, row) + 0.0f);
        y(feature, row) = tensors.storage().narrow(strict_float(value * inverse(row)));
    }

    void schedule() {
        sum.dim(0).set_stride(Expr());
        tensors.begin_schedule(*this);
        inverse.compute_at(y, row);
        schedules::attention_rows(y, feature, params, get_target());
    }

private:
    Var feature{"feature"}, row{"row"};
    Func inverse{"inverse"};
};

}  // namespace
}  // namespace halyard

HALIDE_REGISTER_GENERATOR(halyard::AttentionFinish, attention_finish)
