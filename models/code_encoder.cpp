#include "code_encoder.h"

#include <algorithm>
#include <cstring>

#include "block_encoders.h"
#include "floating_point.h"
#include "views.h"

namespace halyard::models {

namespace {

constexpr std::int64_t outputs_in_words = 8;  // words that join outputs have 8 or 4 of them

/// Extents, and where things lie.
class CodeLayout {
    const QuantizationConfig &config_;

public:
    const std::int64_t out, in, group, groups;

    explicit CodeLayout(const CodingTask &task)
        : config_(*task.config), out(task.shape[0]), in(task.shape[1]), group(config_.group == 0 ? in : config_.group),
          groups((in + group - 1) / group) {}

    /// Codes and zeros are bytes with a sign, or in words of 32 bits.
    bool has_bytes() const { return config_.format == CodeFormat::int8; }
    bool is_awq() const { return config_.format == CodeFormat::awq; }
    /// Inputs come before outputs, and groups before outputs.
    bool is_transposed() const { return !has_bytes() && config_.format != CodeFormat::compressed_tensors; }
    bool has_zeros() const { return is_transposed() || !config_.symmetric; }
    std::int64_t words(std::int64_t codes) const { return (codes * config_.bits + 31) / 32; }

    std::vector<std::int64_t> shape_of_codes() const {
        return has_bytes()       ? std::vector{out, in}
               : is_awq()        ? std::vector{in, words(out)}
               : is_transposed() ? std::vector{words(in), out}
                                 : std::vector{out, words(in)};
    }
    std::vector<std::int64_t> shape_of_scales() const {
        return is_transposed() ? std::vector{groups, out} : std::vector{out, groups};
    }
    std::vector<std::int64_t> shape_of_zeros() const {
        return has_bytes()       ? std::vector{out, groups}
               : is_transposed() ? std::vector{groups, words(out)}
                                 : std::vector{words(out), groups};
    }

    void put_code(std::int64_t n, std::int64_t k, std::uint32_t code, std::byte *to) const {
        if (has_bytes()) {
            to[n * in + k] = static_cast<std::byte>(code ^ 128);
        } else if (is_awq()) {
            put(to, k * words(out), place_of_output(n), code);
        } else if (is_transposed()) {
            put(to, k * config_.bits / 32 * out + n, k * config_.bits % 32, code);
        } else {
            put(to, n * words(in), k * config_.bits, code);
        }
    }
    void put_zero(std::int64_t n, std::int64_t g, int zero, std::byte *to) const {
        if (has_bytes()) {
            to[n * groups + g] = static_cast<std::byte>(zero ^ 128);
        } else if (is_transposed()) {
            put(to, g * words(out), place_of_output(n), stored_zero(zero));
        } else {
            put(to, n * config_.bits / 32 * groups + g, n * config_.bits % 32, stored_zero(zero));
        }
    }
    std::int64_t place_of_scale(std::int64_t n, std::int64_t g) const {
        return is_transposed() ? g * out + n : n * groups + g;
    }
    /// Every byte of zeros in the middle of the codes; those of words hold two zeros of 4 bits.
    std::byte middle_byte() const {
        const std::uint32_t zero = stored_zero(1 << (config_.bits - 1));
        return static_cast<std::byte>(has_bytes() ? 0 : config_.bits == 4 ? zero * 0x11 : zero);
    }

private:
    /// GPTQ's first version stores one less, modulo 2^bits.
    std::uint32_t stored_zero(int zero) const {
        const int less = config_.format == CodeFormat::gptq ? 1 : 0;
        return static_cast<std::uint32_t>(zero - less) & ((1u << config_.bits) - 1);
    }
    /// The bit of an output from the first of a row on. AWQ has the even ones of eight before the odd ones.
    std::int64_t place_of_output(std::int64_t n) const {
        constexpr std::int64_t awq[] = {0, 4, 1, 5, 2, 6, 3, 7};
        return config_.bits * (is_awq() ? n / 8 * 8 + awq[n % 8] : n);
    }
    static void put(std::byte *words, std::int64_t first, std::int64_t bit, std::uint32_t code) {
        std::uint32_t word = 0;
        std::byte *const at = words + (first + bit / 32) * static_cast<std::int64_t>(sizeof word);
        std::memcpy(&word, at, sizeof word);
        word |= code << bit % 32;
        std::memcpy(at, &word, sizeof word);
    }
};

/// Outputs of a matrix, encoded and decoded again one by one.
class CodedRows {
public:
    CodedRows(const CodingTask &task, const float *values, std::byte *codes, std::byte *scales, std::byte *zeros)
        : task_(task), layout_(task), values_(values), codes_(codes), scales_(scales), zeros_(zeros) {}

    std::int64_t count() const { return layout_.out; }

    EncodingErrors encode(std::int64_t first, std::int64_t end) const {
        const DefaultFloatingPoint floating_point;
        Context context;
        context.set_num_threads(1);
        Row row(layout_);
        EncodingErrors errors;
        for (std::int64_t n = first; n < end; n++) {
            row.values.assign(values_ + n * layout_.in, values_ + (n + 1) * layout_.in);
            check_finite(row.values, task_.stored, task_.config->name);
            encode(row);
            write_scales(n, row, context);
            write_codes(n, row);
            check_decoded(row.decoded, task_.stored, task_.config->name);
            errors.add(row.values, row.decoded);
        }
        return errors;
    }

private:
    struct Row {
        explicit Row(const CodeLayout &layout)
            : values(static_cast<std::size_t>(layout.in)), decoded(values.size()),
              scales(static_cast<std::size_t>(layout.groups)), codes(values.size()), zeros(scales.size()),
              scale_bytes(scales.size() * sizeof(float)) {}

