// How the work of attention is shared by threads, and the way of queries, keys and values to the kernels.
//
// A thread takes one head of keys after another, the same in each call as far as it goes: it packs the keys and values,
// and then attends to them, block of queries by block, those that see most first; so what it has packed is still in its
// cache. When no heads are left, it helps with those that others have begun. Where there are few blocks of queries, as
// in decoding, it also helps with the blocks of keys that another thread has not come to yet, from the last one
// backwards; that thread merges the results in order.
#include <sched.h>

#include <atomic>
#include <climits>
#include <new>

#include "core/calls/attention.h"
#include "core/cast.h"
#include "core/parameters.h"
#include "core/workspace.h"
#include "cpu/attention/attention_block.h"
#include "cpu/attention/kv_pack.h"
#include "cpu/attention/rope.h"
#include "cpu/backend.h"
#include "cpu/linear/gemm_plan.h"
#include "cpu/ops/norm_rows.h"

namespace halyard {
namespace {

// Blocks of queries are halved until there are enough for all threads, or until they have few rows.
constexpr int64_t few_rows = 8;

// Positions that are packed at a time, at most.
constexpr int64_t max_packed_positions = 128;

// Kernels count elements in 32 bits: rows that are further apart go one by one.
constexpr int64_t max_pitch = INT32_MAX / std::max(max_packed_positions, max_attention_rows);

// Looks of a thread for keys that another one packs, before it lets others run.
constexpr int spins_before_yield = 2000;

/** How the work is cut into items. Results do not depend on it. */
struct Plan {
    int64_t threads;
    int64_t key_heads;        // (batch, head of keys)
    int64_t pack_items;       // of each of them: blocks of new positions
    int64_t heads_per_block;  // of q
    int64_t head_blocks;      // that the heads of a group make
    int64_t queries;          // of a block
    int64_t query_blocks;
    int64_t max_blocks;        // of keys
    bool keys_shared = false;  // threads help with those of a block of queries

    int64_t max_rows() const { return queries * heads_per_block; }
    int64_t row_blocks() const { return head_blocks * query_blocks; }
    /** Of a head: first the packing, then the blocks of rows. */
    int64_t items() const { return pack_items + row_blocks(); }

    Plan(const halyard_context &context, halyard_isa isa, XForm form, const AttentionCall &call) {
        const Heads &q = call.q, &k = call.k;
        const auto divide_up = [](int64_t n, int64_t by) { return (n + by - 1) / by; };
        key_heads = k.batch * k.heads;
        const int64_t group = q.heads / k.heads;
        head_blocks = divide_up(group, max_attention_rows);
        heads_per_block = divide_up(group, head_blocks);
        const int64_t rows = best_attention_rows(isa, form, q.head_dim);
        queries = std::max<int64_t>(1, std::min(q.tokens, rows / heads_per_block));
        pack_items = 0;
        max_blocks = 0;
        double bytes = 0;
        for (int64_t b = 0; b < k.batch; b++) {
            const int64_t first = call.first_key(b), keys = call.keys(b);
            pack_items = std::max(pack_items, divide_up(keys, k_block) - first / k_block);
            max_blocks = std::max(max_blocks, divide_up(keys, k_block));
            bytes += static_cast<double>(keys) * 2 * sizeof(float) * static_cast<double>(k.head_dim * k.heads) *
                     static_cast<double>(divide_up(q.tokens * group, max_tile_rows));
        }
        threads = static_cast<int64_t>(std::clamp(bytes / static_cast<double>(parameters.attention_thread_bytes), 1.0,
                                                  static_cast<double>(thread_bound(context))));
        query_blocks = divide_up(q.tokens, queries);
        if (threads > 1) {
            while (key_heads * row_blocks() < threads * parameters.attention_blocks_per_thread && queries > 1 &&
                   max_rows() > few_rows) {
                queries = divide_up(queries, 2);
                query_blocks = divide_up(q.tokens, queries);
            }
            const int64_t wanted = threads * (max_rows() > few_rows ? parameters.attention_blocks_per_thread
                                                                    : parameters.attention_long_blocks_per_thread);
            keys_shared = max_blocks > 1 && key_heads * row_blocks() < wanted;
        }
        threads = std::min(threads, key_heads * (pack_items + row_blocks() * (keys_shared ? max_blocks : 1)));
    }
};

using Counter = std::atomic<int32_t>;

/** A head of keys and values. */
struct KeyHead {
    std::atomic<bool> taken{false};     // by a thread
    std::atomic<char *> data{nullptr};  // as the kernels read it, from then on
    Counter claimed{0};                 // items
    Counter packed{0};                  // items of packing that are done
};

/** The blocks of keys that a block of queries sees: its own thread takes them from the first on, helpers from the last
 *  on. */
class SharedKeys {
public:
    /** Takes the next of `blocks`; false if none is left. */
    bool take_first(int64_t blocks) {
        int64_t taken;
        return take(blocks, 1, taken);
    }
    /** Takes the last one that is left, and gives its index. */
    bool take_last(int64_t blocks, int64_t &index) {
        int64_t taken;
        if (!take(blocks, one_of_helpers, taken)) {
            return false;
        }
        index = blocks - 1 - taken / one_of_helpers;
        return true;
    }
    void helper_done() { done_.fetch_add(1, std::memory_order_release); }
    /** To be asked when none is left. */
    bool helpers_done() const {
        return done_.load(std::memory_order_acquire) == taken_.load(std::memory_order_relaxed) / one_of_helpers;
    }

private:
    bool take(int64_t blocks, int64_t one, int64_t &before) {
        before = taken_.load(std::memory_order_relaxed);
        do {
            if (before % one_of_helpers + before / one_of_helpers >= blocks) {
                return false;
            }
        } while (!taken_.compare_exchange_weak(before, before + one, std::memory_order_relaxed));
        return true;
    }

