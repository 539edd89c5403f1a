// Packing: the public functions.
#include "core/backend.h"

namespace halyard {
namespace {

/** Checks tensors of which only shape and dtype matter, or all of them. */
class SourceReader {
public:
    SourceReader(Checker &check, bool with_data) : check_(check), with_data_(with_data) {}

    View read(const char *name, const DLTensor *tensor) const {
        if (with_data_ || !tensor) {
            return check_.tensor(name, tensor);
        }
        DLTensor shape_only = *tensor;
        shape_only.data = &shape_only;  // aligned, and never read
        shape_only.byte_offset = 0;
        shape_only.strides = nullptr;
        shape_only.device = {kDLCPU, 0};
        return check_.tensor(name, &shape_only);
    }

    View matrix(const char *name, const DLTensor *tensor) const {
        const View view = read(name, tensor);
        if (check_.failed()) {
            return view;
        }
        if (view.rank != 2) {
            check_.fail(HALYARD_INVALID_ARGUMENT, "%s has rank %d, but must be a matrix (rank 2)", name, view.rank);
        }
        for (int axis = 0; axis < view.rank; axis++) {
            if (view.shape[axis] < 1 || view.shape[axis] > max_features) {
                check_.fail(HALYARD_INVALID_ARGUMENT,
                            "%s has extent %lld on axis %d, but must have 1 to 2^31 - 1 features", name,
                            static_cast<long long>(view.shape[axis]), axis);
            }
        }
        return view;
    }

    /** [in_features] in the dtype of the weight or in f32; or nothing if `tensor` is null. */
    View vector(const char *name, const DLTensor *tensor, const PackSources &sources) const {
        if (!tensor || check_.failed()) {
            return View();
        }
        const View view = read(name, tensor);
        if (!check_.failed() && (view.rank != 1 || view.width() != sources.form.in_features)) {
            check_.fail(HALYARD_INVALID_ARGUMENT,
                        "%s must have shape [%lld], the in_features of weight, but has rank %d and width %lld", name,
                        static_cast<long long>(sources.form.in_features), view.rank,
                        static_cast<long long>(view.width()));
        }
        check_.same_dtype_or_f32(sources.weight, view);
        return view;
    }

private:
    Checker &check_;
    bool with_data_;
};

PackSources check_sources(Checker &check, const DLTensor *weight, const halyard_pack_options *options, bool with_data) {
    const halyard_pack_options none = {};
    const halyard_pack_options &o = options ? *options : none;
    const SourceReader reader(check, with_data);
    const View matrix = reader.matrix("weight", weight);
    const Device device = check.failed() ? Device() : choose_device(check, "weight", weight->device, o.device);
    if (!check.failed() && o.layout != HALYARD_WEIGHT_OUT_IN && o.layout != HALYARD_WEIGHT_IN_OUT) {
        check.fail(HALYARD_INVALID_ARGUMENT, "layout is %d, which is no value of halyard_weight_layout", o.layout);
    }
    View up;
    if (o.up) {
        up = reader.matrix("up", o.up);
        check.same_shape(matrix, up);
        check.same_dtype(matrix, up);
    }
    if (check.failed()) {
        return {};
    }
    const bool folds = o.norm_weight || o.norm_bias || o.norm_unit_offset != 0;
    const CodeLayout codes = check_quantization(check, o.quantization, device);
    if (!check.failed() && codes && folds) {
        check.fail(HALYARD_UNSUPPORTED,
                   "quantization is asked for, and a norm's weight or bias to be folded: codes stand for the matrix as "
                   "it is, so leave the norm to its own call");
    }
    if (check.failed()) {
        return {};
    }
    PackSources s = pack_sources(check, matrix, up, o.layout, device, codes);
    s.norm_weight = reader.vector("norm_weight", o.norm_weight, s);
    s.norm_bias = reader.vector("norm_bias", o.norm_bias, s);
    s.unit_offset = o.norm_unit_offset != 0;
    s.form.norm_folded = folds;
    return s;
}

/** Refuses weights into whose memory no matrix can be packed. */
void check_writable(Checker &check, const halyard_weights &weights) {
    if (weights.on_cuda) {
        check.fail(HALYARD_UNSUPPORTED, "weights are on a CUDA device, but only those of processors can be updated");
    } else if (weights.codes) {
        check.fail(HALYARD_UNSUPPORTED, "weights are quantized, and cannot be updated: pack the matrix into new ones");
    } else if (!weights.writable) {
        check.fail(HALYARD_UNSUPPORTED,
                   "weights are those of a file or of the caller's bytes, and cannot be updated: only what "
                   "halyard_weights_pack made can");
    }
}

/** Refuses a matrix of another form than that of the weights. */
void check_form(Checker &check, const PackSources &sources, const halyard_weights &weights) {
    const PackedForm &form = sources.form;
    if (sources.to_cuda) {
        check.fail(HALYARD_UNSUPPORTED, "device is a CUDA device, but weights are those of processors");
    } else if (form.codes) {
        check.fail(HALYARD_INVALID_ARGUMENT, "quantization is asked for, but weights were packed without");
    } else if (form.in_features != weights.in_features || form.out_features != weights.out_features) {
        check.fail(HALYARD_INVALID_ARGUMENT,
                   "weight has %lld inputs and %lld outputs, but must have those of weights, %lld and %lld",
                   static_cast<long long>(form.in_features), static_cast<long long>(form.out_features),
                   static_cast<long long>(weights.in_features), static_cast<long long>(weights.out_features));
    } else if (form.dtype != weights.dtype) {
        check.fail(HALYARD_INVALID_ARGUMENT, "weight has dtype %s, but must have that of weights, %s",
                   dtype_name(form.dtype), dtype_name(weights.dtype));
    } else if (form.gated != weights.gated) {
        check.fail(HALYARD_INVALID_ARGUMENT, "up is %s, but weights were packed %s it", form.gated ? "there" : "null",
                   weights.gated ? "with" : "without");
    } else if (form.norm_folded != weights.norm_folded) {
        check.fail(HALYARD_INVALID_ARGUMENT,
                   "norm_weight, norm_bias and norm_unit_offset %s, but weights were packed "
                   "%s a norm",
                   form.norm_folded ? "ask for a norm to be folded" : "are not there",
                   weights.norm_folded ? "with" : "without");
    }
}

}  // namespace
}  // namespace halyard

