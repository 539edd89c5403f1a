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

    /** [in_features] in the dtype of the weight, or nothing if `tensor` is null. */
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
        check_.same_dtype(sources.weight, view);
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
