// See separate_block.h.
#include "peers/separate_block.h"

#include <stdexcept>

#include "block.h"
#include "layer.h"

namespace halyard::bench {
namespace {

void require(halyard_status status) {
    if (status != HALYARD_OK) {
        throw std::runtime_error(halyard_last_error());
    }
}

/** The rows of q, k and v one after another. */
Matrix stacked(const std::vector<Matrix> &parts) {
    std::int64_t rows = 0;
    for (const Matrix &part : parts) {
        rows += part.rows();
    }
    Matrix whole(parts[0].dtype(), rows, parts[0].width());
    char *place = whole.data();
    for (const Matrix &part : parts) {
        std::memcpy(place, part.data(), part.bytes());
        place += part.bytes();
    }
    return whole;
}

class Steps {
public:
    explicit Steps(BenchmarkCase &owner)
        : bench_case(owner), form(*owner.id.kernel->block), block(*owner.block), shape(form.heads),
          normalized(tensor(form.d)), qkv(tensor(shape.query_width() + 2 * shape.kv_width())),
          attended(tensor(shape.query_width())), middle(tensor(form.d)) {
        pack();
        if (form.has_bias) {
            join_biases();
        }
        if (form.rope_theta != 0) {
            halyard_rope_options options{};
            options.head_dim = shape.head_dim;
            options.max_positions = bench_case.id.cached + bench_case.id.tokens();
            options.rope_theta = form.rope_theta;
            halyard_rope *made = nullptr;
            require(halyard_rope_create(&options, &made));
            rope = {made, halyard_rope_destroy};
        }
    }

    void operator()(std::size_t index) {
        OperandSet &set = bench_case.sets[index];
        const Packed &weights = packed[index];
        const DLTensor *x = &set.inputs[0].view;
        require(norm(x, Block::before_attention, &normalized.view));
        require(linear(&normalized.view, weights.qkv.get(), qkv_bias.get(), nullptr, &qkv.view));
        require(attention(set.cache.get()));
        require(linear(&attended.view, weights.o.get(), block.bias(Block::o), x, &middle.view));
        require(ffn(weights, &set.outputs[0].view));
    }

private:
    using Weights = std::shared_ptr<const halyard_weights>;
    struct Packed {
        Weights qkv, o, up, down;
    };

    Matrix tensor(std::int64_t width) const { return Matrix(bench_case.id.dtype, bench_case.id.rows, width); }

    void pack() {
        packed.resize(bench_case.sets.size());
        const auto whole = [&](Block::Part part) { return block.matrix(part).whole(); };
        {
            std::vector<Matrix> parts;
            for (const Block::Part part : {Block::q, Block::k, Block::v}) {
                parts.push_back(whole(part));
            }
            const Matrix together = stacked(parts);
            for (Packed &each : packed) {
                each.qkv = pack_weights(bench_case, together);
            }
        }
        {
            const Matrix up = whole(Block::up);
            const std::unique_ptr<Matrix> gate = form.gated ? std::make_unique<Matrix>(whole(Block::gate)) : nullptr;
            halyard_pack_options options{};
            options.up = gate ? &up.view : nullptr;
            for (Packed &each : packed) {
                each.up = pack_weights(bench_case, gate ? *gate : up, options);
            }
        }
        const Matrix o = whole(Block::o), down = whole(Block::down);
        for (Packed &each : packed) {
            each.o = pack_weights(bench_case, o);
            each.down = pack_weights(bench_case, down);
        }
    }

    void join_biases() {
        qkv_bias = std::make_unique<Matrix>(bench_case.id.dtype, 1, qkv.width());
        char *place = qkv_bias->data();
        for (const Block::Part part : {Block::q, Block::k, Block::v}) {
            const Matrix &bias = *block.bias(part);
            std::memcpy(place, bias.data(), bias.bytes());
            place += bias.bytes();
        }
        qkv_bias->view = vector_view(*qkv_bias);
    }

    halyard_status norm(const DLTensor *x, Block::Norm which, DLTensor *y) const {
        const DLTensor *weight = &block.norm_weight(which).view;
        if (form.norm == HALYARD_NORM_RMS) {
            return halyard_rms_norm(bench_case.context.get(), x, weight, rms_norm_eps, 0, y);
        }
        return halyard_layer_norm(bench_case.context.get(), x, weight, &block.norm_bias(which)->view, layer_norm_eps,
                                  y);
    }

    halyard_status linear(const DLTensor *x, const halyard_weights *weights, const Matrix *bias,
                          const DLTensor *residual, DLTensor *y) const {
        halyard_linear_options options{};
        options.bias = bias != nullptr ? &bias->view : nullptr;
        options.residual = residual;
        return halyard_linear(bench_case.context.get(), x, weights, &options, y);
    }

    halyard_status attention(halyard_kv_cache *cache) {
        const CaseId &id = bench_case.id;
        const auto sequences = id.sequences(), dim = shape.head_dim;
        const HeadsView q(qkv, sequences, shape.heads, dim);
        const HeadsView k(qkv, sequences, shape.kv_heads, dim, shape.query_width());
        const HeadsView v(qkv, sequences, shape.kv_heads, dim, shape.query_width() + shape.kv_width());
        HeadsView y(attended, sequences, shape.heads, dim);
        halyard_attention_options options{};
        options.causal = 1;
        options.rope = rope.get();
        if (cache == nullptr) {
            return halyard_attention(bench_case.context.get(), &q.view, &k.view, &v.view, &options, &y.view);
        }
        const halyard_status status = halyard_attention_cached(bench_case.context.get(), &q.view, &k.view, &v.view,
                                                               cache, 0, nullptr, &options, &y.view);
        return status == HALYARD_OK ? rewind_cache(id, cache) : status;
    }

    halyard_status ffn(const Packed &weights, DLTensor *y) const {
        halyard_ffn_options options{};
        options.norm = form.norm;
        options.norm_weight = &block.norm_weight(Block::before_ffn).view;
        options.eps = form.norm == HALYARD_NORM_RMS ? rms_norm_eps : layer_norm_eps;
        options.activation = form.activation;
        options.residual = 1;
        if (form.has_bias) {
            options.norm_bias = &block.norm_bias(Block::before_ffn)->view;
            options.bias = &block.bias(Block::up)->view;
            options.bias_down = &block.bias(Block::down)->view;
        }
        return halyard_ffn(bench_case.context.get(), &middle.view, weights.up.get(), weights.down.get(), &options, y);
    }

    BenchmarkCase &bench_case;
    const BlockForm &form;
    const Block &block;
    const HeadShape &shape;
    Matrix normalized, qkv, attended, middle;
    std::unique_ptr<Matrix> qkv_bias;
    std::shared_ptr<halyard_rope> rope;
    std::vector<Packed> packed;  // by operand set
};

}  // namespace

std::unique_ptr<PeerContender> make_separate_block(BenchmarkCase &bench_case) {
    const auto steps = std::make_shared<Steps>(bench_case);
    return make_local_peer(bench_case, [steps](std::size_t set) { (*steps)(set); });
}

}  // namespace halyard::bench
