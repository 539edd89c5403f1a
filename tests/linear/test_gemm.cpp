// The GEMM inside: a right operand of a form that the library does not have goes through its plan and its loop; operands that
// are activations or a packed matrix the other way round, as gradients have them; sums that start from a matrix.
//
// Bounds: a sum over K inputs errs by at most min(K, 512) + K / 512 + 1 roundings of 2^-24 of the sum of magnitudes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <vector>

#include "cpu/linear/activation_panels.h"
#include "cpu/linear/gemm_loop.h"
#include "cpu/linear/transposed_panels.h"
#include "halyard/halyard.h"
#include "support/invocation.h"
#include "support/linear.h"
#include "support/test_scale.h"

namespace halyard {
namespace {

/** A compact f32 matrix. */
struct Matrix {
    Matrix(int64_t rows, int64_t columns) : values(static_cast<std::size_t>(rows * columns)), shape{rows, columns} {}
    float &at(int64_t row, int64_t column) { return values[static_cast<std::size_t>(row * shape[1] + column)]; }
    float at(int64_t row, int64_t column) const { return values[static_cast<std::size_t>(row * shape[1] + column)]; }
    /** Valid as long as the matrix stays where it is. */
    DLTensor view() {
        DLTensor tensor{};
        tensor.data = values.data();
        tensor.device = {kDLCPU, 0};
        tensor.ndim = 2;
        tensor.dtype = {kDLFloat, 32, 1};
        tensor.shape = shape;
        return tensor;
    }
    FloatMatrix floats() const { return {values.data(), shape[0], shape[1], shape[1]}; }
    Matrix transposed() const {
        Matrix result(shape[1], shape[0]);
        for (int64_t row = 0; row < shape[0]; row++) {
            for (int64_t column = 0; column < shape[1]; column++) {
                result.at(column, row) = at(row, column);
            }
        }
        return result;
    }