    static constexpr int64_t one_of_helpers = int64_t{1} << 32;
    std::atomic<int64_t> taken_{0}, done_{0};
};

/** What the threads of one call share. */
struct Work {
    const Plan &plan;
    const AttentionCall &call;
    const KvLayout &layout;
    bool rounded;
    halyard_isa isa;
    View q_norm_weight, k_norm_weight;  // f32
    int64_t positions;                  // that are packed at a time
    KeyHead *heads;
    char *copies;        // one head for each thread, where there is no cache
    SharedKeys *shared;  // [head][row block], where keys are shared
    float *partials;     // [head][row block][block of keys], likewise: what helpers make
    std::atomic<int64_t> next_copy{0};

    int64_t partial_floats() const { return PartialResult::floats(plan.max_rows(), layout.value_columns()); }
    PartialResult partial(int64_t row_block, int64_t block) const {
        return PartialResult::at(partials + (row_block * plan.max_blocks + block) * partial_floats(), plan.max_rows());
    }
    int64_t staged_floats() const { return std::min(call.k.tokens, positions) * layout.value_columns(); }
    int64_t thread_bytes() const {
        const int64_t floats = AttentionBlock::scratch_floats(plan.max_rows(), layout) + 2 * staged_floats();
        return Workspace::piece_bytes(floats * static_cast<int64_t>(sizeof(float)));
    }
};

/** One thread's part. */
class Worker {
public:
    Worker(Work &work, float *scratch)
        : work_(work), plan_(work.plan), call_(work.call),
          rows_(work.isa, plan_.max_rows(), work.layout, call_.scale, call_.softcap, work.rounded, scratch),
          staged_keys_(scratch + AttentionBlock::scratch_floats(plan_.max_rows(), work.layout)),
          staged_values_(staged_keys_ + work.staged_floats()),
          q_norm_(work.isa, DType::f32, HALYARD_NORM_RMS, call_.rms, work.q_norm_weight, View()),
          k_norm_(work.isa, DType::f32, HALYARD_NORM_RMS, call_.rms, work.k_norm_weight, View()) {}

    /** `index`: of the thread. */
    void run(int index) {
        for_each_head(index, [&](int64_t key_head) {
            std::atomic<bool> &taken = work_.heads[key_head].taken;
            if (!taken.load(std::memory_order_relaxed) && !taken.exchange(true, std::memory_order_relaxed)) {
                work_.heads[key_head].data.store(place_of(key_head), std::memory_order_release);
                work_on(key_head);
            }
        });
        for_each_head(index, [&](int64_t key_head) { work_on(key_head); });
        if (plan_.keys_shared) {
            for_each_head(index, [&](int64_t key_head) {
                for (int64_t row_block = 0; row_block < plan_.row_blocks(); row_block++) {
                    help(key_head, row_block);
                }
            });
        }
    }

private:
    template<typename Integer>
    static Integer take(std::atomic<Integer> &next) {
        return next.fetch_add(1, std::memory_order_relaxed);
    }

