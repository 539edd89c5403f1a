// Parameter vectors: norm weights and biases, converted once to the dtype in which calls compute or to f32.
#ifndef HALYARD_RUNTIME_CORE_CALLS_PARAM_VECTORS_H
#define HALYARD_RUNTIME_CORE_CALLS_PARAM_VECTORS_H

#include "core/check.h"

namespace halyard {

/** What becomes a parameter vector: parts one after another, of any dtype. Parts that are not there (`data` is null) count
 *  as -0, which changes nothing it is added to; without any the vector is absent. */
struct ParamSource {
    static constexpr int max_parts = 3;

    View *target;        // where the vector is to be, and its dtype; empty where it is absent
    bool exact = false;  // in f32 rather than rounded
    int parts = 0;
    View part[max_parts];
    int64_t width[max_parts] = {};

    explicit ParamSource(View *target) : target(target) {}
    ParamSource(View *target, const View &view, int64_t features) : target(target) { add(view, features); }
    void add(const View &view, int64_t features) {
        part[parts] = view;
        width[parts++] = features;
    }
    /** A norm's weight or bias, which operations take in f32 beside any rows. */
    static ParamSource of_norm(View *target, const View &view, int64_t features) {
        ParamSource source(target, view, features);
        source.exact = true;
        return source;
    }
    /** What the target's dtype is to be where calls compute in `dtype`. */
    DType dtype_for(DType dtype) const { return exact && part[0].dtype != dtype ? DType::f32 : dtype; }
    bool present() const {
        bool any = false;
        for (int i = 0; i < parts; i++) {
            any = any || part[i].data;
        }
        return any;
    }
    int64_t total_width() const {
        int64_t total = 0;
        for (int i = 0; i < parts; i++) {
            total += width[i];
        }
        return total;
    }
};

}  // namespace halyard

#endif
