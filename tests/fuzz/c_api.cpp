// A libFuzzer target for the C API: a sequence of calls of all its functions, with right and wrong arguments. What is
// refused must have a message and leave every output as it was; what is accepted must stay within its tensors.
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>

#include "fuzz/call.h"
#include "halyard/attention.h"
#include "halyard/block.h"
#include "halyard/halyard.h"
#include "halyard/training.h"

#define NAMED(function) #function, function

namespace halyard::tests {
namespace {

struct Unary {
    const char *name;
    halyard_status (*call)(const halyard_context *, const DLTensor *, DLTensor *);
};
struct UnaryBeta {
    const char *name;
    halyard_status (*call)(const halyard_context *, const DLTensor *, float, DLTensor *);
};
struct Binary {
    const char *name;
    halyard_status (*call)(const halyard_context *, const DLTensor *, const DLTensor *, DLTensor *);
};
struct Packed {
    const char *name;
    halyard_status (*call)(const halyard_context *, const DLTensor *, halyard_glu_layout, DLTensor *);
};

const Unary unary_functions[] = {
    {NAMED(halyard_relu)},
    {NAMED(halyard_relu2)},
    {NAMED(halyard_gelu)},
    {NAMED(halyard_gelu_tanh)},
    {NAMED(halyard_gelu_sigmoid)},
    {NAMED(halyard_silu)},
    {NAMED(halyard_sigmoid)},
    {NAMED(halyard_tanh)},
    {NAMED(halyard_exp)},
    {NAMED(halyard_relu_derivative)},
    {NAMED(halyard_relu2_derivative)},
    {NAMED(halyard_gelu_derivative)},
    {NAMED(halyard_gelu_tanh_derivative)},
    {NAMED(halyard_gelu_sigmoid_derivative)},
    {NAMED(halyard_silu_derivative)},
    {NAMED(halyard_sigmoid_derivative)},
    {NAMED(halyard_tanh_derivative)},
    {NAMED(halyard_exp_derivative)},
};
const UnaryBeta unary_beta_functions[] = {
    {NAMED(halyard_swish)},
    {NAMED(halyard_swish_derivative)},
    {NAMED(halyard_softmax)},
};
const Binary binary_functions[] = {
    {NAMED(halyard_add)},
    {NAMED(halyard_glu)},
    {NAMED(halyard_bilinear)},
    {NAMED(halyard_reglu)},
    {NAMED(halyard_geglu)},
    {NAMED(halyard_geglu_tanh)},
    {NAMED(halyard_relu_backward)},
    {NAMED(halyard_relu2_backward)},
    {NAMED(halyard_gelu_backward)},
    {NAMED(halyard_gelu_tanh_backward)},
    {NAMED(halyard_gelu_sigmoid_backward)},
    {NAMED(halyard_silu_backward)},
    {NAMED(halyard_sigmoid_backward)},
    {NAMED(halyard_tanh_backward)},
    {NAMED(halyard_exp_backward)},
};
struct Backward {
    const char *name;
    halyard_status (*call)(const halyard_context *, const DLTensor *, const DLTensor *, const DLTensor *, DLTensor *,
                           DLTensor *);
};
struct PackedBackward {
    const char *name;
    halyard_status (*call)(const halyard_context *, const DLTensor *, halyard_glu_layout, const DLTensor *, DLTensor *);
};
const Backward backward_functions[] = {
    {NAMED(halyard_glu_backward)},   {NAMED(halyard_bilinear_backward)},   {NAMED(halyard_reglu_backward)},
    {NAMED(halyard_geglu_backward)}, {NAMED(halyard_geglu_tanh_backward)},
};
const PackedBackward packed_backward_functions[] = {
    {NAMED(halyard_glu_packed_backward)},        {NAMED(halyard_bilinear_packed_backward)},
    {NAMED(halyard_reglu_packed_backward)},      {NAMED(halyard_geglu_packed_backward)},
    {NAMED(halyard_geglu_tanh_packed_backward)},
};
const Packed packed_functions[] = {
    {NAMED(halyard_glu_packed)},   {NAMED(halyard_bilinear_packed)},   {NAMED(halyard_reglu_packed)},
    {NAMED(halyard_geglu_packed)}, {NAMED(halyard_geglu_tanh_packed)},
};

constexpr DLDataType dtypes[] = {f32, f16, bf16};
/** Few, so that matrices fit each other. */
constexpr std::int64_t widths[] = {16, 8, 20};

template<typename T>
T *no_handle() {
    return reinterpret_cast<T *>(std::uintptr_t{0x5a5a5a5a});
}

void serial_for(void *, int count, void (*task)(void *closure, int index), void *closure) {
    for (int i = count - 1; i >= 0; i--) {
        task(closure, i);
    }
}

void read_hidden(void *user, std::int64_t, std::int64_t, const DLTensor *hidden) {
    const std::int64_t count = hidden->shape[0] * hidden->shape[1] * hidden->shape[2];
    float sum = 0;
    for (std::int64_t i = 0; i < count; i++) {
        sum += static_cast<const float *>(hidden->data)[i];
    }
    *static_cast<volatile float *>(user) = sum;
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

TensorMemory &tensor_memory() {
    static TensorMemory memory;
    return memory;
}

/** What packed weights and caches are made in where the caller gives memory: a piece for each place of a handle. */
using HandleMemory = GuardedMemory<6, 16384>;
HandleMemory &handle_memory() {
    static HandleMemory memory;
    return memory;
}

const Folder &folder() {
    static const Folder folder;
    return folder;
}

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

void Session::destroy(halyard_block *&block) {
    for (int i = 0; i < places; i++) {
        for (const halyard_block *used : stack_blocks_[i]) {
            if (block && used == block) {
                halyard_stack_destroy(stacks_[i]);
                stacks_[i] = nullptr;
                std::memset(stack_blocks_[i], 0, sizeof stack_blocks_[i]);
                break;
            }
        }
    }
    halyard_block_destroy(block);
    block = nullptr;
    halyard_weights *&borrowed = block_weights_[&block - blocks_];
    halyard_weights_destroy(borrowed);
    borrowed = nullptr;
}

Session::~Session() {
    const bool backwards = in_.one_in(2);
    for (int n = 0; n < places; n++) {
        const int i = backwards ? places - 1 - n : n;
        if (backwards) {
            halyard_context_destroy(contexts_[i]);
        }
        halyard_stack_destroy(stacks_[i]);
        halyard_kv_cache_destroy(caches_[i]);
        halyard_rope_destroy(ropes_[i]);
        halyard_weights_destroy(weights_[i]);
        if (!backwards) {
            halyard_context_destroy(contexts_[i]);
        }
    }
    for (int i = 0; i < places; i++) {
        halyard_block_destroy(blocks_[i]);
        halyard_weights_destroy(block_weights_[i]);
    }
}

// ---- context, names ----

void Session::contexts() {
    halyard_context *&place = contexts_[in_.in(0, places - 1)];
    switch (in_.in(0, 9)) {
    case 0:
    case 1:
        halyard_context_destroy(place);
        place = nullptr;
        {
            Call call(in_, tensor_memory());
            make("halyard_context_create", call, place,
                 [](halyard_context **out) { return halyard_context_create(out); });
        }
        break;
    case 2:
        returned("halyard_context_set_num_threads", halyard_context_set_num_threads(place, in_.in(-1, 3)));
        break;
    case 3:
        returned("halyard_context_set_parallel_for",
                 halyard_context_set_parallel_for(place, in_.one_in(2) ? serial_for : nullptr, nullptr));
        break;
    case 4:
        returned("halyard_context_set_max_isa", halyard_context_set_max_isa(place, isa()));
        break;
    case 5:
        returned("halyard_context_set_streaming_min_bytes",
                 halyard_context_set_streaming_min_bytes(
                     place, in_.of({INT64_C(0), INT64_C(1), INT64_C(-1), INT64_C(512), INT64_MAX, INT64_MIN})));
        break;
    case 6:
        returned("halyard_context_set_cuda_stream", halyard_context_set_cuda_stream(place, nullptr));
        break;
    case 7:
        halyard_context_release_scratch(place);
        count_call("halyard_context_release_scratch", true);
        break;
    case 8:
        if (halyard_context_num_threads(place) < 1 || !halyard_isa_supported(halyard_context_isa(place))) {
            failed("a context has no thread or no instruction set");
        }
        count_call("halyard_context_num_threads", true);
        count_call("halyard_context_isa", true);
        break;
    case 9:
        returned("halyard_context_set_products", halyard_context_set_products(place, value<halyard_products>(4)));
        count_call("halyard_context_products", halyard_context_products(place) <= HALYARD_PRODUCTS_INT8);
        break;
    }
}

void Session::questions() {
    switch (in_.in(0, 4)) {
    case 0:
        if (!*halyard_status_name(value<halyard_status>(6)) || !*halyard_version() || !halyard_last_error()) {
            failed("a text is empty");
        }
        count_call("halyard_status_name", true);
        count_call("halyard_version", true);
        count_call("halyard_last_error", true);
        break;
    case 1: {
        const halyard_isa isa = this->isa();
        if ((!halyard_isa_name(isa) && halyard_isa_supported(isa)) ||
            (!halyard_isa_supported(isa) && halyard_isa_preferred(isa))) {
            failed("an instruction set without a name is supported, or one is preferred that is not");
        }
        count_call("halyard_isa_at", true);
        count_call("halyard_isa_name", true);
        count_call("halyard_isa_preferred", true);
        count_call("halyard_isa_supported", true);
        if (halyard_operation_supported("rms_norm") != 1 || halyard_operation_supported(nullptr) != 0) {
            failed("the library does not know what it was built with");
        }
        count_call("halyard_operation_supported", true);
        break;
    }
    case 2: {
        // Not a device's first call: a machine may have one.
        const int device = in_.of({-1, INT32_MAX, INT32_MIN});
        if (halyard_cuda_prepare(device) == HALYARD_OK || !*halyard_last_error()) {
            failed("halyard_cuda_prepare accepted the device %d", device);
        }
        count_call("halyard_cuda_prepare", false);
        break;
    }
    case 3:
        if (halyard_ffn_hidden_size(number(INT64_C(64)), number(INT64_C(16))) < 0) {
            failed("halyard_ffn_hidden_size is negative");
        }
        count_call("halyard_ffn_hidden_size", true);
        break;
    case 4: {
        halyard_block_config config, before;
        std::memset(&config, 0x5a, sizeof config);
        before = config;
        const char *const *presets = halyard_block_presets();
        const char *name = in_.of({presets[0], presets[1], "", "gpt", static_cast<const char *>(nullptr)});
        returned("halyard_block_config_preset", halyard_block_config_preset(name, in_.rarely() ? nullptr : &config),
                 config, before);
        count_call("halyard_block_presets", true);
        break;
    }
    }
}

// ---- rows and elements ----

void Session::norms() {
    Call call(in_, tensor_memory());
    const DLDataType type = dtype();
    const int width = in_.one_in(4) ? in_.in(0, 70) : 16;
    const Shape shape = leading().with(width), vector = Shape().with(width);
    const int kind = in_.in(0, 4);
    const DLTensor *x = call.input(shape, type);
    const DLTensor *residual = kind >= 3 ? call.input(shape, type) : nullptr;
    const DLTensor *weight = in_.one_in(2) ? call.input(vector, vector_dtype(type)) : nullptr;
    const bool has_bias = (kind == 0 || kind == 3) && in_.one_in(2);
    const DLTensor *bias = has_bias ? call.input(vector, vector_dtype(type)) : nullptr;
    DLTensor *sum = kind >= 3 ? call.output(shape, type) : nullptr;
    DLTensor *y = call.output(shape, type);
    const float eps = number(1e-5f);
    if (!call.may_be_made()) {
        return;
    }
    switch (kind) {
    case 0:
        call.returned("halyard_layer_norm", halyard_layer_norm(context(), x, weight, bias, eps, y));
        break;
    case 1:
        call.returned("halyard_rms_norm", halyard_rms_norm(context(), x, weight, eps, flags(), y));
        break;
    case 2:
        call.returned("halyard_partial_rms_norm",
                      halyard_partial_rms_norm(context(), x, weight, eps, flags(), number(0.25f), y));
        break;
    case 3:
        call.returned("halyard_add_layer_norm",
                      halyard_add_layer_norm(context(), x, residual, weight, bias, eps, sum, y));
        break;
    case 4:
        call.returned("halyard_add_rms_norm",
                      halyard_add_rms_norm(context(), x, residual, weight, eps, flags(), sum, y));
        break;
    }
}

void Session::norm_gradients() {
    Call call(in_, tensor_memory());
    const DLDataType type = dtype();
    const int width = in_.one_in(4) ? in_.in(0, 70) : 16;
    const Shape shape = leading().with(width), vector = Shape().with(width);
    const int kind = in_.in(0, 3);
    const DLTensor *x = call.input(shape, type), *dy = call.input(shape, type);
    const bool of_norm = kind < 3;  // and not of softmax
    const DLTensor *residual = of_norm && in_.one_in(2) ? call.input(shape, type) : nullptr;
    const DLTensor *weight = of_norm && in_.one_in(2) ? call.input(vector, vector_dtype(type)) : nullptr;
    constexpr DLDataType f32{kDLFloat, 32, 1};
    DLTensor *dx = call.output(shape, type);
    DLTensor *dweight = weight && in_.one_in(2) ? call.output(vector, f32) : nullptr;
    DLTensor *dbias = kind == 0 && in_.one_in(2) ? call.output(vector, f32) : nullptr;
    const float eps = number(1e-5f);
    const int accumulate = in_.in(0, 1);
    if (!call.may_be_made()) {
        return;
    }
    switch (kind) {
    case 0:
        call.returned(
            "halyard_layer_norm_backward",
            halyard_layer_norm_backward(context(), x, weight, eps, dy, residual, accumulate, dx, dweight, dbias));
        break;
    case 1:
        call.returned("halyard_rms_norm_backward", halyard_rms_norm_backward(context(), x, weight, eps, flags(), dy,
                                                                             residual, accumulate, dx, dweight));
        break;
    case 3:
        call.returned("halyard_softmax_backward", halyard_softmax_backward(context(), x, dy, number(0.5f), dx));
        break;
    case 2:
        call.returned("halyard_partial_rms_norm_backward",
                      halyard_partial_rms_norm_backward(context(), x, weight, eps, flags(), number(0.25f), dy, residual,
                                                        accumulate, dx, dweight));
        break;
    }
}

void Session::elementwise() {
    Call call(in_, tensor_memory());
    const DLDataType type = dtype();
    const int width = in_.one_in(4) ? in_.in(0, 70) : 16;
    const Shape before = leading(), shape = before.with(width);
    const int kind = in_.in(0, 11);
    const bool is_packed = kind == 4 || kind == 5 || kind == 10 || kind == 11;
    const bool is_backward = kind >= 7;
    const DLTensor *x = call.input(is_packed ? before.with(2 * width) : shape, type);
    const DLTensor *b = kind == 2 || kind == 3 || is_backward ? call.input(shape, type) : nullptr;
    const bool has_up = kind == 8 || kind == 9;
    const DLTensor *dy = has_up ? call.input(shape, type) : nullptr;
    DLTensor *y = call.output(is_packed && is_backward ? before.with(2 * width) : shape, kind == 6 ? dtype() : type);
    DLTensor *dup = has_up ? call.output(shape, type) : nullptr;
    if (!call.may_be_made()) {
        return;
    }
    switch (kind) {
    case 0: {
        const Unary f = in_.of(unary_functions);
        call.returned(f.name, f.call(context(), x, y));
        break;
    }
    case 1: {
        const UnaryBeta f = in_.of(unary_beta_functions);
        call.returned(f.name, f.call(context(), x, number(1.5f), y));
        break;
    }
    case 2: {
        const Binary f = in_.of(binary_functions);
        call.returned(f.name, f.call(context(), x, b, y));
        break;
    }
    case 3:
        call.returned("halyard_swiglu", halyard_swiglu(context(), x, b, number(1.5f), y));
        break;
    case 4: {
        const Packed f = in_.of(packed_functions);
        call.returned(f.name, f.call(context(), x, value<halyard_glu_layout>(3), y));
        break;
    }
    case 5:
        call.returned("halyard_swiglu_packed",
                      halyard_swiglu_packed(context(), x, value<halyard_glu_layout>(3), number(1.5f), y));
        break;
    case 6:
        call.returned("halyard_cast", halyard_cast(context(), x, y));
        break;
    case 7:
        call.returned("halyard_swish_backward", halyard_swish_backward(context(), x, b, number(1.5f), y));
        break;
    case 8: {
        const Backward f = in_.of(backward_functions);
        call.returned(f.name, f.call(context(), x, b, dy, y, dup));
        break;
    }
    case 9:
        call.returned("halyard_swiglu_backward", halyard_swiglu_backward(context(), x, b, dy, number(1.5f), y, dup));
        break;
    case 10: {
        const PackedBackward f = in_.of(packed_backward_functions);
        call.returned(f.name, f.call(context(), x, value<halyard_glu_layout>(3), b, y));
        break;
    }
    case 11:
        call.returned("halyard_swiglu_packed_backward",
                      halyard_swiglu_packed_backward(context(), x, value<halyard_glu_layout>(3), b, number(1.5f), y));
        break;
    }
}

// ---- weights and what is done with them ----

void Session::weights_create() {
    Call call(in_, tensor_memory());
    const DLDataType type = dtype();
    const std::int64_t out = in_.of(widths), in = in_.of(widths);
    halyard_pack_options options{};
    options.layout = value<halyard_weight_layout>(2);
    const Shape shape =
        options.layout == HALYARD_WEIGHT_IN_OUT ? Shape().with(in).with(out) : Shape().with(out).with(in);
    const DLTensor *weight = call.input(shape, type);
    options.up = in_.one_in(3) ? call.input(shape, type) : nullptr;
    options.norm_weight = in_.one_in(3) ? call.input(Shape().with(in), vector_dtype(type)) : nullptr;
    options.norm_bias = in_.one_in(5) ? call.input(Shape().with(in), vector_dtype(type)) : nullptr;
    options.norm_unit_offset = in_.one_in(8);
    options.device = device();
    options.quantization = quantization();
    const bool plain = !options.up && !options.norm_weight && !options.norm_bias;
    const halyard_pack_options *given = plain && in_.one_in(4) ? nullptr : &options;
    if (!call.may_be_made()) {
        return;
    }
    std::int64_t bytes = -77;
    const halyard_status status = halyard_weights_size(weight, given, in_.rarely() ? nullptr : &bytes);
    // Not `call`: it looks at shapes alone, so tensors without data are right.
    returned("halyard_weights_size", status, bytes, INT64_C(-77));
    pack("halyard_weights_pack", call, bytes, [&](void *memory, std::int64_t given_bytes, halyard_weights **made) {
        return halyard_weights_pack(context(), weight, given, memory, given_bytes, made);
    });
}

/** Mostly with a matrix of the weights' form. */
void Session::weights_update() {
    Call call(in_, tensor_memory());
    halyard_weights *weights = weights_[in_.in(0, places - 1)];
    halyard_weights_info info{};
    if (weights) {
        halyard_weights_get_info(weights, &info);
    }
    const DLDataType type = weights && !in_.rarely() ? info.dtype : dtype();
    const std::int64_t in = in_.rarely() ? 8 : info.in_features, out = in_.rarely() ? 8 : info.out_features;
    halyard_pack_options options{};
    options.layout = value<halyard_weight_layout>(2);
    const Shape shape =
        options.layout == HALYARD_WEIGHT_IN_OUT ? Shape().with(in).with(out) : Shape().with(out).with(in);
    const DLTensor *weight = call.input(shape, type);
    options.up = (info.gated != 0) != in_.rarely() ? call.input(shape, type) : nullptr;
    const bool folds_weight = info.norm_folded != 0 && in_.one_in(2),
               folds_bias = info.norm_folded != 0 && in_.one_in(2);
    options.norm_weight = folds_weight ? call.input(Shape().with(in), vector_dtype(type)) : nullptr;
    options.norm_bias = folds_bias ? call.input(Shape().with(in), vector_dtype(type)) : nullptr;
    options.norm_unit_offset = (info.norm_folded != 0) != in_.rarely();
    options.device = device();
    options.quantization = in_.rarely() ? quantization() : halyard_quantization{};
    if (call.may_be_made()) {
        call.returned("halyard_weights_update", halyard_weights_update(context(), weights, weight, &options));
    }
}

/** Makes weights of `bytes` bytes, if they are that many, in memory of the caller or of the library. */
template<typename Pack>
void Session::pack(const char *name, Call &call, std::int64_t bytes, const Pack &pack) {
    const int place = in_.in(0, places - 1);
    halyard_weights_destroy(weights_[place]);
    weights_[place] = nullptr;
    void *memory = nullptr;
    std::int64_t given_bytes = number(INT64_C(0));
    if (bytes > 0 && bytes <= static_cast<std::int64_t>(HandleMemory::piece_bytes) && in_.one_in(2)) {
        // At the end of the piece as far as their alignment allows.
        memory = handle_memory().end(place) - (bytes + 63) / 64 * 64 + (in_.rarely() ? 4 : 0);
        given_bytes = number(bytes);
    }
    make(name, call, weights_[place], [&](halyard_weights **made) { return pack(memory, given_bytes, made); });
}

/** With tensors as the format has them. */
halyard_codes Session::tensors_of(Call &call, const halyard_codes &numbers) {
    halyard_codes codes = numbers;
    const std::int64_t in = numbers.in_features, out = numbers.out_features;
    const auto codes_in = [](std::int64_t count, int bits) { return (count * bits + 31) / 32; };
    const auto tensor = [&](std::int64_t rows, std::int64_t columns, DLDataType type) {
        return call.codes(Shape().with(rows).with(columns), type);
    };
    constexpr DLDataType u8{kDLUInt, 8, 1}, i8{kDLInt, 8, 1}, i32{kDLInt, 32, 1};
    constexpr int block_bytes[] = {34, 18, 20, 22, 24, 144, 176, 210};
    if (codes.format < HALYARD_CODES_INT8) {
        const int block_inputs = codes.format < HALYARD_CODES_Q4_K ? 32 : 256;
        codes.matrix = tensor(out, in / block_inputs * block_bytes[codes.format], u8);
        return codes;
    }
    const int bits = codes.bits != 0 ? codes.bits : 4;
    const bool has_zeros = in_.one_in(2);
    const std::int64_t groups = codes.group > 0 ? (in + codes.group - 1) / codes.group : 1;
    switch (codes.format) {
    case HALYARD_CODES_INT8:
        codes.matrix = tensor(out, in, i8);
        codes.zeros = has_zeros ? tensor(out, groups, i8) : nullptr;
        break;
    case HALYARD_CODES_COMPRESSED_TENSORS:
        codes.matrix = tensor(out, codes_in(in, bits), i32);
        codes.zeros = has_zeros ? tensor(codes_in(out, bits), groups, i32) : nullptr;
        break;
    default:
        codes.matrix = codes.format == HALYARD_CODES_AWQ ? tensor(in, codes_in(out, bits), i32)
                                                         : tensor(codes_in(in, bits), out, i32);
        codes.zeros = has_zeros ? tensor(groups, codes_in(out, bits), i32) : nullptr;
    }
    const bool transposed = codes.format >= HALYARD_CODES_GPTQ;
    const Shape scales = transposed ? Shape().with(groups).with(out) : Shape().with(out).with(groups);
    codes.scales = call.input(scales, dtype());
    codes.g_idx = in_.one_in(4) ? call.indices(Shape().with(in), in_.one_in(2) ? 1 : groups) : nullptr;
    return codes;
}

/** A format whose tensors can be made, where a number is of none. */
halyard_code_format known(halyard_code_format format) {
    return format >= 0 && format <= HALYARD_CODES_AWQ ? format : HALYARD_CODES_INT8;
}

/** All but the tensors, mostly right. */
halyard_codes Session::code_numbers() {
    halyard_codes numbers{};
    numbers.format = value<halyard_code_format>(13);
    const halyard_code_format format = known(numbers.format);
    const bool chosen_bits = format >= HALYARD_CODES_COMPRESSED_TENSORS && format <= HALYARD_CODES_GPTQ_V2;
    numbers.bits = in_.rarely() ? in_.any<int>() % 64 : chosen_bits ? in_.of({4, 8}) : 0;
    numbers.in_features = number(format < HALYARD_CODES_Q4_K   ? INT64_C(32)
                                 : format < HALYARD_CODES_INT8 ? INT64_C(256)
                                                               : in_.of(widths));
    numbers.out_features = in_.of(widths);
    numbers.group = number(format < HALYARD_CODES_INT8 ? INT64_C(0) : in_.of({INT64_C(0), INT64_C(16), INT64_C(48)}));
    return numbers;
}

/** With tensors, as far as there are any for these numbers. */
halyard_codes Session::codes_of(Call &call, const halyard_codes &numbers) {
    halyard_codes shaped = numbers;
    shaped.format = known(numbers.format);
    if (numbers.in_features < 1 || numbers.in_features > 512 || numbers.group < 0 || numbers.group > 512 ||
        (numbers.bits != 0 && numbers.bits != 4 && numbers.bits != 8)) {
        shaped.in_features = 16;
        shaped.group = shaped.bits = 0;
    }
    halyard_codes codes = tensors_of(call, shaped);
    codes.format = numbers.format;
    codes.bits = numbers.bits;
    codes.in_features = numbers.in_features;
    codes.group = numbers.group;
    return codes;
}

void Session::dequantize() {
    Call call(in_, tensor_memory());
    const halyard_codes codes = codes_of(call, code_numbers());
    const halyard_codes *const given = in_.rarely() ? nullptr : &codes;
    const bool shown = codes.in_features > 0 && codes.in_features <= 512;
    DLTensor *y = call.output(Shape().with(codes.out_features).with(shown ? codes.in_features : 16), dtype());
    if (call.may_be_made()) {
        call.returned("halyard_dequantize", halyard_dequantize(context(), given, y));
    }
}

void Session::weights_of_codes() {
    Call call(in_, tensor_memory());
    const halyard_codes numbers = code_numbers();
    const bool has_up = in_.one_in(3);
    const halyard_codes codes = codes_of(call, numbers), up = has_up ? codes_of(call, numbers) : codes;
    const halyard_codes *const first = in_.rarely() ? nullptr : &codes, *const second = has_up ? &up : nullptr;
    if (!call.may_be_made()) {
        return;
    }
    std::int64_t bytes = -77;
    returned("halyard_weights_codes_size", halyard_weights_codes_size(first, second, in_.rarely() ? nullptr : &bytes),
             bytes, INT64_C(-77));
    pack("halyard_weights_pack_codes", call, bytes, [&](void *memory, std::int64_t given, halyard_weights **made) {
        return halyard_weights_pack_codes(context(), first, second, memory, given, made);
    });
}

void Session::weights_other() {
    const int place = in_.in(0, places - 1);
    halyard_weights *&weights = weights_[place];
    halyard_weights_info info, before;
    std::memset(&info, 0x5a, sizeof info);
    before = info;
    switch (in_.in(0, 7)) {
    case 0:
    case 1:
    case 2:
        returned("halyard_weights_get_info", halyard_weights_get_info(weights, in_.rarely() ? nullptr : &info), info,
                 before);
        break;
    case 3:
        if ((halyard_weights_data(weights) == nullptr) != (weights == nullptr)) {
            failed("halyard_weights_data is null for weights");
        }
        count_call("halyard_weights_data", true);
        break;
    case 4: {
        // Weights of another place are put into memory, perhaps with a mistake.
        const halyard_weights *source = weights_[(place + 1) % places];
        char *memory = handle_memory().begin(place);
        std::int64_t bytes = 4096;
        if (weights) {
            halyard_weights_destroy(weights);
            weights = nullptr;
        }
        if (source && halyard_weights_get_info(source, &info) == HALYARD_OK &&
            info.bytes <= static_cast<std::int64_t>(HandleMemory::piece_bytes)) {
            bytes = info.bytes;
            memory = handle_memory().end(place) - (bytes + 63) / 64 * 64;
            std::memcpy(memory, halyard_weights_data(source), static_cast<std::size_t>(bytes));
        }
        if (in_.one_in(4)) {
            memory[in_.any<std::uint16_t>() % bytes] = static_cast<char>(in_.byte());
        }
        std::int64_t given =
            in_.rarely() ? in_.of({INT64_C(-1), INT64_C(0), INT64_C(127), bytes - 1, bytes - 64}) : bytes;
        Call call(in_, tensor_memory());
        make("halyard_weights_from_memory", call, weights, [&](halyard_weights **made) {
            return halyard_weights_from_memory(in_.rarely() ? nullptr : memory, given, made);
        });
        break;
    }
    case 5:
        // Files take long.
        if (in_.one_in(16)) {
            returned("halyard_weights_save",
                     halyard_weights_save(weights, in_.rarely() ? in_.of({static_cast<const char *>(nullptr), "",
                                                                          "/nowhere/weights", folder().path()})
                                                                : folder().file()));
        }
        break;
    case 6:
        if (in_.one_in(8)) {
            halyard_weights_destroy(weights);
            weights = nullptr;
            Call call(in_, tensor_memory());
            make("halyard_weights_load", call, weights, [&](halyard_weights **made) {
                return halyard_weights_load(in_.rarely() ? in_.of({static_cast<const char *>(nullptr), "", "/dev/null",
                                                                   "/proc/self/exe", folder().path()})
                                                         : folder().file(),
                                            made);
            });
        }
        break;
    case 7:
        halyard_weights_destroy(weights);
        weights = nullptr;
        count_call("halyard_weights_destroy", true);
        break;
    }
}

void Session::linear() {
    Call call(in_, tensor_memory());
    const halyard_weights *weights = weights_[in_.in(0, places - 1)];
    halyard_weights_info info{};
    if (weights) {
        halyard_weights_get_info(weights, &info);
    }
    const Shape before = leading();
    const Shape of_rows = before.rank > 0 ? before : Shape().with(1), of_columns = Shape().with(info.out_features);
    const DLDataType type = dtype();
    const DLTensor *x = call.input(before.with(info.in_features), dtype());
    halyard_linear_options options{};
    options.row_scale = in_.one_in(3) ? call.input(of_rows, f32) : nullptr;
    options.row_mean = in_.one_in(4) ? call.input(of_rows, f32) : nullptr;
    options.bias = in_.one_in(3) ? call.input(of_columns, dtype()) : nullptr;
    options.bias_up = in_.one_in(4) ? call.input(of_columns, dtype()) : nullptr;
    options.activation = value<halyard_activation>(10);
    options.beta = number(1.5f);
    options.residual = in_.one_in(3) ? call.input(before.with(info.out_features), type) : nullptr;
    DLTensor *y = call.output(before.with(info.out_features), type);
    options.sums = in_.one_in(4) ? call.output(before.with(info.out_features), f32) : nullptr;
    options.sums_up = in_.one_in(6) ? call.output(before.with(info.out_features), f32) : nullptr;
    if (call.may_be_made()) {
        // Without its options the call does not see their tensors.
        const bool plain = !options.row_scale && !options.row_mean && !options.bias && !options.bias_up &&
                           !options.residual && !options.sums && !options.sums_up;
        call.returned("halyard_linear",
                      halyard_linear(context(), x, weights, plain && in_.one_in(2) ? nullptr : &options, y));
    }
}

void Session::linear_gradients() {
    Call call(in_, tensor_memory());
    const halyard_weights *weights = weights_[in_.in(0, places - 1)];
    halyard_weights_info info{};
    if (weights) {
        halyard_weights_get_info(weights, &info);
    }
    const DLDataType type = in_.one_in(8) ? dtype() : f32;
    const Shape before = leading(), of_x = before.with(info.in_features), of_y = before.with(info.out_features);
    const DLTensor *x = call.input(of_x, type), *dy = call.input(of_y, type);
    halyard_linear_options options{};
    options.activation = value<halyard_activation>(10);
    options.beta = number(1.5f);
    // Read here, though forward calls write them.
    options.sums = in_.one_in(4) ? nullptr : const_cast<DLTensor *>(call.input(of_y, type));
    options.sums_up = info.gated ? const_cast<DLTensor *>(call.input(of_y, type)) : nullptr;
    halyard_linear_gradients gradients{};
    gradients.layout = value<halyard_weight_layout>(1);
    gradients.accumulate = in_.in(0, 1);
    const Shape of_bias = Shape().with(info.out_features);
    const Shape of_weight = gradients.layout == HALYARD_WEIGHT_IN_OUT
                                ? Shape().with(info.in_features).with(info.out_features)
                                : of_bias.with(info.in_features);
    gradients.dx = in_.one_in(3) ? nullptr : call.output(of_x, type);
    gradients.dweight = in_.one_in(3) ? nullptr : call.output(of_weight, f32);
    gradients.dbias = in_.one_in(3) ? nullptr : call.output(of_bias, f32);
    gradients.dweight_up = info.gated && in_.one_in(2) ? call.output(of_weight, f32) : nullptr;
    gradients.dbias_up = info.gated && in_.one_in(2) ? call.output(of_bias, f32) : nullptr;
    if (call.may_be_made()) {
        call.returned("halyard_linear_backward",
                      halyard_linear_backward(context(), x, weights, dy, &options, &gradients));
    }
}

void Session::norm_scales() {
    Call call(in_, tensor_memory());
    const Shape before = leading(), of_rows = before.rank > 0 ? before : Shape().with(1);
    const DLTensor *x = call.input(before.with(in_.in(0, 40)), dtype());
    const bool layer_norm = in_.one_in(2);
    DLTensor *mean = layer_norm ? call.output(of_rows, f32) : nullptr;
    DLTensor *scale = call.output(of_rows, f32);
    if (!call.may_be_made()) {
        return;
    }
    if (layer_norm) {
        call.returned("halyard_layer_norm_scale", halyard_layer_norm_scale(context(), x, number(1e-5f), mean, scale));
    } else {
        call.returned("halyard_rms_norm_scale",
                      halyard_rms_norm_scale(context(), x, number(1e-5f), in_.one_in(4) ? flags() : 0, scale));
    }
}

void Session::ffn() {
    Call call(in_, tensor_memory());
    const halyard_weights *up = weights_[in_.in(0, places - 1)], *down = weights_[in_.in(0, places - 1)];
    halyard_weights_info info{}, down_info{};
    if (up && down) {
        halyard_weights_get_info(up, &info);
        halyard_weights_get_info(down, &down_info);
    }
    const DLDataType type = dtype();
    const Shape before = leading(), vector = Shape().with(info.in_features);
    const DLTensor *x = call.input(before.with(info.in_features), type);
    halyard_ffn_options options{};
    options.norm = value<halyard_norm>(3);
    options.norm_weight = in_.one_in(3) ? call.input(vector, vector_dtype(type)) : nullptr;
    options.norm_bias = in_.one_in(8) ? call.input(vector, vector_dtype(type)) : nullptr;
    options.eps = number(1e-5f);
    options.norm_flags = in_.one_in(8) ? flags() : 0;
    options.deferred_norm = info.norm_folded != 0;
    options.activation = value<halyard_activation>(10);
    options.beta = number(1.5f);
    options.bias = in_.one_in(3) ? call.input(Shape().with(info.out_features), dtype()) : nullptr;
    options.bias_up = in_.one_in(8) ? call.input(Shape().with(info.out_features), dtype()) : nullptr;
    options.bias_down = in_.one_in(3) ? call.input(Shape().with(down_info.out_features), dtype()) : nullptr;
    options.residual = in_.one_in(3);
    DLTensor *y = call.output(before.with(info.in_features), options.residual ? type : dtype());
    options.sums = in_.one_in(4) ? call.output(before.with(info.out_features), f32) : nullptr;
    options.sums_up = in_.one_in(6) ? call.output(before.with(info.out_features), f32) : nullptr;
    if (call.may_be_made()) {
        const bool plain = !options.norm_weight && !options.norm_bias && !options.bias && !options.bias_up &&
                           !options.bias_down && !options.sums && !options.sums_up;
        call.returned("halyard_ffn",
                      halyard_ffn(context(), x, up, down, plain && in_.one_in(4) ? nullptr : &options, y));
    }
}

void Session::ffn_gradients() {
    Call call(in_, tensor_memory());
    const halyard_weights *up = weights_[in_.in(0, places - 1)], *down = weights_[in_.in(0, places - 1)];
    halyard_weights_info info{};
    if (up) {
        halyard_weights_get_info(up, &info);
    }
    const DLDataType type = in_.one_in(8) ? dtype() : f32;
    const Shape before = leading(), of_x = before.with(info.in_features), of_sums = before.with(info.out_features);
    const Shape model = Shape().with(info.in_features), hidden = Shape().with(info.out_features);
    const DLTensor *x = call.input(of_x, type), *dy = call.input(of_x, type);
    halyard_ffn_options options{};
    options.norm = value<halyard_norm>(3);
    options.norm_weight = options.norm != HALYARD_NORM_NONE ? call.input(model, type) : nullptr;
    options.eps = number(1e-5f);
    options.norm_flags = in_.one_in(8) ? flags() : 0;
    options.activation = value<halyard_activation>(10);
    options.beta = number(1.5f);
    options.residual = in_.one_in(3);
    // Read here, though forward calls write them.
    options.sums = in_.one_in(8) ? nullptr : const_cast<DLTensor *>(call.input(of_sums, type));
    options.sums_up = info.gated ? const_cast<DLTensor *>(call.input(of_sums, type)) : nullptr;
    halyard_ffn_gradients gradients{};
    gradients.layout = value<halyard_weight_layout>(1);
    gradients.accumulate = in_.in(0, 1);
    const bool in_out = gradients.layout == HALYARD_WEIGHT_IN_OUT;
    const Shape first = in_out ? model.with(info.out_features) : hidden.with(info.in_features),
                second = in_out ? hidden.with(info.in_features) : model.with(info.out_features);
    gradients.dx = in_.one_in(3) ? nullptr : call.output(of_x, type);
    gradients.dweight = in_.one_in(3) ? nullptr : call.output(first, f32);
    gradients.dweight_up = info.gated && in_.one_in(2) ? call.output(first, f32) : nullptr;
    gradients.dweight_down = in_.one_in(3) ? nullptr : call.output(second, f32);
    gradients.dbias = in_.one_in(2) ? nullptr : call.output(hidden, f32);
    gradients.dbias_up = info.gated && in_.one_in(2) ? call.output(hidden, f32) : nullptr;
    gradients.dbias_down = in_.one_in(2) ? nullptr : call.output(model, f32);
    gradients.dnorm_weight = options.norm_weight && in_.one_in(2) ? call.output(model, f32) : nullptr;
    gradients.dnorm_bias = options.norm == HALYARD_NORM_LAYER && in_.one_in(2) ? call.output(model, f32) : nullptr;
    if (call.may_be_made()) {
        call.returned("halyard_ffn_backward", halyard_ffn_backward(context(), x, up, down, dy, &options, &gradients));
    }
}

// ---- rotary embedding, caches, attention ----

halyard_rope_options Session::rope_options(std::int64_t head_dim) {
    halyard_rope_options o{};
    o.head_dim = number(head_dim);
    o.rotary_dim = number(in_.one_in(3) ? INT64_C(4) : INT64_C(0));
    o.max_positions = number(INT64_C(20));
    o.rope_theta = static_cast<double>(number(10000.0f));
    o.interleaved = in_.one_in(3);
    o.scaling = value<halyard_rope_scaling>(3);
    o.factor = static_cast<double>(number(8.0f));
    o.low_freq_factor = static_cast<double>(number(1.0f));
    o.high_freq_factor = static_cast<double>(number(4.0f));
    o.original_max_position_embeddings = number(INT64_C(8));
    return o;
}

void Session::ropes() {
    halyard_rope *&rope = ropes_[in_.in(0, places - 1)];
    const int kind = in_.in(0, 7);
    halyard_rope_options options, before;
    std::memset(&options, 0x5a, sizeof options);
    before = options;
    if (kind <= 1) {
        halyard_rope_destroy(rope);
        rope = nullptr;
        if (kind == 1) {
            count_call("halyard_rope_destroy", true);
            return;
        }
        options = rope_options(in_.of({INT64_C(8), INT64_C(4), INT64_C(6), INT64_C(16)}));
        Call call(in_, tensor_memory());
        make("halyard_rope_create", call, rope,
             [&](halyard_rope **made) { return halyard_rope_create(in_.rarely() ? nullptr : &options, made); });
        return;
    }
    const halyard_status status = halyard_rope_get_options(rope, kind == 2 && in_.rarely() ? nullptr : &options);
    returned("halyard_rope_get_options", status, options, before);
    if (kind == 2) {
        return;
    }
    const std::int64_t head_dim = status == HALYARD_OK ? options.head_dim : 8;
    Call call(in_, tensor_memory());
    const DLDataType type = dtype();
    Shape tokens;
    const bool batched = in_.one_in(2);
    if (batched) {
        tokens = tokens.with(in_.in(0, 3));
    }
    const int count = in_.in(0, 5);
    tokens = tokens.with(count);
    const Shape shape = tokens.with(in_.in(1, 3)).with(head_dim);
    const DLTensor *x = call.input(shape, type);
    const DLTensor *positions =
        in_.one_in(2) ? call.indices(in_.one_in(2) ? tokens : Shape().with(count), 20) : nullptr;
    DLTensor *y = call.output(shape, type);
    if (call.may_be_made()) {
        if (in_.one_in(3)) {
            call.returned("halyard_rope_apply_backward", halyard_rope_apply_backward(context(), rope, x, positions, y));
        } else {
            call.returned("halyard_rope_apply", halyard_rope_apply(context(), rope, x, positions, y));
        }
    }
}

void Session::cache_create() {
    const int place = in_.in(0, places - 1);
    halyard_kv_cache_destroy(caches_[place]);
    caches_[place] = nullptr;
    halyard_kv_cache_options options{};
    options.n_layers = number(static_cast<std::int64_t>(in_.in(1, 3)));
    options.n_sequences = number(static_cast<std::int64_t>(in_.in(1, 3)));
    options.n_kv_heads = number(static_cast<std::int64_t>(in_.in(1, 2)));
    options.head_dim = number(in_.of({INT64_C(8), INT64_C(4), INT64_C(16)}));
    options.max_positions = number(static_cast<std::int64_t>(in_.in(1, 20)));
    options.dtype = in_.rarely() ? in_.any<DLDataType>() : dtype();
    std::int64_t bytes = -77;
    const halyard_status status = halyard_kv_cache_size(&options, in_.rarely() ? nullptr : &bytes);
    returned("halyard_kv_cache_size", status, bytes, INT64_C(-77));
    void *memory = nullptr;
    std::int64_t given_bytes = number(INT64_C(0));
    if (status == HALYARD_OK && bytes > 0 && bytes <= static_cast<std::int64_t>(HandleMemory::piece_bytes) &&
        in_.one_in(2)) {
        memory = handle_memory().end(places + place) - (bytes + 63) / 64 * 64 + (in_.rarely() ? 4 : 0);
        given_bytes = number(bytes);
    }
    Call call(in_, tensor_memory());
    if (in_.one_in(2)) {
        make("halyard_kv_cache_create", call, caches_[place], [&](halyard_kv_cache **made) {
            return halyard_kv_cache_create(in_.rarely() ? nullptr : &options, memory, given_bytes, made);
        });
    } else {
        DLDevice where = device();
        where.device_type = where.device_type == DLDevice{}.device_type ? kDLCPU : where.device_type;
        make("halyard_kv_cache_create_on_device", call, caches_[place], [&](halyard_kv_cache **made) {
            return halyard_kv_cache_create_on_device(&options, where, memory, given_bytes, made);
        });
    }
}

void Session::caches() {
    halyard_kv_cache *&cache = caches_[in_.in(0, places - 1)];
    halyard_kv_cache_options options, before;
    std::memset(&options, 0x5a, sizeof options);
    before = options;
    const int kind = in_.in(0, 9);
    const halyard_status status = halyard_kv_cache_get_options(cache, kind == 0 && in_.rarely() ? nullptr : &options);
    returned("halyard_kv_cache_get_options", status, options, before);
    if (status != HALYARD_OK) {
        options = {1, 1, 1, 8, 16, f32};
    }
    const std::int64_t layer = number(static_cast<std::int64_t>(in_.in(0, 2)) % options.n_layers);
    const std::int64_t sequence = number(static_cast<std::int64_t>(in_.in(0, 2)) % options.n_sequences);
    const Lengths lengths(cache);
    if (kind == 1) {
        const std::int64_t length = halyard_kv_cache_length(cache, layer, sequence);
        if (length < -1 || length > options.max_positions) {
            failed("a cache has the length %lld", static_cast<long long>(length));
        }
        count_call("halyard_kv_cache_length", true);
    } else if (kind == 2) {
        const halyard_status result =
            halyard_kv_cache_truncate(cache, sequence, number(static_cast<std::int64_t>(in_.in(0, 4))));
        returned("halyard_kv_cache_truncate", result);
        lengths.check("halyard_kv_cache_truncate", result, cache);
    } else if (kind == 3) {
        if (in_.one_in(4)) {
            halyard_kv_cache_destroy(cache);
            cache = nullptr;
            count_call("halyard_kv_cache_destroy", true);
        }
    } else if (kind <= 6) {
        Call call(in_, tensor_memory());
        const int batch = in_.in(0, 2);
        const Shape tokens = batch == 0 ? Shape() : Shape().with(batch);
        const Shape shape = tokens.with(in_.in(0, 4)).with(options.n_kv_heads).with(options.head_dim);
        const DLTensor *k = call.input(shape, dtype()), *v = call.input(shape, dtype());
        const std::int64_t *sequences = call.sequences(batch == 0 ? 1 : batch);
        if (call.may_be_made()) {
            const halyard_status result = halyard_kv_cache_append(context(), cache, layer, sequences, k, v);
            call.returned("halyard_kv_cache_append", result);
            lengths.check("halyard_kv_cache_append", result, cache);
        }
    } else if (kind >= 7) {
        Call call(in_, tensor_memory());
        const Shape shape = Shape().with(in_.in(0, 3)).with(options.n_kv_heads).with(options.head_dim);
        DLTensor *k = in_.one_in(4) ? nullptr : call.output(shape, dtype());
        DLTensor *v = in_.one_in(4) ? nullptr : call.output(shape, dtype());
        if (call.may_be_made()) {
            call.returned("halyard_kv_cache_read",
                          halyard_kv_cache_read(context(), cache, layer, sequence,
                                                number(static_cast<std::int64_t>(in_.in(0, 3))), k, v));
        }
    }
}

void Session::attention() {
    Call call(in_, tensor_memory());
    halyard_kv_cache *cache = in_.one_in(2) ? caches_[in_.in(0, places - 1)] : nullptr;
    const bool cached = cache || in_.one_in(8);
    halyard_kv_cache_options of_cache{1, 1, in_.in(1, 2), in_.of({INT64_C(8), INT64_C(4), INT64_C(5)}), 16, f32};
    if (cache) {
        halyard_kv_cache_get_options(cache, &of_cache);
    }
    const int batch = in_.in(0, 2), queries = in_.in(0, 4), group = in_.in(1, 2);
    const int keys = cached ? queries : queries + in_.in(0, 3);
    const Shape first = batch == 0 ? Shape() : Shape().with(batch);
    const Shape shape = first.with(queries).with(of_cache.n_kv_heads * group).with(of_cache.head_dim);
    const Shape kv_shape = first.with(keys).with(of_cache.n_kv_heads).with(of_cache.head_dim);
    const DLTensor *q = call.input(shape, dtype());
    const DLTensor *k = call.input(kv_shape, dtype()), *v = call.input(kv_shape, dtype());
    halyard_attention_options options{};
    options.scale = number(in_.one_in(2) ? 0.0f : 0.5f);
    options.causal = in_.one_in(2);
    options.sliding_window = number(in_.one_in(3) ? INT64_C(3) : INT64_C(0));
    options.softcap = number(in_.one_in(3) ? 30.0f : 0.0f);
    options.q_norm_weight = in_.one_in(4) ? call.input(Shape().with(of_cache.head_dim), dtype()) : nullptr;
    options.k_norm_weight = in_.one_in(4) ? call.input(Shape().with(of_cache.head_dim), dtype()) : nullptr;
    options.qk_norm_eps = number(1e-6f);
    options.qk_norm_flags = in_.one_in(4) ? flags() : 0;
    options.rope = in_.one_in(3) ? ropes_[in_.in(0, places - 1)] : nullptr;
    DLTensor *y = call.output(shape, dtype());
    options.log_sum_exp =
        in_.one_in(4) ? call.output(first.with(queries).with(of_cache.n_kv_heads * group), f32) : nullptr;
    // Without options none of their tensors may be one that a call must refuse.
    const bool plain = !options.q_norm_weight && !options.k_norm_weight && !options.log_sum_exp && in_.one_in(4);
    const halyard_attention_options *given = plain ? nullptr : &options;
    if (!cached) {
        if (call.may_be_made()) {
            call.returned("halyard_attention", halyard_attention(context(), q, k, v, given, y));
        }
        return;
    }
    const std::int64_t *sequences = call.sequences(batch == 0 ? 1 : batch);
    if (call.may_be_made()) {
        const std::int64_t layer = number(static_cast<std::int64_t>(in_.in(0, 2)) % of_cache.n_layers);
        const Lengths lengths(cache);
        const halyard_status status = halyard_attention_cached(context(), q, k, v, cache, layer, sequences, given, y);
        call.returned("halyard_attention_cached", status);
        lengths.check("halyard_attention_cached", status, cache);
    }
}

void Session::attention_gradients() {
    Call call(in_, tensor_memory());
    const int batch = in_.in(0, 2), queries = in_.in(0, 4), heads = in_.in(1, 2), group = in_.in(1, 2);
    const std::int64_t head_dim = in_.of({INT64_C(8), INT64_C(4), INT64_C(5)});
    const Shape first = batch == 0 ? Shape() : Shape().with(batch), before = first.with(queries).with(heads * group);
    const Shape shape = before.with(head_dim);
    const Shape kv_shape = first.with(queries + in_.in(0, 3)).with(heads).with(head_dim);
    const DLDataType type = in_.one_in(8) ? dtype() : f32;
    const DLTensor *q = call.input(shape, type), *k = call.input(kv_shape, type), *v = call.input(kv_shape, type);
    const DLTensor *y = call.input(shape, type), *sums = call.input(before, type), *dy = call.input(shape, type);
    halyard_attention_options options{};
    options.scale = number(in_.one_in(2) ? 0.0f : 0.5f);
    options.causal = in_.one_in(2);
    options.sliding_window = number(in_.one_in(3) ? INT64_C(3) : INT64_C(0));
    options.softcap = number(in_.one_in(3) ? 30.0f : 0.0f);
    options.rope = in_.one_in(8) ? ropes_[in_.in(0, places - 1)] : nullptr;
    DLTensor *dq = in_.one_in(3) ? nullptr : call.output(shape, type);
    DLTensor *dk = in_.one_in(3) ? nullptr : call.output(kv_shape, type);
    DLTensor *dv = in_.one_in(3) ? nullptr : call.output(kv_shape, type);
    if (call.may_be_made()) {
        call.returned("halyard_attention_backward",
                      halyard_attention_backward(context(), q, k, v, y, sums, dy, in_.one_in(4) ? nullptr : &options,
                                                 dq, dk, dv));
    }
}

// ---- training ----

void Session::losses() {
    Call call(in_, tensor_memory());
    const int classes = in_.one_in(4) ? in_.in(0, 70) : 16;
    const DLDataType type = in_.one_in(8) ? dtype() : f32;
    Shape rows = leading();
    const Shape shape = rows.with(classes);
    rows = shape.rank > 1 ? rows : Shape().with(1);
    const DLTensor *targets = call.indices(rows, std::max(classes, 1));
    halyard_cross_entropy_options options{};
    options.has_ignore_index = in_.one_in(2);
    options.ignore_index = number(INT64_C(3));
    options.gradient_scale = number(0.5f);
    const halyard_cross_entropy_options *given = in_.one_in(4) ? nullptr : &options;
    if (in_.one_in(4)) {
        const DLTensor *losses = call.input(rows, type);
        double mean = 0;
        std::int64_t count = 0;
        if (call.may_be_made()) {
            call.returned("halyard_mean_loss", halyard_mean_loss(losses, targets, given, in_.rarely() ? nullptr : &mean,
                                                                 in_.one_in(2) ? nullptr : &count));
        }
        return;
    }
    const DLTensor *logits = call.input(shape, type);
    DLTensor *losses = in_.one_in(3) ? nullptr : call.output(rows, f32);
    DLTensor *dlogits = in_.one_in(3) ? nullptr : call.output(shape, type);
    if (call.may_be_made()) {
        call.returned("halyard_cross_entropy",
                      halyard_cross_entropy(context(), logits, targets, given, losses, dlogits));
    }
}

void Session::embedding_gradients() {
    Call call(in_, tensor_memory());
    const int width = in_.one_in(4) ? in_.in(0, 70) : 16, vocabulary = in_.in(0, 12);
    const DLDataType type = in_.one_in(8) ? dtype() : f32;
    const Shape rows = leading(), shape = rows.with(width);
    const DLTensor *ids = call.indices(shape.rank > 1 ? rows : Shape().with(1), std::max(vocabulary, 1));
    const DLTensor *dy = call.input(shape, type);
    DLTensor *table = call.output(Shape().with(vocabulary).with(width), type);
    if (call.may_be_made()) {
        call.returned("halyard_embedding_backward",
                      halyard_embedding_backward(context(), ids, dy, in_.in(0, 1), table));
    }
}

// ---- blocks and stacks ----

/** Features of blocks: few, or as many as a block of GGUF has. */
constexpr std::int64_t few = 16, coded = 32, block_head_dim = 8;

/** Width of the network, so that its down projection has whole blocks of GGUF too. */
constexpr std::int64_t wide_of(std::int64_t hidden) {
    return hidden == coded ? 32 : 24;
}

halyard_block_config Session::block_config(std::int64_t hidden) {
    halyard_block_config c{};
    c.hidden_size = number(hidden);
    c.intermediate_size = number(wide_of(hidden));
    c.num_attention_heads = number(hidden / block_head_dim);
    c.num_key_value_heads = number(static_cast<std::int64_t>(in_.in(0, 2)));
    c.head_dim = number(in_.one_in(2) ? INT64_C(8) : INT64_C(0));
    c.norm = value<halyard_norm>(3);
    c.norm_placement = value<halyard_norm_placement>(5);
    c.rms_norm_eps = number(1e-5f);
    c.norm_flags = in_.one_in(4) ? flags() : 0;
    c.hidden_act = value<halyard_activation>(10);
    c.swish_beta = number(1.5f);
    c.gated_mlp = in_.one_in(2);
    c.causal = !in_.one_in(4);
    c.sliding_window = number(in_.one_in(4) ? INT64_C(3) : INT64_C(0));
    c.query_pre_attn_scalar = number(0.0f);
    c.attn_logit_softcapping = number(in_.one_in(4) ? 30.0f : 0.0f);
    if (in_.one_in(2)) {
        c.rope = rope_options(in_.one_in(2) ? 8 : 0);
    }
    c.max_position_embeddings = number(INT64_C(20));
    return c;
}

/** Puts codes of matrices of 32 features into `codes`, which has place for 8, and `w`. */
void Session::coded_matrices(Call &call, std::int64_t kv, halyard_codes *codes, halyard_block_weights &w) {
    const bool mixed = in_.one_in(3);
    const auto format = [&] {
        return in_.of({HALYARD_CODES_Q8_0, HALYARD_CODES_Q4_1, HALYARD_CODES_INT8, HALYARD_CODES_AWQ});
    };
    const halyard_code_format of_all = format();
    const auto matrix = [&](std::int64_t out) {
        halyard_codes numbers{};
        numbers.format = mixed ? format() : of_all;
        numbers.in_features = coded;
        numbers.out_features = out;
        *codes = codes_of(call, numbers);
        return codes++;
    };
    if (in_.one_in(4)) {
        w.codes.qkv_proj = matrix(coded + 2 * kv);
    } else {
        w.codes.q_proj = matrix(coded);
        w.codes.k_proj = matrix(kv);
        w.codes.v_proj = matrix(kv);
    }
    w.codes.o_proj = matrix(coded);
    w.codes.gate_proj = in_.one_in(2) ? matrix(coded) : nullptr;
    w.codes.up_proj = matrix(coded);
    w.codes.down_proj = matrix(coded);
}

/** Some of the biases and norms that go with the matrices. */
void Session::block_vectors(Call &call, const halyard_block_config &config, std::int64_t hidden, std::int64_t kv,
                            halyard_block_weights &w) {
    const auto vector = [&](std::int64_t width) {
        return in_.one_in(5) ? call.input(Shape().with(width), dtype()) : nullptr;
    };
    const std::int64_t wide = wide_of(hidden);
    if (w.qkv_proj || w.codes.qkv_proj) {
        w.qkv_proj_bias = vector(hidden + 2 * kv);
    } else {
        w.q_proj_bias = vector(hidden);
        w.k_proj_bias = vector(kv);
        w.v_proj_bias = vector(kv);
    }
    w.o_proj_bias = vector(hidden);
    w.q_norm = vector(block_head_dim);
    w.k_norm = vector(block_head_dim);
    w.gate_proj_bias = config.gated_mlp ? vector(wide) : nullptr;
    w.up_proj_bias = vector(wide);
    w.down_proj_bias = vector(hidden);
    if (config.norm != HALYARD_NORM_NONE) {
        w.attention_norm = vector(hidden);
        w.ffn_norm = vector(hidden);
    }
    if (config.norm == HALYARD_NORM_LAYER) {
        w.attention_norm_bias = vector(hidden);
        w.ffn_norm_bias = vector(hidden);
    }
    if (config.norm_placement == HALYARD_SANDWICH_NORM || config.norm_placement == HALYARD_DOUBLE_NORM) {
        w.attention_post_norm = vector(hidden);
        w.ffn_post_norm = vector(hidden);
    }
    if (in_.rarely()) {
        w.attention_post_norm_bias = vector(hidden);
        w.ffn_post_norm_bias = vector(hidden);
    }
}

void Session::block_create() {
    const int block_place = in_.in(0, places - 1);
    halyard_block *&block = blocks_[block_place];
    Call call(in_, tensor_memory());
    const std::int64_t hidden = in_.one_in(3) ? coded : few, wide = wide_of(hidden);
    halyard_block_config config = block_config(hidden);
    const DLDataType type = dtype();
    halyard_block_weights w{};
    w.layout = value<halyard_weight_layout>(2);
    const auto matrix = [&](std::int64_t out, std::int64_t in) {
        return call.input(w.layout == HALYARD_WEIGHT_IN_OUT ? Shape().with(in).with(out) : Shape().with(out).with(in),
                          type);
    };
    const std::int64_t kv_heads = config.num_key_value_heads,
                       kv = kv_heads == 1 || kv_heads == 2 ? kv_heads * block_head_dim : hidden;
    halyard_codes codes[8] = {};
    if (hidden == coded) {
        coded_matrices(call, kv, codes, w);
        config.gated_mlp = w.codes.gate_proj != nullptr;
    } else if (in_.one_in(2)) {
        w.qkv_proj = matrix(hidden + 2 * kv, hidden);
    } else {
        w.q_proj = matrix(hidden, hidden);
        w.k_proj = matrix(kv, hidden);
        w.v_proj = matrix(kv, hidden);
    }
    if (hidden == few || in_.rarely()) {
        w.o_proj = matrix(hidden, hidden);
        w.gate_proj = config.gated_mlp ? matrix(wide, hidden) : nullptr;
        w.up_proj = matrix(wide, hidden);
        w.down_proj = matrix(hidden, wide);
    }
    block_vectors(call, config, hidden, kv, w);
    w.device = device();
    w.quantization = quantization();
    if (call.may_be_made() && block && in_.one_in(3)) {
        call.returned("halyard_block_update", halyard_block_update(context(), block, in_.rarely() ? nullptr : &w));
    } else if (call.may_be_made()) {
        destroy(block);
        halyard_weights *&borrowed = block_weights_[block_place];
        if (w.codes.o_proj && in_.one_in(3) &&
            halyard_weights_pack_codes(nullptr, w.codes.o_proj, nullptr, nullptr, 0, &borrowed) == HALYARD_OK) {
            w.packed.o_proj = borrowed;
            w.codes.o_proj = in_.rarely() ? w.codes.o_proj : nullptr;
        }
        make("halyard_block_create", call, block, [&](halyard_block **made) {
            return halyard_block_create(context(), in_.rarely() ? nullptr : &config, &w, made);
        });
    }
}

void Session::block_other() {
    halyard_block *&block = blocks_[in_.in(0, places - 1)];
    halyard_block_config config, before;
    std::memset(&config, 0x5a, sizeof config);
    before = config;
    const int kind = in_.in(0, 11);
    if (kind == 0) {
        returned("halyard_block_get_config", halyard_block_get_config(block, in_.rarely() ? nullptr : &config), config,
                 before);
        if ((halyard_block_bytes(block) > 0) != (block != nullptr)) {
            failed("halyard_block_bytes is wrong");
        }
        count_call("halyard_block_bytes", true);
        return;
    }
    if (kind == 1) {
        destroy(block);
        count_call("halyard_block_destroy", true);
        return;
    }
    Call call(in_, tensor_memory());
    halyard_kv_cache *cache = in_.one_in(2) ? caches_[in_.in(0, places - 1)] : nullptr;
    const int batch = in_.in(0, 2);
    const DLDataType type = dtype();
    const std::int64_t width = in_.one_in(3) ? coded : few;
    const Shape shape = (batch == 0 ? Shape() : Shape().with(batch)).with(in_.in(0, 4)).with(width);
    const DLTensor *x = call.input(shape, type);
    DLTensor *y = call.output(shape, type);
    const std::int64_t *sequences = call.sequences(batch == 0 ? 1 : batch);
    if (call.may_be_made()) {
        const Lengths lengths(cache);
        const halyard_status status = halyard_block_forward(
            context(), block, x, cache, number(static_cast<std::int64_t>(in_.in(0, 1))), sequences, y);
        call.returned("halyard_block_forward", status);
        lengths.check("halyard_block_forward", status, cache);
    }
}

/** Gradients of what a block has, most of the time. */
void Session::block_gradients(Call &call, const halyard_block_config &config, halyard_block_gradients &g) {
    g.layout = value<halyard_weight_layout>(1);
    g.accumulate = in_.in(0, 1);
    const std::int64_t hidden = config.hidden_size, wide = config.intermediate_size,
                       query = config.num_attention_heads * config.head_dim,
                       key = config.num_key_value_heads * config.head_dim;
    const auto matrix = [&](std::int64_t out, std::int64_t in) {
        const Shape shape = g.layout == HALYARD_WEIGHT_IN_OUT ? Shape().with(in).with(out) : Shape().with(out).with(in);
        return in_.one_in(3) ? nullptr : call.output(shape, f32);
    };
    const auto vector = [&](std::int64_t width) {
        return in_.one_in(8) ? call.output(Shape().with(width), f32) : nullptr;
    };
    if (in_.one_in(3)) {
        g.qkv_proj = matrix(query + 2 * key, hidden);
        g.qkv_proj_bias = vector(query + 2 * key);
    } else {
        g.q_proj = matrix(query, hidden);
        g.k_proj = matrix(key, hidden);
        g.v_proj = matrix(key, hidden);
        g.k_proj_bias = vector(key);
    }
    g.o_proj = matrix(hidden, query);
    g.o_proj_bias = vector(hidden);
    g.q_norm = vector(config.head_dim);
    g.gate_proj = config.gated_mlp || in_.rarely() ? matrix(wide, hidden) : nullptr;
    g.up_proj = matrix(wide, hidden);
    g.down_proj = matrix(hidden, wide);
    g.up_proj_bias = vector(wide);
    g.attention_norm = vector(hidden);
    g.ffn_norm = vector(hidden);
    g.ffn_post_norm = vector(hidden);
}

void Session::block_training() {
    const halyard_block *const block = blocks_[in_.in(0, places - 1)];
    halyard_block_config config{};
    config.hidden_size = few;
    halyard_block_get_config(block, &config);
    Call call(in_, tensor_memory());
    const int batch = in_.in(0, 2);
    const std::int64_t tokens = in_.in(0, 4);
    const Shape shape = (batch == 0 ? Shape() : Shape().with(batch)).with(tokens).with(config.hidden_size);
    std::int64_t bytes = 0;
    count_call("halyard_block_saved_size", halyard_block_saved_size(block, std::max(batch, 1), tokens,
                                                                    in_.rarely() ? nullptr : &bytes) == HALYARD_OK);
    const bool saves = in_.one_in(2);
    const Shape space = Shape().with(bytes / 4 + 16);
    const DLTensor *const saved = saves ? call.output(space, f32) : call.input(space, f32);
    const DLTensor *const x = call.input(shape, f32);
    char *memory = saved ? static_cast<char *>(saved->data) : nullptr;
    memory += in_.rarely() ? 4 : (64 - reinterpret_cast<std::uintptr_t>(memory) % 64) % 64;
    const std::int64_t given = number(bytes);
    if (saves) {
        DLTensor *const y = call.output(shape, f32);
        if (call.may_be_made() && given <= bytes) {
            call.returned("halyard_block_forward_saving",
                          halyard_block_forward_saving(context(), block, x, memory, given, y));
        }
        return;
    }
    const DLTensor *const dy = call.input(shape, f32);
    DLTensor *const dx = call.output(shape, f32);
    halyard_block_gradients gradients{};
    block_gradients(call, config, gradients);
    if (call.may_be_made() && given <= bytes) {
        call.returned("halyard_block_backward",
                      halyard_block_backward(context(), block, x, memory, given, dy, &gradients, dx));
    }
}

void Session::stack_create() {
    const int place = in_.in(0, places - 1);
    Call call(in_, tensor_memory());
    const halyard_block *blocks[places];
    const int count = in_.in(1, places);
    for (int i = 0; i < count; i++) {
        blocks[i] = blocks_[in_.in(0, places - 1)];
    }
    halyard_block_config of_first{};
    const bool whole = halyard_block_get_config(blocks[0], &of_first) == HALYARD_OK && of_first.hidden_size == coded;
    const std::int64_t hidden = whole ? coded : few;
    halyard_stack_config config{};
    config.vocab_size = number(INT64_C(12));
    config.hidden_size = number(hidden);
    config.embedding_multiplier = number(in_.one_in(2) ? 0.0f : 4.0f);
    config.norm = value<halyard_norm>(3);
    config.rms_norm_eps = number(1e-5f);
    config.norm_flags = in_.one_in(4) ? flags() : 0;
    config.final_logit_softcapping = number(in_.one_in(2) ? 0.0f : 30.0f);
    halyard_stack_weights w{};
    const Shape table = Shape().with(12).with(hidden);
    halyard_codes numbers{}, table_codes{}, head_codes{};
    numbers.format = in_.of({HALYARD_CODES_Q8_0, HALYARD_CODES_Q5_0, HALYARD_CODES_INT8});
    numbers.in_features = hidden;
    numbers.out_features = 12;
    if (hidden == coded && in_.one_in(2)) {
        table_codes = codes_of(call, numbers);
        w.embed_tokens_codes = &table_codes;
    } else {
        w.embed_tokens = call.input(table, dtype());
    }
    head_codes = hidden == coded ? codes_of(call, numbers) : numbers;
    w.lm_head_codes = hidden == coded && in_.one_in(3) ? &head_codes : nullptr;
    w.embed_positions = in_.one_in(3) ? call.input(Shape().with(20).with(hidden), dtype()) : nullptr;
    config.embed_norm = in_.one_in(3) ? value<halyard_norm>(3) : HALYARD_NORM_NONE;
    config.no_lm_head = in_.one_in(4);
    w.embed_types = in_.one_in(3) ? call.input(Shape().with(2).with(hidden), dtype()) : nullptr;
    w.embed_norm = in_.one_in(4) ? call.input(Shape().with(hidden), dtype()) : nullptr;
    w.embed_norm_bias = in_.one_in(8) ? call.input(Shape().with(hidden), dtype()) : nullptr;
    w.norm = in_.one_in(3) ? call.input(Shape().with(hidden), dtype()) : nullptr;
    w.norm_bias = in_.one_in(8) ? call.input(Shape().with(hidden), dtype()) : nullptr;
    w.lm_head = in_.one_in(3) ? call.input(table, dtype()) : nullptr;
    w.quantization = quantization();
    if (!call.may_be_made()) {
        return;
    }
    if (stacks_[place] && in_.one_in(3)) {
        call.returned("halyard_stack_update",
                      halyard_stack_update(context(), stacks_[place], in_.rarely() ? nullptr : &w));
        return;
    }
    halyard_stack_destroy(stacks_[place]);
    stacks_[place] = nullptr;
    std::memset(stack_blocks_[place], 0, sizeof stack_blocks_[place]);
    const std::int64_t n_layers = in_.rarely() ? in_.of({INT64_C(0), INT64_C(-1), INT64_MIN}) : count;
    make("halyard_stack_create", call, stacks_[place], [&](halyard_stack **made) {
        return halyard_stack_create(context(), in_.rarely() ? nullptr : &config, &w, in_.rarely() ? nullptr : blocks,
                                    n_layers, made);
    });
    if (stacks_[place]) {
        std::memcpy(stack_blocks_[place], blocks, sizeof blocks[0] * static_cast<std::size_t>(count));
    }
}

void Session::stack_other() {
    const int place = in_.in(0, places - 1);
    halyard_stack *&stack = stacks_[place];
    halyard_stack_config config, before;
    std::memset(&config, 0x5a, sizeof config);
    before = config;
    const int kind = in_.in(0, 11);
    if (kind == 0) {
        returned("halyard_stack_get_config", halyard_stack_get_config(stack, in_.rarely() ? nullptr : &config), config,
                 before);
        return;
    }
    if (kind == 1) {
        halyard_stack_destroy(stack);
        stack = nullptr;
        std::memset(stack_blocks_[place], 0, sizeof stack_blocks_[place]);
        count_call("halyard_stack_destroy", true);
        return;
    }
    Call call(in_, tensor_memory());
    halyard_kv_cache *cache = in_.one_in(2) ? caches_[in_.in(0, places - 1)] : nullptr;
    const int batch = in_.in(0, 2);
    float seen = 0;
    halyard_stack_options options{};
    options.all_logits = in_.one_in(2);
    options.observer = in_.one_in(4) ? read_hidden : nullptr;
    options.user = &seen;
    const Shape first = batch == 0 ? Shape() : Shape().with(batch);
    const Shape tokens = first.with(in_.rarely() ? 0 : in_.in(1, 4));
    const DLTensor *ids = call.indices(tokens, 12);
    const bool hidden = in_.one_in(4);
    options.token_types = in_.one_in(4) ? call.indices(tokens, 2) : nullptr;
    DLTensor *result = call.output(
        hidden ? tokens.with(in_.one_in(3) ? coded : few) : (options.all_logits ? tokens : first).with(12), dtype());
    const std::int64_t *sequences = call.sequences(batch == 0 ? 1 : batch);
    if (call.may_be_made()) {
        const Lengths lengths(cache);
        const char *const name = hidden ? "halyard_stack_hidden_states" : "halyard_stack_forward";
        const halyard_stack_options *const given = !options.all_logits && in_.one_in(4) ? nullptr : &options;
        const halyard_status status =
            hidden ? halyard_stack_hidden_states(context(), stack, ids, cache, sequences, given, result)
                   : halyard_stack_forward(context(), stack, ids, cache, sequences, given, result);
        call.returned(name, status);
        lengths.check(name, status, cache);
    }
}

void Session::stack_training() {
    const int place = in_.in(0, places - 1);
    halyard_stack *const stack = stacks_[place];
    halyard_stack_config config{};
    config.hidden_size = few;
    config.vocab_size = 12;
    halyard_stack_get_config(stack, &config);
    Call call(in_, tensor_memory());
    const int batch = in_.in(0, 2);
    const std::int64_t tokens = in_.in(0, 4);
    const Shape shape = (batch == 0 ? Shape() : Shape().with(batch)).with(tokens);
    std::int64_t bytes = 0;
    count_call("halyard_stack_saved_size", halyard_stack_saved_size(stack, std::max(batch, 1), tokens,
                                                                    in_.rarely() ? nullptr : &bytes) == HALYARD_OK);
    const bool saves = in_.one_in(2);
    const Shape space = Shape().with(bytes / 4 + 16);
    const DLTensor *const saved = saves ? call.output(space, f32) : call.input(space, f32);
    const DLTensor *const ids = call.indices(shape, 12);
    const DLTensor *const types = in_.one_in(4) ? call.indices(shape, 2) : nullptr;
    char *memory = saved ? static_cast<char *>(saved->data) : nullptr;
    memory += in_.rarely() ? 4 : (64 - reinterpret_cast<std::uintptr_t>(memory) % 64) % 64;
    const std::int64_t given = number(bytes);
    const Shape of_result = shape.with(config.no_lm_head ? config.hidden_size : config.vocab_size);
    if (saves) {
        DLTensor *const result = call.output(of_result, f32);
        if (call.may_be_made() && given <= bytes) {
            call.returned("halyard_stack_forward_saving",
                          halyard_stack_forward_saving(context(), stack, ids, types, memory, given, result));
        }
        return;
    }
    const DLTensor *const dresult = call.input(of_result, f32);
    const Shape table = Shape().with(config.vocab_size).with(config.hidden_size),
                vector = Shape().with(config.hidden_size);
    halyard_stack_gradients gradients{};
    gradients.accumulate = in_.in(0, 1);
    gradients.embed_tokens = in_.one_in(3) ? nullptr : call.output(table, f32);
    gradients.lm_head = in_.one_in(4) ? call.output(table, f32) : nullptr;
    gradients.embed_positions = in_.one_in(4) ? call.output(Shape().with(20).with(config.hidden_size), f32) : nullptr;
    gradients.norm = in_.one_in(4) ? call.output(vector, f32) : nullptr;
    gradients.norm_bias = in_.one_in(8) ? call.output(vector, f32) : nullptr;
    gradients.embed_norm = in_.one_in(8) ? call.output(vector, f32) : nullptr;
    halyard_block_gradients of_blocks[places] = {};
    for (int i = 0; i < places && stack_blocks_[place][i] && in_.one_in(2); i++) {
        halyard_block_config of_block{};
        halyard_block_get_config(stack_blocks_[place][i], &of_block);
        block_gradients(call, of_block, of_blocks[i]);
    }
    gradients.blocks = in_.one_in(3) ? nullptr : of_blocks;
    if (call.may_be_made() && given <= bytes) {
        call.returned("halyard_stack_backward",
                      halyard_stack_backward(context(), stack, ids, types, memory, given, dresult, &gradients));
    }
}

void Session::optimizers() {
    Call call(in_, tensor_memory());
    const Shape shape = leading().with(in_.one_in(4) ? in_.in(0, 70) : 16);
    const auto of = [this](float usual) { return static_cast<double>(number(usual)); };
    const bool is_adamw = in_.one_in(2);
    const halyard_sgd_options sgd = {of(0.1f), in_.one_in(2) ? 0.0 : of(0.9f), of(0.01f), in_.one_in(4), of(0.5f)};
    const halyard_adamw_options adamw = {of(0.1f), of(0.9f), of(0.99f), of(1e-8f), of(0.01f), of(0.5f), in_.in(0, 1)};
    DLTensor *parameter = call.output(shape, f32);
    const DLTensor *gradient = call.input(shape, f32);
    const bool has_state = is_adamw || (sgd.momentum != 0) != in_.rarely();
    DLTensor *first = has_state ? call.output(shape, f32) : nullptr;
    DLTensor *second = is_adamw ? call.output(shape, f32) : nullptr;
    const std::int64_t step = number(INT64_C(3));
    const bool has_options = !in_.rarely();
    if (!call.may_be_made()) {
        return;
    }
    if (is_adamw) {
        call.returned("halyard_adamw_step", halyard_adamw_step(context(), parameter, gradient, first, second, step,
                                                               has_options ? &adamw : nullptr));
    } else {
        call.returned("halyard_sgd_step",
                      halyard_sgd_step(context(), parameter, gradient, first, has_options ? &sgd : nullptr));
    }
}

void Session::gradient_norm() {
    Call call(in_, tensor_memory());
    const DLTensor *gradients[4] = {};
    const std::int64_t count = in_.in(0, 4);
    for (std::int64_t i = 0; i < count; i++) {
        gradients[i] = call.input(leading().with(in_.in(0, 40)), f32);
    }
    const std::int64_t given = in_.rarely() ? in_.of({INT64_C(-1), INT64_MIN}) : count;
    if (!call.may_be_made()) {
        return;
    }
    double norm = -1;
    const halyard_status status =
        halyard_gradient_norm(context(), in_.rarely() ? nullptr : gradients, given, in_.rarely() ? nullptr : &norm);
    call.returned("halyard_gradient_norm", status);
    if (status != HALYARD_OK && norm != -1) {
        failed("halyard_gradient_norm failed and wrote its result");
    }
}

void Session::step(unsigned which, const Input &in) {
    using Step = void (Session::*)();
    constexpr Step steps[] = {
        &Session::elementwise,
        &Session::elementwise,
        &Session::norms,
        &Session::norm_gradients,
        &Session::contexts,
        &Session::questions,
        &Session::weights_create,
        &Session::weights_of_codes,
        &Session::weights_other,
        &Session::linear,
        &Session::linear,
        &Session::norm_scales,
        &Session::ffn,
        &Session::ropes,
        &Session::caches,
        &Session::caches,
        &Session::cache_create,
        &Session::attention,
        &Session::attention,
        &Session::block_create,
        &Session::block_other,
        &Session::block_training,
        &Session::block_other,
        &Session::block_training,
        &Session::stack_create,
        &Session::stack_other,
        &Session::stack_training,
        &Session::stack_other,
        &Session::dequantize,
        &Session::linear_gradients,
        &Session::ffn_gradients,
        &Session::attention_gradients,
        &Session::weights_update,
        &Session::optimizers,
        &Session::gradient_norm,
        &Session::losses,
        &Session::embedding_gradients,
    };
    in_ = in;
    (this->*steps[which % (sizeof steps / sizeof steps[0])])();
}

}  // namespace
}  // namespace halyard::tests

extern "C" {

// A library that has no memory says so.
const char *__asan_default_options() {
    return "allocator_may_return_null=1";
}

int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
    halyard::tests::Input in(data, size);
    halyard::tests::Session session;
    while (!in.done()) {
        const unsigned step = in.byte();
        session.step(step, in.part());
    }
    return 0;
}

}  // extern "C"
