// The runtime's matrix products on a CUDA device, as layers call them, against the float64 reference: by the stand-ins
// for driver and cuBLASLt and, where HALYARD_CUBLASLT is "off", by the library's own kernels.
#include <cmath>
#include <string>

#include <gtest/gtest.h>

#include "core/context.h"
#include "cuda/linear/gemm.h"
#include "cuda/scratch.h"
#include "support/device_hooks.h"
#include "support/linear.h"

namespace halyard::tests {
namespace {

DType type_of(Dtype type) {
    return type == Dtype::f32 ? DType::f32 : type == Dtype::f16 ? DType::f16 : DType::bf16;
}

/** A product and its operands: batches [outer][inner] of x, of w or one that some share, of y and c. */
struct ProductCase {
    Dtype type, y_type;
    std::int64_t rows, columns, depth;
    bool transposed = true;
    std::int64_t gap = 0;  // between rows
    float alpha = 1, beta = 0;
    bool in_place = false, bias = false;
    std::int64_t inner = 1, outer = 1, sharing = 1;  // so many of the inner ones have one w
    int shift = 0;                                   // elements before the operands
};

void run_product(const ProductCase &c) {
    const auto matrix = [&](Dtype type, std::int64_t batch, std::int64_t rows, std::int64_t columns) {
        Form form;
        form.shape = {batch, rows, columns};
        form.strides = padded_strides(form.shape, c.gap);
        form.shift = c.shift;
        form.placement = c.shift > 0 ? Placement::starts_at_guard : Placement::ends_at_guard;
        return std::make_unique<Tensor>(type, form);
    };
    const std::int64_t batch = c.inner * c.outer;
    const std::int64_t w_rows = c.transposed ? c.columns : c.depth, w_columns = c.transposed ? c.depth : c.columns;
    auto x = matrix(c.type, batch, c.rows, c.depth), w = matrix(c.type, batch / c.sharing, w_rows, w_columns),
         y = matrix(c.y_type, batch, c.rows, c.columns), added = matrix(c.y_type, batch, c.rows, c.columns);
    Tensor bias(c.y_type, compact_form({c.columns}));
    x->fill([](std::int64_t row, std::int64_t i) { return bell(1, row, i); });
    w->fill([](std::int64_t row, std::int64_t i) { return bell(2, row, i); });
    added->fill([](std::int64_t row, std::int64_t i) { return 3 * bell(3, row, i); });
    bias.fill([](std::int64_t row, std::int64_t i) { return 5 * bell(4, row, i); });
    if (c.in_place) {
        y->copy_from(*added);
    }

    Checker check("a product");
    halyard_context context;
    {
        cuda::Launches launches(check, context, 0);
        const std::int64_t workspace_bytes = cuda::product_workspace_bytes(launches);
        ScratchMemory workspace;
        if (workspace_bytes > 0) {
            workspace = cuda::take_scratch(check, context, 0, workspace_bytes);
        }
        cuda::DeviceProduct p;
        p.rows = c.rows;
        p.columns = c.columns;
        p.depth = c.depth;
        p.dtype = type_of(c.type);
        p.y_dtype = type_of(c.y_type);
        p.w_transposed = c.transposed;
        p.x = x->at(0, 0);
        p.w = w->at(0, 0);
        p.y = y->at(0, 0);
        p.c = c.beta == 0 ? nullptr : c.in_place ? y->at(0, 0) : added->at(0, 0);
        p.bias = c.bias ? bias.at(0, 0) : nullptr;
        p.x_pitch = c.depth + c.gap;
        p.w_pitch = w_columns + c.gap;
        p.y_pitch = p.c_pitch = c.columns + c.gap;
        p.alpha = c.alpha;
        p.beta = c.beta;
        const std::int64_t x_step = c.rows * p.x_pitch, w_step = w_rows * p.w_pitch, y_step = c.rows * p.y_pitch;
        if (c.sharing == 1) {
            p.batches[0] = {c.inner, x_step, w_step, y_step, y_step};
            p.batches[1] = {c.outer, c.inner * x_step, c.inner * w_step, c.inner * y_step, c.inner * y_step};
        } else {
            // The heads of a group, and the groups; outer is 1.
            const std::int64_t s = c.sharing;
            p.batches[0] = {s, x_step, 0, y_step, y_step};
            p.batches[1] = {c.inner / s, s * x_step, w_step, s * y_step, s * y_step};
        }
        cuda::product(launches, p, workspace.data);
        if (workspace.data != nullptr) {
            cuda::give_back_scratch(context, workspace);
        }
    }
    finished(check.status());
    cuda::release_scratch(context);
    ASSERT_EQ(check.status(), HALYARD_OK) << halyard_last_error();

    const double unit = unit_roundoff(Dtype::f32);
    for (std::int64_t b = 0; b < batch; b++) {
        for (std::int64_t row = 0; row < c.rows; row++) {
            for (std::int64_t column = 0; column < c.columns; column++) {
                double sum = 0, size = 0;
                const std::int64_t wb = b / c.sharing * w_rows;
                for (std::int64_t k = 0; k < c.depth; k++) {
                    const double term =
                        x->get(b * c.rows + row, k) * (c.transposed ? w->get(wb + column, k) : w->get(wb + k, column));
                    sum += term;
                    size += std::fabs(term);
                }
                const double kept =
                    c.beta == 0 ? 0 : static_cast<double>(c.beta) * added->get(b * c.rows + row, column);
                const double shift = c.bias ? bias.get(0, column) : 0;
                const double value = static_cast<double>(c.alpha) * sum + kept + shift;
                const double error =
                    std::fabs(static_cast<double>(c.alpha)) * size * static_cast<double>(c.depth) * unit +
                    4 * unit * (std::fabs(c.alpha * size) + std::fabs(kept) + std::fabs(shift));
                ASSERT_TRUE(acceptable(c.y_type, {value, error}, y->get(b * c.rows + row, column)))
                    << "[" << b << ", " << row << ", " << column << "] is " << y->get(b * c.rows + row, column)
                    << " instead of " << value << " +- " << error;
            }
        }
    }
    for (const Tensor *tensor : {x.get(), w.get(), y.get(), added.get()}) {
        ASSERT_TRUE(tensor->surroundings_intact());
    }
}

class Products : public testing::TestWithParam<Dtype> {
protected:
    const Dtype type = GetParam();

