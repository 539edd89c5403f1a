// Parameter vectors: norm weights and biases, converted once to the dtype in which calls compute.
#ifndef HALYARD_RUNTIME_CORE_CALLS_PARAM_VECTORS_H
#define HALYARD_RUNTIME_CORE_CALLS_PARAM_VECTORS_H

#include "core/check.h"

namespace halyard {

/** What becomes a parameter vector: parts one after another, of any dtype. Parts that are not there (`data` is null) count
 *  as -0, which changes nothing it is added to; without any the vector is absent. */
struct ParamSource {
    static constexpr int max_parts = 3;

    View *target;  // where the vector is to be, and its dtype; empty where it is absent
    int parts = 0;
    View part[max_parts];
    int64_t width[max_parts] = {};

    explicit ParamSource(View *target) : target(target) {}
    ParamSource(View *target, const View &view, int64_t features) : target(target) { add(view, features); }
    void add(const View &view, int64_t features) {
        part[parts] = view;
        width[parts++] = features;
    }
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
