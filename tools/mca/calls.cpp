// Calls of the library on a row or two, for the scripts beside this file.
//
//   calls count|replace KERNEL WIDTH...
//       a call of each width on one row and one on two, each announced by a call of next_call: for a trace (remainder_cost.py);
//       with replace the result takes the place of the input
//   calls time ISA
//       seconds that an element of each kernel takes in the first-level cache, and those that a floating-point operation
//       takes in chains of multiply-adds (validate_model.py)
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "halyard/halyard.h"
#if defined(HALYARD_MODEL_PEAK)
#include "timing/streams.h"
#endif

namespace {

constexpr int64_t widest = 4096;

struct Rows {
    Rows(DLDataType type, int64_t width, int64_t rows) : shape{rows, width} {
        tensor.data = memory;
        tensor.device = {kDLCPU, 0};
        tensor.ndim = 2;
        tensor.dtype = type;
        tensor.shape = shape;
        tensor.strides = strides;
        if (type.bits == 32) {
            for (int64_t i = 0; i < 2 * widest; i++) {
                reinterpret_cast<float *>(memory)[i] = static_cast<float>(i % 64) / 16.0f - 2.0f;
            }
        }
    }
    alignas(64) char memory[2 * widest * sizeof(float)] = {};
    int64_t shape[2], strides[2] = {widest, 1};
    DLTensor tensor{};
};

struct Operands {
    Operands(DLDataType type, int64_t width, int64_t rows)
        : x(type, width, rows), other(type, width, rows), y(type, width, rows), weight(type, width, 1) {
        weight.tensor.ndim = 1;
        weight.tensor.shape = &weight.shape[1];
        weight.tensor.strides = nullptr;
    }
    Rows x, other, y, weight;
};

struct Kernel {
    const char *name;  // of the kernel that the call ends in, without its type
    halyard_status (*call)(const halyard_context *context, Operands &o);
};

const Kernel kernels[] = {
    {"relu", [](const halyard_context *c, Operands &o) { return halyard_relu(c, &o.x.tensor, &o.y.tensor); }},
    {"silu", [](const halyard_context *c, Operands &o) { return halyard_silu(c, &o.x.tensor, &o.y.tensor); }},
    {"gelu", [](const halyard_context *c, Operands &o) { return halyard_gelu(c, &o.x.tensor, &o.y.tensor); }},
    {"gelu_tanh", [](const halyard_context *c, Operands &o) { return halyard_gelu_tanh(c, &o.x.tensor, &o.y.tensor); }},
    {"add",
     [](const halyard_context *c, Operands &o) { return halyard_add(c, &o.x.tensor, &o.other.tensor, &o.y.tensor); }},
    {"swiglu_beta1", [](const halyard_context *c,
                        Operands &o) { return halyard_swiglu(c, &o.x.tensor, &o.other.tensor, 1.0f, &o.y.tensor); }},
    {"rms_norm_weight",
     [](const halyard_context *c, Operands &o) {
         return halyard_rms_norm(c, &o.x.tensor, &o.weight.tensor, 1e-5f, 0, &o.y.tensor);
     }},
    {"layer_norm_weight",
     [](const halyard_context *c, Operands &o) {
         return halyard_layer_norm(c, &o.x.tensor, &o.weight.tensor, nullptr, 1e-5f, &o.y.tensor);
     }},
};

void call(const Kernel &kernel, const halyard_context *context, Operands &operands) {
    if (kernel.call(context, operands) != HALYARD_OK) {
        std::fprintf(stderr, "calls: %s\n", halyard_last_error());
        std::exit(1);
    }
}

extern "C" __attribute__((noipa)) void next_call() {
    asm volatile("");
}

int count(const std::string &wanted, bool in_place, const std::vector<int64_t> &widths) {
    const size_t end = wanted.rfind('_');
    const std::string type = wanted.substr(end + 1);
    const DLDataType dtype = {static_cast<uint8_t>(type == "bf16" ? kDLBfloat : kDLFloat),
                              static_cast<uint8_t>(type == "f32" ? 32 : 16), 1};
    for (const Kernel &kernel : kernels) {
        if (wanted.compare(0, end, kernel.name) == 0) {
            for (const int64_t width : widths) {
                for (const int64_t rows : {1, 2}) {
                    const auto operands = new Operands(dtype, width, rows);
                    if (in_place) {
                        operands->y.tensor.data = operands->x.tensor.data;
                    }
                    next_call();
                    call(kernel, nullptr, *operands);
                }
            }
            return 0;
        }
    }
    std::fprintf(stderr, "calls: no kernel is called %s\n", wanted.c_str());
    return 1;
}

#if defined(HALYARD_MODEL_PEAK)

/** The least of many times of `work`. */
template<typename Work>
double seconds(int times, const Work &work) {
    using Clock = std::chrono::steady_clock;
    double least = 1e9;
    for (int round = 0; round < 200; round++) {
        const auto begin = Clock::now();
        for (int i = 0; i < times; i++) {
            work();
        }
        const double taken = std::chrono::duration<double>(Clock::now() - begin).count() / times;
        least = taken < least ? taken : least;
    }
    return least;
}

int time(const std::string &isa) {
    halyard_context *context = nullptr;
    halyard_context_create(&context);
    halyard_context_set_num_threads(context, 1);
    for (int i = 0; i < halyard_isa_count(); i++) {
        if (isa == halyard_isa_name(halyard_isa_at(i))) {
            halyard_context_set_max_isa(context, halyard_isa_at(i));
        }
    }
    if (isa != halyard_isa_name(halyard_context_isa(context))) {
        std::fprintf(stderr, "calls: this machine has no %s\n", isa.c_str());
        return 1;
    }
    const auto &table = isa == "avx512" ? halyard::bench::streams_avx512 : halyard::bench::streams_avx2;
    constexpr int rounds = 2000;
    const double peak = seconds(1, [&] { table.multiply_adds.run(rounds); });
    std::printf("flop %.6e\n", peak / (rounds * table.multiply_adds.operations));
    // Two widths, so that what a call takes beside its elements drops out.
    constexpr int64_t few = 512, many = 2048;
    Operands *const narrow = new Operands({kDLFloat, 32, 1}, few, 1);
    Operands *const wide = new Operands({kDLFloat, 32, 1}, many, 1);
    for (const Kernel &kernel : kernels) {
        const double first = seconds(20, [&] { call(kernel, context, *narrow); });
        const double second = seconds(20, [&] { call(kernel, context, *wide); });
        std::printf("%s_f32 %.6e\n", kernel.name, (second - first) / (many - few));
    }
    return 0;
}

#endif

}  // namespace

int main(int argc, char **argv) {
    const std::string word = argc > 2 ? argv[1] : "";
    if (word == "count" || word == "replace") {
        std::vector<int64_t> widths;
        for (int i = 3; i < argc; i++) {
            widths.push_back(std::atoll(argv[i]));
        }
        return count(argv[2], word == "replace", widths);
    }
#if defined(HALYARD_MODEL_PEAK)
    if (word == "time") {
        return time(argv[2]);
    }
#endif
    std::fputs("usage: calls count|replace KERNEL WIDTH... | time ISA\n", stderr);
    return 2;
}