    void expect_right(ProductCase c) const {
        for (const bool transposed : {true, false}) {
            c.transposed = transposed;
            ASSERT_NO_FATAL_FAILURE(run_product(c))
                << c.rows << " x " << c.columns << " x " << c.depth << ", w transposed " << transposed;
        }
    }
};

TEST_P(Products, AreRightForEverySize) {
    for (const std::int64_t size : {1, 3, 16, 64, 67}) {
        ASSERT_NO_FATAL_FAILURE(expect_right({type, type, size, 5, 33}));
        ASSERT_NO_FATAL_FAILURE(expect_right({type, type, 5, size, 32}));
        ASSERT_NO_FATAL_FAILURE(expect_right({type, type, 5, 9, size}));
    }
    ASSERT_NO_FATAL_FAILURE(expect_right({type, Dtype::f32, 70, 130, 520}));
}

TEST_P(Products, AreRightAtEveryPitchAndAddress) {
    ProductCase c = {type, type, 6, 10, 24};
    for (const std::int64_t gap : {0, 3, 8}) {
        for (const int shift : {0, 1, 8}) {
            c.gap = gap;
            c.shift = shift;
            ASSERT_NO_FATAL_FAILURE(expect_right(c));
        }
    }
}

TEST_P(Products, ScaleAddAndShift) {
    for (const Dtype y_type : {type, Dtype::f32}) {
        ProductCase c = {type, y_type, 6, 16, 40};
        c.alpha = 0.3f;
        ASSERT_NO_FATAL_FAILURE(expect_right(c));
        c.bias = true;
        ASSERT_NO_FATAL_FAILURE(expect_right(c));
        for (const bool in_place : {false, true}) {
            c.in_place = in_place;
            c.beta = 1;
            ASSERT_NO_FATAL_FAILURE(expect_right(c));
            c.beta = -0.5f;
            ASSERT_NO_FATAL_FAILURE(expect_right(c));
        }
    }
}

TEST_P(Products, OfABatchAreThoseOfEach) {
    ProductCase c = {type, Dtype::f32, 5, 8, 16};
    c.beta = 1;
    c.bias = true;
    c.inner = 3;
    ASSERT_NO_FATAL_FAILURE(expect_right(c));
    c.outer = 2;
    ASSERT_NO_FATAL_FAILURE(expect_right(c));
    c.outer = 1;
    for (const std::int64_t sharing : {2, 6}) {
        c.inner = 6;
        c.sharing = sharing;
        ASSERT_NO_FATAL_FAILURE(expect_right(c));
    }
}

INSTANTIATE_TEST_SUITE_P(Cuda, Products, testing::ValuesIn(all_dtypes),
                         [](const auto &info) { return std::string(name_of(info.param)); });

}  // namespace
}  // namespace halyard::tests
