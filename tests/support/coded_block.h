// Blocks whose matrices come as codes, or packed: codes with contents of their own, and the numbers that they stand for.
#ifndef HALYARD_TESTS_CODED_BLOCK_H
#define HALYARD_TESTS_CODED_BLOCK_H

#include <cstring>

#include "support/block.h"
#include "support/packing.h"

namespace halyard::tests {

/** A matrix [out, in] of a format of GGUF or of int8, its last row at the end of its memory. */
class CodedTensor {
public:
    CodedTensor(halyard_code_format format, std::int64_t out, std::int64_t in, std::uint64_t seed)
        : out_(out), in_(in) {
        codes.format = format;
        codes.in_features = in;
        codes.out_features = out;
        codes.matrix = &matrix_;
        format == HALYARD_CODES_INT8 ? make_int8(seed) : make_blocks(seed);
        matrix_.data = bytes_.data();
        matrix_.device = {kDLCPU, 0};
        matrix_.ndim = 2;
        matrix_.shape = shape_;
        matrix_.strides = strides_;
    }
    CodedTensor(const CodedTensor &) = delete;
    CodedTensor &operator=(const CodedTensor &) = delete;

    halyard_codes codes{};

    /** What halyard_dequantize makes of it, [out, in]. */
    std::unique_ptr<Tensor> numbers() const {
        auto numbers = std::make_unique<Tensor>(Dtype::f32, compact_form({out_, in_}));
        EXPECT_EQ(halyard_dequantize(nullptr, &codes, &numbers->view), HALYARD_OK) << halyard_last_error();
        return numbers;
    }
    WeightMatrix values() const {
        const std::unique_ptr<Tensor> all = numbers();
        WeightMatrix matrix;
        matrix.in = in_;
        matrix.out = out_;
        for (std::int64_t k = 0; k < in_; k++) {
            for (std::int64_t n = 0; n < out_; n++) {
                matrix.values.push_back(all->get(n, k));
            }
        }
        return matrix;
    }
    /** Beside `up`, where that is not null. */
    PackedWeights pack(const CodedTensor *up = nullptr) const {
        halyard_weights *weights = nullptr;
        EXPECT_EQ(halyard_weights_pack_codes(nullptr, &codes, up ? &up->codes : nullptr, nullptr, 0, &weights),
                  HALYARD_OK)
            << halyard_last_error();
        return PackedWeights(weights);
    }

private:
    void shape(std::int64_t columns, std::int64_t gap, std::uint64_t seed) {
        shape_[0] = out_;
        shape_[1] = columns;
        strides_[0] = columns + gap;
        strides_[1] = 1;
        bytes_.resize(static_cast<std::size_t>((out_ - 1) * strides_[0] + columns));
        for (std::size_t i = 0; i < bytes_.size(); i++) {
            bytes_[i] = static_cast<std::uint8_t>(hash(seed, i, 1) >> 24);
        }
    }

    /** Any codes and factors, with scales that make of them numbers below about 1 / 4. */
    void make_blocks(std::uint64_t seed) {
        constexpr struct {
            std::int64_t inputs, bytes, scale, minimum;  // where d and m or dmin are; -1: nowhere
            int d, m;                                    // their exponents
        } formats[] = {{32, 34, 0, -1, -9, 0},    {32, 18, 0, -1, -5, 0},     {32, 20, 0, 2, -5, -3},
                       {32, 22, 0, -1, -6, 0},    {32, 24, 0, 2, -6, -3},     {256, 144, 0, 2, -12, -9},
                       {256, 176, 0, 2, -13, -9}, {256, 210, 208, -1, -14, 0}};
        const auto &f = formats[static_cast<int>(codes.format)];
        shape(in_ / f.inputs * f.bytes, 6, seed);
        matrix_.dtype = {kDLUInt, 8, 1};
        for (std::int64_t n = 0; n < out_; n++) {
            for (std::int64_t i = 0; i < in_ / f.inputs; i++) {
                std::uint8_t *const block = bytes_.data() + n * strides_[0] + i * f.bytes;
                const auto put = [&](std::int64_t at, double value) {
                    const std::uint32_t bits = encode(Dtype::f16, value);
                    std::memcpy(block + at, &bits, 2);
                };
                const double more = 1 + bell(seed + 1, n, i) / 4;
                put(f.scale, std::ldexp(more, f.d));
                if (f.minimum >= 0) {
                    put(f.minimum, std::ldexp(more, f.m) * (codes.format < HALYARD_CODES_Q4_K ? -1 : 1));
                }
            }
        }
    }

