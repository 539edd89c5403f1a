// The middle of a gated feed-forward network, from C++: bfloat16 values [tokens, 2 * hidden] as a fused gate-up
// projection leaves them become SwiGLU's output [tokens, hidden], on the program's own threads. Then softmax in place,
// and a call that is refused.
#include <halyard/halyard.hpp>

#include <cstdio>
#include <thread>
#include <vector>

int main() {
    const int tokens = 64, hidden = 1024;

    // Each row: gates 0, 1, 0, 1, ... and then ups 2, 2, 2, ...
    std::vector<float> gate_up(tokens * 2 * hidden);
    for (int token = 0; token < tokens; ++token) {
        for (int i = 0; i < hidden; ++i) {
            gate_up[token * 2 * hidden + i] = static_cast<float>(i % 2);
            gate_up[token * 2 * hidden + hidden + i] = 2.0f;
        }
    }
    std::vector<halyard::bf16> packed(gate_up.size());
    halyard::cast(gate_up, packed);

    // A context lends the library two threads of this program for each call.
    halyard::Context context;
    context.set_num_threads(2);
    context.set_parallel_for([](int count, auto task) {
        std::vector<std::thread> threads;
        for (int i = 1; i < count; ++i) {
            threads.emplace_back(task, i);
        }
        task(0);
        for (std::thread &thread : threads) {
            thread.join();
        }
    });

    std::vector<halyard::bf16> y(tokens * hidden);
    halyard::swiglu({packed, {tokens, 2 * hidden}}, halyard::GluLayout::gate_up, {y, {tokens, hidden}}, context);

    std::vector<float> result(y.size());
    halyard::cast(y, result);
    std::printf("swiglu %.4f %.4f ... %.4f\n", result[0], result[1], result.back());

    std::vector<float> scores{1, 1, 1, 1};
    halyard::softmax(scores, scores);
    std::printf("softmax %.2f %.2f %.2f %.2f\n", scores[0], scores[1], scores[2], scores[3]);

    try {
        halyard::silu({result, {tokens, hidden}}, {result.data(), {tokens, hidden / 2}});
    } catch (const halyard::Error &error) {
        std::printf("%s: %s\n", halyard_status_name(error.status()), error.what());
    }
    std::fprintf(stderr, "halyard %s on %s\n", halyard::version(), halyard::to_string(context.isa()));
}
