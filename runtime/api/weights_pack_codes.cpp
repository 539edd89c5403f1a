// Packing of matrices that are quantized already: the public functions.
#include "core/backend.h"

namespace halyard {
namespace {

constexpr CodesNames up_names = {"up", "up.matrix", "up.scales", "up.zeros", "up.g_idx"};

PackSources check_sources(Checker &check, const halyard_codes *codes, const halyard_codes *up, bool with_data) {
    return check.not_null("codes", codes) ? code_sources(check, codes_names, *codes, up_names, up, with_data)
                                          : PackSources();
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