    std::vector<float> values;
    int64_t shape[2];
};

Matrix waves(int64_t rows, int64_t columns, float step) {
    Matrix result(rows, columns);
    for (std::size_t i = 0; i < result.values.size(); i++) {
        result.values[i] = std::sin(step * static_cast<float>(i));
    }
    return result;
}

char *aligned(std::vector<char> &memory, int64_t bytes) {
    memory.resize(static_cast<std::size_t>(bytes) + 64);
    return memory.data() + 64 - reinterpret_cast<std::uintptr_t>(memory.data()) % 64;
}

/** Who multiplies. */
struct By {
    halyard_isa isa;
    int threads;
};

std::vector<By> everyone() {
    std::vector<By> result;
    for (const halyard_isa isa : tests::supported_isas()) {
        result.push_back({isa, 1});
        result.push_back({isa, 3});
    }
    return result;
}

/** start + x right, in f32, block of rows by block of rows. `load`: stores rows [first, first + count) of the left operand. */
template<typename Right>
Matrix
product(const By &by, const Right &right, int64_t rows, int64_t columns,
        const std::function<void(const halyard_context &, int64_t first, int64_t count, const BlockedRows &)> &load,
        const Matrix *start = nullptr) {
    const tests::Context context(by.isa, by.threads);
    Matrix result(rows, columns);
    std::fill(result.values.begin(), result.values.end(), std::nanf(""));
    const DLTensor view = result.view();
    const int64_t block = block_rows(rows), inputs = right.shape().inputs;
    const int64_t thread_bytes = WorkerMemory::bytes(Tiling::max_rows(block), Right::scratch_floats);
    std::vector<char> x_memory, scratch;
    char *const memory = aligned(scratch, by.threads * thread_bytes);
    for (int64_t first = 0; first < rows; first += block) {
        const int64_t count = std::min(block, rows - first);
        const Tiling tiling(by.isa, XForm::f32, count);
        const int64_t x_bytes = BlockedRows::bytes(XForm::f32, tiling.rows(), inputs);
        const BlockedRows x = {aligned(x_memory, x_bytes), tiling.rows(), XForm::f32};
        load(*context.get(), first, count, x);
        Checker check("test");
        Rows y(false);
        y.add(check.output("y", &view));
        OutputView output;
        output.rows = &y;
        output.first_row = first;
        const EpilogueCall epilogue = {
            .kernel = kernels::epilogue_identity, .columns = columns, .gated = false, .y = output};
        StartingSums from;
        if (start != nullptr) {
            from = {start->values.data() + first * columns, columns, columns};
        }
        run_gemm(*context.get(), plan_gemm(by.isa, right.shape(), tiling, count, x_bytes, by.threads), right, {x}, from,
                 epilogue, memory, thread_bytes);
    }
    return result;
}

/** The rows of a matrix as they lie. */
auto rows_of(const Matrix &x) {
    return [&x](const halyard_context &, int64_t first, int64_t count, const BlockedRows &blocked) {
        for (int64_t row = 0; row < count; row++) {
            for (int64_t k = 0; k < x.shape[1]; k++) {
                blocked.floats_at(row, k / k_block)[k % k_block] = x.at(first + row, k);
            }
        }
        blocked.clear_from(count, x.shape[1]);
    };
}

/** Its columns as rows. */
auto columns_of(const Matrix &x) {
    return [&x](const halyard_context &context, int64_t first, int64_t count, const BlockedRows &blocked) {
        load_transposed(context, x.floats(), first, count, blocked);
    };
}

/** A product in double, with the bound of errors of each element. */
struct Reference {
    struct Element {
        double sum = 0, bound = 0;
    };
    int64_t rows, columns;
    std::vector<Element> elements;
};

/** [row, column] = sum over k of left(row, k) right(k, column). */
template<typename Left, typename Right>
Reference reference_product(int64_t rows, int64_t inputs, int64_t columns, const Left &left, const Right &right) {
    const double roundings = static_cast<double>(std::min<int64_t>(inputs, k_block) + inputs / k_block + 1);
    Reference reference{rows, columns, {}};
    for (int64_t row = 0; row < rows; row++) {
        for (int64_t column = 0; column < columns; column++) {
            Reference::Element &element = reference.elements.emplace_back();
            for (int64_t k = 0; k < inputs; k++) {
                const double term = left(row, k) * right(k, column);
                element.sum += term;
                element.bound += roundings * 0x1p-24 * std::fabs(term);
            }
        }
    }
    return reference;
}

void expect_product(const Matrix &got, const Reference &reference, const char *what) {
    for (int64_t row = 0; row < reference.rows; row++) {
        for (int64_t column = 0; column < reference.columns; column++) {
            const auto &[sum, bound] = reference.elements[static_cast<std::size_t>(row * reference.columns + column)];
            ASSERT_NEAR(got.at(row, column), sum, bound) << what << " " << row << " " << column;
        }
    }
}

/** Packed by the library, and freed. */
class Packed {
public:
    Packed(Matrix &matrix, halyard_weight_layout layout, tests::Dtype dtype = tests::Dtype::f32, Matrix *up = nullptr) {
        tests::Tensor first(dtype, tests::compact_form({matrix.shape[0], matrix.shape[1]}));
        tests::Tensor second(dtype, tests::compact_form({matrix.shape[0], matrix.shape[1]}));
        halyard_pack_options options{};
        options.layout = layout;
        first.fill([&](int64_t row, int64_t i) { return matrix.at(row, i); });
        if (up != nullptr) {
            second.fill([&](int64_t row, int64_t i) { return up->at(row, i); });
            options.up = &second.view;
        }
        EXPECT_EQ(halyard_weights_pack(nullptr, &first.view, &options, nullptr, 0, &weights_), HALYARD_OK)
            << halyard_last_error();
    }
    ~Packed() { halyard_weights_destroy(weights_); }
    Packed(const Packed &) = delete;
    Packed &operator=(const Packed &) = delete;

    PanelMatrix panels() const { return panels_of(*weights_); }

private:
    halyard_weights *weights_ = nullptr;
};

// ---- A form that the library does not have ----

/** Element [k, column] of a matrix that lies nowhere. */
float element_at(int64_t k, int64_t column) {
    return static_cast<float>((k * 31 + column * 17) % 127 - 63) / 64;
}

/** Its numbers are made where they are multiplied. */
class ComputedPanels {
public:
    ComputedPanels(int64_t inputs, int64_t panels) : inputs_(inputs), panels_(panels) {}

    RightShape shape() const {
        return {panels_, inputs_, false, panel_bytes(), XForm::f32, TileKind::f32, false, DType::f32};
    }
    const char *address(int64_t, int64_t) const { return reinterpret_cast<const char *>(this); }
    static constexpr bool ahead_by_blocks = true;
    int64_t panel_bytes() const { return 0; }
    int64_t interval_bytes(TileKind) const { return 0; }

    static constexpr int64_t scratch_floats = widened_floats_of_tile;
    class Reader {
    public:
        Reader(const ComputedPanels &, const GemmPlan &plan, float *scratch)
            : made_(scratch), product_(plan.isa, DType::f32, plan.kind, plan.tiling.tile_rows) {}
        void multiply(int64_t first_panel, int64_t first_input, const TileCall &call) {
            for (int64_t panel = 0; panel < call.panels; panel++) {
                for (int64_t k = 0; k < call.depth; k++) {
                    for (int64_t column = 0; column < panel_width; column++) {
                        made_[(panel * k_block + k) * panel_width + column] =
                            element_at(first_input + k, (first_panel + panel) * panel_width + column);
                    }
                }
            }
            product_(call, widened_block(made_));
        }

