// Forked children: each can use the library, whatever the other threads of its parent were doing.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <mutex>
#include <thread>

#include "support/attention.h"
#include "support/ffn.h"
#include "support/small_block.h"
#include "support/stack.h"
#include "support/test_scale.h"

namespace halyard::tests {
namespace {

constexpr int forks = emulated ? 20 : reduced ? 200 : 500;
// The allocators of sanitizers keep in a child the locks that other threads held.
constexpr bool children_call = !sanitized;
constexpr unsigned seconds_of_a_child = 60;  // a call that never returns ends it

/** Makes a call, and says whether it succeeded and gave what it should. */
using Job = std::function<bool(const halyard_context *)>;

/** A call that writes y. What it gives now is what it should give. */
template<typename Call>
Job job(Tensor &y, const Call &call) {
    EXPECT_EQ(call(Context(supported_isas().back(), 1).get()), HALYARD_OK) << halyard_last_error();
    return [&y, call, expected = y.all_bits()](const halyard_context *context) {
        y.clear();
        return call(context) == HALYARD_OK && y.all_bits() == expected;
    };
}

Job elementwise() {
    const auto silu = std::make_shared<Invocation>(operation("silu"), Dtype::f32, Shape{24, 1024});
    silu->fill(1);
    return job(*silu->tensors.back(), [silu](const halyard_context *context) { return silu->run(context); });
}

Job linear() {
    const auto weights = std::make_shared<Weights>(weight_form(Dtype::bf16, 300, 520));
    const auto linear = std::make_shared<LinearCall>(*weights, call_form(Dtype::f32, Dtype::f32, {5}));
    return job(linear->y, [weights, linear](const halyard_context *context) { return linear->run(context); });
}

Job feed_forward() {
    FfnForm form;
    form.leading = {9};
    form.d_model = 130;
    form.d_ff = 260;
    form.gated = true;
    form.norm = HALYARD_NORM_RMS;
    form.activation = HALYARD_SILU;
    form.up = form.down = Dtype::bf16;
    const auto ffn = std::make_shared<Ffn>(form);
    return job(ffn->y, [ffn](const halyard_context *context) { return ffn->run(context); });
}

Job attention() {
    AttentionForm form = square(70, 4, 2, 16);
    form.rotary_dim = 16;
    const auto attention = std::make_shared<AttentionCase>(form);
    return job(attention->y, [attention](const halyard_context *context) { return attention->run(context); });
}

/** A block is made, with a table of angles, and destroyed. */
Job block() {
    BlockForm form = good_form();
    form.config.max_position_embeddings = 4000;
    struct Made {
        explicit Made(const BlockForm &form) : tensors(form), block(form), call(block, Dtype::f32, {6}) {}
        const BlockTensors tensors;
        const Block block;
        BlockCall call;
    };
    const auto made = std::make_shared<Made>(form);
    return job(made->call.y, [made](const halyard_context *context) {
        // Another number of positions each time: a table of its own.
        static std::atomic<int> number{0};
        halyard_block_config config = made->tensors.form.config;
        config.max_position_embeddings += number++;
        halyard_block *block = nullptr;
        halyard_status status = halyard_block_create(context, &config, &made->tensors.weights, &block);
        if (status == HALYARD_OK) {
            status = halyard_block_forward(context, block, &made->call.x.view, nullptr, 0, nullptr, &made->call.y.view);
        }
        halyard_block_destroy(block);
        return status;
    });
}

/** Two steps of a stack, through a cache that is made for them. */
Job stack() {
    StackForm form;
    form.block = good_form();
    struct Made {
        explicit Made(const StackForm &form) : stack(form), logits(logits_tensor(stack, Dtype::f32, {})) {}
        const Stack stack;
        const IdTensor prompt{some_ids(11, stack.form.vocab, 1)}, next{Ids{3}};
        const std::unique_ptr<Tensor> logits;
    };
    const auto made = std::make_shared<Made>(form);
    return job(*made->logits, [made](const halyard_context *context) {
        const BlockCache cache(made->stack.form.block, Dtype::bf16, made->stack.form.layers, 1, 20);
        halyard_status status = HALYARD_OK;
        for (const IdTensor *ids : {&made->prompt, &made->next}) {
            if (status == HALYARD_OK) {
                status = halyard_stack_forward(context, made->stack.get(), &ids->view, cache.get(), nullptr, nullptr,
                                               &made->logits->view);
            }
        }
        return status;
    });
}

Job packing() {
    struct Made {
        Tensor weight{Dtype::f16, compact_form({200, 300})}, x{Dtype::f16, compact_form({2, 300})},
            y{Dtype::f32, compact_form({2, 200})};
    };
    const auto made = std::make_shared<Made>();
    fill_rows(made->weight, 1);
    fill_rows(made->x, 2);
    return job(made->y, [made](const halyard_context *context) {
        halyard_weights *packed = nullptr, *viewed = nullptr;
        halyard_weights_info info{};
        halyard_status status = halyard_weights_pack(context, &made->weight.view, nullptr, nullptr, 0, &packed);
        if (status == HALYARD_OK) {
            status = halyard_weights_get_info(packed, &info);
        }
        if (status == HALYARD_OK) {
            status = halyard_weights_from_memory(halyard_weights_data(packed), info.bytes, &viewed);
        }
        if (status == HALYARD_OK) {
            status = halyard_linear(context, &made->x.view, viewed, nullptr, &made->y.view);
        }
        halyard_weights_destroy(viewed);
        halyard_weights_destroy(packed);
        return status;
    });
}

/** A context of its own; the scratch memory of the other is given back. */
Job context() {
    const Job call = feed_forward();
    return [call](const halyard_context *other) {
        halyard_context *own = nullptr;
        if (halyard_context_create(&own) != HALYARD_OK || halyard_context_set_num_threads(own, 2) != HALYARD_OK) {
            return false;
        }
        const bool right = call(own);
        halyard_context_destroy(own);
        halyard_context_release_scratch(other);
        return right;
    };
}

/** One of each kind, with operands of their own. */
std::vector<Job> all_jobs() {
    return {elementwise(), linear(), feed_forward(), attention(), block(), stack(), packing(), context()};
}

/** Lets threads through while it is open. */
class Gate {
public:
    void set(bool open) {
        const std::lock_guard<std::mutex> lock(mutex_);
        open_ = open;
        opened_.notify_all();
    }
    void pass() {
        std::unique_lock<std::mutex> lock(mutex_);
        opened_.wait(lock, [this] { return open_; });
    }

private:
    std::mutex mutex_;
    std::condition_variable opened_;
    bool open_ = true;
};

/** The index of the first job that failed, from 1; 0: none. They run with either context by turns. */
int first_failure(const std::vector<Job> &jobs, const halyard_context *context, int turn) {
    for (std::size_t i = 0; i < jobs.size(); i++) {
        if (!jobs[i]((static_cast<int>(i) + turn) % 2 == 0 ? nullptr : context)) {
            return static_cast<int>(i) + 1;
        }
    }
    return 0;
}

TEST(Fork, ChildrenUseTheLibraryWhateverOtherThreadsWereDoing) {
    const Context shared;
    ASSERT_EQ(halyard_context_set_num_threads(shared.get(), 3), HALYARD_OK);
    const std::vector<Job> childrens = all_jobs();
    ASSERT_EQ(first_failure(childrens, shared.get(), 0), 0);

    Gate gate;
    std::atomic<bool> done{false};
    std::atomic<int> wrong{0};
    std::vector<std::thread> threads;
    for (const Job &job : all_jobs()) {
        threads.emplace_back([&, job] {
            for (int i = 0; !done; i++) {
                gate.pass();
                wrong += job(i % 2 == 0 ? nullptr : shared.get()) ? 0 : 1;
            }
        });
    }
    for (int i = 0; i < forks && !testing::Test::HasFailure(); i++) {
        // Somewhere in the calls; the child then has the processors for itself.
        std::this_thread::sleep_for(std::chrono::microseconds(hash(1, 0, static_cast<std::uint64_t>(i)) % 1000));
        const pid_t child = fork();
        if (child == 0) {
            alarm(seconds_of_a_child);
            _exit(children_call ? first_failure(childrens, shared.get(), i) : 0);
        }
        gate.set(false);
        ASSERT_GT(child, 0);
        int status = 0;
        EXPECT_EQ(waitpid(child, &status, 0), child);
        EXPECT_FALSE(WIFSIGNALED(status)) << strsignal(WTERMSIG(status)) << " in child " << i;
        EXPECT_EQ(WEXITSTATUS(status), 0) << "is the number of the job that failed in child " << i;
        gate.set(true);
    }
    done = true;
    gate.set(true);
    for (std::thread &thread : threads) {
        thread.join();
    }
    EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace halyard::tests