    /** Visits all heads, those first that are this thread's as long as every thread is on time. */
    template<typename Visit>
    void for_each_head(int64_t index, Visit visit) const {
        for (int64_t i = 0; i < plan_.threads; i++) {
            for (int64_t head = (index + i) % plan_.threads; head < plan_.key_heads; head += plan_.threads) {
                visit(head);
            }
        }
    }

    /** Where the keys and values of a head go that this thread has taken: to the cache, or to a copy. As no thread
     *  takes a head while another one helps, one copy for each thread will do. */
    char *place_of(int64_t key_head) {
        if (call_.cache) {
            return call_.cache->head(call_.layer, call_.sequence(key_head / call_.k.heads), key_head % call_.k.heads);
        }
        if (!copy_) {
            copy_ = work_.copies + take(work_.next_copy) * work_.layout.head_bytes();
        }
        return copy_;
    }

    /** Does items of a head until all are claimed. */
    void work_on(int64_t key_head) {
        Counter &claimed = work_.heads[key_head].claimed;
        while (claimed.load(std::memory_order_relaxed) < plan_.items()) {
            const int64_t item = take(claimed);
            if (item < plan_.pack_items) {
                pack(key_head, item);
            } else if (item < plan_.items()) {
                attend(key_head, item - plan_.pack_items);
            }
        }
    }

    char *head_data(int64_t key_head) const {
        const std::atomic<char *> &data = work_.heads[key_head].data;
        wait_until([&] { return data.load(std::memory_order_acquire) != nullptr; });
        return data.load(std::memory_order_relaxed);
    }

    void wait_for_keys(int64_t key_head) const {
        const Counter &packed = work_.heads[key_head].packed;
        wait_until([&] { return packed.load(std::memory_order_acquire) == plan_.pack_items; });
    }

    template<typename Condition>
    static void wait_until(Condition condition) {
        for (int spins = 0; !condition(); spins++) {
            if (spins >= spins_before_yield) {
                sched_yield();
            }
        }
    }

    // ---- keys and values ----

    void pack(int64_t key_head, int64_t i) {
        const int64_t b = key_head / call_.k.heads, head = key_head % call_.k.heads;
        const int64_t first = call_.first_key(b), block = first / k_block + i;
        const int64_t end = std::min(call_.keys(b), (block + 1) * k_block);
        for (int64_t position = std::max(first, block * k_block); position < end; position += work_.positions) {
            const int64_t count = std::min(work_.positions, end - position), token = position - first;
            const int64_t after = std::min(work_.positions, end - position - count);
            prefetch(call_.k, b, token + count, head, after);
            prefetch(call_.v, b, token + count, head, after);
            const bool plain = !call_.k_norm_weight.data && !call_.rope;
            const Source keys = source(call_.k, b, token, head, count, plain, staged_keys_);
            const Source values = source(call_.v, b, token, head, count, true, staged_values_);
            if (call_.k_norm_weight.data) {
                char *const rows = reinterpret_cast<char *>(staged_keys_);
                k_norm_(rows, keys.pitch, rows, keys.pitch, call_.k.head_dim, count);
            }
            for (int64_t n = 0; n < count && call_.rope; n++) {
                float *const row = staged_keys_ + n * keys.pitch;
                rotate(work_.isa, *call_.rope, position + n, row, keys.pitch, 1, row, keys.pitch);
            }
            store_keys_values(work_.isa, work_.layout, head_data(key_head), position, count, keys.rows, keys.pitch,
                              values.rows, values.pitch);
        }
        work_.heads[key_head].packed.fetch_add(1, std::memory_order_release);
    }

    /** Into the cache: the processor does not foresee rows as short and as far apart as those of one head. */
    static void prefetch(const Heads &tensor, int64_t b, int64_t token, int64_t head, int64_t tokens) {
        constexpr int64_t line = 64;
        const int64_t bytes = tensor.head_dim * size_of(tensor.view.dtype);
        for (int64_t i = 0; i < tokens; i++) {
            const char *const row = tensor.at(b, token + i, head);
            for (int64_t offset = 0; offset < bytes; offset += line) {
                __builtin_prefetch(row + offset, 0, 2);
            }
        }
    }

    struct Source {
        const float *rows;
        int64_t pitch;
    };

    /** Tokens of one head in f32: where they are, if that will do, or copied to `memory`. */
    Source source(const Heads &tensor, int64_t b, int64_t token, int64_t head, int64_t count, bool in_place,
                  float *memory) const {
        char *const data = tensor.at(b, token, head);
        if (in_place && tensor.view.dtype == DType::f32 && tensor.token_stride <= max_pitch) {
            return {reinterpret_cast<const float *>(data), tensor.token_stride};
        }
        const int64_t pitch = work_.layout.value_columns();
        widen(work_.isa, {data, tensor.view.dtype, tensor.token_stride}, memory, pitch, tensor.head_dim, count);
        return {memory, pitch};
    }

