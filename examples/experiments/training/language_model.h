// A language model of GPT-2's form that is trained: embeddings of tokens and positions, blocks, a last norm and an output projection.
#ifndef HALYARD_EXPERIMENTS_TRAINING_LANGUAGE_MODEL_H
#define HALYARD_EXPERIMENTS_TRAINING_LANGUAGE_MODEL_H

#include "block.h"

namespace experiments::training {

/** A causal one, with norms before sublayers. Its parameters are to be filled before the first step. */
class LanguageModel {
public:
    LanguageModel(const BlockShape &shape, int layers, std::int64_t vocabulary, std::int64_t tokens,
                  const halyard_context *context)
        : token_embedding(vocabulary, shape.d), position_embedding(tokens, shape.d), last_norm(shape.d),
          head(vocabulary, shape.d), tokens_(tokens), context_(context) {
        for (int i = 0; i < layers; i++) {
            blocks.push_back(std::make_unique<BlockParameters>(shape));
        }
    }

    Parameters parameters() {
        Parameters all = {&token_embedding, &position_embedding};
        for (const auto &block : blocks) {
            const Parameters some = block->parameters();
            all.insert(all.end(), some.begin(), some.end());
        }
        last_norm.append_to(all);
        all.push_back(&head);
        return all;
    }

    /** The mean loss of predicting `targets` from `ids`, [batch tokens] both; writes the gradients of all parameters. */
    double gradients(const std::vector<int> &ids, const std::vector<int> &targets) {
        const std::int64_t batch = static_cast<std::int64_t>(ids.size()) / tokens_, vocabulary = head.rows;
        if (!stack_) {
            make();
        }
        const halyard::TokenIds of_ids(ids, {batch, tokens_});
        const std::int64_t bytes = stack_.saved_bytes(batch, tokens_);
        logits_.resize(ids.size() * static_cast<std::size_t>(vocabulary));
        losses_.resize(ids.size());
        const halyard::Tensor logits(logits_, {batch, tokens_, vocabulary});
        stack_.forward_saving(of_ids, {}, saved_.fit(bytes), bytes, logits, context_);
        halyard::CrossEntropyOptions options;
        options.gradient_scale = 1.0f / static_cast<float>(ids.size());
        const halyard::Integers of_targets(targets, {batch, tokens_});
        const halyard::Tensor losses(losses_, {batch, tokens_});
        halyard::cross_entropy(logits, of_targets, options, losses, logits, context_);
        stack_.backward(of_ids, {}, saved_.data(), bytes, logits, all_gradients(), context_);
        return halyard::mean_loss(losses, of_targets);
    }

    /** A step of Adam, of the gradients as they are. */
    void step(double learning_rate) {
        adam_step(parameters(), ++steps_, learning_rate, context_);
        for (std::size_t i = 0; i < blocks.size(); i++) {
            made_[i].update(blocks[i]->weights(), context_);
        }
        stack_.update(weights(), context_);
    }

    Parameter token_embedding, position_embedding;
    std::vector<std::unique_ptr<BlockParameters>> blocks;
    NormParameters last_norm;
    Parameter head;

private:
    halyard::StackWeights weights() {
        halyard::StackWeights w;
        w.embed_tokens = token_embedding.values();
        w.embed_positions = position_embedding.values();
        w.norm = last_norm.weight.values();
        w.norm_bias = last_norm.bias.values();
        w.lm_head = head.values();
        return w;
    }
    halyard::StackGradients all_gradients() {
        halyard::StackGradients g;
        g.embed_tokens = token_embedding.gradients();
        g.embed_positions = position_embedding.gradients();
        g.norm = last_norm.weight.gradients();
        g.norm_bias = last_norm.bias.gradients();
        g.lm_head = head.gradients();
        for (const auto &block : blocks) {
            g.blocks.push_back(block->gradients());
        }
        return g;
    }
    void make() {
        for (const auto &block : blocks) {
            made_.emplace_back(block->config(true), block->weights(), context_);
        }
        halyard::StackConfig config;
        config.vocab_size = head.rows;
        config.hidden_size = head.columns;
        config.norm = halyard::Norm::layer;
        config.rms_norm_eps = NormParameters::eps;
        stack_ = halyard::Stack(config, weights(), made_, context_);
    }

    std::int64_t tokens_, steps_ = 0;
    const halyard_context *context_;
    std::vector<halyard::Block> made_;
    halyard::Stack stack_;
    Saved saved_;
    std::vector<float> logits_, losses_;
};

}  // namespace experiments::training

#endif
