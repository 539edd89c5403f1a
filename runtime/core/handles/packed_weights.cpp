// See packed_weights.h.
#include "core/handles/packed_weights.h"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <new>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "core/device.h"
#include "core/system/huge_pages.h"

namespace halyard {

uint64_t header_digest(const PackedHeader &header) {
    return XXH3_64bits(&header, offsetof(PackedHeader, header_checksum));
}

uint64_t prefix_digest(const char *block, const Geometry &geometry) {
    return XXH3_64bits_withSeed(block + sizeof(PackedHeader), geometry.panels_offset - sizeof(PackedHeader), 0);
}

namespace {

/** The panels' share of the payload's checksum. */
uint64_t panels_digest(const halyard_context &context, const char *block, const Geometry &geometry) {
    std::atomic<uint64_t> digest{0};
    const char *first = block + geometry.panels_offset;
    run_ranges(context, geometry.panels, geometry.bytes, [&](int64_t begin, int64_t end) {
        uint64_t sum = 0;
        for (int64_t panel = begin; panel < end; panel++) {
            sum += XXH3_64bits_withSeed(first + panel * geometry.panel_bytes, geometry.panel_bytes, panel_seed(panel));
        }
        digest.fetch_add(sum, std::memory_order_relaxed);
    });
    return digest.load(std::memory_order_relaxed);
}

CodeLayout codes_of(const PackedHeader &header) {
    return {static_cast<int>(header.code_bits), static_cast<ScaleKind>(header.scale_kind),
            static_cast<DType>(header.scale_dtype), static_cast<int>(header.code_group)};
}

/** Whether the fields of a header's codes are those of its version. */
bool valid_codes(const PackedHeader &header) {
    if (header.version < 3) {
        return (header.code_bits | header.scale_kind | header.scale_dtype | header.code_group) == 0;
    }
    return header.code_bits <= 8 && header.scale_kind <= 4 && header.scale_dtype < dtype_count &&
           header.code_group <= super_group && codes_of(header).valid() && header.norm_folded == 0 &&
           header.dtype == static_cast<uint32_t>(DType::f32);
}

const int32_t *order_in(const char *block, const Geometry &geometry) {
    return reinterpret_cast<const int32_t *>(block + order_offset(geometry.panels));
}

bool is_in_order(const int32_t *order, int64_t inputs) {
    int64_t i = 0;
    while (i < inputs && order[i] == i) {
        i++;
    }
    return i == inputs;
}

/** Whether each input is there once. */
bool is_order(Checker &check, const int32_t *order, int64_t inputs) {
    char *const seen = allocate_at(check, Device(), inputs, "the check of an order of inputs");
    bool valid = seen != nullptr;
    if (valid) {
        memset(seen, 0, static_cast<size_t>(inputs));
    }
    for (int64_t i = 0; i < inputs && valid; i++) {
        valid = order[i] >= 0 && order[i] < inputs && !seen[order[i]];
        if (valid) {
            seen[order[i]] = 1;
        }
    }
    free_at(Device(), seen);
    return valid;
}

/** Checks everything about a block. The header is read once: a block may be a file that another process changes meanwhile. */
PackedHeader check_block(Checker &check, const char *name, const char *block, int64_t bytes, Geometry &geometry) {
    PackedHeader header = {};
    const auto damaged = [&](const char *what) {
        check.fail(HALYARD_INVALID_ARGUMENT, "%s %s", name, what);
        return header;
    };
    const int64_t magic_bytes = std::min<int64_t>(bytes, sizeof(packed_magic));
    if (bytes == 0) {
        return damaged("is empty: it was truncated, or is none of packed weights");
    }
    if (memcmp(block, packed_magic, magic_bytes) != 0) {
        return damaged("holds something other than packed weights: it does not begin with HALYARDW");
    }
    if (bytes < static_cast<int64_t>(sizeof(PackedHeader))) {
        return damaged("is truncated: it ends within the header of the packed weights");
    }
    memcpy(&header, block, sizeof(header));
    if (header.version < 1 || header.version > 4) {
        check.fail(HALYARD_UNSUPPORTED, "%s holds packed weights of version %u, but this library reads versions 1 to 4",
                   name, header.version);
        return header;
    }
    if (header.header_checksum != header_digest(header)) {
        return damaged("was altered: the checksum of its header is wrong");
    }
    bool valid = header.dtype < dtype_count && valid_codes(header) &&
                 (header.version >= 3 || header.version <= packed_version(static_cast<DType>(header.dtype))) &&
                 header.gated <= 1 && header.norm_folded <= 1 && header.in_features >= 1 &&
                 header.in_features <= max_features && header.out_features >= 1 && header.out_features <= max_features;
    for (const char byte : header.reserved) {
        valid = valid && byte == 0;
    }
    valid = valid &&
            geometry.compute(header.in_features, header.out_features, header.gated != 0,
                             static_cast<DType>(header.dtype), header.version, codes_of(header)) &&
            header.bytes == geometry.bytes;
    if (!valid) {
        return damaged("has a header that no version of this library writes");
    }
    if (!check.built_type(name, static_cast<DType>(header.dtype)) ||
        (header.version >= 3 && !check.built_type(name, static_cast<DType>(header.scale_dtype)))) {
        return header;
    }
    if (bytes != header.bytes) {
        check.fail(HALYARD_INVALID_ARGUMENT, "%s has %lld bytes, but its header says %lld: it %s", name,
                   static_cast<long long>(bytes), static_cast<long long>(header.bytes),
                   bytes < header.bytes ? "is truncated" : "was altered");
        return header;
    }
    if (header.payload_checksum !=
        prefix_digest(block, geometry) + panels_digest(context_or_default(nullptr), block, geometry)) {
        return damaged("was altered: the checksum of its weights is wrong");
    }
    if (header.version == 4 && !is_order(check, order_in(block, geometry), header.in_features) && !check.failed()) {
        return damaged("holds an order of inputs that no version of this library writes");
    }
    return header;
}

PackedForm form_of(const PackedHeader &header, const Geometry &geometry) {
    return {static_cast<DType>(header.dtype),
            codes_of(header),
            header.gated != 0,
            header.norm_folded != 0,
            header.version == 4,
            header.in_features,
            header.out_features,
            geometry};
}

/** A block in today's version of a bf16 one in version 1, whose panels hold inputs one by one, in a mapping; null if there is
 *  no memory. The form is that of the old block, and then of the new one. */
char *in_pairs(const char *block, PackedForm &form) {
    const Geometry old = form.geometry;
    const Geometry &geometry = form.geometry;
    char *const made = form.compute_geometry() ? map_pages(geometry.bytes, true) : nullptr;
    if (!made) {
        return nullptr;
    }
    const int64_t offset = geometry.panels_offset;
    memcpy(made, block, offset);
    const halyard_context &context = context_or_default(nullptr);
    run_ranges(context, geometry.panels, geometry.bytes, [&](int64_t begin, int64_t end) {
        for (int64_t panel = begin; panel < end; panel++) {
            const auto *const from = reinterpret_cast<const uint16_t *>(block + offset + panel * old.panel_bytes);
            auto *const to = reinterpret_cast<uint32_t *>(made + offset + panel * geometry.panel_bytes);
            for (int64_t input = 0; input < form.in_features; input += 2) {
                const uint16_t *const earlier = from + input * panel_width, *const later = earlier + panel_width;
                for (int64_t column = 0; column < panel_width; column++) {
                    const uint32_t low = input + 1 < form.in_features ? later[column] : 0;
                    to[input / 2 * panel_width + column] = uint32_t{earlier[column]} << 16 | low;
                }
            }
        }
    });
    write_header(made, form, panels_digest(context, made, geometry));
    return made;
}

}  // namespace

void write_header(char *block, const PackedForm &form, uint64_t panels_digest) {
    PackedHeader header = {};
    memcpy(header.magic, packed_magic, sizeof(packed_magic));
    header.version = packed_version(form.dtype, form.codes, form.ordered);
    header.dtype = static_cast<uint32_t>(form.dtype);
    header.gated = form.gated;
    header.norm_folded = form.norm_folded;
    header.in_features = form.in_features;
    header.out_features = form.out_features;
    header.bytes = form.geometry.bytes;
    if (const CodeLayout &codes = form.codes) {
        header.code_bits = static_cast<uint32_t>(codes.bits);
        header.scale_kind = static_cast<uint32_t>(codes.kind);
        header.scale_dtype = static_cast<uint32_t>(codes.scale_dtype);
        header.code_group = static_cast<uint32_t>(codes.group);
    }
    header.payload_checksum = panels_digest + prefix_digest(block, form.geometry);
    header.header_checksum = header_digest(header);
    memcpy(block, &header, sizeof(header));
}

halyard_weights *new_handle() {
    void *memory = malloc(sizeof(halyard_weights));
    return memory ? new (memory) halyard_weights{} : nullptr;
}

void view_block(halyard_weights &weights, const char *block, const PackedForm &form) {
    weights.dtype = form.dtype;
    weights.codes = form.codes;
    weights.gated = form.gated;
    weights.norm_folded = form.norm_folded;
    weights.in_features = form.in_features;
    weights.out_features = form.out_features;
    weights.panels = form.geometry.panels;
    weights.column_sums = reinterpret_cast<const float *>(block + sizeof(PackedHeader));
    weights.column_bias = weights.column_sums + form.geometry.panels * panel_width;
    weights.panel_data = block + form.geometry.panels_offset;
    const int32_t *const order = order_in(block, form.geometry);
    // Files of GPTQ name the groups of inputs that are in order, too: then nothing is to be done.
    weights.order = form.ordered && !is_in_order(order, form.in_features) ? order : nullptr;
    weights.block = block;
    weights.bytes = form.geometry.bytes;
}

halyard_weights *weights_of_block(Checker &check, const char *name, const char *block, int64_t bytes) {
    Geometry geometry = {};
    const PackedHeader header = check_block(check, name, block, bytes, geometry);
    if (check.failed()) {
        return nullptr;
    }
    PackedForm form = form_of(header, geometry);
    halyard_weights *handle = new_handle();
    if (handle && header.version < packed_version(form.dtype)) {
        block = in_pairs(block, form);
        handle->owner = halyard_weights::Owner::mapping;
        handle->mapped = const_cast<char *>(block);
        handle->mapped_bytes = form.geometry.bytes;
    }
    if (!handle || !block) {
        check.fail(HALYARD_OUT_OF_MEMORY, "no memory for %s", handle ? "weights in the form of today" : "a handle");
        free(handle);
        return nullptr;
    }
    view_block(*handle, block, form);
    return handle;
}

}  // namespace halyard
