// Attention, blocks and models as rows of the benchmark, at the sizes of published models.
#include "attention.h"
#include "block.h"
#include "model.h"

namespace halyard::bench {
namespace {

constexpr HeadShape gpt2_heads{12, 12, 64}, llama2_7b_heads{32, 32, 128}, llama3_8b_heads{32, 8, 128};

BlockForm gpt2() {
    return {"gpt2", 768, 3072, gpt2_heads, HALYARD_NORM_LAYER, HALYARD_GELU_TANH, false, true, 0};
}

BlockForm llama(std::int64_t d, std::int64_t d_ff, const HeadShape &heads, double rope_theta) {
    return {"llama", d, d_ff, heads, HALYARD_NORM_RMS, HALYARD_SILU, true, false, rope_theta};
}

BlockForm tinyllama() {
    BlockForm form = llama(2048, 5632, {32, 4, 64}, 10000);
    form.layers = 22;
    form.vocabulary = 32000;
    return form;
}

Kernel attention_kernel(const char *name, const HeadShape &heads) {
    Kernel kernel;
    kernel.name = name;
    kernel.operation = "attention";
    kernel.stream = stream_read;
    kernel.attention = heads;
    kernel.prepare = [](Work &work) { work.attention = std::make_shared<Attention>(work); };
    kernel.call = call_attention;
    return kernel;
}

Kernel block_kernel(const char *name, const BlockForm &form) {
    Kernel kernel;
    kernel.name = name;
    kernel.operation = form.is_model() ? "model" : "block";
    kernel.stream = stream_read;
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
    return kernel;
}

}  // namespace

const std::vector<Kernel> &transformer_catalogue() {
    static const std::vector<Kernel> kernels = {
        attention_kernel("attention.12x64", gpt2_heads),
        attention_kernel("attention.32x128", llama2_7b_heads),
        attention_kernel("attention.32-8x128", llama3_8b_heads),
        block_kernel("block.gpt2", gpt2()),
        block_kernel("block.llama2_7b", llama(4096, 11008, llama2_7b_heads, 10000)),
        block_kernel("block.llama3_8b", llama(4096, 14336, llama3_8b_heads, 500000)),
        block_kernel("model.tinyllama", tinyllama()),
    };
    return kernels;
}

}  // namespace halyard::bench
