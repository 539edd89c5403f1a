// What may be asked of a matrix that is packed.
#include "core/calls/pack.h"

namespace halyard {

CodeLayout check_quantization(Checker &check, const halyard_quantization &q, const Device &device) {
    if (q.bits == 0) {
        if (q.group != 0 || q.asymmetric != 0) {
            check.fail(HALYARD_INVALID_ARGUMENT,
                       "quantization.bits is 0, so that there are no codes, but quantization.%s is %d",
                       q.group != 0 ? "group" : "asymmetric", q.group != 0 ? q.group : q.asymmetric);
        }
        return {};
    }
    if (q.bits != 4 && q.bits != 8) {
        check.fail(HALYARD_INVALID_ARGUMENT, "quantization.bits is %d, but must be 4 or 8, or 0 for none", q.bits);
    }
    const DLDataType f16 = {kDLFloat, 16, 1};
    DType scales = DType::f16;
    check.known_type("quantization.scale_dtype", q.scale_dtype.bits == 0 ? f16 : q.scale_dtype, &scales);
    const CodeLayout codes = {q.bits, q.asymmetric != 0 ? ScaleKind::zero : ScaleKind::plain, scales, q.group};
    if (!check.failed() && !codes.valid()) {
        check.fail(HALYARD_INVALID_ARGUMENT,
                   "quantization.group is %d, but must be 16, 32, 64, 128 or 256, or 0 for all inputs", q.group);
    }
    if (!check.failed() && device.on_cuda) {
        check.fail(HALYARD_UNSUPPORTED, "quantization is asked for, but weights on CUDA devices have no codes");
    }
    return codes;
}

namespace {

/** Refuses an `up` that cannot lie beside `codes`. */
void check_pair(Checker &check, const CodesNames &names, const halyard_codes &codes, const CodesNames &up_names,
                const halyard_codes &up) {
    const struct {
        const char *name;
        int64_t of_codes, of_up;
    } fields[] = {{"format", codes.format, up.format},
                  {"bits", codes.bits, up.bits},
                  {"in_features", codes.in_features, up.in_features},
                  {"out_features", codes.out_features, up.out_features},
                  {"group", codes.group, up.group}};
    for (const auto &field : fields) {
        if (field.of_codes != field.of_up) {
            check.fail(HALYARD_INVALID_ARGUMENT, "%s.%s is %lld, but must be that of %s, %lld", up_names.all,
                       field.name, static_cast<long long>(field.of_up), names.all,
                       static_cast<long long>(field.of_codes));
        }
    }
    if (!codes.zeros != !up.zeros) {
        check.fail(HALYARD_INVALID_ARGUMENT, "%s is %s, but %s is %s: both matrices or none must have zeros",
                   up_names.zeros, up.zeros ? "there" : "null", names.zeros, codes.zeros ? "there" : "null");
    }
    if (!codes.g_idx != !up.g_idx) {
        check.fail(HALYARD_INVALID_ARGUMENT,
                   "%s is %s, but %s is %s: both matrices or none must have an order of inputs", up_names.g_idx,
                   up.g_idx ? "there" : "null", names.g_idx, codes.g_idx ? "there" : "null");
    }
}

/** Refuses another order than that of `codes`: x has one for both. */
void check_orders(Checker &check, const CodesNames &names, const CodeSource &codes, const CodesNames &up_names,
                  const CodeSource &up, int64_t inputs) {
    const auto *const of_codes = reinterpret_cast<const int32_t *>(codes.order.data),
                      *const of_up = reinterpret_cast<const int32_t *>(up.order.data);
    for (int64_t k = 0; k < inputs && of_codes && !check.failed(); k++) {
        if (of_codes[k] != of_up[k]) {
            check.fail(HALYARD_INVALID_ARGUMENT,
                       "%s has group %d for input %lld, but %s has %d: gate and up take x in one order", up_names.g_idx,
                       static_cast<int>(of_up[k]), static_cast<long long>(k), names.g_idx,
                       static_cast<int>(of_codes[k]));
        }
    }
}

}  // namespace

PackSources code_sources(Checker &check, const CodesNames &names, const halyard_codes &codes,
                         const CodesNames &up_names, const halyard_codes *up, bool with_data) {
    PackSources sources;
    sources.codes = check_codes(check, names, codes, with_data);
    if (!check.failed() && sources.codes.format->block_inputs != 0) {
        check.built_type(names.matrix, DType::f16);
    }
    if (up && !check.failed()) {
        check_pair(check, names, codes, up_names, *up);
        sources.up_codes = check_codes(check, up_names, *up, with_data);
        if (!check.failed() && sources.up_codes.scales.data) {
            check.same_dtype(sources.codes.scales.memory, sources.up_codes.scales.memory);
        }
        if (!check.failed() && with_data) {
            check_orders(check, names, sources.codes, up_names, sources.up_codes, codes.in_features);
        }
    }
    set_code_form(check, names, codes.in_features, codes.out_features, up != nullptr, sources);
    return sources;
}

void set_code_form(Checker &check, const CodesNames &names, int64_t in_features, int64_t out_features, bool gated,
                   PackSources &sources) {
    if (check.failed()) {
        return;
    }
    PackedForm &form = sources.form;
    form.codes = sources.codes.layout;
    form.gated = gated;
    form.ordered = sources.codes.order.data != nullptr;
    form.in_features = in_features;
    form.out_features = out_features;
    if (!form.compute_geometry()) {
        check.fail(HALYARD_INVALID_ARGUMENT, "%s has %lld x %lld features, which are more than 2^63 bytes when packed",
                   names.all, static_cast<long long>(out_features), static_cast<long long>(in_features));
    }
}

}  // namespace halyard
