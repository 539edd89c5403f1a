// The choice between cuBLASLt and the library's own kernel, and how a GEMM is cut into launches of either.
#include "cuda/linear/gemm.h"

#include <algorithm>
#include <climits>
#include <utility>

#include "cuda/kernel_call.h"
#include "cuda/linear/blaslt.h"

namespace halyard::cuda {
namespace {

// The second and third axis of a grid end here; a block of the kernel has so many rows (schedules/gpu/matmul.cpp).
constexpr int64_t max_grid = 65535, rows_per_block = 64;

template<typename Pointer>
Pointer *advanced(Pointer *data, int64_t elements, DType dtype) {
    return data ? reinterpret_cast<Pointer *>(reinterpret_cast<uintptr_t>(data) +
                                              static_cast<uintptr_t>(elements * size_of(dtype)))
                : nullptr;
}

/** The GEMM without its first `index` of the batch. */
DeviceProduct from(const DeviceProduct &product, int axis, int64_t index) {
    DeviceProduct p = product;
    const ProductBatch &batch = product.batches[axis];
    p.x = advanced(p.x, index * batch.x, p.dtype);
    p.w = advanced(p.w, index * batch.w, p.dtype);
    p.c = advanced(p.c, index * batch.c, p.y_dtype);
    p.y = advanced(p.y, index * batch.y, p.y_dtype);
    p.batches[axis].count -= index;
    return p;
}

/** Whether the inner axis goes on where the outer one begins anew, for all operands. */
bool follow(const ProductBatch &inner, const ProductBatch &outer, bool has_c) {
    return inner.count * inner.x == outer.x && inner.count * inner.w == outer.w && inner.count * inner.y == outer.y &&
           (!has_c || inner.count * inner.c == outer.c);
}

/** Elements that a kernel's 32-bit indices can tell apart, less what they add to an index for an element beyond the
 * end. */
constexpr int64_t addressable = INT_MAX - 2 * rows_per_block;

void launch_own(Launches &launches, const DeviceProduct &p) {
    const ProductBatch &batch = p.batches[0];
    Buffer<3> x, w, c, y;
    Buffer<1> bias;
    x.set_data(p.x);
    x.set_dim(0, p.depth, 1);
    x.set_dim(1, p.rows, p.x_pitch);
    x.set_dim(2, batch.count, batch.x);
    w.set_data(p.w);
    w.set_dim(0, p.w_transposed ? p.depth : p.columns, 1);
    w.set_dim(1, p.w_transposed ? p.columns : p.depth, p.w_pitch);
    w.set_dim(2, batch.count, batch.w);
    c.set_data(p.c ? p.c : p.y);
    c.set_dim(0, p.columns, 1);
    c.set_dim(1, p.rows, p.c ? p.c_pitch : p.y_pitch);
    c.set_dim(2, batch.count, p.c ? batch.c : batch.y);
    bias.set_data(p.bias ? p.bias : p.y);
    bias.set_dim(0, p.columns, 1);
    y.set_data(p.y);
    y.set_dim(0, p.columns, 1);
    y.set_dim(1, p.rows, p.y_pitch);
    y.set_dim(2, batch.count, batch.y);
    const float beta = p.c ? p.beta : 0.0f;
    const bool has_bias = p.bias != nullptr;
    if (p.y_dtype == DType::f32) {
        launches.run(p.w_transposed ? kernels::product_out_in_to_f32 : kernels::product_in_out_to_f32, p.dtype,
                     Access::elements,
                     {.x = x,
                      .w = w,
                      .c = c.of<float>(),
                      .bias = bias.of<float>(),
                      .alpha = p.alpha,
                      .beta = beta,
                      .has_bias = has_bias,
                      .y = y.of<float>()});
    } else {
        launches.run(
            p.w_transposed ? kernels::product_out_in : kernels::product_in_out, p.dtype, Access::elements,
            {.x = x, .w = w, .c = c, .bias = bias, .alpha = p.alpha, .beta = beta, .has_bias = has_bias, .y = y});
    }
}

/** By the library's own kernel; batches[1] is one. */
void own_product(Launches &launches, const DeviceProduct &product) {
    const int64_t w_rows = product.w_transposed ? product.columns : product.depth;
    const int64_t steps[] = {product.x_pitch, product.y_pitch, product.c ? product.c_pitch : product.y_pitch};
    if (std::max({product.x_pitch, product.w_pitch, steps[1], steps[2]}) > INT_MAX ||
        (!product.w_transposed && (w_rows - 1) * product.w_pitch > addressable)) {
        launches.check().fail(HALYARD_UNSUPPORTED,
                              "a product has an operand of more than 2^31 elements, for which this "
                              "library has no kernel: cuBLASLt is not there, or did not take it");
        return;
    }
    // So many rows, columns and GEMMs that every index fits.
    int64_t most_rows = max_grid * rows_per_block, most_columns = product.columns;
    for (const int64_t pitch : steps) {
        most_rows = std::min(most_rows, std::max<int64_t>(1, (addressable - product.columns - product.depth) /
                                                                 std::max<int64_t>(pitch, 1)));
    }
    if (product.w_transposed) {
        most_columns = std::min(
            most_columns, std::max<int64_t>(1, (addressable - product.depth) / std::max<int64_t>(product.w_pitch, 1)));
    }
    const ProductBatch &batch = product.batches[0];
    // A launch of more than one has all of their operands in reach.
    const int64_t x_span = product.rows * product.x_pitch, w_span = w_rows * product.w_pitch,
                  y_span = product.rows * std::max(steps[1], steps[2]);
    const int64_t step = std::max({batch.x, batch.w, batch.y, product.c ? batch.c : 0});
    const int64_t reach = addressable - std::max({x_span, w_span, y_span});
    const int64_t most_count = reach <= 0 ? 1 : step == 0 ? max_grid : std::min(max_grid, reach / step + 1);

    for (int64_t b = 0; b < batch.count; b += most_count) {
        DeviceProduct some = from(product, 0, b);
        some.batches[0].count = std::min(most_count, batch.count - b);
        for (int64_t row = 0; row < product.rows; row += most_rows) {
            for (int64_t column = 0; column < product.columns; column += most_columns) {
                DeviceProduct p = some;
                p.rows = std::min(most_rows, product.rows - row);
                p.columns = std::min(most_columns, product.columns - column);
                p.x = advanced(p.x, row * p.x_pitch, p.dtype);
                p.w = advanced(p.w, p.w_transposed ? column * p.w_pitch : column, p.dtype);
                p.c = advanced(p.c, row * p.c_pitch + column, p.y_dtype);
                p.y = advanced(p.y, row * p.y_pitch + column, p.y_dtype);
                p.bias = advanced(p.bias, column, p.y_dtype);
                launch_own(launches, p);
            }
        }
    }
}

void one_axis(Launches &launches, const DeviceProduct &product, void *workspace) {
    if (!blaslt_product(launches, product, workspace) && !launches.check().failed()) {
        own_product(launches, product);
    }
}

}  // namespace

int64_t product_workspace_bytes(Launches &launches) {
    return !launches.check().failed() && has_blaslt() ? blaslt_workspace_bytes : 0;
}

bool product_in_place(DType y_dtype) {
    return y_dtype == DType::f32 || !has_blaslt();
}

void product(Launches &launches, const DeviceProduct &product, void *workspace) {
    if (launches.check().failed()) {
        return;
    }
    DeviceProduct p = product;
    ProductBatch &inner = p.batches[0], &outer = p.batches[1];
    const bool has_c = p.c != nullptr;
    if (inner.count == 1 || (outer.count > 1 && follow(outer, inner, has_c))) {
        std::swap(inner, outer);
    }
    if (outer.count > 1 && follow(inner, outer, has_c)) {
        inner.count *= outer.count;
        outer = ProductBatch();
    } else if (outer.count > inner.count) {
        std::swap(inner, outer);
    }
    // A launch takes the longer of two axes that cannot be one.
    for (int64_t b = 0; b < outer.count; b++) {
        DeviceProduct one = from(p, 1, b);
        one.batches[1] = ProductBatch();
        one_axis(launches, one, workspace);
    }
}

}  // namespace halyard::cuda
