// What the kernel of attention's splits owns, on a GPU: its tensors, and the form in which the threads of a block take q, keys and
// values: by 16-byte vectors, with a thread for each position of the scores, and for every so manieth position of the values.
#ifndef HALYARD_SCHEDULES_SPLIT_KERNEL_H
#define HALYARD_SCHEDULES_SPLIT_KERNEL_H

#include <functional>
#include <vector>

#include "Halide.h"
#include "runtime/layout/device_attention.h"
#include "schedules/gpu_attention.h"
#include "schedules/kernel_tensors.h"

namespace halyard {

class SplitKernel {
    using Expr = Halide::Expr;
    using Func = Halide::Func;
    using FuncRef = Halide::FuncRef;
    using Input = Halide::GeneratorInput<Halide::Buffer<void, 4>>;
    using MultiplyAdd = std::function<Expr(const Expr &a, const Expr &b, const Expr &c)>;
    using Combine = std::function<Expr(const Expr &a, const Expr &b)>;

public:
    KernelTensors tensors;  // dtype: of keys and values
    schedules::gpu::AttentionSplit s;

    void configure(Halide::Internal::GeneratorBase &generator, Input &keys, Input &values) {
        tensors.configure(generator);
        keys.set_type(tensors.type());
        values.set_type(tensors.type());
    }

    /** f at a place, of the block's tile, split, head and batch. */
    template<typename... Place>
    FuncRef in(const Func &f, const Place &...place) const {
        return f(std::vector<Expr>{place..., s.tile, s.split, s.hb});
    }

    /** q.k of row r and position j, feature by feature. `q`: of a feature of r; `key`: what is stored at an index for j. */
    Expr dot(const Expr &features, const std::function<Expr(const Expr &)> &q,
             const std::function<Expr(const Expr &)> &key, const MultiplyAdd &fma) {
        const int elements = tensors.vector_elements();
        s.q_vector(s.e, s.r, s.vector, s.tile, s.hb) = q(s.vector * elements + s.e);
        s.key_vector(s.w, s.vector, s.j, s.split, s.hb) = key(s.vector * tensors.vector_words() + s.w);
        s.key_vectors = Halide::RDom(0, features / elements, "key_cells");
        in(s.dot, s.r, s.j) = 0.0f;
        Expr sum = in(s.dot, s.r, s.j);
        for (int f = 0; f < elements; f++) {
            const Expr one = tensors.access({s.key_vectors, s.j, s.split, s.hb})(s.key_vector, f);
            sum = fma(s.q_vector(f, s.r, s.key_vectors, s.tile, s.hb), one, sum);
        }
        in(s.dot, s.r, s.j) = sum;
        return in(s.dot, s.r, s.j);
    }

    /** result(r), accumulated over the values of the positions by as many threads as a row has, and then by one. */
    Expr reduce(const Func &lanes, const Func &result, const Func &values, const Expr &initial,
                const Combine &accumulate, const Combine &combine) {
        constexpr int lane_count = schedules::gpu::attention_lanes;
        s.parts = Halide::RDom(0, split_positions / lane_count, "parts");
        s.each_lane = Halide::RDom(0, lane_count, "each_lane");
        in(lanes, s.lane, s.r) = initial;
        in(lanes, s.lane, s.r) = accumulate(in(lanes, s.lane, s.r), in(values, s.r, s.parts * lane_count + s.lane));
        in(result, s.r) = initial;
        in(result, s.r) = combine(in(result, s.r), in(lanes, s.each_lane, s.r));
        return in(result, s.r);
    }

    /** The values of a feature weighted by the probabilities of r. `value`: what is stored at an index for j;
     *  accumulate(weight, value, sum). */
    Expr weighted(const Expr &feature, const std::function<Expr(const Expr &)> &value, const MultiplyAdd &accumulate) {
        constexpr int slices = schedules::gpu::attention_slices;
        const int elements = tensors.vector_elements();
        s.value_vector(s.w, s.vector, s.j, s.split, s.hb) = value(s.vector * tensors.vector_words() + s.w);
        s.steps = Halide::RDom(0, split_positions / slices, "steps");
        const Expr at = s.steps * slices + s.slice;
        std::vector<Expr> one;
        for (int f = 0; f < elements; f++) {
            one.push_back(tensors.access({s.vector, at, s.split, s.hb})(s.value_vector, f));
        }
        in(s.weighted, s.e, s.r, s.vector, s.slice) = 0.0f;
        in(s.weighted, s.e, s.r, s.vector, s.slice) =
            accumulate(in(s.probability, s.r, at), elements == 1 ? one[0] : mux(s.e, one),
                       in(s.weighted, s.e, s.r, s.vector, s.slice));
        in(s.of_slice, s.e, s.vector, s.r, s.slice) = in(s.weighted, s.e, s.r, s.vector, s.slice);
        Expr combined = 0.0f;
        for (int k = 0; k < slices; k++) {
            combined += in(s.of_slice, feature % elements, feature / elements, s.r, k);
        }
        return combined;
    }

    template<typename Queries, typename Output>
    void schedule(Halide::Internal::GeneratorBase &generator, const Queries &q, Input &keys, Input &values,
                  Output &out) {
        for (Input *buffer : {&keys, &values}) {
            buffer->dim(0).set_min(0);
            buffer->dim(1).set_min(0);
        }
        out.dim(0).set_min(0);
        out.dim(1).set_bounds(0, split_rows);
        tensors.promise_heads(q, keys, values);
        tensors.begin_schedule(generator);
        schedules::gpu::attention_split(s, out, tensors.vector_words(), tensors.vector_elements(), tensors.target());
    }
};

}  // namespace halyard

#endif
