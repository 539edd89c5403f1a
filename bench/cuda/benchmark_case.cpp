// Operands of each operation in the device's memory, and its call.
#include "benchmark_case.h"

#include <algorithm>
#include <fstream>
#include <sstream>

#include "operations/layers.h"
#include "operations/operations.h"
#include "operations/tensor_operations.h"
#include "operations/transformers.h"

namespace halyard::bench::cuda {
namespace {

using operations::Dtype;

Dtype dtype_of(const std::string &name) {
    for (const Dtype dtype : operations::all_dtypes) {
        if (name == operations::name_of(dtype)) {
            return dtype;
        }
    }
    stop("there is no type " + name);
}

void succeed(halyard_status status) {
    if (status != HALYARD_OK) {
        stop(halyard_last_error());
    }
}

/** A tensor of rows, or of one. */
class Tensor {
public:
    Tensor(Gpu &gpu, Dtype dtype, std::int64_t rows, std::int64_t width) : gpu_(gpu) {
        view_.dtype = operations::dlpack_type(dtype);
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
    /** As get(), without the first axis, which is 1. */
    DLTensor *vector() {
        view_.ndim = 1;
        view_.shape = shape_ + 1;
        return &view_;
    }
    /** Splits the rows of what get() gives into so many heads. */
    void heads(std::int64_t count) {
        view_.ndim = 3;
        shape_[2] = shape_[1] / count;
        shape_[1] = count;
    }

private:
    Gpu &gpu_;
    DLTensor view_{};
    std::int64_t shape_[3], bytes_;
    std::uint64_t memory_;
};

using Tensors = std::vector<std::unique_ptr<Tensor>>;

/** An operation on tensors of rows; weight and bias are the same for all sets. */
class Rows : public BenchmarkCase {
public:
    Rows(const CaseId &c, const operations::Operation &operation)
        : case_(c), dtype_(dtype_of(c.dtype)), operation_(operation), scalars_(operation.scalar_values()) {
        set_bytes = model_bytes =
            static_cast<std::int64_t>(operation.cost(dtype_, operations::Sizes::of_rows({c.rows, c.width})).bytes);
    }

    void make_sets(Gpu &gpu, int count) override {
        vector_ = std::make_unique<Tensor>(gpu, dtype_, 1, case_.width);
        for (int set = 0; set < count; set++) {
            std::vector<DLTensor *> &arguments = arguments_.emplace_back();
            for (std::size_t i = 0; i < operation_.operands.size(); i++) {
                const operations::Operand &operand = operation_.operands[i];
                if (operand.role == operations::Role::parameter) {
                    arguments.push_back(vector_->vector());
                } else {
                    tensors_.push_back(std::make_unique<Tensor>(gpu, operation_.type_of(i, dtype_), case_.rows,
                                                                case_.width * operand.times()));
                    arguments.push_back(tensors_.back()->get());
                }
            }
        }
    }

    void call(const halyard_context *context, int set) override {
        succeed(operation_.call(context, arguments_[static_cast<std::size_t>(set)].data(), scalars_.data()));
    }

private:
    const CaseId case_;
    const Dtype dtype_;
    const operations::Operation &operation_;
    const std::vector<double> scalars_;
    std::vector<std::vector<DLTensor *>> arguments_;  // by set
    Tensors tensors_;
    std::unique_ptr<Tensor> vector_;
};

/** A linear layer or a feed-forward network; every set has matrices of its own. */
class Layers : public BenchmarkCase {
public:
    Layers(const CaseId &c, const operations::LayerForm &form) : case_(c), dtype_(dtype_of(c.dtype)), form_(form) {
        const operations::Cost cost =
            operations::layer_operation({"", form}).cost(dtype_, {{c.rows}, c.width, c.hidden});
        set_bytes = model_bytes = static_cast<std::int64_t>(cost.bytes);
        flops = cost.flops;
    }

