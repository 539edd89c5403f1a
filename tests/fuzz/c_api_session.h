// What the fuzzer of the C API calls: handles that last, and a function for each kind of calls (c_api_*.cpp).
#ifndef HALYARD_TESTS_FUZZ_C_API_SESSION_H
#define HALYARD_TESTS_FUZZ_C_API_SESSION_H

#include <stdlib.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

#include "fuzz/call.h"
#include "halyard/attention.h"
#include "halyard/block.h"
#include "halyard/halyard.h"
#include "halyard/training.h"

namespace halyard::tests {

constexpr DLDataType dtypes[] = {f32, f16, bf16};

template<typename T>
T *no_handle() {
    return reinterpret_cast<T *>(std::uintptr_t{0x5a5a5a5a});
}

/** A folder for the files of weights, gone when the program ends. */
class Folder {
public:
    Folder() {
        const char *place = std::getenv("TMPDIR");
        path_ = std::string(place ? place : "/tmp") + "/halyard-fuzz-XXXXXX";
        if (!mkdtemp(path_.data())) {
            std::abort();
        }
        file_ = path_ + "/weights";
    }
    ~Folder() {
        unlink(file_.c_str());
        rmdir(path_.c_str());
    }
    const char *file() const { return file_.c_str(); }
    const char *path() const { return path_.c_str(); }

private:
    std::string path_, file_;
};

TensorMemory &tensor_memory();

/** What packed weights and caches are made in where the caller gives memory: a piece for each place of a handle. */
using HandleMemory = GuardedMemory<6, 16384>;
HandleMemory &handle_memory();

const Folder &folder();

class Session {
public:
    Session() { tensor_memory().reset(); }
    ~Session();
    void step(unsigned which, const Input &in);

private:
    static constexpr int places = 3;

    // ---- numbers ----
    float number(float usual) {
        if (!in_.rarely()) {
            return usual;
        }
        return in_.one_in(4)
                   ? in_.any<float>()
                   : in_.of({0.0f, __builtin_nanf(""), __builtin_inff(), -__builtin_inff(), -1.0f, 3.4e38f, 1e-45f});
    }
    std::int64_t number(std::int64_t usual) {
        if (!in_.rarely()) {
            return usual;
        }
        // None that could be a size, and take all memory.
        return in_.of({INT64_C(-1), INT64_C(0), INT64_C(1), usual + 1, usual - 1, INT64_MIN, INT64_MAX, INT64_MAX - 15,
                       INT64_C(1) << 62, INT64_C(1) << 55});
    }
    unsigned flags() { return in_.rarely() ? in_.any<unsigned>() : in_.byte() % 4u; }
    /** One of `count` values, or one that is none. */
    template<typename Enumeration>
    Enumeration value(int count) {
        const int number = in_.rarely() ? in_.any<int>() : in_.in(0, count - 1);
        Enumeration value;
        static_assert(sizeof value == sizeof number, "an enumeration of C is an int");
        std::memcpy(&value, &number, sizeof value);
        return value;
    }
    halyard_isa isa() {
        return in_.rarely() ? value<halyard_isa>(1) : halyard_isa_at(in_.in(0, halyard_isa_count() - 1));
    }
    DLDataType dtype() { return in_.of(dtypes); }
    /** A norm's weight or bias may be f32 beside any x. */
    DLDataType vector_dtype(DLDataType x) { return in_.one_in(4) ? DLDataType{kDLFloat, 32, 1} : x; }
    halyard_quantization quantization() {
        halyard_quantization q{};
        if (in_.one_in(3)) {
            q.bits = in_.rarely() ? in_.any<int>() % 64 : in_.of({4, 8});
            q.group = in_.rarely() ? in_.any<int>() : in_.of({0, 16, 32, 64, 128, 256});
            q.asymmetric = in_.one_in(2);
            q.scale_dtype = in_.one_in(2) ? dtype() : DLDataType{};
        }
        return q;
    }
    DLDevice device() {
        return in_.rarely() ? DLDevice{in_.of({kDLCUDA, kDLCPU, kDLOpenCL}), in_.in(-1, 1)} : DLDevice{};
    }
    Shape leading() {
        Shape shape;
        const int rank = in_.in(0, 3);
        for (int i = 0; i < rank; i++) {
            shape = shape.with(in_.rarely() ? 0 : in_.in(1, 3));
        }
        return shape;
    }

