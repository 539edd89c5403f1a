// Stacks in the tests: blocks, tables and an output projection, and calls with token ids.
#ifndef HALYARD_TESTS_STACK_H
#define HALYARD_TESTS_STACK_H

#include <memory>
#include <string>
#include <vector>

#include "support/block.h"

namespace halyard::tests {

struct StackForm {
    BlockForm block;  // of all layers, which differ in their weights
    std::int64_t layers = 2, vocab = 29;
    Dtype tables = Dtype::f32;  // embed_tokens, embed_positions, embed_types and lm_head
    std::int64_t table_gap = 0;
    bool tied = true;
    std::int64_t positions = 0, types = 0;  // learned ones
    bool headless = false;
    float multiplier = 0, softcap = 0;
    halyard_norm norm = HALYARD_NORM_RMS, embed_norm = HALYARD_NORM_NONE;

    std::string describe() const;
};

/** A small stack of such blocks. */
StackForm preset_stack(const std::string &preset);

class Stack {
public:
    explicit Stack(const StackForm &form);
    ~Stack() { halyard_stack_destroy(stack); }
    Stack(const Stack &) = delete;
    Stack &operator=(const Stack &) = delete;

    const halyard_stack *get() const { return stack; }
    const StackForm form;
    StackValues values;
    std::vector<std::unique_ptr<Block>> blocks;
    std::unique_ptr<Tensor> embed_tokens, embed_positions, embed_types, lm_head;

private:
    std::unique_ptr<Tensor> table(std::int64_t rows, std::uint64_t seed, double size) const;
    std::unique_ptr<Tensor> vector(double centre, std::uint64_t seed, Row &row, double size = 0.25) const;

    halyard_stack *stack = nullptr;
};

using Ids = std::vector<std::int64_t>;

/** Ids that repeat after a long time only. */
Ids some_ids(std::int64_t count, std::int64_t vocab, std::uint64_t seed);

/** A tensor of ids, [T] or [batch, T], int64 or int32, next to unused elements. */
class IdTensor {
public:
    IdTensor(const std::vector<Ids> &sequences, bool batched, bool is_64_bit, std::int64_t gap = 0);
    explicit IdTensor(const Ids &ids) : IdTensor({ids}, false, true) {}
    DLTensor view{};

private:
    std::vector<std::int64_t> wide;
    std::vector<std::int32_t> narrow;
    Shape shape, strides;
};

/** A tensor for logits. */
std::unique_ptr<Tensor> logits_tensor(const Stack &stack, Dtype type, const Shape &leading, std::int64_t gap = 0);

halyard_stack_options all_logits();

/** What an observer saw. */
struct Observed {
    struct Part {
        std::int64_t layer, first, batch, tokens, width;
        Dtype type;
        DLDevice device;
        std::vector<Row> rows;  // of all sequences
    };
    std::vector<Part> parts;

    static void see(void *user, std::int64_t layer, std::int64_t first, const DLTensor *hidden);
};

testing::AssertionResult rows_as_expected(Dtype type, const std::vector<Row> &rows, const Matrix &expected);

}  // namespace halyard::tests

#endif