    /** A scale for each output. */
    void make_int8(std::uint64_t seed) {
        shape(in_, 3, seed);
        matrix_.dtype = {kDLInt, 8, 1};
        scales_ = std::make_unique<Tensor>(Dtype::f32, compact_form({out_, 1}));
        scales_->fill([&](std::int64_t n, std::int64_t) { return std::ldexp(1 + bell(seed + 1, n, 0) / 4, -9); });
        codes.scales = &scales_->view;
    }

    const std::int64_t out_, in_;
    std::vector<std::uint8_t> bytes_;
    std::int64_t shape_[2], strides_[2];
    DLTensor matrix_{};
    std::unique_ptr<Tensor> scales_;
};

/** Formats of the matrices of a block. */
struct BlockFormats {
    const char *name;
    halyard_code_format q, k, v, o, gate_and_up, down;
};

/** A gated block in codes, its vectors as tensors. */
class CodedBlock {
public:
    explicit CodedBlock(const BlockFormats &f)
        : tensors(block_form()), weights(tensors.weights), values(tensors.values), q(f.q, hidden, hidden, 11),
          k(f.k, key, hidden, 12), v(f.v, key, hidden, 13), o(f.o, hidden, hidden, 14),
          gate(f.gate_and_up, wide, hidden, 15), up(f.gate_and_up, wide, hidden, 16), down(f.down, hidden, wide, 17) {
        halyard_block_weights &w = weights;
        w.q_proj = w.k_proj = w.v_proj = w.o_proj = w.gate_proj = w.up_proj = w.down_proj = nullptr;
        w.codes = {&q.codes, &k.codes, &v.codes, nullptr, &o.codes, &gate.codes, &up.codes, &down.codes};
        values.q = q.values();
        values.k = k.values();
        values.v = v.values();
        values.o = o.values();
        values.gate = gate.values();
        values.up = up.values();
        values.down = down.values();
    }

    /** Null if it is refused. */
    halyard_block *make(const halyard_context *context = nullptr) const {
        halyard_block *block = nullptr;
        EXPECT_EQ(halyard_block_create(context, &tensors.form.config, &weights, &block), HALYARD_OK)
            << halyard_last_error();
        return block;
    }

    static constexpr std::int64_t hidden = 256, wide = 256, key = 128;
    const BlockTensors tensors;  // of which the matrices are others
    halyard_block_weights weights;
    BlockValues values;
    const CodedTensor q, k, v, o, gate, up, down;

private:
    static BlockForm block_form() {
        BlockForm form;
        form.config = small_preset("llama", 64, true);
        form.config.hidden_size = hidden;
        form.config.intermediate_size = wide;
        form.biases = form.head_norms = true;
        return form;
    }
};

constexpr BlockFormats q4_k_m = {"Q4_K_M",           HALYARD_CODES_Q4_K, HALYARD_CODES_Q4_K, HALYARD_CODES_Q6_K,
                                 HALYARD_CODES_Q4_K, HALYARD_CODES_Q4_K, HALYARD_CODES_Q6_K};
constexpr BlockFormats of_one_format(const char *name, halyard_code_format format) {
    return {name, format, format, format, format, format, format};
}

}  // namespace halyard::tests

#endif
