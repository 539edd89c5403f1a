// Operands of each operation, and its call.
#include "work.h"

#include <fstream>
#include <sstream>

#include "halyard/attention.h"

namespace halyard::bench::cuda {
namespace {

DLDataType type_of(const std::string &dtype) {
    if (dtype == "f32") {
        return {kDLFloat, 32, 1};
    }
    return dtype == "f16" ? DLDataType{kDLFloat, 16, 1} : DLDataType{kDLBfloat, 16, 1};
}

void succeed(halyard_status status) {
    if (status != HALYARD_OK) {
        stop(halyard_last_error());
    }
}

/** A tensor of rows, or of one. */
class Tensor {
public:
    Tensor(Gpu &gpu, const std::string &dtype, std::int64_t rows, std::int64_t width) : gpu_(gpu) {
        view_.dtype = type_of(dtype);
        bytes_ = rows * width * view_.dtype.bits / 8;
        memory_ = gpu.allocate(bytes_);
        gpu.fill(memory_, bytes_);
        shape_[0] = rows;
        shape_[1] = width;
        view_.data = reinterpret_cast<void *>(memory_);
        view_.device = {kDLCUDA, 0};
        view_.ndim = 2;
        view_.shape = shape_;
    }
    ~Tensor() { gpu_.free(memory_); }
    Tensor(const Tensor &) = delete;
    Tensor &operator=(const Tensor &) = delete;

    DLTensor *get() { return &view_; }
    /** The same without its first axis, which is 1. */
    DLTensor *vector() {
        view_.ndim = 1;
        view_.shape = shape_ + 1;
        return &view_;
    }
    /** The same with rows of so many heads. */
    DLTensor *heads(std::int64_t count) {
        view_.ndim = 3;
        shape_[2] = shape_[1] / count;
        shape_[1] = count;
        return &view_;
    }

private:
    Gpu &gpu_;
    DLTensor view_{};
    std::int64_t shape_[3], bytes_;
    std::uint64_t memory_;
};

/** Operations on tensors of one shape: inputs, then outputs; and a vector that all calls share. */
class Rowwise : public Work {
public:
    using Call = void (*)(const halyard_context *, const std::vector<std::unique_ptr<Tensor>> &, DLTensor *vector);

    Rowwise(const Case &c, int tensors, Call call) : case_(c), tensors_(tensors), call_(call) {
        set_bytes = model_bytes = tensors * c.rows * c.width * type_of(c.dtype).bits / 8;
    }

    void make_sets(Gpu &gpu, int count) override {
        vector_ = std::make_unique<Tensor>(gpu, case_.dtype, 1, case_.width);
        for (int set = 0; set < count; set++) {
            sets_.emplace_back();
            for (int i = 0; i < tensors_; i++) {
                sets_.back().push_back(std::make_unique<Tensor>(gpu, case_.dtype, case_.rows, case_.width));
            }
        }
    }

    void call(const halyard_context *context, int set) override {
        call_(context, sets_[static_cast<std::size_t>(set)], vector_->vector());
    }

private:
    const Case case_;
    const int tensors_;
    const Call call_;
    std::vector<std::vector<std::unique_ptr<Tensor>>> sets_;
    std::unique_ptr<Tensor> vector_;
};

struct DestroyWeights {
    void operator()(halyard_weights *weights) const { halyard_weights_destroy(weights); }
};
using Weights = std::unique_ptr<halyard_weights, DestroyWeights>;

Weights pack(Gpu &gpu, const Case &c, std::int64_t in, std::int64_t out, bool gated) {
    Tensor matrix(gpu, c.dtype, out, in), up(gpu, c.dtype, out, in);
    halyard_pack_options options{};
    options.up = gated ? up.get() : nullptr;
    halyard_weights *packed = nullptr;
    succeed(halyard_weights_pack(nullptr, matrix.get(), &options, nullptr, 0, &packed));
    return Weights(packed);
}

/** A linear layer, or a gated network with norm and residual; every set has matrices of its own. */
class Layers : public Work {
public:
    Layers(const Case &c, bool network) : case_(c), network_(network) {
        const std::int64_t size = type_of(c.dtype).bits / 8, matrices = (network ? 3 : 1) * c.width * c.hidden;
        set_bytes = model_bytes = (matrices + c.rows * (c.width + (network ? c.width : c.hidden))) * size;
        flops = 2.0 * static_cast<double>(matrices) * static_cast<double>(c.rows);
    }

    void make_sets(Gpu &gpu, int count) override {
        norm_ = std::make_unique<Tensor>(gpu, case_.dtype, 1, case_.width);
        for (int i = 0; i < count; i++) {
            Set set;
            set.x = std::make_unique<Tensor>(gpu, case_.dtype, case_.rows, case_.width);
            set.y = std::make_unique<Tensor>(gpu, case_.dtype, case_.rows, network_ ? case_.width : case_.hidden);
            set.up = pack(gpu, case_, case_.width, case_.hidden, network_);
            if (network_) {
                set.down = pack(gpu, case_, case_.hidden, case_.width, false);
            }
            sets_.push_back(std::move(set));
        }
    }

