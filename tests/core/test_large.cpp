// Tensors that reach beyond 2^31 elements: by the distance of their rows, and by their number of elements. Addresses
// are spread over more memory than the machine has; only the pages in use are there.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "support/invocation.h"
#include "support/test_scale.h"

namespace halyard::tests {
namespace {

constexpr std::int64_t two_to_31 = std::int64_t{1} << 31;

/** Address space, zeroed memory where it is touched. */
class Space {
public:
    explicit Space(std::int64_t bytes) : bytes_(static_cast<std::size_t>(bytes)) {
        void *memory =
            mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        data_ = memory == MAP_FAILED ? nullptr : static_cast<char *>(memory);
    }
    ~Space() {
        if (data_) {
            munmap(data_, bytes_);
        }
    }
    Space(const Space &) = delete;
    Space &operator=(const Space &) = delete;

    char *data() const { return data_; }  // null if there was none

private:
    std::size_t bytes_;
    char *data_;
};

/** A tensor [rows, d] like another one, with rows more than 2^31 elements apart. */
class FarRows {
public:
    explicit FarRows(const Tensor &like)
        : rows_(like.rows()), row_bytes_(static_cast<std::size_t>(like.width()) * size_of(like.dtype())),
          pitch_bytes_(pitch * static_cast<std::int64_t>(size_of(like.dtype()))), space_(rows_ * pitch_bytes_),
          shape_(like.shape()), strides_{pitch, 1}, view(like.view) {
        view.data = space_.data();
        view.byte_offset = 0;
        view.shape = shape_.data();
        view.strides = strides_.data();
        for (std::int64_t row = 0; row < rows_ && space_.data(); row++) {
            std::memcpy(space_.data() + row * pitch_bytes_, like.at(row, 0), row_bytes_);
        }
    }

    bool is_there() const { return space_.data() != nullptr; }
    bool equals(const Tensor &other) const {
        for (std::int64_t row = 0; row < rows_; row++) {
            if (std::memcmp(space_.data() + row * pitch_bytes_, other.at(row, 0), row_bytes_) != 0) {
                return false;
            }
        }
        return true;
    }

private:
    static constexpr std::int64_t pitch = two_to_31 + 40;

    std::int64_t rows_;
    std::size_t row_bytes_;
    std::int64_t pitch_bytes_;
    Space space_;
    Shape shape_, strides_;

public:
    DLTensor view;
};

class LargePitch : public testing::TestWithParam<OperationCase> {};

TEST_P(LargePitch, GivesTheBitsOfCompactRows) {
    const Operation &operation = *GetParam().operation;
    Invocation compact(operation, GetParam().type, {3, 37});
    compact.fill(17);
    std::vector<std::unique_ptr<FarRows>> far(compact.tensors.size());
    std::vector<DLTensor *> arguments = compact.arguments;
    for (std::size_t i = 0; i < far.size(); i++) {
        if (operation.operands[i].role != Role::parameter && compact.tensors[i]->shape().size() == 2) {
            far[i] = std::make_unique<FarRows>(*compact.tensors[i]);
            ASSERT_TRUE(far[i]->is_there());
            arguments[i] = &far[i]->view;
        }
    }
    const Context context(supported_isas().back());
    ASSERT_EQ(operation.call(context.get(), arguments.data(), compact.scalars.data()), HALYARD_OK)
        << halyard_last_error();
    ASSERT_EQ(compact.run(context.get()), HALYARD_OK) << halyard_last_error();
    for (const std::size_t output : operation.with_role(Role::output)) {
        if (far[output]) {
            EXPECT_TRUE(far[output]->equals(*compact.tensors[output])) << operation.operands[output].name;
        }
    }
}

/** In an emulator, which keeps a record of every page of address space, one in so many. */
std::vector<OperationCase> far_cases() {
    std::vector<OperationCase> some;
    const std::vector<OperationCase> all = operation_cases();
    for (std::size_t i = 0; i < all.size(); i += emulated ? 19 : 1) {
        some.push_back(all[i]);
    }
    return some;
}

INSTANTIATE_TEST_SUITE_P(All, LargePitch, testing::ValuesIn(far_cases()), name_of_case);

TEST(LargePitch, LinearGivesTheBitsOfCompactRows) {
    const std::int64_t inputs = 70, outputs = 50, rows = 9;
    Tensor weight(Dtype::f32, {{outputs, inputs}, {}});
    weight.fill([](std::int64_t row, std::int64_t i) { return bell(1, row, i); });
    const Context context;
    halyard_weights *packed = nullptr;
    ASSERT_EQ(halyard_weights_pack(context.get(), &weight.view, nullptr, nullptr, 0, &packed), HALYARD_OK);
    Tensor x(Dtype::f32, {{rows, inputs}, {}}), residual(Dtype::f32, {{rows, outputs}, {}}),
        y(Dtype::f32, {{rows, outputs}, {}});
    x.fill([](std::int64_t row, std::int64_t i) { return bell(2, row, i); });
    residual.fill([](std::int64_t row, std::int64_t i) { return bell(3, row, i); });
    FarRows far_x(x), far_residual(residual), far_y(y);
    ASSERT_TRUE(far_x.is_there() && far_residual.is_there() && far_y.is_there());

    halyard_linear_options options{};
    options.residual = &residual.view;
    EXPECT_EQ(halyard_linear(context.get(), &x.view, packed, &options, &y.view), HALYARD_OK) << halyard_last_error();
    options.residual = &far_residual.view;
    EXPECT_EQ(halyard_linear(context.get(), &far_x.view, packed, &options, &far_y.view), HALYARD_OK)
        << halyard_last_error();
    EXPECT_TRUE(far_y.equals(y));
    halyard_weights_destroy(packed);
}

/** More than 2^31 elements of two bytes. All but the last page shows the same `period_bytes` of memory over and over;
 * the period divides no power of two, so that an address that lost its upper bits shows other elements. */
class ManyElements {
public:
    static constexpr std::int64_t row_width = 1024;
    static constexpr std::int64_t period_bytes = 61 << 20, periods = 68, tail_bytes = 4096;
    static constexpr std::int64_t elements = (period_bytes * periods + tail_bytes) / 2;
    static_assert(elements > two_to_31);

