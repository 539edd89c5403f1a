// Vectors that blocks and stacks keep: norm weights and biases, converted once to the type in which calls compute.
#ifndef HALYARD_RUNTIME_BLOCKS_PARAM_VECTORS_H
#define HALYARD_RUNTIME_BLOCKS_PARAM_VECTORS_H

#include "core/check.h"
#include "core/context.h"
#include "core/device.h"

namespace halyard {

/** A vector that may be absent. It stays where it is made, as its tensor points to its own shape. */
struct KeptVector {
    DLTensor tensor = {};
    int64_t width = 0;

    KeptVector() = default;
    KeptVector(const KeptVector &) = delete;
    KeptVector &operator=(const KeptVector &) = delete;

    /** Null where it is absent. */
    const DLTensor *get() const { return tensor.data ? &tensor : nullptr; }
    void set(void *data, DType dtype, DLDevice device, int64_t features);
};

/** What becomes a KeptVector: parts one after another, of any dtype. Parts that are not there (`data` is null) count as
 *  -0, which changes nothing it is added to; without any the vector is absent. */
struct VectorSource {
    static constexpr int max_parts = 3;

    KeptVector *target;
    int parts = 0;
    View part[max_parts];
    int64_t width[max_parts] = {};

    explicit VectorSource(KeptVector *target) : target(target) {}
    VectorSource(KeptVector *target, const View &view, int64_t features) : target(target) { add(view, features); }
    void add(const View &view, int64_t features) {
        part[parts] = view;
        width[parts++] = features;
    }
    bool present() const;
    int64_t total_width() const;
};

/** Converts the vectors of several sources to a dtype, f32 on a processor, into memory for free_at(), of which `bytes`
 * says the size, and points their targets into it. On a device it waits for that. Null, with a message, if there is no
 * memory. */
void *make_kept_vectors(Checker &check, const halyard_context &context, Place place, DType dtype,
                        const VectorSource *sources, int count, int64_t &bytes);

}  // namespace halyard

#endif
