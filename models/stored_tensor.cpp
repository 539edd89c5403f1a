#include "stored_tensor.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <vector>

#include "fail.h"
#include "tensor_table.h"

namespace halyard::models {

namespace {

constexpr std::string_view weight = "weight";

[[noreturn]] void missing(const std::filesystem::path &path, const std::string &name) {
    refuse(path, ": tensor ", in_quotes(name), " is missing");
}

void check_shape(const TensorInfo &info, const std::vector<std::int64_t> &shape) {
    if (info.shape != shape) {
        refuse(info.file, ": tensor ", in_quotes(info.name), " has shape ", shape_text(info.shape), " instead of ",
               shape_text(shape));
    }
}

void check_dtype(const TensorInfo &info, std::string_view dtype) {
    if (info.dtype != dtype) {
        refuse(info.file, ": tensor ", in_quotes(info.name), " is ", info.dtype, " instead of ", dtype);
    }
}

/// An integer of a tensor that lies at any address.
template<class T>
std::int64_t integer_at(const TensorInfo &info, std::int64_t index) {
    T value;
    std::memcpy(&value, info.data + index * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
    return value;
}

/// Finds and checks the tensors of one matrix.
class MatrixFinder {
public:
    MatrixFinder(const TensorFiles &files, const TensorInfo &codes, const std::string &module,
                 const std::vector<std::int64_t> &shape)
        : files_(files), config_(*files.quantization), names_(code_names(config_.format)), module_(module),
          out_(shape[0]), in_(shape[1]), groups_(config_.group == 0 ? 1 : ceil(in_, config_.group)) {
        stored_.tensor = &codes;
        stored_.shape = &shape;
        stored_.format = config_.name;
        stored_.codes = &config_;
    }

    StoredTensor find() {
        check_codes();
        find_scales();
        find_zeros();
        find_order();
        if (*names_.shape != '\0') {
            check_stored_shape(required(names_.shape));
        }
        return stored_;
    }

private:
    static std::int64_t ceil(std::int64_t a, std::int64_t b) { return a / b + (a % b != 0); }
    /// 32-bit words that hold so many codes.
    std::int64_t words(std::int64_t codes) const { return ceil(codes * config_.bits, 32); }
    bool is_transposed() const {
        return config_.format != CodeFormat::int8 && config_.format != CodeFormat::compressed_tensors;
    }

    const TensorInfo *optional(const char *name) const { return find_by_name(files_.tensors, module_ + name); }
    const TensorInfo &required(const char *name) const {
        const TensorInfo *const info = optional(name);
        if (info == nullptr) {
            missing(files_.path, module_ + name);
        }
        return *info;
    }

    void check_codes() const {
        const TensorInfo &codes = *stored_.tensor;
        const bool bytes = config_.format == CodeFormat::int8;
        check_dtype(codes, bytes ? "I8" : "I32");
        check_shape(codes, bytes                               ? std::vector{out_, in_}
                           : config_.format == CodeFormat::awq ? std::vector{in_, words(out_)}
                           : is_transposed()                   ? std::vector{words(in_), out_}
                                                               : std::vector{out_, words(in_)});
    }

    void find_scales() {
        stored_.scales = &required(names_.scales);
        SafeTensors::view(*stored_.scales);  // refuses what is not supported
        check_shape(*stored_.scales, is_transposed() ? std::vector{groups_, out_} : std::vector{out_, groups_});
    }

    /// compressed-tensors has zeros where they are not in the middle, the others always.
    void find_zeros() {
        if (!is_transposed() && config_.symmetric) {
            return;
        }
        const TensorInfo &zeros = required(names_.zeros);
        const bool bytes = config_.format == CodeFormat::int8;
        check_dtype(zeros, bytes ? "I8" : "I32");
        check_shape(zeros, bytes             ? std::vector{out_, groups_}
                           : is_transposed() ? std::vector{groups_, words(out_)}
                                             : std::vector{words(out_), groups_});
        if (config_.symmetric && are_in_the_middle(zeros)) {
            stored_.others.push_back(&zeros);
        } else {
            stored_.zeros = &zeros;
        }
    }

    bool are_in_the_middle(const TensorInfo &zeros) const {
        const int middle = (1 << (config_.bits - 1)) - (config_.format == CodeFormat::gptq ? 1 : 0);
        const auto byte = static_cast<std::byte>(config_.bits == 8 ? middle : middle * 0x11);
        return std::all_of(zeros.data, zeros.data + zeros.bytes, [&](std::byte each) { return each == byte; });
    }

    /// The group of each input, if that is not input / group.
    void find_order() {
        const TensorInfo *const order = *names_.order == '\0' ? nullptr
                                        : config_.has_order   ? &required(names_.order)
                                                              : optional(names_.order);
        if (order == nullptr) {
            return;
        }
        check_dtype(*order, "I32");
        check_shape(*order, {in_});
        const std::int64_t size = config_.group == 0 ? in_ : config_.group;
        std::vector<std::int64_t> inputs(static_cast<std::size_t>(groups_));
        bool is_in_order = true;
        for (std::int64_t k = 0; k < in_; k++) {
            const std::int64_t group = integer_at<std::int32_t>(*order, k);
            if (group < 0 || group >= groups_) {
                refuse(order->file, ": tensor ", in_quotes(order->name), " has group ", group, " for input ", k,
                       "; there are 0 to ", groups_ - 1);
            }
            inputs[static_cast<std::size_t>(group)]++;
            is_in_order = is_in_order && group == k / size;
        }
        for (std::int64_t group = 0; group < groups_; group++) {
            const std::int64_t wanted = std::min(size, in_ - group * size),
                               got = inputs[static_cast<std::size_t>(group)];
            if (got != wanted) {
                refuse(order->file, ": tensor ", in_quotes(order->name), " has ", got, " inputs of group ", group,
                       " instead of ", wanted);
            }
        }
        if (is_in_order) {
            stored_.others.push_back(order);
        } else {
            stored_.order = order;
        }
    }

    /// A tensor that says the shape again.
    void check_stored_shape(const TensorInfo &info) {
        check_dtype(info, "I64");
        check_shape(info, {2});
        const std::int64_t out = integer_at<std::int64_t>(info, 0), in = integer_at<std::int64_t>(info, 1);
        if (out != out_ || in != in_) {
            refuse(info.file, ": tensor ", in_quotes(info.name), " holds ", shape_text({out, in}), " instead of ",
                   shape_text({out_, in_}));
        }
        stored_.others.push_back(&info);
    }

    const TensorFiles &files_;
    const QuantizationConfig &config_;
    const CodeNames names_;
    const std::string module_;
    const std::int64_t out_, in_, groups_;
    StoredTensor stored_;
};

/// "layers.0.mlp.up_proj." of "layers.0.mlp.up_proj.weight"; empty if it is no weight.
std::string module_of(const std::string &name) {
    const std::size_t dot = name.rfind('.') + 1;  // 0 if there is none
    return std::string_view(name).substr(dot) == weight ? name.substr(0, dot) : "";
}

/// The codes of a module; null if it is not quantized.
const TensorInfo *codes_of(const TensorFiles &files, const std::string &module) {
    const CodeFormat format = files.quantization->format;
    const TensorInfo *const codes = find_by_name(files.tensors, module + code_names(format).codes);
    const bool is_plain = codes != nullptr && format == CodeFormat::int8 && codes->dtype != "I8";
    return is_plain ? nullptr : codes;
}

}  // namespace

CodeNames code_names(CodeFormat format) noexcept {
    switch (format) {
    case CodeFormat::int8:
        return {"weight", "weight_scale", "weight_zero_point", "weight_g_idx", ""};
    case CodeFormat::compressed_tensors:
        return {"weight_packed", "weight_scale", "weight_zero_point", "weight_g_idx", "weight_shape"};
    case CodeFormat::awq:
        return {"qweight", "scales", "qzeros", "", ""};
    default:
        return {"qweight", "scales", "qzeros", "g_idx", ""};
    }
}

std::int64_t StoredTensor::bytes() const {
    std::int64_t sum = 0;
    each_tensor([&](const TensorInfo &info) { sum += info.bytes; });
    return sum;
}

bool StoredTensor::fits_beside(const StoredTensor &other) const {
    return format == other.format && (zeros != nullptr) == (other.zeros != nullptr) &&
           (scales == nullptr || scales->dtype == other.scales->dtype) &&
           (order != nullptr) == (other.order != nullptr) &&
           (order == nullptr ||
            std::memcmp(order->data, other.order->data, static_cast<std::size_t>(order->bytes)) == 0);
}

StoredTensor find_stored(const TensorFiles &files, const std::string &name, const std::vector<std::int64_t> &shape) {
    const std::string module = files.quantization != nullptr && shape.size() == 2 ? module_of(name) : "";
    if (!module.empty()) {
        if (const TensorInfo *const codes = codes_of(files, module)) {
            return MatrixFinder(files, *codes, module, shape).find();
        }
    }
    const TensorInfo *const info = find_by_name(files.tensors, name);
    if (info == nullptr) {
        missing(files.path, name);
    }
    check_shape(*info, shape);
    StoredTensor stored;
    stored.tensor = info;
    stored.shape = &info->shape;
    stored.format = info->dtype;
    if (const BlockFormat *const format = block_format(info->dtype); format != nullptr && format->codes) {
        stored.blocks = format;
    } else {
        stored.dtype = SafeTensors::view(*info).dtype;  // refuses what is not supported
    }
    return stored;
}

bool is_bias_of_zeros(const TensorFiles &files, const TensorInfo &info) {
    constexpr std::string_view bias = "bias";
    const std::size_t dot = info.name.rfind('.') + 1;
    return files.quantization != nullptr && std::string_view(info.name).substr(dot) == bias &&
           codes_of(files, info.name.substr(0, dot)) != nullptr &&
           std::all_of(info.data, info.data + info.bytes, [](std::byte each) { return each == std::byte{0}; });
}

}  // namespace halyard::models