    // ---- queries ----

    /** A block of queries: where it lies in q and y, and what keys it sees. */
    struct Rows {
        QueryBlock block;
        int64_t b, query, head;
        int64_t first_block, blocks;  // of keys
        int64_t index;                // among all
    };

    /** Starts with block `row_block` of those of a head of keys. */
    Rows begin(int64_t key_head, int64_t row_block) {
        const int64_t group = call_.q.heads / call_.k.heads;
        const int64_t in_group = row_block % plan_.head_blocks * plan_.heads_per_block;
        Rows rows;
        rows.b = key_head / call_.k.heads;
        // The last queries first: with a causal mask they take longest.
        rows.query = (plan_.query_blocks - 1 - row_block / plan_.head_blocks) * plan_.queries;
        rows.head = key_head % call_.k.heads * group + in_group;
        rows.block = {call_.first_query(rows.b) + rows.query, std::min(plan_.queries, call_.q.tokens - rows.query),
                      std::min(plan_.heads_per_block, group - in_group)};
        const int64_t keys = call_.keys(rows.b);
        rows_.begin(rows.block, {keys, call_.causal, std::min(call_.sliding_window, keys)});
        rows.first_block = rows_.first_block();
        rows.blocks = rows_.end_block() - rows.first_block;
        rows.index = key_head * plan_.row_blocks() + row_block;
        return rows;
    }

    void attend(int64_t key_head, int64_t row_block) {
        const Rows rows = begin(key_head, row_block);
        load(rows);
        wait_for_keys(key_head);
        SharedKeys *const shared = plan_.keys_shared ? work_.shared + rows.index : nullptr;
        const char *const keys = head_data(key_head);
        int64_t done = 0;
        for (; done < rows.blocks && (!shared || shared->take_first(rows.blocks)); done++) {
            rows_.add(keys, rows.first_block + done, done + 1 < rows.blocks);
        }
        if (done < rows.blocks) {
            wait_until([&] { return shared->helpers_done(); });
            for (; done < rows.blocks; done++) {
                rows_.add(work_.partial(rows.index, done));
            }
        }
        store(rows, rows_.result());
    }

    /** Takes blocks of keys from the thread that attends to them. */
    void help(int64_t key_head, int64_t row_block) {
        const Rows rows = begin(key_head, row_block);
        SharedKeys &shared = work_.shared[rows.index];
        bool loaded = false;
        for (int64_t i; shared.take_last(rows.blocks, i); shared.helper_done()) {
            if (!loaded) {
                load(rows);
                wait_for_keys(key_head);
                loaded = true;
            }
            rows_.attend(head_data(key_head), rows.first_block + i, false, work_.partial(rows.index, i));
        }
    }

    /** The queries of a block in f32, after norm and rope. */
    void load(const Rows &rows) {
        const Heads &q = call_.q;
        const QueryBlock &block = rows.block;
        float *const data = rows_.queries();
        for_each_run(q, rows, [&](char *from, int64_t row, int64_t count, int64_t step, int64_t pitch) {
            widen(work_.isa, {from, q.view.dtype, pitch}, data + row * x_pitch, step * x_pitch, q.head_dim, count);
        });
        if (call_.q_norm_weight.data) {
            char *const bytes = reinterpret_cast<char *>(data);
            q_norm_(bytes, x_pitch, bytes, x_pitch, q.head_dim, block.rows());
        }
        for (int64_t i = 0; i < block.queries && call_.rope; i++) {
            float *const row = data + i * block.heads * x_pitch;
            rotate(work_.isa, *call_.rope, block.position + i, row, x_pitch, block.heads, row, x_pitch);
        }
        rows_.loaded();
    }

    void store(const Rows &rows, const PartialResult &result) {
        const Heads &y = call_.y;
        const int64_t columns = work_.layout.value_columns();
        const float *const sums = result.statistics + PartialResult::statistics_pitch(plan_.max_rows());
        Buffer<2> into;
        Buffer<2, float> values;
        Buffer<1, float> sum;
        const auto finish = kernel_function(kernels::attention_finish, y.view.dtype, work_.isa);
        for_each_run(y, rows, [&](char *to, int64_t row, int64_t count, int64_t step, int64_t pitch) {
            values.set(result.values + row * columns, y.head_dim, count, step * columns);
            sum.set_data(sums + row);
            sum.set_dim(0, count, step);
            into.set(to, y.head_dim, count, pitch);
            finish({values, sum, into});
        });
    }