    // ---- handles ----
    const halyard_context *context() { return contexts_[in_.in(0, places - 1)]; }
    /** Calls `make`, which puts a handle where it is told to, and keeps what it made in place of another. */
    template<typename Handle, typename Make>
    void make(const char *name, Call &call, Handle *&place, const Make &make);
    /** For functions without tensors: `written` is what they write if they succeed. */
    template<typename Written>
    void returned(const char *name, halyard_status status, const Written &written, const Written &before);
    void returned(const char *name, halyard_status status) { Call(in_, tensor_memory()).returned(name, status); }
    void destroy(halyard_block *&block);

    void contexts();
    void questions();
    void norms();
    void norm_gradients();
    void elementwise();
    void weights_create();
    void weights_update();
    void weights_of_codes();
    void dequantize();
    void weights_other();
    void linear();
    void linear_gradients();
    void ffn_gradients();
    void norm_scales();
    void ffn();
    void optimizers();
    void gradient_norm();
    void ropes();
    void caches();
    void cache_create();
    void attention();
    void attention_gradients();
    void losses();
    void embedding_gradients();
    void block_create();
    void block_other();
    void block_gradients(Call &call, const halyard_block_config &config, halyard_block_gradients &g);
    void block_training();
    void stack_create();
    void stack_other();
    void stack_training();

    template<typename Pack>
    void pack(const char *name, Call &call, std::int64_t bytes, const Pack &pack);
    halyard_codes code_numbers();
    halyard_codes codes_of(Call &call, const halyard_codes &numbers);
    halyard_codes tensors_of(Call &call, const halyard_codes &numbers);
    halyard_rope_options rope_options(std::int64_t head_dim);
    halyard_block_config block_config(std::int64_t hidden);
    void coded_matrices(Call &call, std::int64_t kv, halyard_codes *codes, halyard_block_weights &w);
    void block_vectors(Call &call, const halyard_block_config &config, std::int64_t hidden, std::int64_t kv,
                       halyard_block_weights &w);

    Input in_{nullptr, 0};  // of this step
    halyard_context *contexts_[places] = {};
    halyard_weights *weights_[places] = {};
    halyard_rope *ropes_[places] = {};
    halyard_kv_cache *caches_[places] = {};
    halyard_block *blocks_[places] = {};
    halyard_weights *block_weights_[places] = {};  // borrowed by the blocks
    halyard_stack *stacks_[places] = {};
    const halyard_block *stack_blocks_[places][places] = {};
};

/** The lengths of all that is in a cache, which a call that fails leaves as they were. */
struct Lengths {
    std::int64_t length[16] = {};

    explicit Lengths(const halyard_kv_cache *cache) {
        halyard_kv_cache_options options;
        if (!cache || halyard_kv_cache_get_options(cache, &options) != HALYARD_OK) {
            return;
        }
        for (std::int64_t i = 0; i < 16; i++) {
            length[i] = halyard_kv_cache_length(cache, i / options.n_sequences, i % options.n_sequences);
        }
    }
    void check(const char *name, halyard_status status, const halyard_kv_cache *cache) const {
        if (status != HALYARD_OK && std::memcmp(length, Lengths(cache).length, sizeof length) != 0) {
            failed("%s failed and changed the cache's lengths", name);
        }
    }
};

template<typename Handle, typename Make>
void Session::make(const char *name, Call &call, Handle *&place, const Make &make) {
    Handle *handle = no_handle<Handle>();
    const bool nowhere = in_.rarely();
    const halyard_status status = make(nowhere ? nullptr : &handle);
    call.returned(name, status);
    if ((status == HALYARD_OK) != (handle != no_handle<Handle>()) || (status == HALYARD_OK && !handle)) {
        failed("%s returned %d and %s a handle", name, static_cast<int>(status),
               status == HALYARD_OK ? "did not write" : "wrote");
    }
    if (status == HALYARD_OK) {
        place = handle;
    }
}

template<typename Written>
void Session::returned(const char *name, halyard_status status, const Written &written, const Written &before) {
    returned(name, status);
    if (status != HALYARD_OK && std::memcmp(&written, &before, sizeof written) != 0) {
        failed("%s failed and wrote its result", name);
    }
}

}  // namespace halyard::tests

#endif
