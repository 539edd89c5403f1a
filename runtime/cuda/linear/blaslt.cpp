// GEMMs by cuBLASLt. It counts columns first: y, row by row, is to it the transpose of y, and so are x and w.
//
// What it needs to know of a GEMM, and the algorithm that its heuristics choose, are kept for each shape, so that
// calls in steady state ask and allocate nothing.
#include "cuda/linear/blaslt.h"

#include <dlfcn.h>
#include <pthread.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

#include "core/system/environment.h"
#include "cuda/linear/blaslt_types.h"

namespace halyard::cuda {
namespace blaslt {
namespace {

struct Library {
    Status (*create)(Handle *handle);
    const char *(*status_string)(Status status);
    Status (*operation_create)(Operation *operation, int compute_type, int scale_type);
    Status (*operation_destroy)(Operation operation);
    Status (*operation_set)(Operation operation, int attribute, const void *value, size_t size);
    Status (*layout_create)(Layout *layout, int type, uint64_t rows, uint64_t columns, int64_t pitch);
    Status (*layout_destroy)(Layout layout);
    Status (*layout_set)(Layout layout, int attribute, const void *value, size_t size);
    Status (*preference_create)(Preference *preference);
    Status (*preference_destroy)(Preference preference);
    Status (*preference_set)(Preference preference, int attribute, const void *value, size_t size);
    Status (*heuristic)(Handle handle, Operation operation, Layout a, Layout b, Layout c, Layout d,
                        Preference preference, int requested, HeuristicResult *results, int *count);
    Status (*multiply)(Handle handle, Operation operation, const void *alpha, const void *a, Layout a_layout,
                       const void *b, Layout b_layout, const void *beta, const void *c, Layout c_layout, void *d,
                       Layout d_layout, const Algorithm *algorithm, void *workspace, size_t workspace_bytes,
                       Stream stream);
};

Library opened;
bool is_open = false;
pthread_once_t once = PTHREAD_ONCE_INIT;

bool find(void *library, const char *name, void *function) {
    void *const address = dlsym(library, name);
    *static_cast<void **>(function) = address;
    return address != nullptr;
}

bool find_all(void *library) {
    Library &l = opened;
    return find(library, "cublasLtCreate", &l.create) && find(library, "cublasLtGetStatusString", &l.status_string) &&
           find(library, "cublasLtMatmulDescCreate", &l.operation_create) &&
           find(library, "cublasLtMatmulDescDestroy", &l.operation_destroy) &&
           find(library, "cublasLtMatmulDescSetAttribute", &l.operation_set) &&
           find(library, "cublasLtMatrixLayoutCreate", &l.layout_create) &&
           find(library, "cublasLtMatrixLayoutDestroy", &l.layout_destroy) &&
           find(library, "cublasLtMatrixLayoutSetAttribute", &l.layout_set) &&
           find(library, "cublasLtMatmulPreferenceCreate", &l.preference_create) &&
           find(library, "cublasLtMatmulPreferenceDestroy", &l.preference_destroy) &&
           find(library, "cublasLtMatmulPreferenceSetAttribute", &l.preference_set) &&
           find(library, "cublasLtMatmulAlgoGetHeuristic", &l.heuristic) &&
           find(library, "cublasLtMatmul", &l.multiply);
}

void open() {
    const char *const wanted = environment(blaslt_variable);
    if (wanted && strcmp(wanted, "off") == 0) {
        return;
    }
    if (wanted) {
        say_ignored(blaslt_variable, wanted, "off");
    }
    // Newest first; the one that the process has already, PyTorch's say, is found by its name alone. Never closed.
    struct Version {
        const char *name;
        int driver;  // that it needs
    };
    for (const Version &version : {Version{"libcublasLt.so.13", 13000}, Version{"libcublasLt.so.12", 12000}}) {
        if (driver_version() < version.driver) {
            continue;
        }
        void *const library = dlopen(version.name, RTLD_NOW | RTLD_LOCAL);
        if (library && find_all(library)) {
            is_open = true;
            return;
        }
    }
}

const Library *library() {
    pthread_once(&once, open);
    return is_open ? &opened : nullptr;
}

/** What an algorithm is chosen by. */
struct Shape {
    int64_t rows, columns, depth, x_pitch, w_pitch, c_pitch, y_pitch, count, x_step, w_step, c_step, y_step;
    int32_t dtype, y_dtype, w_transposed, has_bias, has_c;
    int32_t x_alignment, w_alignment, c_alignment, y_alignment, bias_alignment;

