// Packed weights and calls of linear layers.
#include "support/linear.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "support/device_hooks.h"
#include "support/text.h"

namespace halyard::tests {
namespace {

constexpr int differences_shown = 3;

/** The value with `bits` significant bits nearest to `value`. */
double with_bits(double value, int bits) {
    if (value == 0) {
        return 0;
    }
    const double quantum = std::exp2(std::floor(std::log2(std::fabs(value))) + 1 - bits);
    return std::nearbyint(value / quantum) * quantum;
}

Weights::Value ordinary_values(const WeightForm &form) {
    const double size = 1 / std::sqrt(static_cast<double>(form.in));
    return [form, size](int matrix, std::int64_t k, std::int64_t n) {
        const double factor = k == 0 || k == form.in - 1 ? 4 : 1;
        const double value = bell(form.seed * 2 + static_cast<std::uint64_t>(matrix), k, n) * size * factor;
        return form.coarse || form.folds() ? with_bits(value, 4) : value;
    };
}

/** Fills one matrix's source and its values in [in][out] order. */
void fill_matrix(Tensor &source, WeightMatrix &matrix, const WeightForm &form, const Weights::Value &value, int which) {
    matrix.in = form.in;
    matrix.out = form.out;
    matrix.values.resize(static_cast<std::size_t>(form.in * form.out));
    for (std::int64_t k = 0; k < form.in; k++) {
        for (std::int64_t n = 0; n < form.out; n++) {
            const bool out_in = form.layout == HALYARD_WEIGHT_OUT_IN;
            const std::uint32_t bits = encode(form.dtype, value(which, k, n));
            source.set_bits(out_in ? n : k, out_in ? k : n, bits);
            matrix.values[static_cast<std::size_t>(k * form.out + n)] = decode(form.dtype, bits);
        }
    }
}

/** Multiplies the rows of the values by the norm's weight as packing does: each operation is rounded to f32, and the result once
 *  to the type. */
void fold(WeightMatrix &matrix, const WeightForm &form, const Row &weight, const Row &bias) {
    if (!bias.empty()) {
        matrix.unfolded = matrix.values;
        matrix.norm_bias = bias;
    }
    for (std::int64_t k = 0; k < matrix.in && form.norm_weight; k++) {
        const float factor = static_cast<float>(weight[static_cast<std::size_t>(k)]) + (form.unit_offset ? 1.0f : 0.0f);
        for (std::int64_t n = 0; n < matrix.out; n++) {
            double &value = matrix.values[static_cast<std::size_t>(k * matrix.out + n)];
            const float product = static_cast<float>(value) * factor;
            value = round_to(form.dtype, static_cast<double>(product));
        }
    }
}

}  // namespace

std::vector<Types> all_types() {
    std::vector<Types> all;
    for (const Dtype x : all_dtypes) {
        for (const Dtype w : all_dtypes) {
            for (const Dtype y : all_dtypes) {
                all.push_back({x, w, y});
            }
        }
    }
    return all;
}

// ---- Weights -----------------------------------------------------------------------------------------------------

WeightForm weight_form(Dtype dtype, std::int64_t in, std::int64_t out, bool gated, std::uint64_t seed) {
    WeightForm form;
    form.dtype = dtype;
    form.in = in;
    form.out = out;
    form.gated = gated;
    form.seed = seed;
    return form;
}

double norm_weight_value(std::uint64_t seed, std::int64_t k, bool unit_offset) {
    return static_cast<double>(2 + hash(seed, 101, static_cast<std::uint64_t>(k)) % 6) / 4 - (unit_offset ? 1 : 0);
}

double norm_bias_value(std::uint64_t seed, std::int64_t k) {
    return with_bits(bell(seed + 103, 0, k) / 2, 4);
}

Weights::Weights(const WeightForm &form) : Weights(form, ordinary_values(form)) {}

Weights::Weights(const WeightForm &form, const Value &value) : form(form) {
    const Shape shape = form.layout == HALYARD_WEIGHT_OUT_IN ? Shape{form.out, form.in} : Shape{form.in, form.out};
    Tensor source(form.dtype, compact_form(shape)), up(form.dtype, compact_form(shape));
    Tensor weight(form.f32_norm_weight ? Dtype::f32 : form.dtype, compact_form({form.in})),
        bias(form.f32_norm_bias ? Dtype::f32 : form.dtype, compact_form({form.in}));
    const auto finer = [&](std::int64_t k) { return uniform(form.seed + 107, 0, k) / 32; };
    weight.fill([&](std::int64_t, std::int64_t k) {
        return norm_weight_value(form.seed, k, form.unit_offset) + (form.f32_norm_weight ? finer(k) : 0);
    });
    bias.fill([&](std::int64_t, std::int64_t k) {
        return norm_bias_value(form.seed, k) + (form.f32_norm_bias ? finer(k) : 0);
    });
    if (form.norm_weight) {
        norm_weight = weight.row_values(0);
    }
    if (form.norm_bias) {
        norm_bias = bias.row_values(0);
    }
    fill_matrix(source, values.matrix, form, value, 0);
    fold(values.matrix, form, norm_weight, norm_bias);
    if (form.gated) {
        values.up.emplace();
        fill_matrix(up, *values.up, form, value, 1);
        fold(*values.up, form, norm_weight, norm_bias);
    }

    if (form.sources_on_device) {
        for (Tensor *tensor : {&source, &up, &weight, &bias}) {
            tensor->view.device = form.device;
        }
    }
    halyard_pack_options options{};
    options.device = form.sources_on_device ? DLDevice{} : form.device;
    options.layout = form.layout;
    options.up = form.gated ? &up.view : nullptr;
    options.norm_weight = form.norm_weight ? &weight.view : nullptr;
    options.norm_bias = form.norm_bias ? &bias.view : nullptr;
    options.norm_unit_offset = form.unit_offset ? 1 : 0;
    EXPECT_EQ(halyard_weights_size(&source.view, &options, &bytes), HALYARD_OK) << halyard_last_error();

    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    const std::size_t alignment = form.device.device_type == kDLCPU ? 64 : 256;
    const std::size_t used = (static_cast<std::size_t>(bytes) + alignment - 1) / alignment * alignment;
    const std::size_t accessible = (used + page - 1) / page * page;
    mapping_size = accessible + page;
    void *const memory = mmap(nullptr, mapping_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED || mprotect(static_cast<char *>(memory) + accessible, page, PROT_NONE) != 0) {
        std::perror("mmap of packed test weights");
        std::abort();
    }
    mapping = static_cast<char *>(memory);
    block = mapping + accessible - used;
    memory_mapped(mapping, accessible);
    EXPECT_EQ(halyard_weights_pack(nullptr, &source.view, &options, block, bytes, &weights), HALYARD_OK)
        << halyard_last_error();
    as_packed.assign(block, block + bytes);
}

Weights::~Weights() {
    halyard_weights_destroy(weights);
    memory_unmapping(mapping);
    munmap(mapping, mapping_size);
}

bool Weights::intact() const {
    return std::memcmp(block, as_packed.data(), as_packed.size()) == 0;
}

Form compact_form(const Shape &shape) {
    Form form;
    form.shape = shape;
    return form;
}

// ---- Calls -------------------------------------------------------------------------------------------------------

Form CallForm::form_of(std::int64_t width, std::int64_t gap) const {
    Form form;
    form.shape = leading;
    form.shape.push_back(width);
    if (gap != 0) {
        form.strides = padded_strides(form.shape, gap);
    }
    form.placement = placement;
    form.shift = shift;
    return form;
}

CallForm call_form(Dtype x, Dtype y, const Shape &leading, std::int64_t x_gap, std::int64_t y_gap) {
    CallForm form;
    form.x = x;
    form.y = y;
    form.leading = leading;
    form.x_gap = x_gap;
    form.y_gap = y_gap;
    return form;
}

CallForm f32_rows(std::int64_t rows) {
    return call_form(Dtype::f32, Dtype::f32, {rows});
}

void fill_rows(Tensor &x, std::uint64_t seed) {
    const std::int64_t last = x.width() - 1;
    x.fill([&](std::int64_t row, std::int64_t i) { return bell(seed, row, i) * (i == 0 || i == last ? 4 : 1); });
}

LinearCall::LinearCall(const Weights &weights, const CallForm &form, std::uint64_t seed)
    : weights(weights), form(form), seed(seed * 16), x(form.x, form.form_of(weights.form.in, form.x_gap)),
      y(form.y, form.form_of(weights.form.out, form.y_gap)) {
    fill_rows(x, this->seed);
}

std::unique_ptr<Tensor> LinearCall::row_vector() const {
    Form own;
    own.shape = form.leading.empty() ? Shape{1} : form.leading;
    if (own.shape.size() > 1) {
        own.strides = padded_strides(own.shape, 3);
    }
    return std::make_unique<Tensor>(Dtype::f32, own);
}

// A row vector's elements in row-major order are the rows of x.
void LinearCall::add_row_scale() {
    row_scale = row_vector();
    row_scale->fill([&](std::int64_t row, std::int64_t i) { return 0.5 + uniform(seed + 1, row, i); });
    options.row_scale = &row_scale->view;
}

void LinearCall::add_row_mean() {
    row_mean = row_vector();
    row_mean->fill([&](std::int64_t row, std::int64_t i) { return bell(seed + 2, row, i) / 2; });
    options.row_mean = &row_mean->view;
}

void LinearCall::add_bias(Dtype type) {
    bias = std::make_unique<Tensor>(type, compact_form({weights.form.out}));
    bias->fill([&](std::int64_t row, std::int64_t i) { return bell(seed + 3, row, i); });
    options.bias = &bias->view;
}

void LinearCall::add_bias_up(Dtype type) {
    bias_up = std::make_unique<Tensor>(type, compact_form({weights.form.out}));
    bias_up->fill([&](std::int64_t row, std::int64_t i) { return bell(seed + 4, row, i); });
    options.bias_up = &bias_up->view;
}

void LinearCall::add_residual() {
    residual = std::make_unique<Tensor>(form.y, form.form_of(weights.form.out, form.y_gap + 5));
    residual->fill([&](std::int64_t row, std::int64_t i) { return 2 * bell(seed + 5, row, i); });
    options.residual = &residual->view;
}

void LinearCall::add_residual_in_place() {
    y.fill([&](std::int64_t row, std::int64_t i) { return 2 * bell(seed + 5, row, i); });
    options.residual = &y.view;
}

void LinearCall::activate(halyard_activation activation, float beta) {
    options.activation = activation;
    options.beta = beta;
}

halyard_status LinearCall::run(const halyard_context *context, const Tensor &rows) {
    return finished(halyard_linear(context, &rows.view, weights.get(), &options, &y.view));
}

void LinearCall::move_to(DLDevice device) {
    for (Tensor *tensor : {&x, &y, row_scale.get(), row_mean.get(), bias.get(), bias_up.get(), residual.get()}) {
        if (tensor != nullptr) {
            tensor->view.device = device;
        }
    }
}

std::vector<Row> rows_of(const Tensor &tensor) {
    std::vector<Row> rows;
    for (std::int64_t row = 0; row < tensor.rows(); row++) {
        rows.push_back(tensor.row_values(row));
    }
    return rows;
}

Matrix LinearCall::expected() const {
    ExpectedRow scale, mean;
    EpilogueValues epilogue;
    const auto entries = [](const Tensor &vector, ExpectedRow &row) {
        for (const Row &part : rows_of(vector)) {
            for (const double value : part) {
                row.push_back({value, 0.0});
            }
        }
        return &row;
    };
    epilogue.row_scale = options.row_scale != nullptr ? entries(*row_scale, scale) : nullptr;
    epilogue.row_mean = options.row_mean != nullptr ? entries(*row_mean, mean) : nullptr;
    Row bias_values, bias_up_values;
    if (options.bias != nullptr) {
        bias_values = bias->row_values(0);
        epilogue.bias = &bias_values;
    }
    if (options.bias_up != nullptr) {
        bias_up_values = bias_up->row_values(0);
        epilogue.bias_up = &bias_up_values;
    }
    epilogue.activation = options.activation;
    epilogue.beta = static_cast<double>(options.beta);
    std::vector<Row> residual_values;
    if (options.residual != nullptr) {
        residual_values = rows_of(options.residual == &y.view ? y : *residual);
        epilogue.residual = &residual_values;
    }
    // On a device sums of one 16-bit type throughout are stored in it before they are scaled, shifted or activated.
    const bool stored = weights.form.gated || options.activation != HALYARD_IDENTITY || epilogue.row_scale ||
                        epilogue.row_mean || epilogue.bias || weights.form.norm_bias;
    if (y.view.device.device_type == kDLCUDA && stored && form.x == weights.form.dtype && form.y == form.x) {
        epilogue.sum_roundoff = unit_roundoff(form.y);
    }
    return linear(exact_rows(rows_of(x)), weights.values, epilogue);
}

testing::AssertionResult as_expected(const Tensor &y, const Matrix &expected) {
    testing::AssertionResult result = testing::AssertionFailure();
    std::int64_t wrong = 0;
    for (std::int64_t row = 0; row < y.rows(); row++) {
        for (std::int64_t i = 0; i < y.width(); i++) {
            const Expected &one = expected[static_cast<std::size_t>(row)][static_cast<std::size_t>(i)];
            const std::uint32_t bits = y.bits(row, i);
            if (acceptable(y.dtype(), one, decode(y.dtype(), bits))) {
                continue;
            }
            if (wrong++ < differences_shown) {
                result << "\n  y[row " << row << ", " << i << "] is " << show(y.dtype(), bits) << ", expected "
                       << one.value << " +- " << one.error << " before rounding";
            }
        }
    }
    return wrong == 0 ? testing::AssertionSuccess() : result << "\n  " << wrong << " wrong results";
}

testing::AssertionResult LinearCall::check(const Matrix &expected) const {
    const testing::AssertionResult result = as_expected(y, expected);
    if (!result) {
        return testing::AssertionFailure() << result.message() << " from " << describe();
    }
    return surroundings_intact();
}

testing::AssertionResult LinearCall::surroundings_intact() const {
    for (const Tensor *tensor :
         {&x, &y, static_cast<const Tensor *>(residual.get()), static_cast<const Tensor *>(row_scale.get()),
          static_cast<const Tensor *>(row_mean.get()), static_cast<const Tensor *>(bias.get()),
          static_cast<const Tensor *>(bias_up.get())}) {
        if (tensor != nullptr && !tensor->surroundings_intact()) {
            return testing::AssertionFailure() << "memory outside a tensor was written by " << describe();
        }
    }
    if (!weights.intact()) {
        return testing::AssertionFailure() << "the weights were written by " << describe();
    }
    return testing::AssertionSuccess();
}

std::string LinearCall::describe() const {
    std::string text = std::string("halyard_linear x ") + name_of(x.dtype()) + " " + to_string(x.shape()) +
                       " strides " + to_string(x.strides()) + ", weights " + name_of(weights.form.dtype) +
                       (weights.form.gated ? " gated" : "") + ", y " + name_of(y.dtype()) + " " + to_string(y.shape()) +
                       " strides " + to_string(y.strides());
    if (options.activation != HALYARD_IDENTITY) {
        text += std::string(", ") + layer_activation(options.activation).name;
    }
    const std::pair<const void *, const char *> given[] = {{options.row_scale, "row_scale"},
                                                           {options.row_mean, "row_mean"},
                                                           {options.bias, "bias"},
                                                           {options.bias_up, "bias_up"},
                                                           {options.residual, "residual"}};
    for (const auto &[option, name] : given) {
        if (option != nullptr) {
            text += std::string(", ") + name + (option == &y.view ? " in place" : "");
        }
    }
    return text;
}

// ---- Comparisons -------------------------------------------------------------------------------------------------

testing::AssertionResult same_rows(const Tensor &expected, const Tensor &got, std::int64_t count) {
    testing::AssertionResult result = testing::AssertionFailure();
    const std::size_t bytes = static_cast<std::size_t>(got.width()) * size_of(got.dtype());
    std::int64_t different = 0;
    for (std::int64_t row = 0; row < count && bytes != 0; row++) {
        if (std::memcmp(expected.at(row, 0), got.at(row, 0), bytes) == 0) {
            continue;
        }
        for (std::int64_t i = 0; i < got.width(); i++) {
            const std::uint32_t a = expected.bits(row, i), b = got.bits(row, i);
            // Which NaN it is does not matter.
            if (a == b || (is_nan(got.dtype(), a) && is_nan(got.dtype(), b))) {
                continue;
            }
            if (different++ < differences_shown) {
                result << "\n  [row " << row << ", " << i << "] is " << show(got.dtype(), b) << " instead of "
                       << show(got.dtype(), a);
            }
        }
    }
    return different == 0 ? testing::AssertionSuccess() : result << "\n  " << different << " results have other bits";
}

testing::AssertionResult same_rows(const Tensor &expected, const Tensor &got) {
    return same_rows(expected, got, got.rows());
}

testing::AssertionResult refused(halyard_status got, halyard_status status, const std::string &function,
                                 const std::string &arguments) {
    const std::string message = halyard_last_error();
    if (got != status) {
        return testing::AssertionFailure()
               << "the status is " << halyard_status_name(got) << " instead of " << halyard_status_name(status)
               << (got == HALYARD_OK ? std::string() : "; " + message);
    }
    if (message.compare(0, function.size() + 2, function + ": ") != 0) {
        return testing::AssertionFailure() << "the message does not begin with " << function << ": " << message;
    }
    for (std::size_t begin = 0; begin <= arguments.size();) {
        const std::size_t end = std::min(arguments.find('|', begin), arguments.size());
        if (contains_word(message.substr(function.size()), arguments.substr(begin, end - begin))) {
            return testing::AssertionSuccess();
        }
        begin = end + 1;
    }
    return testing::AssertionFailure() << "the message does not name " << arguments << ": " << message;
}

}  // namespace halyard::tests