    ManyElements() : space_(period_bytes * periods + tail_bytes) {
        const int file = memfd_create("halyard", 0);
        made_ = space_.data() && file >= 0 && ftruncate(file, period_bytes + tail_bytes) == 0;
        for (std::int64_t i = 0; i <= periods && made_; i++) {
            const bool last = i == periods;
            made_ = mmap(space_.data() + i * period_bytes, static_cast<std::size_t>(last ? tail_bytes : period_bytes),
                         PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, last ? period_bytes : 0) != MAP_FAILED;
        }
        if (file >= 0) {
            close(file);
        }
    }

    bool is_made() const { return made_; }
    std::uint16_t *data() const { return reinterpret_cast<std::uint16_t *>(space_.data()); }

    /** All elements: one row, or rows of row_width. */
    DLTensor all(Shape &shape) const {
        shape = shape.size() == 1 ? Shape{elements} : Shape{elements / row_width, row_width};
        return view(data(), shape);
    }
    /** What lies behind the address space: one period and the last page. */
    DLTensor memory(Shape &shape, std::vector<std::uint16_t> &copy) const {
        copy.assign(data(), data() + period_bytes / 2);
        copy.insert(copy.end(), data() + elements - tail_bytes / 2, data() + elements);
        const std::int64_t count = static_cast<std::int64_t>(copy.size());
        shape = shape.size() == 1 ? Shape{count} : Shape{count / row_width, row_width};
        return view(copy.data(), shape);
    }
    bool holds(const std::vector<std::uint16_t> &copy) const {
        return std::equal(copy.begin(), copy.end() - tail_bytes / 2, data()) &&
               std::equal(copy.end() - tail_bytes / 2, copy.end(), data() + elements - tail_bytes / 2);
    }

private:
    static DLTensor view(std::uint16_t *data, Shape &shape) {
        DLTensor made{};
        made.data = data;
        made.device = {kDLCPU, 0};
        made.dtype = dlpack_type(Dtype::bf16);
        made.ndim = static_cast<int>(shape.size());
        made.shape = shape.data();
        return made;
    }

    Space space_;
    bool made_ = false;
};

class LargeCount : public testing::TestWithParam<const char *> {};

TEST_P(LargeCount, ReachesEveryElement) {
    if (emulated) {
        GTEST_SKIP() << "the runtime counts alike on every processor, and there are 2^31 elements";
    }
    const Operation &called = operation(GetParam());
    // Norms work on rows; what is elementwise takes all as one row.
    const std::size_t rank = called.needs_features ? 2 : 1;
    std::vector<std::unique_ptr<ManyElements>> tensors(called.operands.size());
    std::vector<std::vector<std::uint16_t>> copies(called.operands.size());
    std::vector<Shape> shapes(2 * called.operands.size(), Shape(rank));
    std::vector<DLTensor> many(called.operands.size()), few(called.operands.size());
    std::vector<DLTensor *> many_arguments, few_arguments;
    std::vector<double> scalars;
    for (const Scalar &scalar : called.scalars) {
        scalars.push_back(scalar.value);
    }
    for (std::size_t i = 0; i < tensors.size(); i++) {
        if (called.operands[i].role == Role::parameter) {
            ASSERT_TRUE(called.operands[i].optional);
            many_arguments.push_back(nullptr);
            few_arguments.push_back(nullptr);
            continue;
        }
        tensors[i] = std::make_unique<ManyElements>();
        ASSERT_TRUE(tensors[i]->is_made());
        if (called.operands[i].role == Role::input) {
            const auto fill = [&](std::int64_t begin, std::int64_t end) {
                for (std::int64_t k = begin; k < end; k++) {
                    const std::uint64_t bits = hash(i, 0, k);  // of a number in [0.5, 2) with either sign
                    tensors[i]->data()[k] = static_cast<std::uint16_t>((bits & 0x80ff) | 0x3f00);
                }
            };
            fill(0, ManyElements::period_bytes / 2);
            fill(ManyElements::elements - ManyElements::tail_bytes / 2, ManyElements::elements);
        }
        few[i] = tensors[i]->memory(shapes[2 * i], copies[i]);
        many[i] = tensors[i]->all(shapes[2 * i + 1]);
        many_arguments.push_back(&many[i]);
        few_arguments.push_back(&few[i]);
    }
    const Context context(supported_isas().back(), 2);
    ASSERT_EQ(called.call(context.get(), many_arguments.data(), scalars.data()), HALYARD_OK) << halyard_last_error();
    ASSERT_EQ(called.call(context.get(), few_arguments.data(), scalars.data()), HALYARD_OK) << halyard_last_error();
    for (const std::size_t output : called.with_role(Role::output)) {
        EXPECT_TRUE(tensors[output]->holds(copies[output])) << called.operands[output].name;
    }
}

#ifdef HALYARD_TESTS_REDUCED
INSTANTIATE_TEST_SUITE_P(One, LargeCount, testing::Values("add"));
#else
INSTANTIATE_TEST_SUITE_P(Some, LargeCount, testing::Values("silu", "add_layer_norm", "softmax"));
#endif

}  // namespace
}  // namespace halyard::tests