using halyard::Checker;

halyard_status halyard_weights_size(const DLTensor *weight, const halyard_pack_options *options, int64_t *bytes) {
    using namespace halyard;
    Checker check("halyard_weights_size");
    const PackSources sources = check_sources(check, weight, options, false);
    if (check.not_null("bytes", bytes)) {
        *bytes = check.failed() ? 0 : backend_of(sources.to_cuda).packed_bytes(sources);
    }
    return check.status();
}

halyard_status halyard_weights_pack(const halyard_context *context, const DLTensor *weight,
                                    const halyard_pack_options *options, void *memory, int64_t bytes,
                                    halyard_weights **weights) {
    using namespace halyard;
    Checker check("halyard_weights_pack", Devices::cpu_or_cuda);
    check.set_context(context);
    const PackSources sources = check_sources(check, weight, options, true);
    check.not_null("weights", weights);
    if (!check.failed()) {
        backend_of(sources.to_cuda).pack(check, context_or_default(context), sources, memory, bytes, weights);
    }
    return check.status();
}

halyard_status halyard_weights_update(const halyard_context *context, halyard_weights *weights, const DLTensor *weight,
                                      const halyard_pack_options *options) {
    using namespace halyard;
    Checker check("halyard_weights_update");
    check.set_context(context);
    if (check.not_null("weights", weights)) {
        check_writable(check, *weights);
    }
    const PackSources sources = check_sources(check, weight, options, true);
    if (!check.failed()) {
        check_form(check, sources, *weights);
    }
    if (!check.failed()) {
        cpu_backend.update(check, context_or_default(context), sources, *weights);
    }
    return check.status();
}
