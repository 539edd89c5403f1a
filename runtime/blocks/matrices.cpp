// See matrices.h.
#include "blocks/matrices.h"

#include <algorithm>
#include <cstring>

#include "core/view.h"
#include "core/workspace.h"

namespace halyard {

// ---- Checks ----

void MatrixChecks::require(MatrixSource &matrix, int64_t out, int64_t in, const char *unless, bool gated) {
    if (check_.failed()) {
        return;
    }
    const char *const names[] = {matrix.tensor ? matrix.names->tensor : nullptr,
                                 matrix.codes ? matrix.names->codes.all : nullptr,
                                 matrix.packed ? matrix.names->packed : nullptr};
    const char *first = nullptr;
    for (const char *const name : names) {
        if (first && name) {
            check_.fail(HALYARD_INVALID_ARGUMENT, "%s is given, and so is %s: a matrix comes in one way", first, name);
            return;
        }
        first = first ? first : name;
    }
    if (!first) {
        check_.fail(HALYARD_INVALID_ARGUMENT, "%s is given neither as a tensor nor as codes%s%s", matrix.names->tensor,
                    matrix.names->packed ? " nor packed" : "", unless);
    } else if (matrix.tensor) {
        check_tensor(matrix, out, in);
    } else if (matrix.codes) {
        check_features(first, matrix.codes->out_features, matrix.codes->in_features, out, in);
    } else if (matrix.packed->gated != gated) {
        check_.fail(HALYARD_INVALID_ARGUMENT, "%s holds %s, but must hold %s", first,
                    gated ? "one matrix" : "gate and up", gated ? "gate and up: gated_mlp is set" : "one matrix");
    } else {
        check_features(first, matrix.packed->out_features, matrix.packed->in_features, out, in);
    }
}

void MatrixChecks::check_tensor(MatrixSource &matrix, int64_t out, int64_t in) {
    const char *const name = matrix.names->tensor;
    const View view = matrix.view = check_.tensor(name, matrix.tensor);
    if (check_.failed()) {
        return;
    }
    if (view.rank != 2) {
        check_.fail(HALYARD_INVALID_ARGUMENT, "%s has rank %d, but must be a matrix (rank 2)", name, view.rank);
        return;
    }
    const bool out_in = layout_ == HALYARD_WEIGHT_OUT_IN;
    const int64_t rows = out_in ? out : in, columns = out_in ? in : out;
    if (view.shape[0] != rows || view.shape[1] != columns) {
        check_.fail(HALYARD_INVALID_ARGUMENT, "%s is [%lld, %lld], but must be [%lld, %lld] (layout is %s)", name,
                    static_cast<long long>(view.shape[0]), static_cast<long long>(view.shape[1]),
                    static_cast<long long>(rows), static_cast<long long>(columns), out_in ? "[out, in]" : "[in, out]");
    }
    if (first_.data) {
        check_.same_dtype(first_, view);
    } else {
        first_ = view;
    }
}

void MatrixChecks::check_features(const char *name, int64_t got_out, int64_t got_in, int64_t out, int64_t in) {
    if (got_out != out || got_in != in) {
        check_.fail(HALYARD_INVALID_ARGUMENT,
                    "%s has %lld out_features and %lld in_features, but must have %lld and %lld", name,
                    static_cast<long long>(got_out), static_cast<long long>(got_in), static_cast<long long>(out),
                    static_cast<long long>(in));
    }
}

void MatrixChecks::absent(const MatrixSource &matrix, const char *reason) {
    absent(matrix.name(), matrix.given() ? &matrix : nullptr, reason);
}

void MatrixChecks::absent(const char *name, const void *given, const char *reason) {
    if (!check_.failed() && given) {
        check_.fail(HALYARD_INVALID_ARGUMENT, "%s is given, but %s", name, reason);
    }
}

void check_matrix_device(Checker &check, const MatrixSource &matrix, const char *owner, Device device) {
    if (check.failed()) {
        return;
    }
    if (matrix.packed) {
        check_device(check, matrix.names->packed, device_of(*matrix.packed), owner, device);
    } else if (matrix.codes && device.on_cuda) {
        check.fail(HALYARD_UNSUPPORTED, "%s is given, but weights on CUDA devices have no codes",
                   matrix.names->codes.all);
    }
}

// ---- Packing ----

namespace {

/** Memory for matrices that are joined, freed with it: the context's, which keeps it, where that is done again and again. */
class JoinedMemory {
public:
    JoinedMemory(Checker &check, const halyard_context &context, Device device, int64_t bytes, bool again)
        : device_(device), scratch_(context, device) {
        const auto piece = scratch_.book(again ? bytes : 0);
        if (!again) {
            data_ = owned_ = allocate_at(check, device, bytes, "q_proj, k_proj and v_proj");
        } else if (scratch_.allocate(check)) {
            data_ = scratch_[piece];
        }
    }
    ~JoinedMemory() { free_at(device_, owned_); }
    JoinedMemory(const JoinedMemory &) = delete;
    JoinedMemory &operator=(const JoinedMemory &) = delete;

