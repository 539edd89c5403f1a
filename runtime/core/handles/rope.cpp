// Tables of rotary position embedding: their options checked, their memory.
#include "core/handles/rope.h"

#include <sys/mman.h>

#include <cmath>
#include <cstdlib>
#include <new>

#include "core/backend.h"
#include "core/handles/rope_table.h"
#include "core/system/huge_pages.h"

namespace halyard {
namespace {

constexpr int64_t max_rope_positions = int64_t{1} << 24;

void check_even(Checker &check, const char *name, int64_t value) {
    if (!check.failed() && value % 2 != 0) {
        check.fail(HALYARD_INVALID_ARGUMENT, "%s is %lld, but must be even", name, static_cast<long long>(value));
    }
}

void check_scaling(Checker &check, const halyard_rope_options &o) {
    if (check.failed() || o.scaling == HALYARD_ROPE_UNSCALED) {
        return;
    }
    if (o.scaling < HALYARD_ROPE_UNSCALED || o.scaling > HALYARD_ROPE_LLAMA3) {
        check.fail(HALYARD_INVALID_ARGUMENT, "scaling is %d, which is no value of halyard_rope_scaling", o.scaling);
    } else if (!(o.factor >= 1 && std::isfinite(o.factor))) {
        check.fail(HALYARD_INVALID_ARGUMENT, "factor is %g, but must be finite and at least 1", o.factor);
    } else if (o.scaling == HALYARD_ROPE_LLAMA3) {
        if (!(o.low_freq_factor > 0 && std::isfinite(o.low_freq_factor))) {
            check.fail(HALYARD_INVALID_ARGUMENT, "low_freq_factor is %g, but must be finite and positive",
                       o.low_freq_factor);
        } else if (!(o.high_freq_factor > o.low_freq_factor && std::isfinite(o.high_freq_factor))) {
            check.fail(HALYARD_INVALID_ARGUMENT,
                       "high_freq_factor is %g, but must be finite and more than low_freq_factor, %g",
                       o.high_freq_factor, o.low_freq_factor);
        }
        check_range(check, "original_max_position_embeddings", o.original_max_position_embeddings, 1, INT64_MAX);
    }
}

/** The options with what is left out filled in. */
halyard_rope_options check_rope_options(Checker &check, const halyard_rope_options &given) {
    halyard_rope_options o = given;
    check_range(check, "head_dim", o.head_dim, 2, max_rope_head_dim);
    check_even(check, "head_dim", o.head_dim);
    check_range(check, "rotary_dim", o.rotary_dim, 0, o.head_dim);
    check_even(check, "rotary_dim", o.rotary_dim);
    if (o.rotary_dim == 0) {
        o.rotary_dim = o.head_dim;
    }
    check_range(check, "max_positions", o.max_positions, 1, max_rope_positions);
    if (!check.failed() && !(o.rope_theta > 1 && std::isfinite(o.rope_theta))) {
        check.fail(HALYARD_INVALID_ARGUMENT, "rope_theta is %g, but must be finite and more than 1", o.rope_theta);
    }
    check_scaling(check, o);
    return o;
}

}  // namespace

halyard_rope *make_rope(Checker &check, const halyard_rope_options &options) {
    const halyard_rope_options o = check_rope_options(check, options);
    if (check.failed()) {
        return nullptr;
    }
    const int64_t entries = o.max_positions * (o.rotary_dim / 2);
    const int64_t bytes = 2 * entries * static_cast<int64_t>(sizeof(float));
    void *memory = malloc(sizeof(halyard_rope));
    float *table = memory ? reinterpret_cast<float *>(map_pages(bytes, true)) : nullptr;
    if (!table) {
        free(memory);
        check.fail(HALYARD_OUT_OF_MEMORY, "no memory for a table of %lld bytes", static_cast<long long>(bytes));
        return nullptr;
    }
    fill_rope_table(o, table, table + entries);
    return new (memory) halyard_rope{o, table, table + entries, table, bytes, {}};
}

void free_rope(halyard_rope *rope) {
    if (rope) {
        if (const Backend *const devices = device_backend()) {
            devices->free_copies(rope->on_devices);
        }
        munmap(rope->mapped, rope->mapped_bytes);
        free(rope);
    }
}

}  // namespace halyard
