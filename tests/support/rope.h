// Rotary embeddings for the tests, and the tensors of their calls.
#ifndef HALYARD_TESTS_SUPPORT_ROPE_H
#define HALYARD_TESTS_SUPPORT_ROPE_H

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "halyard/attention.h"
#include "support/invocation.h"

namespace halyard::tests {

struct DestroyRope {
    void operator()(halyard_rope *rope) const { halyard_rope_destroy(rope); }
};
using Rope = std::unique_ptr<halyard_rope, DestroyRope>;

inline halyard_rope_options options_of(std::int64_t head_dim, std::int64_t rotary_dim = 0, bool interleaved = false,
                                       double theta = 10000, std::int64_t max_positions = 1000) {
    halyard_rope_options options{};
    options.head_dim = head_dim;
    options.rotary_dim = rotary_dim;
    options.max_positions = max_positions;
    options.rope_theta = theta;
    options.interleaved = interleaved ? 1 : 0;
    return options;
}

inline halyard_rope_options linear(halyard_rope_options options, double factor) {
    options.scaling = HALYARD_ROPE_LINEAR;
    options.factor = factor;
    return options;
}

inline halyard_rope_options llama3(halyard_rope_options options, double factor, std::int64_t original) {
    options.scaling = HALYARD_ROPE_LLAMA3;
    options.factor = factor;
    options.low_freq_factor = 1;
    options.high_freq_factor = 4;
    options.original_max_position_embeddings = original;
    return options;
}

inline Rope make_rope(const halyard_rope_options &options) {
    halyard_rope *rope = nullptr;
    EXPECT_EQ(halyard_rope_create(&options, &rope), HALYARD_OK) << halyard_last_error();
    return Rope(rope);
}

enum class Given { none, tokens32, tokens64, batch32, batch64 };

struct CallForm {
    std::int64_t batch, tokens, heads;  // batch 0: no such axis
    Given positions = Given::none;
    std::int64_t gap = 0;     // elements between heads
    bool transposed = false;  // heads before tokens in memory
    Placement placement = Placement::ends_at_guard;
};

inline Form tensor_form(const CallForm &f, std::int64_t head_dim) {
    Shape shape = {f.tokens, f.heads, head_dim};
    const std::int64_t pitch = head_dim + f.gap;
    Shape strides = f.transposed ? Shape{pitch, pitch * f.tokens, 1} : Shape{pitch * f.heads, pitch, 1};
    if (f.batch > 0) {
        shape.insert(shape.begin(), f.batch);
        strides.insert(strides.begin(), pitch * f.tokens * f.heads);
    }
    if (f.gap == 0 && !f.transposed) {
        strides.clear();
    }
    return {shape, strides, f.placement, 0, 0};
}

/** Positions in the form that a call gives them. */
class PositionTensor {
public:
    PositionTensor(const CallForm &f, std::int64_t max_positions, std::uint64_t seed) : form(f) {
        const bool per_batch = f.positions == Given::batch32 || f.positions == Given::batch64;
        const std::int64_t batch = per_batch ? std::max<std::int64_t>(f.batch, 1) : 1;
        for (std::int64_t b = 0; b < batch; b++) {
            for (std::int64_t t = 0; t < f.tokens; t++) {
                wide.push_back(static_cast<std::int64_t>(uniform(seed, b, t) * static_cast<double>(max_positions)));
            }
        }
        narrow.assign(wide.begin(), wide.end());
        const bool is_32 = f.positions == Given::tokens32 || f.positions == Given::batch32;
        view.data = is_32 ? static_cast<void *>(narrow.data()) : wide.data();
        view.device = {kDLCPU, 0};
        view.dtype = {kDLInt, static_cast<std::uint8_t>(is_32 ? 32 : 64), 1};
        shape[0] = per_batch ? batch : f.tokens;
        shape[1] = f.tokens;
        view.ndim = per_batch ? 2 : 1;
        view.shape = shape;
    }

    const DLTensor *get() const { return form.positions == Given::none ? nullptr : &view; }
    std::int64_t at(std::int64_t b, std::int64_t t) const {
        return form.positions == Given::none ? t
                                             : wide[static_cast<std::size_t>(view.ndim == 2 ? b * form.tokens + t : t)];
    }

    const CallForm form;
    std::vector<std::int64_t> wide;
    std::vector<std::int32_t> narrow;
    std::int64_t shape[2];
    DLTensor view{};
};

inline void fill(Tensor &x, std::uint64_t seed) {
    x.fill([&](std::int64_t row, std::int64_t i) { return bell(seed, row, i); });
}

}  // namespace halyard::tests

#endif
