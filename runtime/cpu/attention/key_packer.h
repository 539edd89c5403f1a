// The new keys and values of a call into the panels of a cache or a copy.
#ifndef HALYARD_RUNTIME_CPU_ATTENTION_KEY_PACKER_H
#define HALYARD_RUNTIME_CPU_ATTENTION_KEY_PACKER_H

#include "core/calls/attention.h"
#include "cpu/ops/norm_rows.h"

namespace halyard {

/** One thread's. */
class KeyPacker {
public:
    /** `norm_weight`: of keys, f32, or empty. `staged`: staged_floats(). */
    KeyPacker(halyard_isa isa, const AttentionCall &call, const KvLayout &layout, const View &norm_weight,
              float *staged);

    static int64_t staged_floats(const AttentionCall &call, const KvLayout &layout) {
        return 2 * staged_positions(call) * layout.value_columns();
    }

    /** Packs those of a head that lie in the block of positions `block`, after norm and rope. */
    void operator()(int64_t b, int64_t head, int64_t block, char *packed);

private:
    struct Source {
        const float *rows;
        int64_t pitch;
    };

    static int64_t staged_positions(const AttentionCall &call);
    Source source(const Heads &tensor, int64_t b, int64_t token, int64_t head, int64_t count, bool in_place,
                  float *memory) const;

    const halyard_isa isa_;
    const AttentionCall &call_;
    const KvLayout &layout_;
    float *const staged_keys_, *const staged_values_;  // [position][value columns]
    NormRows norm_;
};

}  // namespace halyard

#endif
