// The gradients of a block of keys of one head and blocks of queries that see some of them, by one thread.
//
// With keys as rows and queries as columns:
//
//     S = K Q^T    P = exp(scale S - lse)    dP = V dO^T    dS = scale P (dP - D)
//     dV += P dO   dK += dS Q                dQ += dS^T K
//
// With a soft cap c, c tanh(scale S / c) is in the place of scale S, and dS has its slope, 1 - tanh^2, as another factor.
#ifndef HALYARD_RUNTIME_CPU_ATTENTION_BACKWARD_GRADIENT_BLOCK_H
#define HALYARD_RUNTIME_CPU_ATTENTION_BACKWARD_GRADIENT_BLOCK_H

#include "core/calls/attention.h"
#include "core/kernel_call.h"
#include "cpu/attention/backward/gradient_memory.h"
#include "cpu/attention/backward/row_product.h"
#include "cpu/attention/query_block.h"
#include "cpu/linear/activation_panels.h"

namespace halyard {

class GradientBlock {
public:
    /** memory: as GradientMemory asks. */
    GradientBlock(halyard_isa isa, const AttentionBackwardCall &call, const Visibility &visibility, float *memory);

    /** Takes keys [first, first + count) of a head, of which dK and dV are 0 so far. */
    void begin_keys(int64_t b, int64_t head, int64_t first, int64_t count);
    /** Adds to dK and dV what queries [first, first + count) of a head of q give. */
    void add_queries(int64_t head, int64_t first, int64_t count);
    /** Adds to dQ of these queries, where it is wanted, what the keys give; `first`: nothing was added to it yet. */
    void add_to_dq(bool first);
    /** Writes dK and dV, where they are wanted. */
    void store_keys() const;

private:
    void load_queries();
    void load_dots(const FloatMatrix &dy, const FloatMatrix &y);
    void add_strip(int64_t key, int64_t count);
    void make_gradients(int64_t key, int64_t count, int64_t column, int64_t columns);
    void add_to_keys(const float *factors, int64_t key, int64_t count, const float *panels, float *sums);
    void transpose_strip(int64_t key, int64_t count, int64_t column, int64_t end);

    /** Where the first query of the block lies. */
    int64_t position() const { return call_.first_query() + first_query_; }
    /** The queries of the block that see a key of it are [first_seeing, end_seeing). */
    int64_t first_seeing(int64_t key) const {
        return visibility_.first_seeing(first_key_ + key, position(), position() + queries_) - position();
    }
    int64_t end_seeing(int64_t key) const {
        return visibility_.end_seeing(first_key_ + key, position(), position() + queries_) - position();
    }
    /** The keys of the block that a query of it sees are [first_seen, end_seen). */
    int64_t first_seen(int64_t query) const {
        return std::clamp<int64_t>(visibility_.first(position() + query) - first_key_, 0, keys_);
    }
    int64_t end_seen(int64_t query) const {
        return std::clamp<int64_t>(visibility_.end(position() + query) - first_key_, 0, keys_);
    }

    Panels by_features(const float *panels, int64_t inputs) const {
        return packed_panels(inputs, columns_, panels).first;
    }
    Panels by_queries(const float *panels) const { return packed_panels(call_.q.head_dim, queries_, panels).first; }

    const AttentionBackwardCall &call_;
    const Visibility visibility_;
    const int64_t columns_;
    const GradientMemory memory_;
    RowProduct product_;
    const KernelCall<arguments::AttentionGradient> gradient_;
    const KernelCall<arguments::AttentionSoftcap> cap_;
    const KernelCall<arguments::AttentionSoftcapGradient> cap_gradient_;
    const KernelCall<arguments::RowDot> dot_;
    Buffer<2, float> scores_, products_, dy_rows_, y_rows_, dots_;
    Buffer<1, float> sums_, dots_of_queries_, no_dots_;

    // Where the thread is. Keys and queries are counted from the first of their block.
    int64_t b_ = 0, key_head_ = 0, first_key_ = 0, keys_ = 0, head_ = 0, first_query_ = 0, queries_ = 0;
    bool masked_ = false, finite_keys_ = true, finite_queries_ = true;
};

}  // namespace halyard

#endif
