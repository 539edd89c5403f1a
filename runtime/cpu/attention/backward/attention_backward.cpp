// The gradients of attention on the processor, from the log-sum-exp of the forward call: no matrix of all scores.
//
// A task is a block of keys of one head. It takes the heads of q that share these keys one after the other, and of each the
// blocks of queries that see some of them, upward. gradient_block.h says what is computed then.
//
// Rows of dK and dV belong to the task alone. A block of dQ goes from task to task in the order of their keys.
#include <sched.h>

#include <atomic>
#include <cstring>
#include <new>

#include "core/workspace.h"
#include "cpu/attention/backward/gradient_block.h"
#include "cpu/backend.h"

namespace halyard {
namespace {

/** What the threads of one call share. */
struct GradientWork {
    const AttentionBackwardCall &call;
    Visibility visibility;
    halyard_isa isa;
    int64_t key_heads, key_blocks, query_blocks;
    std::atomic<int32_t> *turns =
        nullptr;  // [batch][head of q][block of queries]: how many of the blocks of keys it sees have added to its dQ
    std::atomic<int64_t> next{0};

    int64_t group() const { return call.q.heads / call.k.heads; }
};

/** One thread's part. */
class GradientWorker {
public:
    GradientWorker(GradientWork &work, float *memory)
        : work_(work), call_(work.call), block_(work.isa, work.call, work.visibility, memory) {}

    /** Takes tasks until none is left: the first blocks of all heads, which most queries see, and then the next. */
    void run() {
        const int64_t tasks = work_.key_heads * work_.key_blocks;
        for (int64_t task; (task = work_.next.fetch_add(1, std::memory_order_relaxed)) < tasks;) {
            const int64_t head = task % work_.key_heads;
            gradients_of_keys(task / work_.key_heads, head / call_.k.heads, head % call_.k.heads);
        }
    }

private:
    void gradients_of_keys(int64_t key_block, int64_t b, int64_t key_head) {
        const int64_t first = key_block * gradient_keys, keys = std::min(gradient_keys, call_.k.tokens - first);
        const int64_t begin = call_.first_query(), end = call_.k.tokens;
        const int64_t seen_from = work_.visibility.first_seeing(first, begin, end) - begin,
                      seen_to = work_.visibility.end_seeing(first + keys - 1, begin, end) - begin;
        block_.begin_keys(b, key_head, first, keys);
        for (int64_t i = 0; i < work_.group(); i++) {
            const int64_t head = key_head * work_.group() + i;
            for (int64_t block = seen_from / gradient_queries; block * gradient_queries < seen_to; block++) {
                const int64_t query = block * gradient_queries;
                block_.add_queries(head, query, std::min(gradient_queries, call_.q.tokens - query));
                if (call_.dq.view.data) {
                    add_to_dq(key_block, (b * call_.q.heads + head) * work_.query_blocks + block, query);
                }
            }
        }
        block_.store_keys();
    }

    /** When the blocks of keys before this one have added theirs. The first is that with the first key that a query of them sees. */
    void add_to_dq(int64_t key_block, int64_t place, int64_t query) {
        std::atomic<int32_t> &turn = work_.turns[place];
        const int64_t before = key_block - work_.visibility.first(call_.first_query() + query) / gradient_keys;
        for (int spins = 0; turn.load(std::memory_order_acquire) != before; spins++) {
            if (spins > 2000) {
                sched_yield();
            }
        }
        block_.add_to_dq(before == 0);
        turn.store(static_cast<int32_t>(before + 1), std::memory_order_release);
    }

    GradientWork &work_;
    const AttentionBackwardCall &call_;
    GradientBlock block_;
};

/** What queries get that have no keys. */
void clear_dq(const Heads &dq) {
    for (int64_t b = 0; dq.view.data && b < dq.batch; b++) {
        for (int64_t token = 0; token < dq.tokens; token++) {
            for (int64_t head = 0; head < dq.heads; head++) {
                std::memset(dq.at(b, token, head), 0, static_cast<size_t>(dq.head_dim) * sizeof(float));
            }
        }
    }
}

}  // namespace

void cpu::attention_backward(Checker &check, const halyard_context &context, const AttentionBackwardCall &call) {
    const Heads &q = call.q, &k = call.k;
    const auto blocks = [](int64_t n, int64_t of) { return (n + of - 1) / of; };
    GradientWork work = {call,
                         {k.tokens, call.causal, std::min(call.sliding_window, k.tokens)},
                         best_isa(context.max_isa),
                         k.batch * k.heads,
                         blocks(k.tokens, gradient_keys),
                         blocks(q.tokens, gradient_queries)};
    if (work.key_blocks == 0) {
        clear_dq(call.dq);
        return;
    }
    // Five products of this size.
    const double bytes = 5 * static_cast<double>(sizeof(float)) * static_cast<double>(k.tokens * k.head_dim) *
                         static_cast<double>(work.key_heads) *
                         static_cast<double>(blocks(q.tokens * work.group(), max_tile_rows));
    const int64_t tasks = work.key_heads * work.key_blocks;
    const int64_t threads =
        std::min(tasks, static_cast<int64_t>(std::clamp(bytes / static_cast<double>(parameters.attention_thread_bytes),
                                                        1.0, static_cast<double>(thread_bound(context)))));
    const int64_t turns = call.dq.view.data ? q.batch * q.heads * work.query_blocks : 0;
    Workspace workspace(context, device_of(q.view));
    const int64_t thread_bytes =
        Workspace::piece_bytes(GradientMemory::floats(q.head_dim) * static_cast<int64_t>(sizeof(float)));
    const auto of_threads = workspace.book(threads, thread_bytes);
    const auto of_turns = workspace.book<std::atomic<int32_t>>(turns);
    if (!workspace.allocate(check)) {
        return;
    }
    work.turns = workspace[of_turns];
    for (int64_t i = 0; i < turns; i++) {
        new (work.turns + i) std::atomic<int32_t>(0);
    }
    run_tasks(context, static_cast<int>(threads), [&](int index) {
        GradientWorker(work, reinterpret_cast<float *>(workspace[of_threads] + index * thread_bytes)).run();
    });
}

}  // namespace halyard