    /** Calls visit(data, row, rows, stride in rows, pitch) for runs of rows of a block that lie evenly in a tensor of
     *  heads and that a kernel can take: the heads of each query, or the queries of each head, whatever makes fewer. */
    template<typename Visit>
    void for_each_run(const Heads &tensor, const Rows &rows, Visit visit) const {
        const QueryBlock &block = rows.block;
        const bool by_query = block.queries <= block.heads;
        const int64_t runs = by_query ? block.queries : block.heads, length = by_query ? block.heads : block.queries;
        const int64_t step = by_query ? 1 : block.heads, pitch = by_query ? tensor.head_stride : tensor.token_stride;
        const int64_t at_once = pitch <= max_pitch ? length : 1;
        for (int64_t run = 0; run < runs; run++) {
            for (int64_t i = 0; i < length; i += at_once) {
                const int64_t query = by_query ? run : i, head = by_query ? i : run;
                visit(tensor.at(rows.b, rows.query + query, rows.head + head), query * block.heads + head, at_once,
                      step, pitch);
            }
        }
    }

    Work &work_;
    const Plan &plan_;
    const AttentionCall &call_;
    AttentionBlock rows_;
    float *staged_keys_, *staged_values_;  // [position][value columns]
    char *copy_ = nullptr;
    NormRows q_norm_, k_norm_;
};

}  // namespace

void cpu::attention(Checker &check, const halyard_context &context, const AttentionCall &call) {
    // Keys may be repeated by a stride of 0, but not so often that sizes below do not fit 64 bits.
    constexpr int64_t max_keys = int64_t{1} << 40;
    if (call.k.tokens > max_keys) {
        check.fail(HALYARD_OUT_OF_MEMORY, "no memory for copies of %lld keys", static_cast<long long>(call.k.tokens));
        return;
    }
    const halyard_isa isa = best_isa(context.max_isa);
    const KvLayout copied = {call.rounded ? call.k.view.dtype : DType::f32, call.k.head_dim, call.k.tokens};
    const KvLayout &layout = call.cache ? call.cache->layout : copied;
    const bool rounded = call.rounded && layout.dtype == DType::bf16;
    const Plan plan(context, isa, form_of_products(isa, rounded, layout.dtype), call);
    const int64_t positions = std::min(parameters.attention_pack_positions, max_packed_positions);
    Work work = {plan, call, layout, rounded, isa, View(), View(), positions, nullptr, nullptr, nullptr, nullptr};

    const int64_t row_blocks = plan.keys_shared ? plan.key_heads * plan.row_blocks() : 0;
    Workspace workspace(context, device_of(call.q.view));
    // Of no keys, too, a thread's copy has an address.
    const int64_t copies_bytes = std::max<int64_t>(1, std::min(plan.threads, plan.key_heads) * layout.head_bytes());
    const auto copies = workspace.book(call.cache ? 0 : copies_bytes);
    const auto of_threads = workspace.book(plan.threads * work.thread_bytes());
    const auto partials = workspace.book<float>(row_blocks * plan.max_blocks * work.partial_floats());
    const auto q_weight = workspace.book<float>(widened_floats(call.q_norm_weight));
    const auto k_weight = workspace.book<float>(widened_floats(call.k_norm_weight));
    const auto heads = workspace.book<KeyHead>(plan.key_heads);
    const auto shared_keys = workspace.book<SharedKeys>(row_blocks);
    if (!workspace.allocate(check)) {
        return;
    }
    work.copies = workspace[copies];
    work.partials = workspace[partials];
    work.q_norm_weight = widened(isa, call.q_norm_weight, workspace[q_weight]);
    work.k_norm_weight = widened(isa, call.k_norm_weight, workspace[k_weight]);
    work.heads = workspace[heads];
    for (int64_t i = 0; i < plan.key_heads; i++) {
        new (work.heads + i) KeyHead;
    }
    work.shared = workspace[shared_keys];
    for (int64_t i = 0; i < row_blocks; i++) {
        new (work.shared + i) SharedKeys;
    }

    run_tasks(context, static_cast<int>(plan.threads), [&](int index) {
        Worker(work, reinterpret_cast<float *>(workspace[of_threads] + index * work.thread_bytes())).run(index);
    });
}

}  // namespace halyard
