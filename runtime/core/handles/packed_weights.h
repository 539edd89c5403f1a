// Blocks of packed weights: their geometry, checksums and checks, and handles made of them.
#ifndef HALYARD_RUNTIME_CORE_HANDLES_PACKED_WEIGHTS_H
#define HALYARD_RUNTIME_CORE_HANDLES_PACKED_WEIGHTS_H

#include <algorithm>
#include <climits>
#include <cstdint>

#include "core/check.h"
#include "core/context.h"
#include "core/handles/weights.h"
#include "core/parameters.h"

namespace halyard {

constexpr int64_t max_features = INT_MAX;

/** What follows from the sizes of a matrix. */
struct Geometry {
    int64_t panels, panel_bytes, panels_offset, bytes;

    /** False if a number does not fit. Features are 1 to max_features. */
    bool compute(int64_t in_features, int64_t out_features, bool gated, DType dtype, uint32_t version,
                 const CodeLayout &codes = {}) {
        panels = (out_features + panel_width - 1) / panel_width * (gated ? 2 : 1);
        panel_bytes = codes          ? codes.panel_bytes(in_features)
                      : version == 1 ? in_features * panel_width * size_of(dtype)
                                     : input_bytes(in_features, dtype);
        panels_offset = halyard::panels_offset(panels, version == 4 ? in_features : 0);
        return !__builtin_mul_overflow(panels, panel_bytes, &bytes) &&
               !__builtin_add_overflow(bytes, panels_offset, &bytes);
    }
};

/** What a block is, beside what it holds. */
struct PackedForm {
    DType dtype = DType::f32;
    CodeLayout codes;
    bool gated = false, norm_folded = false, ordered = false;
    int64_t in_features = 0, out_features = 0;
    Geometry geometry = {};

    /** False if it is too large. */
    bool compute_geometry() {
        return geometry.compute(in_features, out_features, gated, dtype, packed_version(dtype, codes, ordered), codes);
    }
};

uint64_t header_digest(const PackedHeader &header);

/** Writes the header of a block of which all else is there. `panels_digest`: the panels' share of the payload's checksum. */
void write_header(char *block, const PackedForm &form, uint64_t panels_digest);

/** What lies between header and panels: its share of the payload's checksum. */
uint64_t prefix_digest(const char *block, const Geometry &geometry);

/** The seed of a panel's share. */
constexpr uint64_t panel_seed(int64_t panel) {
    return static_cast<uint64_t>(panel) + 1;
}

/** Calls task(begin, end) for ranges that cover [0, items), on the context's threads if they are large enough. */
template<typename Task>
void run_ranges(const halyard_context &context, int64_t items, int64_t bytes, const Task &task) {
    int64_t parts = std::min<int64_t>(thread_bound(context), bytes / parameters.pack_thread_bytes);
    parts = std::max<int64_t>(1, std::min(parts, items));
    run_tasks(context, static_cast<int>(parts),
              [&](int index) { task(items * index / parts, items * (index + 1) / parts); });
}

/** A handle without a block, or null if there is no memory. */
halyard_weights *new_handle();

/** Makes a handle of a block of this form, which is in order and of today's version. Its header is not read. */
void view_block(halyard_weights &weights, const char *block, const PackedForm &form);

/** Checks everything about a block of `bytes` bytes, which `name` says what it is, and makes a handle of it: a view of the
 *  caller's block, or of a mapping of its own where that is of an older version. Null if the check fails. */
halyard_weights *weights_of_block(Checker &check, const char *name, const char *block, int64_t bytes);

}  // namespace halyard

#endif
