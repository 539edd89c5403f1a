// What a matrix is packed from.
#ifndef HALYARD_RUNTIME_CORE_CALLS_PACK_H
#define HALYARD_RUNTIME_CORE_CALLS_PACK_H

#include "core/calls/codes.h"
#include "core/device.h"
#include "core/handles/packed_weights.h"

namespace halyard {

/** The checked sources of a packed matrix. */
struct PackSources {
    View weight, up, norm_weight, norm_bias;  // `data` is null where there is none
    CodeSource codes, up_codes;               // in place of all these, where there are codes already
    halyard_weight_layout layout = HALYARD_WEIGHT_OUT_IN;
    bool unit_offset = false;
    PackedForm form;  // for processors
    // Where the packed matrix is to be.
    bool to_cuda = false;
    int device_id = 0;
};

/** The form of a quantized matrix, checked; none where that is what is asked for. */
CodeLayout check_quantization(Checker &check, const halyard_quantization &quantization, const Device &device);

/** The sources of a matrix and, where that has data, of `up` beside it; with no norm so far. Refuses what is too large. */
inline PackSources pack_sources(Checker &check, const View &weight, const View &up, halyard_weight_layout layout,
                                Device device, const CodeLayout &codes = {}) {
    PackSources s;
    s.weight = weight;
    s.up = up;
    s.layout = layout;
    s.form.dtype = codes ? DType::f32 : weight.dtype;
    s.form.codes = codes;
    s.form.gated = up.data != nullptr;
    s.to_cuda = device.on_cuda;
    s.device_id = device.device_id;
    s.form.in_features = weight.shape[layout == HALYARD_WEIGHT_OUT_IN ? 1 : 0];
    s.form.out_features = weight.shape[layout == HALYARD_WEIGHT_OUT_IN ? 0 : 1];
    if (!check.failed() && !s.form.compute_geometry()) {
        check.fail(HALYARD_INVALID_ARGUMENT,
                   "weight has %lld x %lld features, which are more than 2^63 bytes when packed",
                   static_cast<long long>(s.form.out_features), static_cast<long long>(s.form.in_features));
    }
    return s;
}

/** Codes and, where it is not null, `up` beside them: the sources of a matrix for processors, checked. */
PackSources code_sources(Checker &check, const CodesNames &names, const halyard_codes &codes,
                         const CodesNames &up_names, const halyard_codes *up, bool with_data);

/** Sets what follows from the codes; refuses what is too large. */
void set_code_form(Checker &check, const CodesNames &names, int64_t in_features, int64_t out_features, bool gated,
                   PackSources &sources);

}  // namespace halyard

#endif
