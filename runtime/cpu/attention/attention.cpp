// Attention on the processor: how threads share its work.
//
// A thread takes one head of keys after another, the same in each call as far as it goes: it packs the keys and values,
// and then attends to them, block of queries by block, those that see most first; so what it has packed is still in its
// cache. When no heads are left, it helps with those that others have begun. Where there are few blocks of queries, as
// in decoding, it also helps with the blocks of keys that another thread has not come to yet, from the last one
// backwards; that thread merges the results in order.
#include <sched.h>

#include <new>

#include "core/workspace.h"
#include "cpu/attention/attention_block.h"
#include "cpu/attention/attention_plan.h"
#include "cpu/attention/key_packer.h"
#include "cpu/attention/query_rows.h"
#include "cpu/attention/shared_keys.h"
#include "cpu/backend.h"

namespace halyard {
namespace {

// Looks of a thread for keys that another one packs, before it lets others run.
constexpr int spins_before_yield = 2000;

/** What the threads of one call share. */
struct AttentionWork {
    const AttentionPlan &plan;
    const AttentionCall &call;
    const KvLayout &layout;
    bool rounded;
    halyard_isa isa;
    View q_norm_weight, k_norm_weight;  // f32
    KeyHead *heads;
    char *copies;        // one head for each thread, where there is no cache
    SharedKeys *shared;  // [head][row block], where keys are shared
    float *partials;     // [head][row block][block of keys], likewise: what helpers make
    std::atomic<int64_t> next_copy{0};

    int64_t partial_floats() const { return PartialResult::floats(plan.max_rows(), layout.value_columns()); }
    PartialResult partial(int64_t row_block, int64_t block) const {
        return PartialResult::at(partials + (row_block * plan.max_blocks + block) * partial_floats(), plan.max_rows());
    }
    int64_t block_floats() const { return AttentionBlock::scratch_floats(plan.max_rows(), layout); }
    int64_t thread_bytes() const {
        const int64_t floats = block_floats() + KeyPacker::staged_floats(call, layout);
        return Workspace::piece_bytes(floats * static_cast<int64_t>(sizeof(float)));
    }
};

/** One thread's part. */
class Worker {
public:
    Worker(AttentionWork &work, float *scratch)
        : work_(work), plan_(work.plan), call_(work.call),
          rows_(work.isa, plan_.max_rows(), work.layout, call_.scale, call_.softcap, work.rounded, scratch),
          queries_(work.isa, call_, work.q_norm_weight),
          pack_keys_(work.isa, call_, work.layout, work.k_norm_weight, scratch + work.block_floats()) {}

    /** `index`: of the thread. */
    void run(int index) {
        for_each_head(index, [&](int64_t key_head) {
            std::atomic<bool> &taken = work_.heads[key_head].taken;
            if (!taken.load(std::memory_order_relaxed) && !taken.exchange(true, std::memory_order_relaxed)) {
                work_.heads[key_head].data.store(place_of_keys(key_head), std::memory_order_release);
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
    char *place_of_keys(int64_t key_head) {
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
        std::atomic<int32_t> &claimed = work_.heads[key_head].claimed;
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
        const std::atomic<int32_t> &packed = work_.heads[key_head].packed;
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

    void pack(int64_t key_head, int64_t item) {
        const int64_t b = key_head / call_.k.heads;
        pack_keys_(b, key_head % call_.k.heads, call_.first_key(b) / k_block + item, head_data(key_head));
        work_.heads[key_head].packed.fetch_add(1, std::memory_order_release);
    }

    /** Starts with a block of queries, and says where it lies. */
    QueryPlace begin(int64_t key_head, int64_t row_block) {
        const QueryPlace place = plan_.place(call_, key_head, row_block);
        const int64_t keys = call_.keys(place.b);
        rows_.begin(place.block, {keys, call_.causal, std::min(call_.sliding_window, keys)});
        return place;
    }

    void load(const QueryPlace &place, int64_t key_head) {
        if (rows_.rounds() && queries_.are_as_given()) {
            queries_.load(place, rows_.multiplied_queries());
        } else {
            queries_.load(place, rows_.queries());
            rows_.loaded();
        }
        wait_for_keys(key_head);
    }

    void attend(int64_t key_head, int64_t row_block) {
        const QueryPlace place = begin(key_head, row_block);
        load(place, key_head);
        const int64_t index = key_head * plan_.row_blocks() + row_block, blocks = rows_.blocks();
        SharedKeys *const shared = plan_.keys_shared ? work_.shared + index : nullptr;
        const char *const keys = head_data(key_head);
        int64_t done = 0;
        for (; done < blocks && (!shared || shared->take_first(blocks)); done++) {
            rows_.add(keys, rows_.first_block() + done, done + 1 < blocks);
        }
        if (done < blocks) {
            wait_until([&] { return shared->helpers_done(); });
            for (; done < blocks; done++) {
                rows_.add(work_.partial(index, done));
            }
        }
        queries_.store(place, rows_.result(), plan_.max_rows(), work_.layout.value_columns());
    }

    /** Takes blocks of keys from the thread that attends to them. */
    void help(int64_t key_head, int64_t row_block) {
        const QueryPlace place = begin(key_head, row_block);
        const int64_t index = key_head * plan_.row_blocks() + row_block;
        SharedKeys &shared = work_.shared[index];
        bool loaded = false;
        for (int64_t i; shared.take_last(rows_.blocks(), i); shared.helper_done()) {
            if (!loaded) {
                load(place, key_head);
                loaded = true;
            }
            rows_.attend(head_data(key_head), rows_.first_block() + i, false, work_.partial(index, i));
        }
    }

    AttentionWork &work_;
    const AttentionPlan &plan_;
    const AttentionCall &call_;
    AttentionBlock rows_;
    QueryRows queries_;
    KeyPacker pack_keys_;
    char *copy_ = nullptr;
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
    const AttentionPlan plan(context, isa, form_of_products(isa, rounded, layout.dtype), call);
    AttentionWork work = {plan, call, layout, rounded, isa, View(), View(), nullptr, nullptr, nullptr, nullptr};

    const int64_t row_blocks = plan.keys_shared ? plan.key_heads * plan.row_blocks() : 0;
    Workspace workspace(context, device_of(call.q.view));
    // A thread's copy of no keys, too, has an address.
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