    bool operator==(const Shape &other) const { return memcmp(this, &other, sizeof(Shape)) == 0; }

    uint64_t hash() const {
        uint64_t words[sizeof(Shape) / sizeof(uint64_t)], sum = 0;
        memcpy(words, this, sizeof(words));
        for (const uint64_t word : words) {
            sum = (sum ^ word) * 0x9e3779b97f4a7c15u;
            sum ^= sum >> 29;
        }
        return sum;
    }
};
static_assert(sizeof(Shape) == 12 * sizeof(int64_t) + 10 * sizeof(int32_t), "a shape is compared byte by byte");

/** Bytes that every row of an operand begins at a multiple of. */
int32_t alignment(const void *data, DType dtype, int64_t pitch = 0, int64_t step = 0) {
    constexpr uintptr_t most = 256;
    const auto bytes = [&](int64_t elements) { return static_cast<uintptr_t>(elements * size_of(dtype)); };
    const uintptr_t begins = reinterpret_cast<uintptr_t>(data) | bytes(pitch) | bytes(step) | most;
    return static_cast<int32_t>(begins & (~begins + 1));
}

Shape shape_of(const DeviceProduct &p) {
    const ProductBatch &batch = p.batches[0];
    Shape shape = {};
    shape.rows = p.rows;
    shape.columns = p.columns;
    shape.depth = p.depth;
    shape.x_pitch = p.x_pitch;
    shape.w_pitch = p.w_pitch;
    shape.y_pitch = p.y_pitch;
    shape.c_pitch = p.c ? p.c_pitch : p.y_pitch;
    shape.count = batch.count;
    if (batch.count > 1) {
        shape.x_step = batch.x;
        shape.w_step = batch.w;
        shape.y_step = batch.y;
        shape.c_step = p.c ? batch.c : batch.y;
    }
    shape.dtype = static_cast<int32_t>(p.dtype);
    shape.y_dtype = static_cast<int32_t>(p.y_dtype);
    shape.w_transposed = p.w_transposed;
    shape.has_bias = p.bias != nullptr;
    shape.has_c = p.c != nullptr;
    shape.x_alignment = alignment(p.x, p.dtype, p.x_pitch, shape.x_step);
    shape.w_alignment = alignment(p.w, p.dtype, p.w_pitch, shape.w_step);
    // One for both: it has been seen to go by the pitch of c and to store y by words that its rows do not begin at.
    const int32_t of_y = alignment(p.y, p.y_dtype, p.y_pitch, shape.y_step);
    const int32_t of_c = p.c ? alignment(p.c, p.y_dtype, p.c_pitch, shape.c_step) : of_y;
    shape.y_alignment = shape.c_alignment = std::min(of_c, of_y);
    shape.bias_alignment = p.bias ? alignment(p.bias, p.y_dtype) : 0;
    return shape;
}

/** A shape that has been seen. */
struct Plan {
    Shape shape;
    bool filled, has_algorithm;
    Operation operation;
    Layout a, b, c, d;
    Algorithm algorithm;

