// Panels of packed weights, keys or values: where their inputs lie, and the same in f32.
#ifndef HALYARD_RUNTIME_CPU_LINEAR_PANELS_H
#define HALYARD_RUNTIME_CPU_LINEAR_PANELS_H

#include "core/cast.h"
#include "core/handles/weights.h"

namespace halyard {

struct Panels {
    const char *data;
    DType dtype;
    int64_t stride;  // bytes from one to the next

    /** The panels from one on, from an input on that begins a row. */
    Panels from(int64_t panel, int64_t input) const {
        return {data + panel * stride + input_bytes(input, dtype), dtype, stride};
    }

    /** As an argument of kernels: columns, rows, panels. */
    template<typename Buffer>
    void describe(Buffer &buffer, int64_t inputs, int64_t panels) const {
        buffer.set_dim(0, panel_width, 1);
        buffer.set_dim(1, input_bytes(inputs, dtype) / input_bytes(1, dtype), panel_width);
        buffer.set_dim(2, panels, stride / (row_inputs(dtype) * size_of(dtype)));
    }
};

/** Writes some inputs of some 16-bit panels as f32 to where `wide` is, which has room for whole rows. */
inline void widen_panels(halyard_isa isa, const Panels &panels, const Panels &wide, int64_t inputs, int64_t count) {
    const auto elements = [](const Panels &of) {
        return TypedRows{const_cast<char *>(of.data), of.dtype, of.stride / size_of(of.dtype)};
    };
    if (panels.dtype != DType::bf16) {
        cast(isa, elements(panels), elements(wide), inputs * panel_width, count);
        return;
    }
    Buffer<3> rows;
    Buffer<3, float> in_f32;
    rows.set_data(panels.data);
    panels.describe(rows, inputs, count);
    in_f32.set_data(reinterpret_cast<const float *>(wide.data));
    wide.describe(in_f32, (inputs + 1) / 2 * 2, count);
    kernel_function(kernels::widen_panels, DType::f32, isa)({.held = rows, .wide = in_f32});
}

}  // namespace halyard

#endif
