// Operands, expected results and calls for the benchmark rows of layers, attention, transformer blocks and models. Their
// operands are matrices, caches and whole models, where other rows have tensors alone.
#ifndef HALYARD_BENCH_CASES_OPERANDS_H
#define HALYARD_BENCH_CASES_OPERANDS_H

#include "benchmark_case.h"
#include "operations/block_operations.h"

namespace halyard::bench {

/** Matrices "first", "up" of a gated unit and "down" of an FFN; vectors "bias" and "bias_down". */
void prepare_layer(BenchmarkCase &bench_case);
/** Matrices as of a layer; inputs x, dy and, of a gated layer, the gate and `up` that its forward call keeps. Outputs: dx, and the
 *  gradients of the matrices. */
void prepare_layer_gradient(BenchmarkCase &bench_case);
halyard_status call_layer_gradient(BenchmarkCase &bench_case, OperandSet &set);

/** Parameters as of a layer; inputs x, dy and what the forward call keeps of x: the sums and, of a gated network, those of `up`.
 *  Outputs: dx, and the gradients of the first matrix, of `up`, of the second matrix, of their biases, and of the norm's weight and
 *  bias, where they are there. */
void prepare_ffn_gradient(BenchmarkCase &bench_case);
halyard_status call_ffn_gradient(BenchmarkCase &bench_case, OperandSet &set);

/** Inputs p, g and the optimizer's state; outputs p and the state, which a step writes in place. */
void prepare_sgd(BenchmarkCase &bench_case);
halyard_status call_sgd(BenchmarkCase &bench_case, OperandSet &set);
void prepare_adamw(BenchmarkCase &bench_case);
halyard_status call_adamw(BenchmarkCase &bench_case, OperandSet &set);

/** Inputs q, k and v. Of a decode, the keys and values of the positions before it are the matrices "keys" and "values",
 * [sequences * cached, kv width], one sequence after the other. */
void prepare_attention(BenchmarkCase &bench_case);
halyard_status call_attention(BenchmarkCase &bench_case, OperandSet &set);

/** Inputs q, k, v, dy, and what the forward call wrote: y and the log-sum-exp, [tokens, heads]. Outputs: dq, dk, dv. */
void prepare_attention_gradient(BenchmarkCase &bench_case);
halyard_status call_attention_gradient(BenchmarkCase &bench_case, OperandSet &set);

/** Input: logits. Outputs: their gradients, and the losses as one column. The targets are the case's `tokens`. */
void prepare_cross_entropy(BenchmarkCase &bench_case);
halyard_status call_cross_entropy(BenchmarkCase &bench_case, OperandSet &set);

/** Input: dy. Output: the gradient of the table, [vocabulary, d]. The ids are the case's `tokens`. */
void prepare_embedding_gradient(BenchmarkCase &bench_case);
halyard_status call_embedding_gradient(BenchmarkCase &bench_case, OperandSet &set);

/** A language model, which becomes the one operand set: the matrix "embedding", which is the output projection too, without a rotary
 *  embedding "positions", the vectors "norm" and, of LayerNorm, "norm_bias"; those of block i as of blocks, after "i.". The case's
 *  `tokens` are a text: each predicts the next one. Outputs: the losses as one column, and the gradients of these parameters in this
 *  order; once those of some tokens have been compared with float64 in one direction, they are the sample. A call goes on from the parameters that the last one left. */
void prepare_training_step(BenchmarkCase &bench_case);
halyard_status call_training_step(BenchmarkCase &bench_case, OperandSet &set);

/** As add_block() and, of a decode, as attention. */
void prepare_block(BenchmarkCase &bench_case);
halyard_status call_block(BenchmarkCase &bench_case, OperandSet &set);

/** A forward call that saves and the gradients. Inputs: x, dy; outputs: y, dx, and the gradients of the block_parameters(). The library's
 *  results are the sample, once their growth in one direction has been compared with float64 for a few tokens. */
void prepare_block_gradient(BenchmarkCase &bench_case);
halyard_status call_block_gradient(BenchmarkCase &bench_case, OperandSet &set);

/** The model, which becomes the one operand set, with a sample of what the library's logits are for the row's tokens, once
 * those of a prompt of two tokens have been compared with float64. Matrices "embedding" and "head", [vocabulary, d], and a
 * vector "norm"; those of block i as of blocks, after "i.". */
void prepare_model(BenchmarkCase &bench_case);
halyard_status call_model(BenchmarkCase &bench_case, OperandSet &set);
/** A model in a file becomes the operand set in the same way; its logits are compared with those of its numbers in f32. */
void prepare_model_file(BenchmarkCase &bench_case);

// ---- what layers share ----

/** Adds the matrices and the vectors that the form has. */
void add_layer_parameters(BenchmarkCase &bench_case);
/** Packs the matrices for each operand set. */
void pack_layer(BenchmarkCase &bench_case);

// ---- what attention, blocks and models share ----

/** A cache that holds a row's positions. */
std::shared_ptr<halyard_kv_cache> make_cache(const CaseId &id, std::int64_t layers);
/** Adds the matrices "keys" and "values" of a decode, which each operand set gets in a cache of its own. */
void add_history(BenchmarkCase &bench_case);
/** Forgets what a call appended to a cache; the status of the call, or of this. */
halyard_status rewind_cache(const CaseId &id, halyard_kv_cache *cache, halyard_status status);

/** The block_parameters(), named as there. Blocks with another `layer` have other values. */
void add_block(Parameters &parameters, const std::string &prefix, const BlockForm &form, Dtype dtype, unsigned layer);
/** Such a block of the library's, with memory of its own; and what references take. The second one takes tensors in the order of the
 *  block_parameters(). */
std::shared_ptr<const halyard_block> make_block(const BenchmarkCase &bench_case, const std::string &prefix);
std::shared_ptr<halyard_block> make_block(const BenchmarkCase &bench_case, const DLTensor *const *tensors);
operations::BlockValues block_values(const BenchmarkCase &bench_case, const std::string &prefix);

/** Where the gradients of a block's parameters go: views in the order of the block_parameters(). */
halyard_block_gradients block_gradients(const BlockForm &form, DLTensor *views);

/** Bytes of physical memory that this process has, without what its allocator keeps for later. */
std::size_t resident_bytes();

}  // namespace halyard::bench

#endif
