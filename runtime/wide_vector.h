// Vectors that blocks and stacks keep: norm weights and biases, converted to
// f32 once.
#ifndef HALYARD_RUNTIME_WIDE_VECTOR_H
#define HALYARD_RUNTIME_WIDE_VECTOR_H

#include "check.h"
#include "context.h"

namespace halyard {

/** An f32 vector that may be absent. It stays where it is made, as its tensor
 * points to its own shape. */
struct WideVector {
    DLTensor tensor = {};
    int64_t width = 0;

    WideVector() = default;
    WideVector(const WideVector &) = delete;
    WideVector &operator=(const WideVector &) = delete;

    /** Null where it is absent. */
    const DLTensor *get() const { return tensor.data ? &tensor : nullptr; }
};

/** What becomes a WideVector: parts one after another, of any dtype. Parts that
 * are not there (`data` is null) count as -0, which changes nothing it is added
 * to; without any the vector is absent. */
struct VectorSource {
    static constexpr int max_parts = 3;

    WideVector *target;
    int parts = 0;
    View part[max_parts];
    int64_t width[max_parts] = {};

    explicit VectorSource(WideVector *target) : target(target) {}
    VectorSource(WideVector *target, const View &view, int64_t features) : target(target) { add(view, features); }
    void add(const View &view, int64_t features) {
        part[parts] = view;
        width[parts++] = features;
    }
    bool present() const;
    int64_t total_width() const;
};

/** Converts the vectors of several sources to f32, into memory that the caller
 * frees and `bytes` says the size of, and points their targets into it. Null if
 * there is no memory. */
float *make_wide_vectors(const halyard_context &context, const VectorSource *sources, int count, int64_t &bytes);

}  // namespace halyard

#endif