    private:
        float *const made_;
        MatmulCall product_;
    };

private:
    const int64_t inputs_, panels_;
};

struct Size {
    int64_t rows, inputs, columns;
};
const Size sizes[] = {{1, 5, 16}, {1, 513, 130}, {3, 40, 64}, {17, 1100, 170}, {70, 512, 33}, {300, 33, 3}};

class Gemm : public testing::TestWithParam<Size> {};
INSTANTIATE_TEST_SUITE_P(Sizes, Gemm, testing::ValuesIn(sizes));

TEST_P(Gemm, TakesAFormThatTheLibraryDoesNotHave) {
    const auto [rows, inputs, columns] = GetParam();
    const Matrix x = waves(rows, inputs, 1);
    Matrix w(inputs, columns);
    for (int64_t k = 0; k < inputs; k++) {
        for (int64_t column = 0; column < columns; column++) {
            w.at(k, column) = element_at(k, column);
        }
    }
    const Packed packed(w, HALYARD_WEIGHT_IN_OUT);
    for (const By &by : everyone()) {
        const Matrix got = product(by, ComputedPanels(inputs, (columns + 15) / 16), rows, columns, rows_of(x));
        EXPECT_EQ(got.values, product(by, PackedPanels(packed.panels()), rows, columns, rows_of(x)).values)
            << halyard_isa_name(by.isa) << ", " << by.threads << " threads";
    }
}

// ---- dW = dY^T X: of a layer with `inputs` tokens here, `rows` outputs and `columns` inputs ----

TEST_P(Gemm, GivesTheGradientOfAWeight) {
    const auto [outputs, tokens, inputs] = GetParam();
    const Matrix dy = waves(tokens, outputs, 0.7f), x = waves(tokens, inputs, 1.3f), x_transposed = x.transposed();
    const Reference expected = reference_product(
        outputs, tokens, inputs, [&](int64_t row, int64_t k) { return static_cast<double>(dy.at(k, row)); },
        [&](int64_t k, int64_t column) { return static_cast<double>(x.at(k, column)); });
    std::vector<char> as_it_lies, turned;
    Matrix fused(0, 0);
    for (const By &by : everyone()) {
        const tests::Context context(by.isa, by.threads);
        const int64_t bytes = activation_panel_floats(tokens, inputs) * 4;
        const PanelMatrix panels =
            pack_activations(*context.get(), x.floats(), false, reinterpret_cast<float *>(aligned(as_it_lies, bytes)));
        const PanelMatrix same = pack_activations(*context.get(), x_transposed.floats(), true,
                                                  reinterpret_cast<float *>(aligned(turned, bytes)));
        const Matrix got = product(by, PackedPanels(panels), outputs, inputs, columns_of(dy));
        expect_product(got, expected, halyard_isa_name(by.isa));
        EXPECT_EQ(product(by, PackedPanels(same), outputs, inputs, columns_of(dy)).values, got.values);
        if (by.isa != HALYARD_ISA_SSE41) {  // which rounds products
            fused = fused.values.empty() ? got : fused;
            EXPECT_EQ(got.values, fused.values) << halyard_isa_name(by.isa) << ", " << by.threads << " threads";
        }
    }
}

// Over blocks of tokens: ((g + b0) + b1) + ..., whether they come at once or one after another.
TEST_P(Gemm, AddsToWhatIsThere) {
    const auto [outputs, tokens, inputs] = GetParam();
    const Matrix dy = waves(tokens, outputs, 0.7f), x = waves(tokens, inputs, 1.3f),
                 start = waves(outputs, inputs, 0.1f);
    std::vector<char> memory;
    for (const By &by : everyone()) {
        const tests::Context context(by.isa, by.threads);
        const auto packed = [&](const FloatMatrix &of) {
            return pack_activations(
                *context.get(), of, false,
                reinterpret_cast<float *>(aligned(memory, activation_panel_floats(of.rows, of.columns) * 4)));
        };
        const Matrix whole = product(by, PackedPanels(packed(x.floats())), outputs, inputs, columns_of(dy), &start);
        Matrix sums = start;
        for (int64_t first = 0; first < tokens; first += k_block) {
            const int64_t count = std::min<int64_t>(k_block, tokens - first);
            const FloatMatrix some_dy = {dy.values.data() + first * outputs, count, outputs, outputs};
            const FloatMatrix some_x = {x.values.data() + first * inputs, count, inputs, inputs};
            sums = product(
                by, PackedPanels(packed(some_x)), outputs, inputs,
                [&](const halyard_context &with, int64_t row, int64_t rows, const BlockedRows &blocked) {
                    load_transposed(with, some_dy, row, rows, blocked);
                },
                &sums);
        }
        EXPECT_EQ(sums.values, whole.values) << halyard_isa_name(by.isa) << ", " << by.threads << " threads";
        const Matrix alone = product(by, PackedPanels(packed(x.floats())), outputs, inputs, columns_of(dy));
        for (std::size_t i = 0; tokens <= k_block && i < alone.values.size(); i++) {
            ASSERT_EQ(whole.values[i], start.values[i] + alone.values[i]) << i;
        }
    }
}

// ---- dX = dY W: `rows` tokens, `inputs` outputs of the layer, `columns` inputs of it ----

TEST_P(Gemm, GivesTheGradientOfAnInputFromTheLayersOwnPanelsAndFromASecondPack) {
    const auto [tokens, outputs, inputs] = GetParam();
    const Matrix dy = waves(tokens, outputs, 0.7f);
    Matrix w = waves(outputs, inputs, 1.3f);
    for (const tests::Dtype dtype : tests::all_dtypes) {
        const Packed own(w, HALYARD_WEIGHT_OUT_IN, dtype), second(w, HALYARD_WEIGHT_IN_OUT, dtype);
        Matrix rounded(outputs, inputs);
        std::transform(w.values.begin(), w.values.end(), rounded.values.begin(), [&](float value) {
            return static_cast<float>(tests::round_to(dtype, static_cast<double>(value)));
        });
        const Reference expected = reference_product(
            tokens, outputs, inputs, [&](int64_t row, int64_t k) { return static_cast<double>(dy.at(row, k)); },
            [&](int64_t k, int64_t column) { return static_cast<double>(rounded.at(k, column)); });
        for (const By &by : everyone()) {
            const Matrix got = product(by, TransposedPanels(own.panels(), outputs), tokens, inputs, rows_of(dy));
            expect_product(got, expected, halyard_isa_name(by.isa));
            EXPECT_EQ(product(by, PackedPanels(second.panels()), tokens, inputs, rows_of(dy)).values, got.values)
                << halyard_isa_name(by.isa) << ", " << by.threads << " threads";
        }
    }
}

// A gated layer has its k order from its panels: 16 outputs of the gate and 16 of up in turn.
TEST_P(Gemm, GivesTheGradientOfAnInputOfAGatedLayer) {
    const auto [tokens, outputs, inputs] = GetParam();
    const Matrix of_gate = waves(tokens, outputs, 0.7f), of_up = waves(tokens, outputs, 0.9f);
    Matrix gate = waves(outputs, inputs, 1.3f), up = waves(outputs, inputs, 1.1f);
    const int64_t panels = (outputs + 15) / 16, columns = 2 * 16 * panels;
    // Both in the order of the panels.
    Matrix dy(tokens, columns), joined(columns, inputs);
    for (int64_t k = 0; k < columns; k++) {
        const int64_t output = k / 32 * 16 + k % 16;
        const bool is_up = k / 16 % 2 != 0;
        for (int64_t token = 0; output < outputs && token < tokens; token++) {
            dy.at(token, k) = (is_up ? of_up : of_gate).at(token, output);
        }
        for (int64_t input = 0; output < outputs && input < inputs; input++) {
            joined.at(k, input) = (is_up ? up : gate).at(output, input);
        }
    }
    const Packed own(gate, HALYARD_WEIGHT_OUT_IN, tests::Dtype::f32, &up), second(joined, HALYARD_WEIGHT_IN_OUT);
    const Reference expected = reference_product(
        tokens, columns, inputs, [&](int64_t row, int64_t k) { return static_cast<double>(dy.at(row, k)); },
        [&](int64_t k, int64_t column) { return static_cast<double>(joined.at(k, column)); });
    for (const By &by : everyone()) {
        const Matrix got = product(by, TransposedPanels(own.panels(), columns), tokens, inputs, rows_of(dy));
        expect_product(got, expected, halyard_isa_name(by.isa));
        EXPECT_EQ(product(by, PackedPanels(second.panels()), tokens, inputs, rows_of(dy)).values, got.values)
            << halyard_isa_name(by.isa) << ", " << by.threads << " threads";
    }
}

}  // namespace
}  // namespace halyard