    void clear(const Library &l) {
        for (const Layout layout : {a, b, c, d}) {
            if (layout) {
                l.layout_destroy(layout);
            }
        }
        if (operation) {
            l.operation_destroy(operation);
        }
        *this = Plan();
    }
};

/** What there is for a device. The lock is held while a plan is looked for and used: cuBLASLt's functions only write
 *  launches into the stream. */
struct State {
    // A shape has its place among some; the place of the oldest of them is given away.
    static constexpr int sets = 1024, ways = 4;

    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    Handle handle = nullptr;
    unsigned next[sets] = {};
    Plan plans[sets][ways] = {};
};

int data_type(DType dtype) {
    return dtype == DType::f32 ? real_f32 : dtype == DType::f16 ? real_f16 : real_bf16;
}

class Calls {
public:
    Calls(const Library &library, State &state) : l(library), state_(state) {}

    /** The status of the first call that did not succeed. */
    Status status() const { return status_; }

    /** The plan of a shape; null if there is no memory or another failure, see status(). */
    Plan *plan(const Shape &shape, const void *bias) {
        const uint64_t set = shape.hash() % State::sets;
        for (Plan &plan : state_.plans[set]) {
            if (plan.filled && plan.shape == shape) {
                return &plan;
            }
        }
        Plan &plan = state_.plans[set][state_.next[set]++ % State::ways];
        plan.clear(l);
        fill(plan, shape, bias);
        if (status_ != succeeded) {
            plan.clear(l);
            return nullptr;
        }
        return &plan;
    }

    void set_bias(const Plan &plan, const void *bias) {
        keep(l.operation_set(plan.operation, operation_bias, &bias, sizeof(bias)));
    }

    void multiply(const Plan &plan, const DeviceProduct &p, void *workspace, Stream stream) {
        const float beta = p.c ? p.beta : 0.0f;
        keep(l.multiply(state_.handle, plan.operation, &p.alpha, p.w, plan.a, p.x, plan.b, &beta, p.c ? p.c : p.y,
                        plan.c, p.y, plan.d, &plan.algorithm, workspace, blaslt_workspace_bytes, stream));
    }

private:
    void keep(Status status) { status_ = status_ == succeeded ? status : status_; }

    template<typename Object, typename Set, typename Value>
    void set(Set setter, Object object, int attribute, Value value) {
        if (status_ == succeeded) {
            keep(setter(object, attribute, &value, sizeof(value)));
        }
    }

    Layout layout(DType dtype, int64_t rows, int64_t columns, int64_t pitch, int64_t count, int64_t step) {
        Layout made = nullptr;
        if (status_ == succeeded) {
            keep(l.layout_create(&made, data_type(dtype), static_cast<uint64_t>(rows), static_cast<uint64_t>(columns),
                                 pitch));
        }
        if (count > 1) {
            set(l.layout_set, made, layout_batch_count, static_cast<int32_t>(count));
            set(l.layout_set, made, layout_batch_step, step);
        }
        return made;
    }

    void fill(Plan &plan, const Shape &s, const void *bias) {
        const DType dtype = static_cast<DType>(s.dtype), y_dtype = static_cast<DType>(s.y_dtype);
        plan.shape = s;
        plan.filled = true;
        keep(l.operation_create(&plan.operation, compute_f32, real_f32));
        set(l.operation_set, plan.operation, operation_transpose_a, s.w_transposed ? transposed : as_it_is);
        set(l.operation_set, plan.operation, operation_transpose_b, as_it_is);
        if (s.has_bias) {
            set(l.operation_set, plan.operation, operation_epilogue, epilogue_bias);
            set(l.operation_set, plan.operation, operation_bias, bias);
            set(l.operation_set, plan.operation, operation_bias_type, data_type(y_dtype));
        }
        plan.a = s.w_transposed ? layout(dtype, s.depth, s.columns, s.w_pitch, s.count, s.w_step)
                                : layout(dtype, s.columns, s.depth, s.w_pitch, s.count, s.w_step);
        plan.b = layout(dtype, s.depth, s.rows, s.x_pitch, s.count, s.x_step);
        plan.c = layout(y_dtype, s.columns, s.rows, s.c_pitch, s.count, s.c_step);
        plan.d = layout(y_dtype, s.columns, s.rows, s.y_pitch, s.count, s.y_step);
        choose(plan);
    }

