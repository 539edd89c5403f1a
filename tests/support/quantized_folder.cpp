#include "support/quantized_folder.h"

#include <algorithm>
#include <cmath>

namespace halyard::tests {

namespace {

/** Codes, unsigned, of a matrix [out, in], and scales and zeros [out, groups]. */
struct Quantized {
    std::int64_t out, in, groups, group;
    bool ordered;
    std::vector<int> codes, zeros;
    std::vector<float> scales;
    std::string scale_bytes;  // in their dtype, in the order of `scales`

    std::size_t at(std::int64_t n, std::int64_t k) const { return static_cast<std::size_t>(n * in + k); }
    /** The group of an input; ordered: counted from the last input on. */
    std::int64_t group_of(std::int64_t k) const { return (ordered ? in - 1 - k : k) / group; }
    std::size_t group_at(std::int64_t n, std::int64_t g) const { return static_cast<std::size_t>(n * groups + g); }
};

/** Rounds scales to their dtype. */
template<class T>
std::string rounded(std::vector<float> &scales) {
    std::vector<T> narrow(scales.size());
    cast(scales, narrow);
    cast(narrow, scales);
    return std::string(reinterpret_cast<const char *>(narrow.data()), narrow.size() * sizeof(T));
}

std::string round_scales(const std::string &dtype, std::vector<float> &scales) {
    if (dtype == "F32") {
        return std::string(reinterpret_cast<const char *>(scales.data()), scales.size() * sizeof(float));
    }
    return dtype == "F16" ? rounded<f16>(scales) : rounded<bf16>(scales);
}

Quantized quantized(const std::vector<float> &values, std::int64_t out, std::int64_t in, const QuantizedForm &form) {
    Quantized q{out, in, 1, form.group == -1 ? in : form.group, form.ordered, {}, {}, {}, {}};
    q.groups = (in + q.group - 1) / q.group;
    const int most = (1 << form.bits) - 1, middle = 1 << (form.bits - 1);
    for (std::int64_t n = 0; n < out; n++) {
        for (std::int64_t g = 0; g < q.groups; g++) {
            float low = 0, high = 0;
            for (std::int64_t k = 0; k < in; k++) {
                if (q.group_of(k) == g) {
                    low = std::min(low, values[q.at(n, k)]);
                    high = std::max(high, values[q.at(n, k)]);
                }
            }
            const float range = form.symmetric ? 2 * std::max(-low, high) : high - low;
            q.scales.push_back(std::max(range, 1e-5f) / static_cast<float>(most));
            q.zeros.push_back(form.symmetric ? middle : static_cast<int>(std::lround(-low / q.scales.back())));
        }
    }
    q.scale_bytes = round_scales(form.scales, q.scales);
    for (std::int64_t n = 0; n < out; n++) {
        for (std::int64_t k = 0; k < in; k++) {
            const std::size_t g = q.group_at(n, q.group_of(k));
            const auto code = static_cast<int>(std::lround(values[q.at(n, k)] / q.scales[g])) + q.zeros[g];
            q.codes.push_back(std::clamp(code, 0, most));
        }
    }
    return q;
}

std::vector<float> numbers_of(const Quantized &q) {
    std::vector<float> numbers;
    for (std::int64_t n = 0; n < q.out; n++) {
        for (std::int64_t k = 0; k < q.in; k++) {
            const std::size_t g = q.group_at(n, q.group_of(k));
            numbers.push_back(q.scales[g] * static_cast<float>(q.codes[q.at(n, k)] - q.zeros[g]));
        }
    }
    return numbers;
}

/** Words of 32 bits, [rows, ceil(count)] or [ceil(count), columns], of codes code(row, i) joined along i. */
template<class Code>
StoredTensor words(std::int64_t rows, std::int64_t count, int bits, bool joins_rows, const Code &code) {
    const std::int64_t per_row = (count * bits + 31) / 32;
    std::vector<std::uint32_t> all(static_cast<std::size_t>(rows * per_row));
    for (std::int64_t row = 0; row < rows; row++) {
        for (std::int64_t i = 0; i < count; i++) {
            const std::int64_t word = i * bits / 32, place = joins_rows ? word * rows + row : row * per_row + word;
            all[static_cast<std::size_t>(place)] |= static_cast<std::uint32_t>(code(row, i)) << (i * bits % 32);
        }
    }
    std::vector<std::int64_t> shape{rows, per_row};
    if (joins_rows) {
        std::swap(shape[0], shape[1]);
    }
    return {"I32", shape, {reinterpret_cast<const char *>(all.data()), 4 * all.size()}};
}

/** int8 of unsigned codes of so many bits. */
StoredTensor signed_bytes(const std::vector<int> &codes, int bits, std::vector<std::int64_t> shape) {
    std::string bytes;
    for (const int code : codes) {
        bytes += static_cast<char>(code - (1 << (bits - 1)));
    }
    return {"I8", std::move(shape), bytes};
}

/** Rows and columns exchanged. */
std::string transposed(const std::string &bytes, std::int64_t rows, std::int64_t columns) {
    const std::size_t size = bytes.size() / static_cast<std::size_t>(rows * columns);
    std::string result;
    for (std::int64_t column = 0; column < columns; column++) {
        for (std::int64_t row = 0; row < rows; row++) {
            result += bytes.substr(static_cast<std::size_t>(row * columns + column) * size, size);
        }
    }
    return result;
}

using Tensors = std::map<std::string, StoredTensor>;

StoredTensor groups_of_inputs(const Quantized &q) {
    std::vector<std::int32_t> groups;
    for (std::int64_t k = 0; k < q.in; k++) {
        groups.push_back(static_cast<std::int32_t>(q.group_of(k)));
    }
    return {"I32", {q.in}, {reinterpret_cast<const char *>(groups.data()), 4 * groups.size()}};
}

/** Files of compressed-tensors. */
void store_compressed(const Quantized &q, const QuantizedForm &form, const std::string &module, Tensors &to) {
    to[module + "weight_scale"] = {form.scales, {q.out, q.groups}, q.scale_bytes};
    if (q.ordered) {
        to[module + "weight_g_idx"] = groups_of_inputs(q);
    }
    if (form.method == Method::int_quantized) {
        to[module + "weight"] = signed_bytes(q.codes, form.bits, {q.out, q.in});
        if (!form.symmetric) {
            to[module + "weight_zero_point"] = signed_bytes(q.zeros, form.bits, {q.out, q.groups});
        }
        return;
    }
    to[module + "weight_packed"] =
        words(q.out, q.in, form.bits, false, [&](auto n, auto k) { return q.codes[q.at(n, k)]; });
    if (!form.symmetric) {
        to[module + "weight_zero_point"] =
            words(q.groups, q.out, form.bits, true, [&](auto g, auto n) { return q.zeros[q.group_at(n, g)]; });
    }
    const std::int64_t shape[] = {q.out, q.in};
    to[module + "weight_shape"] = {"I64", {2}, {reinterpret_cast<const char *>(shape), sizeof(shape)}};
}

/** Files of GPTQ. */
void store_gptq(const Quantized &q, const QuantizedForm &form, const std::string &module, Tensors &to) {
    const int less = form.method == Method::gptq ? 1 : 0, most = (1 << form.bits) - 1;
    to[module + "qweight"] = words(q.out, q.in, form.bits, true, [&](auto n, auto k) { return q.codes[q.at(n, k)]; });
    to[module + "qzeros"] = words(q.groups, q.out, form.bits, false,
                                  [&](auto g, auto n) { return (q.zeros[q.group_at(n, g)] - less) & most; });
    to[module + "scales"] = {form.scales, {q.groups, q.out}, transposed(q.scale_bytes, q.out, q.groups)};
    to[module + "g_idx"] = groups_of_inputs(q);
}

/** Files of AWQ, whose outputs lie in another order in a word. */
void store_awq(const Quantized &q, const QuantizedForm &form, const std::string &module, Tensors &to) {
    constexpr std::int64_t order[] = {0, 2, 4, 6, 1, 3, 5, 7};
    const std::int64_t whole = (q.out + 7) / 8 * 8;
    const auto column = [&](std::int64_t i) { return i / 8 * 8 + order[i % 8]; };
    to[module + "qweight"] = words(q.in, whole, 4, false,
                                   [&](auto k, auto i) { return column(i) < q.out ? q.codes[q.at(column(i), k)] : 0; });
    to[module + "qzeros"] = words(q.groups, whole, 4, false, [&](auto g, auto i) {
        return column(i) < q.out ? q.zeros[q.group_at(column(i), g)] : 0;
    });
    to[module + "scales"] = {form.scales, {q.groups, q.out}, transposed(q.scale_bytes, q.out, q.groups)};
}

nlohmann::json configuration(const QuantizedForm &form) {
    if (form.method == Method::awq) {
        return {{"quant_method", "awq"}, {"bits", form.bits}, {"group_size", form.group},
                {"zero_point", true},    {"version", "gemm"}, {"modules_to_not_convert", nullptr}};
    }
    if (form.method == Method::gptq || form.method == Method::gptq_v2) {
        return {{"quant_method", "gptq"},   {"bits", form.bits},
                {"group_size", form.group}, {"sym", form.symmetric},
                {"desc_act", form.ordered}, {"checkpoint_format", form.method == Method::gptq ? "gptq" : "gptq_v2"},
                {"dataset", nullptr}};
    }
    nlohmann::json weights = {{"num_bits", form.bits},
                              {"type", "int"},
                              {"symmetric", form.symmetric},
                              {"actorder", form.ordered ? nlohmann::json("group") : nlohmann::json()},
                              {"strategy", form.group == -1 ? "channel" : "group"},
                              {"dynamic", false}};
    weights["group_size"] = form.group == -1 ? nlohmann::json() : nlohmann::json(form.group);
    const nlohmann::json group = {{"targets", {"Linear"}}, {"weights", weights}, {"input_activations", nullptr}};
    return {{"quant_method", "compressed-tensors"},
            {"format", form.method == Method::int_quantized ? "int-quantized" : "pack-quantized"},
            {"config_groups", {{"group_0", group}}},
            {"ignore", {"lm_head"}}};
}

}  // namespace

std::string QuantizedForm::name() const {
    const std::string with_bits = " " + std::to_string(bits) + " bits";
    return method == Method::int_quantized    ? "INT8"
           : method == Method::pack_quantized ? "compressed-tensors" + with_bits
           : method == Method::awq            ? "AWQ" + with_bits
                                              : "GPTQ" + with_bits;
}

Tensors quantize(Folder &folder, const QuantizedForm &form) {
    Tensors numbers = folder.tensors, coded;
    for (const auto &[name, tensor] : folder.tensors) {
        const std::string module = name.substr(0, name.rfind("weight"));
        const bool is_matrix = name.find("_proj.weight") != name.npos || (form.with_head && module == "lm_head.");
        if (!is_matrix) {
            coded[name] = tensor;
            continue;
        }
        const Quantized q = quantized(floats_of(tensor), tensor.shape[0], tensor.shape[1], form);
        const bool compressed = form.method == Method::pack_quantized || form.method == Method::int_quantized;
        (compressed ? store_compressed : form.method == Method::awq ? store_awq : store_gptq)(q, form, module, coded);
        const std::vector<float> values = numbers_of(q);
        numbers[name] = {"F32", tensor.shape, {reinterpret_cast<const char *>(values.data()), 4 * values.size()}};
    }
    folder.tensors = std::move(coded);
    folder.config["quantization_config"] = configuration(form);
    return numbers;
}

}  // namespace halyard::tests