    char *data() const { return data_; }

private:
    const Device device_;
    Workspace scratch_;
    char *owned_ = nullptr, *data_ = nullptr;
};

/** Whether matrices are codes of one format of GGUF, which has an output in a row. */
bool of_one_gguf_format(const MatrixSource (&matrices)[3]) {
    return std::all_of(std::begin(matrices), std::end(matrices), [&](const MatrixSource &matrix) {
        const CodeFormat *const format = matrix.codes ? code_format(matrix.codes->format) : nullptr;
        return format && format->block_inputs != 0 && matrix.codes->format == matrices[0].codes->format;
    });
}

}  // namespace

PackedMatrix MatrixPacker::pack(const PackedMatrix &there, const MatrixSource &matrix, const MatrixSource *up) {
    if (check_.failed()) {
        return {};
    }
    if (matrix.packed) {
        return {matrix.packed, nullptr};
    }
    return pack(there, matrix.codes ? sources_of_codes(matrix, up)
                                    : pack_sources(check_, matrix.view, up ? up->view : View(), layout_, device_,
                                                   quantization_));
}

PackedMatrix MatrixPacker::pack(const PackedMatrix &there, const PackSources &sources) {
    PackedMatrix packed = there;
    if (!check_.failed() && there.owned) {
        backend_of(device_.on_cuda).update(check_, context_or_default(context_), sources, *there.owned);
    } else if (!check_.failed()) {
        backend_of(device_.on_cuda).pack(check_, context_or_default(context_), sources, nullptr, 0, &packed.owned);
    }
    packed.weights = packed.owned;
    return packed;
}

PackSources MatrixPacker::sources_of_codes(const MatrixSource &matrix, const MatrixSource *up) {
    // They are on the CPU, wherever tensors may be.
    Checker on_cpu(check_.function());
    const PackSources sources = code_sources(on_cpu, matrix.names->codes, *matrix.codes,
                                             (up ? up : &matrix)->names->codes, up ? up->codes : nullptr, true);
    check_.take_over(on_cpu);
    return sources;
}

void MatrixPacker::pack_qkv(const MatrixSource (&qkv)[3], PackedMatrix (&packed)[3]) {
    if (check_.failed()) {
        return;
    }
    if (qkv[0].tensor && qkv[1].tensor && qkv[2].tensor) {
        packed[0] = pack_joined_tensors(packed[0], qkv);
    } else if (of_one_gguf_format(qkv)) {
        packed[0] = pack_joined_codes(qkv);
    } else {
        for (int i = 0; i < 3; i++) {
            packed[i] = pack(packed[i], qkv[i]);
        }
    }
}

PackedMatrix MatrixPacker::pack_joined_tensors(const PackedMatrix &there, const MatrixSource (&qkv)[3]) {
    const int axis = layout_ == HALYARD_WEIGHT_OUT_IN ? 0 : 1;  // of the outputs
    const View &q = qkv[0].view;
    int64_t shape[] = {q.shape[0], q.shape[1]};
    shape[axis] += qkv[1].view.shape[axis] + qkv[2].view.shape[axis];
    const Device device = device_of(q);
    const JoinedMemory memory(check_, context_or_default(context_), device, shape[0] * shape[1] * size_of(q.dtype),
                              there.owned != nullptr);
    View whole = view_of(memory.data(), q.dtype, device, {shape[0], shape[1]}, {shape[1], 1});
    whole.name = "q_proj, k_proj or v_proj";
    int64_t first = 0;
    for (const MatrixSource &part : qkv) {
        const int64_t outputs = part.view.shape[axis];
        if (!check_.failed()) {
            backend_of(device.on_cuda)
                .copy(check_, context_or_default(context_), device.device_id, part.view,
                      part_of(whole, axis, first, outputs));
        }
        first += outputs;
    }
    return check_.failed() ? PackedMatrix()
                           : pack(there, pack_sources(check_, whole, View(), layout_, device_, quantization_));
}

PackedMatrix MatrixPacker::pack_joined_codes(const MatrixSource (&qkv)[3]) {
    PackSources parts[3];
    int64_t outputs = 0;
    for (int i = 0; i < 3 && !check_.failed(); i++) {
        parts[i] = sources_of_codes(qkv[i], nullptr);
        outputs += parts[i].form.out_features;
    }
    if (check_.failed()) {
        return {};
    }
    PackSources &whole = parts[0];
    const CodeFormat &format = *whole.codes.format;
    const int64_t row_bytes = whole.form.in_features / format.block_inputs * format.block_bytes;
    const JoinedMemory memory(check_, context_or_default(context_), Device(), outputs * row_bytes, false);
    char *to = memory.data();
    for (int i = 0; i < 3 && to; i++) {
        for (int64_t output = 0; output < parts[i].form.out_features; output++, to += row_bytes) {
            memcpy(to, parts[i].codes.codes.at(output, 0), static_cast<size_t>(row_bytes));
        }
    }
    whole.codes.codes.data = memory.data();
    whole.codes.codes.output_pitch = row_bytes;
    whole.codes.codes.memory.name = "codes.q_proj, codes.k_proj or codes.v_proj";
    set_code_form(check_, qkv[0].names->codes, whole.form.in_features, outputs, false, whole);
    return pack(PackedMatrix(), whole);
}

}  // namespace halyard
