// Handles of packed weights: made of bytes in memory, asked, freed.
#include "core/handles/weights.h"

#include <cstdlib>

#include "core/backend.h"
#include "core/handles/packed_weights.h"
#include "core/view.h"

using halyard::Checker;

halyard_status halyard_weights_from_memory(const void *memory, int64_t bytes, halyard_weights **weights) {
    using namespace halyard;
    Checker check("halyard_weights_from_memory");
    check.not_null("memory", memory);
    if (!check.not_null("weights", weights)) {
        return check.status();
    }
    if (bytes < 0) {
        return check.fail(HALYARD_INVALID_ARGUMENT, "bytes is %lld, but must not be negative",
                          static_cast<long long>(bytes));
    }
    if (reinterpret_cast<uintptr_t>(memory) % block_alignment != 0) {
        return check.fail(HALYARD_INVALID_ARGUMENT, "memory is misaligned: the address must be a multiple of %d",
                          static_cast<int>(block_alignment));
    }
    if (halyard_weights *const handle = weights_of_block(check, "memory", static_cast<const char *>(memory), bytes)) {
        *weights = handle;
    }
    return check.status();
}

const void *halyard_weights_data(const halyard_weights *weights) {
    return weights ? weights->block : nullptr;
}

halyard_status halyard_weights_get_info(const halyard_weights *weights, halyard_weights_info *info) {
    Checker check("halyard_weights_get_info");
    check.not_null("weights", weights);
    if (!check.not_null("info", info)) {
        return check.status();
    }
    *info = {};
    info->in_features = weights->in_features;
    info->out_features = weights->out_features;
    info->dtype = halyard::dlpack_type(weights->dtype);
    info->gated = weights->gated;
    info->norm_folded = weights->norm_folded;
    info->bytes = weights->bytes;
    if (const halyard::CodeLayout &codes = weights->codes) {
        info->code_bits = codes.bits;
        info->code_group = codes.group;
        info->scale_kind = static_cast<halyard_scale_kind>(codes.kind);
        info->scale_dtype = halyard::dlpack_type(codes.scale_dtype);
        info->ordered = weights->order != nullptr;
    }
    return HALYARD_OK;
}

void halyard_weights_destroy(halyard_weights *weights) {
    if (weights) {
        halyard::backend_of(weights->on_cuda).free_weights(*weights);
        free(weights);
    }
}