        std::vector<float> values, decoded, scales;
        std::vector<std::uint8_t> codes;
        std::vector<int> zeros;
        std::vector<std::byte> scale_bytes;  // of a narrow dtype: the first
    };

    void encode(Row &row) const {
        for (std::int64_t g = 0, k = 0; g < layout_.groups; g++, k += layout_.group) {
            const CodedGroup group = encode_group(row.values.data() + k, std::min(layout_.group, layout_.in - k),
                                                  task_.config->bits, task_.config->symmetric, row.codes.data() + k);
            row.scales[static_cast<std::size_t>(g)] = group.scale;
            row.zeros[static_cast<std::size_t>(g)] = group.zero;
        }
    }
    /// Rounds them to their dtype.
    void write_scales(std::int64_t n, Row &row, const Context &context) const {
        const BlockFormat &format = *task_.scales;
        const Extents shape{layout_.groups};
        encode_blocks(format, row.scales.data(), layout_.groups, row.scale_bytes.data());
        if (format.name == "F16") {
            cast(ConstTensor(reinterpret_cast<const f16 *>(row.scale_bytes.data()), shape), row.scales, context);
        } else if (format.name == "BF16") {
            cast(ConstTensor(reinterpret_cast<const bf16 *>(row.scale_bytes.data()), shape), row.scales, context);
        }
        for (std::int64_t g = 0; g < layout_.groups; g++) {
            std::memcpy(scales_ + layout_.place_of_scale(n, g) * format.bytes,
                        row.scale_bytes.data() + g * format.bytes, static_cast<std::size_t>(format.bytes));
        }
    }
    void write_codes(std::int64_t n, Row &row) const {
        for (std::int64_t k = 0; k < layout_.in; k++) {
            const auto i = static_cast<std::size_t>(k), g = static_cast<std::size_t>(k / layout_.group);
            layout_.put_code(n, k, row.codes[i], codes_);
            row.decoded[i] = row.scales[g] * static_cast<float>(row.codes[i] - row.zeros[g]);
        }
        // Symmetric ones are all in the middle already.
        for (std::int64_t g = 0; g < layout_.groups && !task_.config->symmetric; g++) {
            layout_.put_zero(n, g, row.zeros[static_cast<std::size_t>(g)], zeros_);
        }
    }

    const CodingTask &task_;
    const CodeLayout layout_;
    const float *const values_;
    std::byte *const codes_, *const scales_, *const zeros_;
};

/// The group of each input.
std::vector<std::byte> group_indices(const CodeLayout &layout) {
    std::vector<std::int32_t> groups;
    for (std::int64_t k = 0; k < layout.in; k++) {
        groups.push_back(static_cast<std::int32_t>(k / layout.group));
    }
    const auto *const bytes = reinterpret_cast<const std::byte *>(groups.data());
    return {bytes, bytes + groups.size() * sizeof(std::int32_t)};
}

/// compressed-tensors has them only where inputs may have another order.
bool has_group_indices(const QuantizationConfig &config) {
    const bool is_gptq = config.format == CodeFormat::gptq || config.format == CodeFormat::gptq_v2;
    return is_gptq || config.has_order;
}

}  // namespace

std::vector<TensorEntry> CodingTask::entries() const {
    const CodeLayout layout(*this);
    const CodeNames names = code_names(config->format);
    std::vector<TensorEntry> all;
    const auto add = [&](const char *name, const char *dtype, std::int64_t element, std::vector<std::int64_t> extents) {
        const std::int64_t bytes = elements_of(extents) * element;
        all.push_back({module + name, dtype, std::move(extents), bytes});
    };
    const char *const integers = layout.has_bytes() ? "I8" : "I32";
    const std::int64_t integer_bytes = layout.has_bytes() ? 1 : 4;
    add(names.codes, integers, integer_bytes, layout.shape_of_codes());
    add(names.scales, std::string(scales->name).c_str(), scales->bytes, layout.shape_of_scales());
    if (layout.has_zeros()) {
        add(names.zeros, integers, integer_bytes, layout.shape_of_zeros());
    }
    if (*names.order != '\0' && has_group_indices(*config)) {
        add(names.order, "I32", 4, {layout.in});
    }
    if (*names.shape != '\0') {
        add(names.shape, "I64", 8, {2});
    }
    return all;
}

EncodingErrors encode_matrix(const CodingTask &task, int threads, std::vector<std::vector<std::byte>> &tensors) {
    const CodeLayout layout(task);
    tensors.clear();
    for (const TensorEntry &entry : task.entries()) {
        tensors.emplace_back(static_cast<std::size_t>(entry.bytes));
    }
    std::size_t used = 2;  // codes and scales
    std::byte *zeros = nullptr;
    if (layout.has_zeros()) {
        zeros = tensors[used].data();
        if (task.config->symmetric) {
            std::fill(tensors[used].begin(), tensors[used].end(), layout.middle_byte());
        }
        used++;
    }
    const CodeNames names = code_names(task.config->format);
    if (*names.order != '\0' && has_group_indices(*task.config)) {
        tensors[used++] = group_indices(layout);
    }
    if (*names.shape != '\0') {
        const std::int64_t shape[] = {layout.out, layout.in};
        std::memcpy(tensors[used].data(), shape, sizeof shape);
    }
    Context context;
    context.set_num_threads(threads);
    Views views;
    const ConstTensor values = views.of(context, task.stored, element<float>::dtype, task.stored_heads);
    const DLTensor &view = *values.get();
    const auto *const first = reinterpret_cast<const float *>(static_cast<const char *>(view.data) + view.byte_offset);
    return encode_in_parallel(CodedRows(task, first, tensors[0].data(), tensors[1].data(), zeros), threads,
                              outputs_in_words);
}

}  // namespace halyard::models
