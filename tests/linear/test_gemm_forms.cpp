// A right operand of a form that the library does not have goes through its plan and its loop, and gives the bits of the same
// matrix in packed weights.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "cpu/linear/gemm_loop.h"
#include "halyard/halyard.h"
#include "support/invocation.h"

namespace halyard {
namespace {

/** A compact f32 matrix. */
struct Matrix {
    Matrix(int64_t rows, int64_t columns) : values(static_cast<std::size_t>(rows * columns)), shape{rows, columns} {
        view.data = values.data();
        view.device = {kDLCPU, 0};
        view.ndim = 2;
        view.dtype = {kDLFloat, 32, 1};
        view.shape = shape;
    }
    Matrix(const Matrix &) = delete;
    Matrix &operator=(const Matrix &) = delete;
    float &at(int64_t row, int64_t column) { return values[static_cast<std::size_t>(row * shape[1] + column)]; }

    std::vector<float> values;
    int64_t shape[2];
    DLTensor view{};
};

/** Element [k, column] of a matrix that lies nowhere. */
float element_at(int64_t k, int64_t column) {
    return static_cast<float>((k * 31 + column * 17) % 127 - 63) / 64;
}

/** Its numbers are made where they are multiplied. */
class ComputedPanels {
public:
    ComputedPanels(int64_t inputs, int64_t panels) : inputs_(inputs), panels_(panels) {}

    RightShape shape() const {
        return {panels_, inputs_, false, panel_bytes(), XForm::f32, TileKind::f32, TileKind::f32_prefetch4, DType::f32};
    }
    const char *address(int64_t, int64_t) const { return reinterpret_cast<const char *>(this); }
    const char *address_ahead(int64_t panel, int64_t, int64_t k, int64_t) const { return address(panel, k); }
    int64_t panel_bytes() const { return 0; }
    int64_t interval_bytes(bool) const { return 0; }

    static constexpr int64_t scratch_floats = widened_floats_of_tile;
    class Reader {
    public:
        Reader(const ComputedPanels &, const GemmPlan &plan, float *scratch)
            : made_(scratch), matmul_(plan, DType::f32) {}
        void multiply(const TileCall &call) {
            for (int64_t panel = 0; panel < call.panels; panel++) {
                for (int64_t k = 0; k < call.depth; k++) {
                    for (int64_t column = 0; column < panel_width; column++) {
                        made_[(panel * k_block + k) * panel_width + column] =
                            element_at(call.k + k, (call.panel + panel) * panel_width + column);
                    }
                }
            }
            matmul_(call, widened_block(made_));
        }

    private:
        float *const made_;
        MatmulCall matmul_;
    };

private:
    const int64_t inputs_, panels_;
};

struct Size {
    int64_t rows, inputs, panels;
};

class GemmForms : public testing::TestWithParam<Size> {};
INSTANTIATE_TEST_SUITE_P(Sizes, GemmForms,
                         testing::Values(Size{1, 5, 1}, Size{1, 513, 9}, Size{3, 40, 4}, Size{17, 1100, 11},
                                         Size{70, 512, 8}, Size{256, 33, 3}));

TEST_P(GemmForms, AFormThatTheLibraryDoesNotHave) {
    const auto [rows, inputs, panels] = GetParam();
    const int64_t columns = panels * panel_width;
    Matrix x(rows, inputs), w(inputs, columns), expected(rows, columns), got(rows, columns);
    for (int64_t k = 0; k < inputs; k++) {
        for (int64_t row = 0; row < rows; row++) {
            x.at(row, k) = std::sin(static_cast<float>(row * inputs + k));
        }
        for (int64_t column = 0; column < columns; column++) {
            w.at(k, column) = element_at(k, column);
        }
    }
    halyard_pack_options options{};
    options.layout = HALYARD_WEIGHT_IN_OUT;
    halyard_weights *packed = nullptr;
    ASSERT_EQ(halyard_weights_pack(nullptr, &w.view, &options, nullptr, 0, &packed), HALYARD_OK)
        << halyard_last_error();

    for (const halyard_isa isa : tests::supported_isas()) {
        for (const int threads : {1, 3}) {
            const tests::Context context(isa, threads);
            ASSERT_EQ(halyard_linear(context.get(), &x.view, packed, nullptr, &expected.view), HALYARD_OK)
                << halyard_last_error();

            // As cpu/linear/linear.cpp does it, with the form in the place of the weights.
            const ComputedPanels form(inputs, panels);
            const Layer layer(packed, HALYARD_IDENTITY, 1);
            const Tiling tiling(isa, XForm::f32, rows);
            const auto aligned = [](std::vector<char> &memory, int64_t bytes) {
                memory.resize(static_cast<std::size_t>(bytes) + 64);
                return memory.data() + 64 - reinterpret_cast<std::uintptr_t>(memory.data()) % 64;
            };
            std::vector<char> x_memory, scratch;
            const BlockedRows blocked = {aligned(x_memory, BlockedRows::bytes(XForm::f32, tiling.rows(), inputs)),
                                         tiling.rows(), XForm::f32};
            for (int64_t row = 0; row < rows; row++) {
                for (int64_t k = 0; k < inputs; k++) {
                    blocked.floats_at(row, k / k_block)[k % k_block] = x.at(row, k);
                }
            }
            blocked.clear_from(rows, inputs);
            const GemmPlan plan = plan_gemm(isa, form.shape(), tiling, rows, 0, threads);
            const int64_t thread_bytes = WorkerMemory::bytes(Tiling::max_rows(rows), ComputedPanels::scratch_floats);
            std::fill(got.values.begin(), got.values.end(), std::nanf(""));
            Checker check("test");
            Rows y(false);
            y.add(check.output("y", &got.view));
            OutputView output;
            output.rows = &y;
            run_gemm(*context.get(), plan, form, {blocked}, StartingSums(), layer.bound_to(nullptr, nullptr, output),
                     aligned(scratch, threads * thread_bytes), thread_bytes);
            EXPECT_EQ(got.values, expected.values) << halyard_isa_name(isa) << ", " << threads << " threads";
        }
    }
    halyard_weights_destroy(packed);
}

}  // namespace
}  // namespace halyard
