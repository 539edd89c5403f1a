// Codes that a caller hands over: shapes, dtypes and numbers of every format.
#include "core/calls/codes.h"

#include <algorithm>
#include <cstdio>

#include "core/handles/packed_weights.h"
#include "core/view.h"

namespace halyard {
namespace {

/** Checks one halyard_codes. */
class CodesReader {
public:
    CodesReader(Checker &check, const CodesNames &names, const halyard_codes &codes, bool with_data)
        : check_(check), names_(names), codes_(codes), with_data_(with_data) {}

    CodeSource read() {
        read_numbers();
        if (check_.failed()) {
            return source_;
        }
        const CodeFormat &format = *source_.format;
        const int64_t in = codes_.in_features, out = codes_.out_features;
        if (format.block_inputs != 0) {
            none(names_.scales, codes_.scales);
            none(names_.zeros, codes_.zeros);
            none(names_.g_idx, codes_.g_idx);
            source_.codes = matrix(names_.matrix, codes_.matrix, format.element, out,
                                   in / format.block_inputs * format.block_bytes, false);
            return source_;
        }
        const int64_t joined = format.joined(layout().bits), groups = ceil(in, source_.group);
        const bool of_outputs = format.joins_outputs;
        source_.codes = matrix(names_.matrix, codes_.matrix, format.element, of_outputs ? ceil(out, joined) : out,
                               of_outputs ? in : ceil(in, joined), format.transposed);
        source_.scales = matrix(names_.scales, codes_.scales, {}, out, groups, format.transposed);
        layout().scale_dtype = source_.scales.memory.dtype;
        if (layout().kind == ScaleKind::zero) {
            source_.zeros =
                matrix(names_.zeros, codes_.zeros, format.element, ceil(out, joined), groups, format.transposed);
        }
        read_order();
        return source_;
    }

private:
    CodeLayout &layout() { return source_.layout; }
    static int64_t ceil(int64_t a, int64_t b) { return a / b + (a % b != 0); }

    void none(const char *name, const DLTensor *tensor) {
        if (tensor) {
            check_.fail(HALYARD_INVALID_ARGUMENT, "%s is there, but must be null: %s has no such tensor", name,
                        source_.format->name);
        }
    }

    void range(const char *field, int64_t value, int64_t least, int64_t most) {
        if (value < least || value > most) {
            check_.fail(HALYARD_INVALID_ARGUMENT, "%s.%s is %lld, but must be %lld to %lld", names_.all, field,
                        static_cast<long long>(value), static_cast<long long>(least), static_cast<long long>(most));
        }
    }

    /** Everything but the tensors. */
    void read_numbers() {
        const CodeFormat *const format = source_.format = code_format(codes_.format);
        if (!format) {
            check_.fail(HALYARD_INVALID_ARGUMENT, "%s.format is %d, which is no value of halyard_code_format",
                        names_.all, static_cast<int>(codes_.format));
            return;
        }
        range("in_features", codes_.in_features, 1, max_features);
        range("out_features", codes_.out_features, 1, max_features);
        if (format->bits == 0 ? codes_.bits != 4 && codes_.bits != 8 : codes_.bits != 0) {
            check_.fail(HALYARD_INVALID_ARGUMENT, "%s.bits is %d, but must be %s for %s", names_.all, codes_.bits,
                        format->bits == 0 ? "4 or 8" : "0", format->name);
        }
        const bool has_blocks = format->block_inputs != 0;
        if (has_blocks ? codes_.group != 0 : codes_.group < 0 || codes_.group % 16 != 0) {
            check_.fail(HALYARD_INVALID_ARGUMENT, "%s.group is %lld, but must be %s for %s", names_.all,
                        static_cast<long long>(codes_.group),
                        has_blocks ? "0" : "a multiple of 16, or 0 for all inputs", format->name);
        }
        if (has_blocks && codes_.in_features % format->block_inputs != 0) {
            check_.fail(HALYARD_INVALID_ARGUMENT, "%s.in_features is %lld, but must be a multiple of %d for %s",
                        names_.all, static_cast<long long>(codes_.in_features), format->block_inputs, format->name);
        }
        if (check_.failed()) {
            return;
        }
        const bool symmetric = format->kind == ScaleKind::zero && !codes_.zeros;
        layout() = {format->bits == 0 ? codes_.bits : format->bits, symmetric ? ScaleKind::plain : format->kind,
                    DType::f16, format->group};
        source_.group = codes_.group == 0 ? codes_.in_features : codes_.group;
        if (!has_blocks && codes_.group != 0) {
            // The largest group of the packed form that divides it, whose scales are then repeated.
            layout().group = static_cast<int>(std::min<int64_t>(256, codes_.group & -codes_.group));
        }
    }