    void call(const halyard_context *context, int number) override {
        Set &set = sets_[static_cast<std::size_t>(number)];
        if (!network_) {
            succeed(halyard_linear(context, set.x->get(), set.up.get(), nullptr, set.y->get()));
            return;
        }
        halyard_ffn_options options{};
        options.norm = HALYARD_NORM_RMS;
        options.norm_weight = norm_->vector();
        options.eps = 1e-6f;
        options.activation = HALYARD_SILU;
        options.residual = 1;
        succeed(halyard_ffn(context, set.x->get(), set.up.get(), set.down.get(), &options, set.y->get()));
    }

private:
    struct Set {
        std::unique_ptr<Tensor> x, y;
        Weights up, down;
    };

    const Case case_;
    const bool network_;
    std::vector<Set> sets_;
    std::unique_ptr<Tensor> norm_;
};

/** Causal attention of the last `rows` of `width` positions, without a cache: four of `hidden` heads share one of keys. */
class Attention : public Work {
public:
    explicit Attention(const Case &c) : case_(c) {
        const std::int64_t size = type_of(c.dtype).bits / 8;
        set_bytes = model_bytes = 2 * head_dim * (c.rows * c.hidden + c.width * c.hidden / group) * size;
        const double rows = static_cast<double>(c.rows), seen = static_cast<double>(c.width) - 0.5 * (rows - 1.0);
        flops = 4.0 * static_cast<double>(head_dim * c.hidden) * rows * seen;
    }

    void make_sets(Gpu &gpu, int count) override {
        const auto tensor = [&](std::int64_t tokens, std::int64_t heads) {
            auto made = std::make_unique<Tensor>(gpu, case_.dtype, tokens, heads * head_dim);
            made->heads(heads);
            return made;
        };
        for (int i = 0; i < count; i++) {
            const std::int64_t kv_heads = case_.hidden / group;
            sets_.push_back({tensor(case_.rows, case_.hidden), tensor(case_.width, kv_heads),
                             tensor(case_.width, kv_heads), tensor(case_.rows, case_.hidden)});
        }
    }

    void call(const halyard_context *context, int number) override {
        Set &set = sets_[static_cast<std::size_t>(number)];
        halyard_attention_options options{};
        options.causal = 1;
        succeed(halyard_attention(context, set.q->get(), set.k->get(), set.v->get(), &options, set.y->get()));
    }

    static constexpr std::int64_t head_dim = 128, group = 4;

private:
    struct Set {
        std::unique_ptr<Tensor> q, k, v, y;
    };

    const Case case_;
    std::vector<Set> sets_;
};

using Tensors = std::vector<std::unique_ptr<Tensor>>;
constexpr float eps = 1e-6f;

}  // namespace

std::string Case::name() const {
    return operation + " " + dtype + " " + std::to_string(rows) + " x " + std::to_string(width) +
           (hidden > 0 ? " x " + std::to_string(hidden) : "");
}

std::vector<Case> read_plan(const std::string &path) {
    std::ifstream file(path);
    if (!file) {
        stop("there is no plan " + path);
    }
    std::vector<Case> plan;
    for (std::string line; std::getline(file, line);) {
        std::istringstream words(line.substr(0, line.find('#')));
        Case c;
        if (words >> c.operation) {
            if (!(words >> c.dtype >> c.rows >> c.width)) {
                stop(path + ": this is no case: " + line);
            }
            words >> c.hidden;
            plan.push_back(c);
        }
    }
    return plan;
}

std::unique_ptr<Work> make_work(const Case &c) {
    const auto rowwise = [&](int tensors, Rowwise::Call call) { return std::make_unique<Rowwise>(c, tensors, call); };
    if (c.operation == "rms_norm") {
        return rowwise(2, [](const halyard_context *context, const Tensors &t, DLTensor *weight) {
            succeed(halyard_rms_norm(context, t[0]->get(), weight, eps, 0, t[1]->get()));
        });
    }
    if (c.operation == "layer_norm") {
        return rowwise(2, [](const halyard_context *context, const Tensors &t, DLTensor *weight) {
            succeed(halyard_layer_norm(context, t[0]->get(), weight, weight, eps, t[1]->get()));
        });
    }
    if (c.operation == "add_rms_norm") {
        return rowwise(4, [](const halyard_context *context, const Tensors &t, DLTensor *weight) {
            succeed(halyard_add_rms_norm(context, t[0]->get(), t[1]->get(), weight, eps, 0, t[2]->get(), t[3]->get()));
        });
    }
    if (c.operation == "softmax") {
        return rowwise(2, [](const halyard_context *context, const Tensors &t, DLTensor *) {
            succeed(halyard_softmax(context, t[0]->get(), 1.0f, t[1]->get()));
        });
    }
    if (c.operation == "swiglu") {
        return rowwise(3, [](const halyard_context *context, const Tensors &t, DLTensor *) {
            succeed(halyard_swiglu(context, t[0]->get(), t[1]->get(), 1.0f, t[2]->get()));
        });
    }
    if (c.operation == "geglu_tanh") {
        return rowwise(3, [](const halyard_context *context, const Tensors &t, DLTensor *) {
            succeed(halyard_geglu_tanh(context, t[0]->get(), t[1]->get(), t[2]->get()));
        });
    }
    if ((c.operation == "ffn_swiglu" || c.operation == "linear") && c.hidden > 0) {
        return std::make_unique<Layers>(c, c.operation == "ffn_swiglu");
    }
    if (c.operation == "attention" && c.hidden > 0 && c.hidden % Attention::group == 0 && c.rows <= c.width) {
        return std::make_unique<Attention>(c);
    }
    return nullptr;
}

}  // namespace halyard::bench::cuda
