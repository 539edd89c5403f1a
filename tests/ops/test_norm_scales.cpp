// The scales and means of rows that linear layers take: against float64, and against the norms themselves.
#include "support/linear.h"

#include <cmath>
#include <cstring>

namespace halyard::tests {
namespace {

class NormScales : public testing::TestWithParam<Dtype> {
protected:
    const Dtype type = GetParam();
};

INSTANTIATE_TEST_SUITE_P(All, NormScales, testing::ValuesIn(all_dtypes),
                         [](const testing::TestParamInfo<Dtype> &info) { return name_of(info.param); });

TEST_P(NormScales, OfRmsNormAreItsOwn) {
    for (const std::int64_t width : {1, 2, 7, 64, 65, 1000, 4097}) {
        for (const unsigned flags : {0u, unsigned{HALYARD_RMS_EPS_OUTSIDE_ROOT}}) {
            for (const double eps : {0.0, 1e-6, 0.5}) {
                Tensor x(type, call_form(type, type, {4}, 3).form_of(width, 3));
                fill_rows(x, 113);
                for (std::int64_t i = 0; i < width; i++) {
                    x.set(2, i, 0.0);
                    x.set(3, i, x.get(3, i) * 100);
                }
                for (const halyard_isa isa : row_isas()) {
                    const Context context(isa);
                    Tensor scale(Dtype::f32, compact_form({4})), y(type, compact_form({4, width}));
                    ASSERT_EQ(
                        halyard_rms_norm_scale(context.get(), &x.view, static_cast<float>(eps), flags, &scale.view),
                        HALYARD_OK)
                        << halyard_last_error();
                    ASSERT_EQ(
                        halyard_rms_norm(context.get(), &x.view, nullptr, static_cast<float>(eps), flags, &y.view),
                        HALYARD_OK)
                        << halyard_last_error();
                    for (std::int64_t row = 0; row < 4; row++) {
                        NormParameters parameters;
                        parameters.eps = static_cast<double>(static_cast<float>(eps));
                        parameters.eps_outside_root = flags != 0;
                        const Expected expected = rms_scale(x.row_values(row), parameters);
                        const double got = scale.get(0, row);
                        ASSERT_TRUE(acceptable(Dtype::f32, expected, got))
                            << got << " instead of " << expected.value << " +- " << expected.error << ", width "
                            << width;
                        for (std::int64_t i = 0; i < width; i++) {
                            const float product = static_cast<float>(x.get(row, i)) * static_cast<float>(got);
                            ASSERT_EQ(y.get(row, i), round_to(type, static_cast<double>(product)))
                                << "width " << width << ", feature " << i << " with " << halyard_isa_name(isa);
                        }
                    }
                    ASSERT_TRUE(scale.surroundings_intact() && x.surroundings_intact());
                }
            }
        }
    }
}

TEST_P(NormScales, OfLayerNormAreItsOwn) {
    for (const std::int64_t width : {1, 2, 7, 64, 65, 1000, 4097}) {
        for (const double centre : {0.0, 1.0, 100.0}) {
            for (const double eps : {0.0, 1e-5}) {
                Tensor x(type, call_form(type, type, {4}, 3).form_of(width, 3));
                x.fill([&](std::int64_t row, std::int64_t i) { return row == 2 ? 0.75 : centre + bell(127, row, i); });
                for (const halyard_isa isa : row_isas()) {
                    const Context context(isa);
                    Tensor mean(Dtype::f32, compact_form({4})), scale(Dtype::f32, compact_form({4})),
                        y(type, compact_form({4, width}));
                    ASSERT_EQ(halyard_layer_norm_scale(context.get(), &x.view, static_cast<float>(eps), &mean.view,
                                                       &scale.view),
                              HALYARD_OK)
                        << halyard_last_error();
                    ASSERT_EQ(
                        halyard_layer_norm(context.get(), &x.view, nullptr, nullptr, static_cast<float>(eps), &y.view),
                        HALYARD_OK)
                        << halyard_last_error();
                    for (std::int64_t row = 0; row < 4; row++) {
                        NormParameters parameters;
                        parameters.eps = static_cast<double>(static_cast<float>(eps));
                        const Row values = x.row_values(row);
                        const Moments expected = layer_moments(values, parameters.eps);
                        const double got_mean = mean.get(0, row), got_scale = scale.get(0, row);
                        ASSERT_TRUE(std::isfinite(got_scale));
                        ASSERT_TRUE(acceptable(Dtype::f32, expected.mean, got_mean))
                            << got_mean << " instead of " << expected.mean.value << " +- " << expected.mean.error
                            << ", width " << width;
                        if (row == 2 || width == 1) {
                            continue;  // Without deviation a scale may be anything up to 1 / sqrt(eps).
                        }
                        ASSERT_TRUE(acceptable(Dtype::f32, expected.scale, got_scale))
                            << got_scale << " instead of " << expected.scale.value << " +- " << expected.scale.error
                            << ", width " << width << ", centre " << centre;
                        // The norm itself carries the mean beyond f32; apart from that rounding they agree.
                        const ExpectedRow norm = layer_norm(values, parameters);
                        for (std::int64_t i = 0; i < width; i++) {
                            const Expected &one = norm[static_cast<std::size_t>(i)];
                            const double made = (x.get(row, i) - got_mean) * got_scale;
                            const double bound = expected.mean.error * expected.scale.value +
                                                 expected.scale.error * (std::fabs(x.get(row, i) - got_mean)) +
                                                 one.error + spacing(type, one.value) / 2;
                            ASSERT_NEAR(made, y.get(row, i), 1.001 * bound)
                                << "width " << width << ", centre " << centre;
                        }
                    }
                }
            }
        }
    }
}

TEST_P(NormScales, HaveTheLeadingShapeOfX) {
    for (const Shape &leading : {Shape{}, Shape{3}, Shape{2, 3}, Shape{2, 1, 3}}) {
        const CallForm form = call_form(type, type, leading);
        Tensor x(type, form.form_of(50, 2)), packed(type, form.form_of(50, 0));
        fill_rows(x, 131);
        packed.copy_from(x);
        const Shape own = leading.empty() ? Shape{1} : leading;
        Form loose = compact_form(own);
        loose.strides = padded_strides(own, own.size() > 1 ? 2 : 0);
        Tensor rms(Dtype::f32, loose), mean(Dtype::f32, loose), scale(Dtype::f32, loose);
        Tensor rms_packed(Dtype::f32, compact_form(own)), mean_packed(Dtype::f32, compact_form(own)),
            scale_packed(Dtype::f32, compact_form(own));
        ASSERT_EQ(halyard_rms_norm_scale(nullptr, &x.view, 1e-6f, 0, &rms.view), HALYARD_OK) << halyard_last_error();
        ASSERT_EQ(halyard_rms_norm_scale(nullptr, &packed.view, 1e-6f, 0, &rms_packed.view), HALYARD_OK);
        ASSERT_EQ(halyard_layer_norm_scale(nullptr, &x.view, 1e-6f, &mean.view, &scale.view), HALYARD_OK)
            << halyard_last_error();
        ASSERT_EQ(halyard_layer_norm_scale(nullptr, &packed.view, 1e-6f, &mean_packed.view, &scale_packed.view),
                  HALYARD_OK);
        EXPECT_TRUE(same_rows(rms_packed, rms) && same_rows(mean_packed, mean) && same_rows(scale_packed, scale));
        EXPECT_TRUE(rms.surroundings_intact() && mean.surroundings_intact() && scale.surroundings_intact());
    }
    // No rows: nothing to do.
    Tensor x(type, compact_form({0, 8})), scale(Dtype::f32, compact_form({0})), mean(Dtype::f32, compact_form({0}));
    EXPECT_EQ(halyard_rms_norm_scale(nullptr, &x.view, 1e-6f, 0, &scale.view), HALYARD_OK) << halyard_last_error();
    EXPECT_EQ(halyard_layer_norm_scale(nullptr, &x.view, 1e-6f, &mean.view, &scale.view), HALYARD_OK)
        << halyard_last_error();
}

TEST_P(NormScales, DoNotDependOnRowsAndThreads) {
    Tensor x(type, compact_form({700, 257}));
    fill_rows(x, 137);
    x.set(11, 5, NAN);
    Tensor rms(Dtype::f32, compact_form({700})), mean(Dtype::f32, compact_form({700})),
        scale(Dtype::f32, compact_form({700}));
    Tensor one_rms(Dtype::f32, compact_form({1})), one_mean(Dtype::f32, compact_form({1})),
        one_scale(Dtype::f32, compact_form({1}));
    const halyard_isa isa = supported_isas().back();
    for (const int threads : {1, 3}) {
        const Context context(isa, threads);
        rms.clear(), mean.clear(), scale.clear();
        ASSERT_EQ(halyard_rms_norm_scale(context.get(), &x.view, 1e-6f, 0, &rms.view), HALYARD_OK);
        ASSERT_EQ(halyard_layer_norm_scale(context.get(), &x.view, 1e-6f, &mean.view, &scale.view), HALYARD_OK);
        for (const std::int64_t row : {0, 10, 11, 12, 350, 699}) {
            DLTensor view = x.view;
            std::int64_t shape[] = {257};
            view.ndim = 1;
            view.shape = shape;
            view.data = x.at(row, 0);
            ASSERT_EQ(halyard_rms_norm_scale(context.get(), &view, 1e-6f, 0, &one_rms.view), HALYARD_OK);
            ASSERT_EQ(halyard_layer_norm_scale(context.get(), &view, 1e-6f, &one_mean.view, &one_scale.view),
                      HALYARD_OK);
            if (row == 11) {
                EXPECT_TRUE(std::isnan(rms.get(0, row)) && std::isnan(mean.get(0, row)) &&
                            std::isnan(scale.get(0, row)));
                continue;
            }
            EXPECT_EQ(rms.get(0, row), one_rms.get(0, 0));
            EXPECT_EQ(mean.get(0, row), one_mean.get(0, 0));
            EXPECT_EQ(scale.get(0, row), one_scale.get(0, 0));
        }
    }
}

TEST(NormScalesRefuse, WhatIsWrong) {
    Tensor x(Dtype::f32, compact_form({3, 8})), mean(Dtype::f32, compact_form({3})),
        scale(Dtype::f32, compact_form({3}));
    fill_rows(x, 139);
    const std::vector<std::uint8_t> before[] = {x.snapshot(), mean.snapshot(), scale.snapshot()};
    struct Mistake {
        const char *what, *argument;
        halyard_status status;
        void (*make)(DLTensor *&x, DLTensor *&scale, float &eps);
    };
    const Mistake mistakes[] = {
        {"null", "x", HALYARD_INVALID_ARGUMENT, [](DLTensor *&x, DLTensor *&, float &) { x = nullptr; }},
        {"null", "scale", HALYARD_INVALID_ARGUMENT, [](DLTensor *&, DLTensor *&scale, float &) { scale = nullptr; }},
        {"CUDA", "x", HALYARD_UNSUPPORTED, [](DLTensor *&x, DLTensor *&, float &) { x->device.device_type = kDLCUDA; }},
        {"f16", "scale", HALYARD_UNSUPPORTED,
         [](DLTensor *&, DLTensor *&scale, float &) { scale->dtype = dlpack_type(Dtype::f16); }},
        {"a row more", "scale", HALYARD_INVALID_ARGUMENT,
         [](DLTensor *&, DLTensor *&scale, float &) { scale->shape[0]++; }},
        {"no features", "x", HALYARD_INVALID_ARGUMENT, [](DLTensor *&x, DLTensor *&, float &) { x->shape[1] = 0; }},
        {"in x", "scale", HALYARD_INVALID_ARGUMENT,
         [](DLTensor *&x, DLTensor *&scale, float &) { scale->data = static_cast<char *>(x->data) + 8; }},
        {"negative", "eps", HALYARD_INVALID_ARGUMENT, [](DLTensor *&, DLTensor *&, float &eps) { eps = -1e-6f; }},
        {"NaN", "eps", HALYARD_INVALID_ARGUMENT, [](DLTensor *&, DLTensor *&, float &eps) { eps = NAN; }},
        {"infinite", "eps", HALYARD_INVALID_ARGUMENT, [](DLTensor *&, DLTensor *&, float &eps) { eps = INFINITY; }},
    };
    for (const Mistake &mistake : mistakes) {
        DLTensor views[3] = {x.view, mean.view, scale.view};
        std::int64_t x_shape[] = {3, 8}, mean_shape[] = {3}, scale_shape[] = {3};
        views[0].shape = x_shape, views[1].shape = mean_shape, views[2].shape = scale_shape;
        DLTensor *x_view = &views[0], *scale_view = &views[2];
        float eps = 1e-6f;
        mistake.make(x_view, scale_view, eps);
        EXPECT_TRUE(refused(halyard_rms_norm_scale(nullptr, x_view, eps, 0, scale_view), mistake.status,
                            "halyard_rms_norm_scale", mistake.argument))
            << mistake.argument << ": " << mistake.what;
        EXPECT_TRUE(refused(halyard_layer_norm_scale(nullptr, x_view, eps, &views[1], scale_view), mistake.status,
                            "halyard_layer_norm_scale", mistake.argument))
            << mistake.argument << ": " << mistake.what;
        if (std::string_view(mistake.argument) == "scale") {
            scale_view = scale_view == nullptr ? nullptr : &views[2];
            EXPECT_TRUE(refused(halyard_layer_norm_scale(nullptr, x_view, eps, scale_view, &views[1]), mistake.status,
                                "halyard_layer_norm_scale", "mean"))
                << "mean: " << mistake.what;
        }
    }
    EXPECT_TRUE(refused(halyard_rms_norm_scale(nullptr, &x.view, 1e-6f, 4, &scale.view), HALYARD_INVALID_ARGUMENT,
                        "halyard_rms_norm_scale", "flags"));
    EXPECT_TRUE(refused(halyard_layer_norm_scale(nullptr, &x.view, 1e-6f, &scale.view, &scale.view),
                        HALYARD_INVALID_ARGUMENT, "halyard_layer_norm_scale", "mean|scale"));
    EXPECT_TRUE(x.snapshot() == before[0] && mean.snapshot() == before[1] && scale.snapshot() == before[2]);
}

}  // namespace
}  // namespace halyard::tests