    /** [outputs, inputs], or transposed. `type`: of its elements; all zero: that of scales. */
    CodeTensor matrix(const char *name, const DLTensor *tensor, DLDataType type, int64_t outputs, int64_t inputs,
                      bool transposed) {
        CodeTensor result;
        const View view = this->view(name, tensor, type);
        const int64_t shape[2] = {transposed ? inputs : outputs, transposed ? outputs : inputs};
        // A vector is a matrix for one group.
        const bool vector = view.rank == 1 && inputs == 1;
        if (!check_.failed() && (vector ? view.width() != outputs
                                        : view.rank != 2 || view.shape[0] != shape[0] || view.shape[1] != shape[1])) {
            char got[64];
            describe_shape(view, got);
            check_.fail(HALYARD_INVALID_ARGUMENT, "%s has shape %s, but must have [%lld, %lld] for %s", name, got,
                        static_cast<long long>(shape[0]), static_cast<long long>(shape[1]), source_.format->name);
        }
        if (check_.failed()) {
            return result;
        }
        const int64_t size = type.bits != 0 ? type.bits / 8 : size_of(view.dtype);
        // A single row may have any stride.
        const int64_t pitch = view.rank != 2 ? (transposed ? 0 : size) : view.shape[0] > 1 ? view.strides[0] * size : 0;
        result.data = view.data;
        result.output_pitch = transposed ? size : pitch;
        result.input_pitch = transposed ? pitch : size;
        if (type.bits == 0) {
            result.memory = view;
            return result;
        }
        result.memory = memory_of(name, view, size);
        return result;
    }

    /** In units of 2 bytes, whose ends are no others for a tensor of numbers or a block. */
    static View memory_of(const char *name, const View &view, int64_t size) {
        const auto begin = reinterpret_cast<uintptr_t>(view.data), aligned = begin & ~uintptr_t{1};
        const int64_t halves = (static_cast<int64_t>(begin - aligned) + view.span * size + 1) / 2;
        View memory = view_of(reinterpret_cast<void *>(aligned), DType::f16, {}, {halves}, {1});
        memory.name = name;
        return memory;
    }

    View view(const char *name, const DLTensor *tensor, DLDataType type) {
        if (!check_.not_null(name, tensor)) {
            return View();
        }
        DLTensor copy = *tensor;
        if (!with_data_) {
            copy.data = &copy;  // aligned, and never read
            copy.byte_offset = 0;
            copy.strides = nullptr;
            copy.device = {kDLCPU, 0};
        }
        return type.bits != 0 ? check_.tensor_of(name, &copy, type) : check_.tensor(name, &copy);
    }

    template<std::size_t size>
    static void describe_shape(const View &view, char (&text)[size]) {
        int used = snprintf(text, size, "[");
        for (int axis = 0; axis < view.rank; axis++) {
            used += snprintf(text + used, size - static_cast<std::size_t>(used), "%s%lld", axis > 0 ? ", " : "",
                             static_cast<long long>(view.shape[axis]));
            used = std::min<int>(used, size - 2);
        }
        snprintf(text + used, size - static_cast<std::size_t>(used), "]");
    }

    /** The group of each input. Whether groups have as many inputs as they must is seen when inputs are sorted. */
    void read_order() {
        if (check_.failed() || !codes_.g_idx) {
            return;
        }
        if (source_.format->joins_outputs) {
            none(names_.g_idx, codes_.g_idx);
            return;
        }
        const View indices = view(names_.g_idx, codes_.g_idx, {kDLInt, 32, 1});
        if (!check_.failed() && (indices.rank != 1 || indices.width() != codes_.in_features)) {
            check_.fail(HALYARD_INVALID_ARGUMENT,
                        "%s has rank %d and width %lld, but must have shape [%lld], the in_features", names_.g_idx,
                        indices.rank, static_cast<long long>(indices.width()),
                        static_cast<long long>(codes_.in_features));
        }
        if (check_.failed()) {
            return;
        }
        source_.order.data = indices.data;
        source_.order.memory = memory_of(names_.g_idx, indices, sizeof(int32_t));
        const int64_t groups = ceil(codes_.in_features, source_.group);
        for (int64_t k = 0; k < codes_.in_features && with_data_ && !check_.failed(); k++) {
            const int32_t index = reinterpret_cast<const int32_t *>(indices.data)[k];
            if (index < 0 || index >= groups) {
                check_.fail(HALYARD_INVALID_ARGUMENT, "%s has group %d for input %lld, but must have 0 to %lld",
                            names_.g_idx, static_cast<int>(index), static_cast<long long>(k),
                            static_cast<long long>(groups - 1));
            }
            source_.is_in_order = source_.is_in_order && index == k / source_.group;
        }
    }

    Checker &check_;
    const CodesNames &names_;
    const halyard_codes &codes_;
    const bool with_data_;
    CodeSource source_;
};

}  // namespace

CodeSource check_codes(Checker &check, const CodesNames &names, const halyard_codes &codes, bool with_data) {
    return CodesReader(check, names, codes, with_data).read();
}

}  // namespace halyard
