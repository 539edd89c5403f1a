// Blocks in the tests: the tensors they are made of, in guarded memory, and the same as values for the reference.
#ifndef HALYARD_TESTS_BLOCK_H
#define HALYARD_TESTS_BLOCK_H

#include <memory>
#include <string>
#include <vector>

#include "operations/reference_block.h"
#include "support/linear.h"

namespace halyard::tests {

/** Centre and size of a bell of weights for BlockForm::fine_norms. */
constexpr double fine_norm = -1 + 0x1p-10, fine_norm_size = 0x1p-12;

/** A block to be made. The configuration may have zeros that stand for defaults. */
struct BlockForm {
    halyard_block_config config{};
    Dtype matrices = Dtype::f32, vectors = Dtype::f32;
    halyard_weight_layout layout = HALYARD_WEIGHT_OUT_IN;
    bool joined = false;  // qkv_proj
    bool biases = false;  // of all projections
    bool norm_vectors = true;
    bool fine_norms =
        false;  // weights of norms near -1, for a unit offset: in f32 what 16 bits round away is all that is left
    bool head_norms = false;  // q_norm and k_norm
    std::uint64_t seed = 1;
    /** Where the block is to be, and whether its tensors are there too. */
    DLDevice device = {kDLCPU, 0};
    bool sources_on_device = true;

    std::int64_t kv_heads() const;
    std::int64_t head_dim() const;
    std::string describe() const;
};

constexpr halyard_norm_placement norm_placements[] = {HALYARD_PRE_NORM, HALYARD_POST_NORM, HALYARD_POST_SUBLAYER_NORM,
                                                      HALYARD_SANDWICH_NORM, HALYARD_DOUBLE_NORM};
std::vector<std::string> block_presets();

/** The preset with small odd sizes: 3 heads or, `grouped`, 4 with 2 of keys and values. */
halyard_block_config small_preset(const std::string &preset, std::int64_t head_dim = 10, bool grouped = false);
/** That, with what its family has besides matrices. */
BlockForm preset_block(const std::string &preset);
/** A block whose options are mixed by a number. */
BlockForm mixed_block(int number, halyard_norm norm, halyard_norm_placement placement, halyard_activation activation,
                      bool gated);

class Block {
public:
    explicit Block(const BlockForm &form, const halyard_context *context = nullptr);
    ~Block() { halyard_block_destroy(block); }
    Block(const Block &) = delete;
    Block &operator=(const Block &) = delete;

    const halyard_block *get() const { return block; }
    std::int64_t width() const { return form.config.hidden_size; }
    const BlockForm form;
    BlockValues values;

private:
    halyard_block *block = nullptr;
};

/** The tensors of a block, and the arguments made of them, which tests may change. */
class BlockTensors {
public:
    explicit BlockTensors(const BlockForm &form);

    const BlockForm form;
    halyard_block_weights weights{};
    BlockValues values;

private:
    const DLTensor *matrix(std::int64_t out, std::int64_t in, WeightMatrix &matrix);
    const DLTensor *joined_matrix();
    const DLTensor *vector(std::int64_t width, double centre, Row &row, double size = 0.25);
    const DLTensor *bias(std::int64_t width, Row &row) { return form.biases ? vector(width, 0, row) : nullptr; }
    void norm(const DLTensor *&weight, const DLTensor *&bias, NormValues &norm_values);

    std::vector<std::unique_ptr<Tensor>> tensors;
};

/** A cache, destroyed with the object. */
class BlockCache {
public:
    explicit BlockCache(const halyard_kv_cache_options &options, DLDevice device = {kDLCPU, 0});
    /** For blocks like this, where they are. */
    BlockCache(const BlockForm &form, Dtype dtype, std::int64_t layers, std::int64_t sequences, std::int64_t positions);
    ~BlockCache() { halyard_kv_cache_destroy(cache); }
    BlockCache(const BlockCache &) = delete;
    BlockCache &operator=(const BlockCache &) = delete;

    halyard_kv_cache *get() const { return cache; }
    std::int64_t length(std::int64_t layer, std::int64_t sequence) const {
        return halyard_kv_cache_length(cache, layer, sequence);
    }

private:
    halyard_kv_cache *cache = nullptr;
};

/** A view of tokens [first, first + count) of a tensor [(batch,) T, width], which lives as long as this. */
class TokenRows {
public:
    TokenRows(const DLTensor &tensor, const Shape &strides, std::int64_t first, std::int64_t count);
    DLTensor view{};

private:
    Shape shape, steps;
};

/** x and y of a call, where the block is. */
struct BlockCall {
    BlockCall(const Block &block, Dtype type, const Shape &leading, std::int64_t x_gap = 0, std::int64_t y_gap = 0,
              std::uint64_t seed = 1);

    const Block &block;
    Tensor x, y;

    std::int64_t tokens() const { return x.shape()[x.shape().size() - 2]; }
    std::int64_t batch() const { return x.shape().size() == 3 ? x.shape()[0] : 1; }

    halyard_status run(const halyard_context *context);
    halyard_status run(const halyard_context *context, const BlockCache &cache, std::int64_t layer = 0,
                       const std::int64_t *sequences = nullptr);
    /** As run(), through a cache, some tokens at a time. */
    void run_in_parts(const halyard_context *context, const BlockCache &cache, const std::vector<std::int64_t> &parts);
    /** Puts the first `count` tokens of this one sequence into the cache, and x of those that follow into `next`, a
     * call with several sequences, as its sequence `index`. */
    void begin_sequence(const halyard_context *context, const BlockCache &cache, std::int64_t layer,
                        std::int64_t sequence, std::int64_t count, BlockCall &next, std::int64_t index);

    /** The result for whole sequences. */
    Matrix expected(Dtype stored = Dtype::f32) const;
    testing::AssertionResult surroundings_intact() const;
};

}  // namespace halyard::tests

#endif
