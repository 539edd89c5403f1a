// Attention, blocks and models as rows of the benchmark, of whatever sizes a work list asks for.
#include <deque>

#include "attention.h"
#include "block.h"
#include "model.h"

namespace halyard::bench {
namespace {

/** Rows point at their kernels, so these stay where they are. */
std::deque<Kernel> &made() {
    static std::deque<Kernel> kernels;
    return kernels;
}

/** The kernel of that name, which `make` completes if it is new. */
template<typename Make>
const Kernel &kernel_named(const std::string &name, const Make &make) {
    for (const Kernel &kernel : made()) {
        if (kernel.name == name) {
            return kernel;
        }
    }
    Kernel kernel;
    kernel.name = name;
    kernel.stream = stream_read;
    make(kernel);
    made().push_back(kernel);
    return made().back();
}

}  // namespace

const Kernel &attention_kernel(const HeadShape &heads) {
    const std::string shared = heads.kv_heads == heads.heads ? "" : "-" + std::to_string(heads.kv_heads);
    const std::string name = "attention." + std::to_string(heads.heads) + shared + "x" + std::to_string(heads.head_dim);
    return kernel_named(name, [&](Kernel &kernel) {
        kernel.operation = kernel.group = "attention";
        kernel.attention = heads;
        kernel.prepare = [](Work &work) { work.attention = std::make_shared<Attention>(work); };
        kernel.call = call_attention;
    });
}

const Kernel &block_kernel(const std::string &model, const BlockForm &form) {
    return kernel_named((form.is_model() ? "model." : "block.") + model, [&](Kernel &kernel) {
        kernel.operation = form.is_model() ? "model" : "block";
        kernel.group = form.is_model() ? "models" : "blocks";
        kernel.block = form;
        if (form.is_model()) {
            kernel.prepare = [](Work &work) { work.model = std::make_shared<Model>(work); };
            kernel.call = call_model;
        } else {
            kernel.prepare = [](Work &work) {
                const auto block = std::make_shared<Block>(*work.id.kernel->block, work.id.dtype, 0);
                block->prepare(work);
                work.block = block;
            };
            kernel.call = call_block;
        }
    });
}

}  // namespace halyard::bench