    void make_sets(Gpu &gpu, int count) override {
        const auto tensor = [&](std::int64_t rows, std::int64_t width) {
            return tensors_.emplace_back(std::make_unique<Tensor>(gpu, dtype_, rows, width)).get();
        };
        const auto vector = [&](bool wanted, std::int64_t width) {
            return wanted ? tensor(1, width)->vector() : nullptr;
        };
        const std::int64_t d = case_.width, d_out = case_.hidden, width = form_.output_width(d, d_out);
        operations::LayerTensors shared;
        shared.norm_weight = vector(form_.norm != HALYARD_NORM_NONE, d);
        shared.norm_bias = vector(form_.norm == HALYARD_NORM_LAYER, d);
        shared.bias = vector(form_.has_bias, d_out);
        shared.bias_down = vector(form_.has_bias && form_.is_ffn, d);
        for (int i = 0; i < count; i++) {
            operations::LayerTensors set = shared;
            set.x = tensor(case_.rows, d)->get();
            set.residual = form_.takes_residual() ? tensor(case_.rows, width)->get() : nullptr;
            set.y = tensor(case_.rows, width)->get();
            {
                Tensor matrix(gpu, dtype_, d_out, d), up(gpu, dtype_, d_out, d);
                set.first = pack(matrix, operations::pack_options(form_, form_.gated ? up.get() : nullptr,
                                                                  set.norm_weight, set.norm_bias));
            }
            if (form_.is_ffn) {
                Tensor matrix(gpu, dtype_, d, d_out);
                set.down = pack(matrix, {});
            }
            sets_.push_back(set);
        }
    }

    void call(const halyard_context *context, int set) override {
        succeed(operations::call_layer(context, form_, sets_[static_cast<std::size_t>(set)]));
    }

private:
    const halyard_weights *pack(Tensor &matrix, const halyard_pack_options &options) {
        halyard_weights *packed = nullptr;
        succeed(halyard_weights_pack(nullptr, matrix.get(), &options, nullptr, 0, &packed));
        weights_.emplace_back(packed, halyard_weights_destroy);
        return packed;
    }

    const CaseId case_;
    const Dtype dtype_;
    const operations::LayerForm form_;
    std::vector<operations::LayerTensors> sets_;
    Tensors tensors_;
    std::vector<std::shared_ptr<halyard_weights>> weights_;
};

/** Causal attention of the last `rows` of `width` positions, without a cache: four of `hidden` heads share one of keys. */
class Attention : public BenchmarkCase {
public:
    explicit Attention(const CaseId &c)
        : case_(c), dtype_(dtype_of(c.dtype)), shape_{c.hidden, c.hidden / group, head_dim} {
        const operations::Cost cost = operations::attention_cost(shape_, {1, c.rows, c.width}, dtype_);
        set_bytes = model_bytes = static_cast<std::int64_t>(cost.bytes);
        flops = cost.flops;
    }

    void make_sets(Gpu &gpu, int count) override {
        const auto tensor = [&](std::int64_t tokens, std::int64_t heads) {
            auto made = std::make_unique<Tensor>(gpu, dtype_, tokens, heads * head_dim);
            made->heads(heads);
            return made;
        };
        for (int i = 0; i < count; i++) {
            sets_.push_back({tensor(case_.rows, shape_.heads), tensor(case_.width, shape_.kv_heads),
                             tensor(case_.width, shape_.kv_heads), tensor(case_.rows, shape_.heads)});
        }
    }

    void call(const halyard_context *context, int number) override {
        Set &set = sets_[static_cast<std::size_t>(number)];
        succeed(operations::call_attention(context, *set.q->get(), *set.k->get(), *set.v->get(), nullptr, 0,
                                           *set.y->get()));
    }

    static constexpr std::int64_t head_dim = 128, group = 4;

private:
    struct Set {
        std::unique_ptr<Tensor> q, k, v, y;
    };

    const CaseId case_;
    const Dtype dtype_;
    const operations::HeadShape shape_;
    std::vector<Set> sets_;
};

}  // namespace

std::string CaseId::name() const {
    return operation + " " + dtype + " " + std::to_string(rows) + " x " + std::to_string(width) +
           (hidden > 0 ? " x " + std::to_string(hidden) : "");
}

std::vector<CaseId> read_plan(const std::string &path) {
    std::ifstream file(path);
    if (!file) {
        stop("there is no plan " + path);
    }
    std::vector<CaseId> plan;
    for (std::string line; std::getline(file, line);) {
        std::istringstream words(line.substr(0, line.find('#')));
        CaseId c;
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

std::unique_ptr<BenchmarkCase> make_case(const CaseId &c) {
    if (c.operation == "attention" && c.hidden > 0 && c.hidden % Attention::group == 0 && c.rows <= c.width) {
        return std::make_unique<Attention>(c);
    }
    // The plan's network has its norm and residual.
    const auto *layer =
        operations::find_layer(c.operation == "ffn_swiglu" ? "rms_norm_ffn_swiglu_residual" : c.operation);
    if (layer != nullptr && c.hidden > 0) {
        return std::make_unique<Layers>(c, *layer);
    }
    const auto *operation = operations::find_operation(c.operation);
    return operation != nullptr ? std::make_unique<Rows>(c, *operation) : nullptr;
}

}  // namespace halyard::bench::cuda
