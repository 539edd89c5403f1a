// Packing of matrices that are quantized already: the public functions.
#include "core/backend.h"

namespace halyard {
namespace {

constexpr CodesNames up_names = {"up", "up.matrix", "up.scales", "up.zeros", "up.g_idx"};

/** Refuses an `up` that cannot lie beside `codes`. */
void check_pair(Checker &check, const halyard_codes &codes, const halyard_codes &up) {
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
            check.fail(HALYARD_INVALID_ARGUMENT, "up.%s is %lld, but must be that of codes, %lld", field.name,
                       static_cast<long long>(field.of_up), static_cast<long long>(field.of_codes));
        }
    }
    if (!codes.zeros != !up.zeros) {
        check.fail(HALYARD_INVALID_ARGUMENT,
                   "up.zeros is %s, but codes.zeros is %s: both matrices or none must have zeros",
                   up.zeros ? "there" : "null", codes.zeros ? "there" : "null");
    }
}

PackSources check_sources(Checker &check, const halyard_codes *codes, const halyard_codes *up, bool with_data) {
    PackSources sources;
    if (!check.not_null("codes", codes)) {
        return sources;
    }
    sources.codes = check_codes(check, codes_names, *codes, with_data);
    if (!check.failed() && sources.codes.format->block_inputs != 0) {
        check.built_type("codes.matrix", DType::f16);
    }
    if (up && !check.failed()) {
        check_pair(check, *codes, *up);
        sources.up_codes = check_codes(check, up_names, *up, with_data);
        if (!check.failed() && sources.up_codes.scales.data) {
            check.same_dtype(sources.codes.scales.memory, sources.up_codes.scales.memory);
        }
    }
    if (check.failed()) {
        return sources;
    }
    PackedForm &form = sources.form;
    form.codes = sources.codes.layout;
    form.gated = up != nullptr;
    form.in_features = codes->in_features;
    form.out_features = codes->out_features;
    if (!form.compute_geometry()) {
        check.fail(HALYARD_INVALID_ARGUMENT,
                   "codes has %lld x %lld features, which are more than 2^63 bytes when packed",
                   static_cast<long long>(form.out_features), static_cast<long long>(form.in_features));
    }
    return sources;
}

}  // namespace
}  // namespace halyard

halyard_status halyard_weights_codes_size(const halyard_codes *codes, const halyard_codes *up, int64_t *bytes) {
    using namespace halyard;
    Checker check("halyard_weights_codes_size");
    const PackSources sources = check_sources(check, codes, up, false);
    if (check.not_null("bytes", bytes)) {
        *bytes = check.failed() ? 0 : backend_of(false).packed_bytes(sources);
    }
    return check.status();
}

halyard_status halyard_weights_pack_codes(const halyard_context *context, const halyard_codes *codes,
                                          const halyard_codes *up, void *memory, int64_t bytes,
                                          halyard_weights **weights) {
    using namespace halyard;
    Checker check("halyard_weights_pack_codes");
    check.set_context(context);
    const PackSources sources = check_sources(check, codes, up, true);
    check.not_null("weights", weights);
    if (!check.failed()) {
        backend_of(false).pack(check, context_or_default(context), sources, memory, bytes, weights);
    }
    return check.status();
}
