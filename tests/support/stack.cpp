// Stacks, token ids, and what calls give.
#include "support/stack.h"

#include <cstring>

#include "support/device_hooks.h"

namespace halyard::tests {

std::string StackForm::describe() const {
    return "stack of " + std::to_string(layers) + ", vocab " + std::to_string(vocab) + ", tables " + name_of(tables) +
           (tied ? ", tied" : "") + (positions != 0 ? ", positions" : "") + (types != 0 ? ", types" : "") +
           (multiplier != 0 ? ", multiplier" : "") + (softcap != 0 ? ", soft cap" : "") + ", norm " +
           std::to_string(norm) + "; " + block.describe();
}

StackForm preset_stack(const std::string &preset) {
    StackForm form;
    form.block = preset_block(preset);
    form.block.config = small_preset(preset, 10, true);
    form.block.config.causal = 1;
    form.positions = form.block.biases ? 40 : 0;
    form.norm = preset == "original_2017" || preset == "bert" ? HALYARD_NORM_NONE : form.block.config.norm;
    form.types = preset == "bert" ? 2 : 0;
    form.embed_norm = preset == "bert" ? HALYARD_NORM_LAYER : HALYARD_NORM_NONE;
    form.multiplier = preset == "gemma" ? 5.75f : 0.0f;
    form.softcap = preset == "gemma" ? 3.0f : 0.0f;
    form.tied = preset == "gpt2" || preset == "gemma";
    return form;
}

std::unique_ptr<Tensor> Stack::table(std::int64_t rows, std::uint64_t seed, double size) const {
    Form own;
    own.shape = {rows, form.block.config.hidden_size};
    own.strides = padded_strides(own.shape, form.table_gap);
    auto tensor = std::make_unique<Tensor>(form.tables, own);
    tensor->fill([&](std::int64_t row, std::int64_t i) { return size * bell(seed, row, i); });
    return tensor;
}

std::unique_ptr<Tensor> Stack::vector(double centre, std::uint64_t seed, Row &row, double size) const {
    auto tensor = std::make_unique<Tensor>(form.block.vectors, compact_form({form.block.config.hidden_size}));
    tensor->fill([&](std::int64_t, std::int64_t i) { return centre + size * bell(seed, 0, i); });
    row = tensor->row_values(0);
    return tensor;
}

Stack::Stack(const StackForm &f) : form(f) {
    const halyard_block_config &c = form.block.config;
    std::vector<const halyard_block *> layers;
    for (std::int64_t layer = 0; layer < form.layers; layer++) {
        BlockForm own = form.block;
        own.seed = form.block.seed + static_cast<std::uint64_t>(layer) * 100;
        blocks.push_back(std::make_unique<Block>(own));
        layers.push_back(blocks.back()->get());
        values.blocks.push_back(&blocks.back()->values);
    }
    halyard_stack_config config{};
    config.vocab_size = form.vocab;
    config.hidden_size = c.hidden_size;
    config.embedding_multiplier = form.multiplier;
    config.norm = form.norm;
    config.rms_norm_eps = 1e-5f;
    config.norm_flags = form.norm == HALYARD_NORM_RMS ? c.norm_flags : 0;
    config.final_logit_softcapping = form.softcap;
    config.embed_norm = form.embed_norm;
    config.no_lm_head = form.headless ? 1 : 0;
    values.config = config;

    halyard_stack_weights weights{};
    embed_tokens = table(form.vocab, 901, form.tied ? 0.3 : 1);
    weights.embed_tokens = &embed_tokens->view;
    values.embed_tokens = rows_of(*embed_tokens);
    if (form.positions != 0) {
        embed_positions = table(form.positions, 902, 0.5);
        weights.embed_positions = &embed_positions->view;
        values.embed_positions = rows_of(*embed_positions);
    }
    if (form.types != 0) {
        embed_types = table(form.types, 906, 0.5);
        weights.embed_types = &embed_types->view;
        values.embed_types = rows_of(*embed_types);
    }
    if (!form.tied && !form.headless) {
        lm_head = table(form.vocab, 903, 0.3);
        weights.lm_head = &lm_head->view;
    }
    const std::vector<Row> outputs = lm_head == nullptr ? values.embed_tokens : rows_of(*lm_head);
    values.lm_head.in = c.hidden_size;
    values.lm_head.out = form.vocab;
    for (std::int64_t k = 0; k < c.hidden_size; k++) {
        for (const Row &output : outputs) {
            values.lm_head.values.push_back(output[static_cast<std::size_t>(k)]);
        }
    }
    std::unique_ptr<Tensor> norm, norm_bias, embed_norm, embed_norm_bias;
    if (form.norm != HALYARD_NORM_NONE) {
        norm = form.block.fine_norms
                   ? vector(fine_norm, 904, values.norm.weight, fine_norm_size)
                   : vector((config.norm_flags & HALYARD_RMS_UNIT_OFFSET) != 0 ? 0 : 1, 904, values.norm.weight);
        weights.norm = &norm->view;
    }
    if (form.norm == HALYARD_NORM_LAYER) {
        norm_bias = vector(0, 905, values.norm.bias);
        weights.norm_bias = &norm_bias->view;
    }
    if (form.embed_norm != HALYARD_NORM_NONE) {
        embed_norm = vector(1, 907, values.embed_norm.weight);
        embed_norm_bias = vector(0, 908, values.embed_norm.bias);
        weights.embed_norm = &embed_norm->view;
        weights.embed_norm_bias = &embed_norm_bias->view;
    }
    if (form.block.device.device_type != kDLCPU && form.block.sources_on_device) {
        for (Tensor *const tensor : {embed_tokens.get(), embed_positions.get(), embed_types.get(), lm_head.get(),
                                     norm.get(), norm_bias.get(), embed_norm.get(), embed_norm_bias.get()}) {
            if (tensor != nullptr) {
                tensor->view.device = form.block.device;
            }
        }
    }
    EXPECT_EQ(halyard_stack_create(nullptr, &config, &weights, layers.data(), form.layers, &stack), HALYARD_OK)
        << halyard_last_error();
}

Ids some_ids(std::int64_t count, std::int64_t vocab, std::uint64_t seed) {
    Ids ids;
    for (std::int64_t i = 0; i < count; i++) {
        ids.push_back(static_cast<std::int64_t>(hash(seed, 906, static_cast<std::uint64_t>(i)) %
                                                static_cast<std::uint64_t>(vocab)));
    }
    return ids;
}

IdTensor::IdTensor(const std::vector<Ids> &sequences, bool batched, bool is_64_bit, std::int64_t gap) {
    for (const Ids &sequence : sequences) {
        wide.insert(wide.end(), sequence.begin(), sequence.end());
        wide.insert(wide.end(), static_cast<std::size_t>(gap), -1);
    }
    narrow.assign(wide.begin(), wide.end());
    const auto tokens = static_cast<std::int64_t>(sequences.front().size());
    shape = batched ? Shape{static_cast<std::int64_t>(sequences.size()), tokens} : Shape{tokens};
    strides = batched ? Shape{tokens + gap, 1} : Shape{1};
    view.data = is_64_bit ? static_cast<void *>(wide.data()) : static_cast<void *>(narrow.data());
    view.device = {kDLCPU, 0};
    view.ndim = static_cast<int>(shape.size());
    view.dtype = {kDLInt, static_cast<std::uint8_t>(is_64_bit ? 64 : 32), 1};
    view.shape = shape.data();
    view.strides = gap != 0 ? strides.data() : nullptr;
}

std::unique_ptr<Tensor> logits_tensor(const Stack &stack, Dtype type, const Shape &leading, std::int64_t gap) {
    return std::make_unique<Tensor>(type, call_form(type, type, leading).form_of(stack.form.vocab, gap));
}

halyard_stack_options all_logits() {
    halyard_stack_options options{};
    options.all_logits = 1;
    return options;
}

void Observed::see(void *user, std::int64_t layer, std::int64_t first, const DLTensor *hidden) {
    ASSERT_EQ(hidden->ndim, 3);
    ASSERT_EQ(hidden->strides[2], 1);
    const Dtype type = hidden->dtype.bits == 32         ? Dtype::f32
                       : hidden->dtype.code == kDLFloat ? Dtype::f16
                                                        : Dtype::bf16;
    Part part = {layer, first, hidden->shape[0], hidden->shape[1], hidden->shape[2], type, hidden->device, {}};
    for (std::int64_t i = 0; i < part.batch; i++) {
        for (std::int64_t t = 0; t < part.tokens; t++) {
            const std::size_t size = size_of(type);
            const char *const from =
                static_cast<const char *>(hidden->data) + hidden->byte_offset +
                (i * hidden->strides[0] + t * hidden->strides[1]) * static_cast<std::int64_t>(size);
            std::vector<char> row(static_cast<std::size_t>(part.width) * size);
            if (hidden->device.device_type == kDLCUDA) {
                fetch_from_device(row.data(), from, row.size());
            } else {
                std::memcpy(row.data(), from, row.size());
            }
            part.rows.emplace_back();
            for (std::size_t n = 0; n < row.size(); n += size) {
                std::uint32_t bits = 0;
                std::memcpy(&bits, row.data() + n, size);
                part.rows.back().push_back(decode(type, bits));
            }
        }
    }
    static_cast<Observed *>(user)->parts.push_back(std::move(part));
}

testing::AssertionResult rows_as_expected(Dtype type, const std::vector<Row> &rows, const Matrix &expected) {
    for (std::size_t row = 0; row < rows.size(); row++) {
        for (std::size_t i = 0; i < rows[row].size(); i++) {
            if (!acceptable(type, expected[row][i], rows[row][i])) {
                return testing::AssertionFailure()
                       << "[" << row << ", " << i << "] is " << rows[row][i] << ", expected " << expected[row][i].value
                       << " +- " << expected[row][i].error;
            }
        }
    }
    return testing::AssertionSuccess();
}

}  // namespace halyard::tests