    void choose(Plan &plan) {
        Preference preference = nullptr;
        if (status_ == succeeded) {
            keep(l.preference_create(&preference));
        }
        const Shape &s = plan.shape;
        set(l.preference_set, preference, preference_workspace, static_cast<uint64_t>(blaslt_workspace_bytes));
        // Parts of sums are kept in f32. In place they have the type of y.
        const uint32_t in_place = s.y_dtype == static_cast<int32_t>(DType::f32) ? reductions_in_place : 0;
        set(l.preference_set, preference, preference_reductions, in_place | reductions_in_compute_type);
        set(l.preference_set, preference, preference_alignment_a, static_cast<uint32_t>(s.w_alignment));
        set(l.preference_set, preference, preference_alignment_b, static_cast<uint32_t>(s.x_alignment));
        set(l.preference_set, preference, preference_alignment_c, static_cast<uint32_t>(s.c_alignment));
        set(l.preference_set, preference, preference_alignment_d, static_cast<uint32_t>(s.y_alignment));
        if (status_ == succeeded) {
            HeuristicResult result = {};
            int count = 0;
            const Status found = l.heuristic(state_.handle, plan.operation, plan.a, plan.b, plan.c, plan.d, preference,
                                             1, &result, &count);
            plan.has_algorithm = found == succeeded && count > 0 && result.status == succeeded;
            plan.algorithm = result.algorithm;
            // That there is no algorithm is an answer too.
            keep(found == not_supported || found == invalid_value ? succeeded : found);
        }
        if (preference) {
            l.preference_destroy(preference);
        }
    }

    const Library &l;
    State &state_;
    Status status_ = succeeded;
};

/** The state of a device, made at its first product. */
State *state_of(Checker &check, const Library &l, Device &device) {
    static pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER;
    State *known = static_cast<State *>(device.blaslt.load(std::memory_order_acquire));
    if (known) {
        return known;
    }
    pthread_mutex_lock(&making);
    known = static_cast<State *>(device.blaslt.load(std::memory_order_acquire));
    if (!known) {
        void *const memory = calloc(1, sizeof(State));
        State *const made = memory ? new (memory) State : nullptr;
        const Status created = made ? l.create(&made->handle) : allocation_failed;
        if (created == succeeded) {
            device.blaslt.store(made, std::memory_order_release);
            known = made;
        } else {
            check.fail(created == allocation_failed ? HALYARD_OUT_OF_MEMORY : HALYARD_DEVICE_ERROR,
                       "making a handle of cuBLASLt failed: %s", l.status_string(created));
            free(memory);
        }
    }
    pthread_mutex_unlock(&making);
    return known;
}

}  // namespace
}  // namespace blaslt

bool has_blaslt() {
    return blaslt::library() != nullptr;
}

bool blaslt_product(Launches &launches, const DeviceProduct &product, void *workspace) {
    const blaslt::Library *const library = blaslt::library();
    if (!library) {
        return false;
    }
    Checker &check = launches.check();
    blaslt::State *const state = blaslt::state_of(check, *library, *launches.device());
    if (!state) {
        return false;
    }
    pthread_mutex_lock(&state->lock);
    blaslt::Calls calls(*library, *state);
    const blaslt::Plan *const plan = calls.plan(blaslt::shape_of(product), product.bias);
    const bool done = plan && plan->has_algorithm;
    if (done) {
        if (product.bias) {
            calls.set_bias(*plan, product.bias);
        }
        calls.multiply(*plan, product, workspace, launches.stream());
    }
    pthread_mutex_unlock(&state->lock);
    if (calls.status() != blaslt::succeeded) {
        check.fail(calls.status() == blaslt::allocation_failed ? HALYARD_OUT_OF_MEMORY : HALYARD_DEVICE_ERROR,
                   "a product by cuBLASLt failed: %s", library->status_string(calls.status()));
    }
    return done;
}

}  // namespace halyard::cuda
