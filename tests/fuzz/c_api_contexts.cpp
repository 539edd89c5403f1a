// Contexts, and questions to the library.
#include "fuzz/c_api_session.h"

namespace halyard::tests {
namespace {

void serial_for(void *, int count, void (*task)(void *closure, int index), void *closure) {
    for (int i = count - 1; i >= 0; i--) {
        task(closure, i);
    }
}

}  // namespace

void Session::contexts() {
    halyard_context *&place = contexts_[in_.in(0, places - 1)];
    switch (in_.in(0, 9)) {
    case 0:
    case 1:
        halyard_context_destroy(place);
        place = nullptr;
        {
            Call call(in_, tensor_memory());
            make("halyard_context_create", call, place,
                 [](halyard_context **out) { return halyard_context_create(out); });
        }
        break;
    case 2:
        returned("halyard_context_set_num_threads", halyard_context_set_num_threads(place, in_.in(-1, 3)));
        break;
    case 3:
        returned("halyard_context_set_parallel_for",
                 halyard_context_set_parallel_for(place, in_.one_in(2) ? serial_for : nullptr, nullptr));
        break;
    case 4:
        returned("halyard_context_set_max_isa", halyard_context_set_max_isa(place, isa()));
        break;
    case 5:
        returned("halyard_context_set_streaming_min_bytes",
                 halyard_context_set_streaming_min_bytes(
                     place, in_.of({INT64_C(0), INT64_C(1), INT64_C(-1), INT64_C(512), INT64_MAX, INT64_MIN})));
        break;
    case 6:
        returned("halyard_context_set_cuda_stream", halyard_context_set_cuda_stream(place, nullptr));
        break;
    case 7:
        halyard_context_release_scratch(place);
        count_call("halyard_context_release_scratch", true);
        break;
    case 8:
        if (halyard_context_num_threads(place) < 1 || !halyard_isa_supported(halyard_context_isa(place))) {
            failed("a context has no thread or no instruction set");
        }
        count_call("halyard_context_num_threads", true);
        count_call("halyard_context_isa", true);
        break;
    case 9:
        returned("halyard_context_set_products", halyard_context_set_products(place, value<halyard_products>(4)));
        count_call("halyard_context_products", halyard_context_products(place) <= HALYARD_PRODUCTS_INT8);
        break;
    }
}

void Session::questions() {
    switch (in_.in(0, 4)) {
    case 0:
        if (!*halyard_status_name(value<halyard_status>(6)) || !*halyard_version() || !halyard_last_error()) {
            failed("a text is empty");
        }
        count_call("halyard_status_name", true);
        count_call("halyard_version", true);
        count_call("halyard_last_error", true);
        break;
    case 1: {
        const halyard_isa isa = this->isa();
        if ((!halyard_isa_name(isa) && halyard_isa_supported(isa)) ||
            (!halyard_isa_supported(isa) && halyard_isa_preferred(isa))) {
            failed("an instruction set without a name is supported, or one is preferred that is not");
        }
        count_call("halyard_isa_at", true);
        count_call("halyard_isa_name", true);
        count_call("halyard_isa_preferred", true);
        count_call("halyard_isa_supported", true);
        if (halyard_operation_supported("rms_norm") != 1 || halyard_operation_supported(nullptr) != 0) {
            failed("the library does not know what it was built with");
        }
        count_call("halyard_operation_supported", true);
        break;
    }
    case 2: {
        // Not a device's first call: a machine may have one.
        const int device = in_.of({-1, INT32_MAX, INT32_MIN});
        if (halyard_cuda_prepare(device) == HALYARD_OK || !*halyard_last_error()) {
            failed("halyard_cuda_prepare accepted the device %d", device);
        }
        count_call("halyard_cuda_prepare", false);
        break;
    }
    case 3:
        if (halyard_ffn_hidden_size(number(INT64_C(64)), number(INT64_C(16))) < 0) {
            failed("halyard_ffn_hidden_size is negative");
        }
        count_call("halyard_ffn_hidden_size", true);
        break;
    case 4: {
        halyard_block_config config, before;
        std::memset(&config, 0x5a, sizeof config);
        before = config;
        const char *const *presets = halyard_block_presets();
        const char *name = in_.of({presets[0], presets[1], "", "gpt", static_cast<const char *>(nullptr)});
        returned("halyard_block_config_preset", halyard_block_config_preset(name, in_.rarely() ? nullptr : &config),
                 config, before);
        count_call("halyard_block_presets", true);
        break;
    }
    }
}

}  // namespace halyard::tests
