// What comes before a fragment of C++ in README.md and docs/, which is then the body of main (tests/build/check_snippets.py).
#include <halyard/attention.hpp>
#include <halyard/block.hpp>
#include <halyard/halyard.hpp>
#include <halyard/model.hpp>
#include <halyard/training.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

const int tokens = 4, d = 8, h = 8, n = 16, rows = 4, pitch = 12;
std::vector<float> x(tokens *pitch, 1.0f), weight(d, 1.0f), bias(n, 0.5f), out(tokens *d), scores(rows *n, 1.0f);
std::vector<float> w(n *d, 0.25f), w_up(n *d, 0.5f);
const halyard::Context context;

/// A thread pool of the caller's.
struct Pool {
    template<class Task>
    void run(int count, Task task) {
        for (int i = 0; i < count; i++) {
            task(i);
        }
    }
} my_pool;
