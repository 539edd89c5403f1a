// The benchmark's work lists, its rule for ties, and what it does about limits that cannot be right.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "operations/isas.h"
#include "result.h"
#include "temporary_folder.h"
#include "timing/machine_limits.h"
#include "work_list.h"

namespace halyard::bench {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
namespace fs = std::filesystem;

constexpr int all_threads = 4;

class WorkList : public testing::Test {
protected:
    WorkList() {
        write("models.txt",
              "model small d=64 ff=256 heads=4 kv_heads=2 head_dim=16 norm=rms activation=silu gated=yes bias=no "
              "rope_theta=10000\n"
              "model old d=64 ff=256 heads=4 kv_heads=4 head_dim=16 norm=layer activation=gelu_tanh gated=no "
              "bias=yes\n");
    }

    std::string write(const std::string &name, const std::string &text) const {
        std::ofstream(folder / name) << text;
        return (folder / name).string();
    }
    std::vector<std::string> names(const std::string &text) const {
        std::vector<std::string> found;
        for (const CaseId &row : read_work_list(write("list.txt", text), folder.string(), all_threads)) {
            found.push_back(row.name());
        }
        return found;
    }
    /** What is said of a list that is wrong, without the folder. */
    std::string error(const std::string &text) const {
        try {
            names(text);
        } catch (const UsageError &wrong) {
            std::string said = wrong.what();
            const std::size_t place = said.find(folder.string() + "/");
            return place == std::string::npos ? said : said.erase(place, folder.string().size() + 1);
        }
        return "no error";
    }

    const TemporaryFolder temporary{testing::TempDir(), "halyard-test"};
    const fs::path folder = temporary.path();
};

TEST_F(WorkList, EveryCombinationIsARowInOrder) {
    EXPECT_THAT(
        names("rows kernel=silu type=f32,bf16 shape=2x8 state=hot,cold threads=all\n"),
        ElementsAre("silu/f32/2x8/hot/4t", "silu/f32/2x8/cold/4t", "silu/bf16/2x8/hot/4t", "silu/bf16/2x8/cold/4t"));
    EXPECT_THAT(names("rows kernel=silu type=f32 rows=1,2 d=8,16 state=hot threads=1,3\n"),
                ElementsAre("silu/f32/1x8/hot/1t", "silu/f32/1x8/hot/3t", "silu/f32/1x16/hot/1t",
                            "silu/f32/1x16/hot/3t", "silu/f32/2x8/hot/1t", "silu/f32/2x8/hot/3t",
                            "silu/f32/2x16/hot/1t", "silu/f32/2x16/hot/3t"));
}

TEST_F(WorkList, CommentsBlanksAndRowsNamedTwice) {
    EXPECT_THAT(names("# rows of a test\n\n  rows\tkernel=silu  type=f32 shape=2x8 state=hot threads=1 # all\r\n"
                      "rows kernel=relu,silu type=f32 shape=2x8 state=hot threads=1\n"),
                ElementsAre("silu/f32/2x8/hot/1t", "relu/f32/2x8/hot/1t"));
}

TEST_F(WorkList, GroupsLeaveOutWhatATypeDoesNotHave) {
    const std::vector<std::string> all = names("rows kernel=all type=f32 shape=2x8 state=hot threads=1\n");
    EXPECT_THAT(all, testing::Contains("cast_to_bf16/f32/2x8/hot/1t"));
    EXPECT_THAT(all, testing::Not(testing::Contains("cast_to_f32/f32/2x8/hot/1t")));
    EXPECT_EQ(all.size(), catalogue().size() - 1);
    EXPECT_LT(names("rows kernel=common type=f32 shape=2x8 state=hot threads=1\n").size(), all.size());
}

TEST_F(WorkList, SmallTensorsMayBeLeftOut) {
    EXPECT_THAT(names("rows kernel=silu type=f32 shape=2x8,64x64 state=hot,cold threads=1,all parallel_from=100 "
                      "cold_from=32768\n"),
                ElementsAre("silu/f32/2x8/hot/1t", "silu/f32/64x64/hot/1t", "silu/f32/64x64/hot/4t",
                            "silu/f32/64x64/cold/1t", "silu/f32/64x64/cold/4t"));
}

TEST_F(WorkList, LayersAndTransformersHaveTheWidthsOfTheirModel) {
    EXPECT_THAT(names("include models.txt\nlayers model=small part=up,down,projection,ffn rows=8 type=f32 state=hot "
                      "threads=all\nlayers model=old part=up_fused rows=1 type=f32 state=hot threads=1\n"),
                ElementsAre("linear/f32/8x64x256/hot/4t", "linear/f32/8x256x64/hot/4t", "linear/f32/8x64x64/hot/4t",
                            "ffn_swiglu/f32/8x64x256/hot/4t", "linear_bias_gelu_tanh/f32/1x64x256/hot/1t"));
    EXPECT_THAT(names("include models.txt\nattention model=small prompt=16 decode=2x32 type=f32 state=hot threads=1\n"
                      "block model=old prompt=16 type=bf16 state=cold threads=1\n"),
                ElementsAre("attention.4-2x16/f32/prompt16/hot/1t", "attention.4-2x16/f32/decode2x32/hot/1t",
                            "block.old/bf16/prompt16/cold/1t"));
}

TEST_F(WorkList, PartAllTakesWhatTheLibraryHas) {
    EXPECT_EQ(names("include models.txt\nlayers model=small part=all rows=1 type=f32 state=hot threads=1\n").size(),
              17u);
    const std::string wide =
        "model wide d=256 ff=64 heads=4 kv_heads=2 head_dim=64 norm=rms activation=silu gated=yes bias=no\n"
        "layers model=wide part=";
    EXPECT_EQ(names(wide + "all rows=1 type=f32 state=hot threads=1\n").size(), 19u);
    EXPECT_THAT(names(wide + "up_q4_k rows=1 type=f32 state=hot threads=1\n"),
                ElementsAre("linear.q4_k/f32/1x256x64/hot/1t"));
}

TEST_F(WorkList, GradientsAreOfPromptsInF32) {
    EXPECT_THAT(
        names("include models.txt\nlayers model=small,old part=ffn_backward rows=8 type=f32,bf16 state=hot "
              "threads=1\nblock_backward model=small,old prompt=16 decode=2x32 type=f32,f16 state=hot threads=1\n"),
        ElementsAre("rms_norm_ffn_swiglu_residual_backward/f32/8x64x256/hot/1t",
                    "layer_norm_ffn_gelu_tanh_residual_backward/f32/8x64x256/hot/1t",
                    "block_backward.small/f32/prompt16/hot/1t", "block_backward.old/f32/prompt16/hot/1t"));
    EXPECT_THAT(
        error("model tiny d=64 ff=256 heads=4 kv_heads=2 head_dim=16 norm=rms activation=silu gated=yes bias=no "
              "rope_theta=10000 quantization=q8_0\n"
              "block_backward model=tiny prompt=1 type=f32 state=hot threads=1\n"),
        HasSubstr("list.txt:2:22: 'tiny' has quantized matrices, which have no gradients"));
}

TEST_F(WorkList, TrainingStepsAreOfWholeModelsInF32) {
    const std::string model =
        "model tiny d=64 ff=256 heads=4 kv_heads=2 head_dim=16 norm=rms activation=silu gated=yes "
        "bias=no rope_theta=10000 layers=2 ";
    const std::string step = "training_step model=tiny batch=2x16,1x8 type=f32,bf16 state=cold threads=1\n";
    EXPECT_THAT(names(model + "vocabulary=100\n" + step),
                ElementsAre("training_step.tiny/f32/2x16/cold/1t", "training_step.tiny/f32/1x8/cold/1t"));
    const std::vector<CaseId> rows =
        read_work_list(write("list.txt", model + "vocabulary=100\n" + step), folder.string(), all_threads);
    EXPECT_EQ(rows[0].sequences(), 2);
    EXPECT_EQ(rows[0].tokens(), 16);
    EXPECT_EQ(rows[0].set_count(std::size_t{1} << 30), 1u) << "a step goes on from the last one";
    // Each of 32 tokens has three products with every matrix, of logits too; each of 2 texts has three times the two of attention.
    const double matrices = 2 * (2 * 64 * (64 + 32) + 3 * 64 * 256) + 100 * 64, pairs = 2 * 16 * 17 / 2;
    EXPECT_EQ(rows[0].flops(), 6 * 32 * matrices + 2 * 3 * 4 * pairs * 64);
    EXPECT_THAT(error(model + "\n" + step), HasSubstr("2:21: 'tiny' has no vocabulary="));
    EXPECT_THAT(error(model + "vocabulary=100 quantization=q8_0\n" + step),
                HasSubstr("2:21: 'tiny' has quantized matrices, which have no gradients"));
    EXPECT_THAT(error(model + "vocabulary=100\ntraining_step model=tiny batch=16 type=f32 state=hot threads=1\n"),
                HasSubstr("2:32: '16' is not of the form SEQUENCESxTOKENS"));
}

TEST_F(WorkList, ProductsInt8AreOfQuantizedMatrices) {
    const auto only_row = [&](const std::string &model, const std::string &more, const std::string &statement) {
        const std::string shape =
            " d=64 ff=256 heads=4 kv_heads=2 head_dim=16 norm=rms activation=silu gated=yes bias=no ";
        const std::string text = "model " + model + shape + "rope_theta=10000 layers=2 vocabulary=100 " + more + "\n";
        return read_work_list(write("list.txt", text + statement + " model=" + model + " type=f32 threads=1\n"),
                              folder.string(), all_threads)
            .at(0);
    };
    const auto wrong = [&](const std::string &more) {
        try {
            only_row("tiny", more, "stack prompt=16 state=cold");
        } catch (const UsageError &error) {
            return std::string(error.what());
        }
        return std::string("no error");
    };
    const CaseId row = only_row("tiny_int8", "quantization=q4_0 products=int8", "stack prompt=16 state=cold");
    EXPECT_TRUE(row.kernel->has_int8_products());
    EXPECT_EQ(row.kernel->operation, "model.q4_0") << "which peers know";
    // Each of 16 tokens has products with the matrices of two layers, and the last one with that of the logits.
    EXPECT_EQ(row.int8_flops(), 2 * 2 * 16 * (2 * 64 * (64 + 32) + 3 * 64 * 256) + 2 * 100 * 64);
    const CaseId usual = only_row("tiny", "quantization=q4_0 products=storage", "stack prompt=16 state=cold");
    EXPECT_FALSE(usual.kernel->has_int8_products());
    EXPECT_EQ(usual.flops(), row.flops());
    EXPECT_EQ(usual.int8_flops(), 0);
    const CaseId layer = only_row("tiny", "", "layers part=up_q8_0_int8 rows=3 state=hot");
    EXPECT_EQ(layer.name(), "linear.q8_0.int8/f32/3x64x256/hot/1t");
    EXPECT_EQ(layer.kernel->operation, "linear.q8_0");
    EXPECT_EQ(layer.int8_flops(), 2 * 3 * 64 * 256);
    EXPECT_EQ(layer.kernel->code_bits(), 8);
    EXPECT_THAT(wrong("products=int8"), HasSubstr("'products=int8' needs quantization="));
    EXPECT_THAT(wrong("quantization=q8_0 products=int4"),
                HasSubstr("unknown products 'int4'; there are: int8, storage"));
}

TEST_F(WorkList, OptimizersAreOfF32) {
    EXPECT_THAT(names("optimizer kernel=adamw,sgd shape=2x8 type=f32,bf16 state=hot threads=1\n"),
                ElementsAre("adamw/f32/2x8/hot/1t", "sgd/f32/2x8/hot/1t"));
    EXPECT_THAT(error("optimizer kernel=adam shape=2x8 type=f32 state=hot threads=1\n"),
                HasSubstr("list.txt:1:18: unknown optimizer 'adam'; there are: adamw, sgd"));
}

TEST_F(WorkList, ErrorsSayFileLineAndColumnAndWhatThereIs) {
    EXPECT_THAT(error("\n  rwos kernel=silu\n"),
                HasSubstr("list.txt:2:3: unknown statement 'rwos'; there are: attention, attention_backward, block, "
                          "block_backward, cross_entropy, embedding_backward, include"));
    EXPECT_THAT(error("rows kernel=relu,sliu type=f32 shape=2x8 state=hot threads=1\n"),
                HasSubstr("list.txt:1:18: unknown kernel 'sliu'; there are: common, all, rms_norm"));
    EXPECT_THAT(error("rows kernel=silu type=f64 shape=2x8 state=hot threads=1\n"),
                HasSubstr("list.txt:1:23: unknown type 'f64'; there are: bf16, f16, f32"));
    EXPECT_THAT(error("rows kernel=silu type=f32 shape=2x8 state=warm threads=1\n"),
                HasSubstr("list.txt:1:43: unknown state 'warm'; there are: cold, hot"));
    EXPECT_THAT(error("rows kernel=silu type=f32 shape=2x state=hot threads=1\n"),
                HasSubstr("list.txt:1:35: '' is no whole number"));
    EXPECT_THAT(error("rows kernel=silu type=f32 shape=0x8 state=hot threads=1\n"), HasSubstr("list.txt:1:33: '0'"));
    EXPECT_THAT(error("rows kernel=silu type=f32 shape=8 state=hot threads=1\n"),
                HasSubstr("1:33: '8' is not of the form"));
    EXPECT_THAT(error("rows kernel=silu type=f32 shape=2x8 state=hot threads=257\n"),
                HasSubstr("1:55: '257' is no number of"));
    EXPECT_THAT(error("rows kernel=silu type=f32 shape=2x8 state=hot\n"),
                HasSubstr("list.txt:1:1: 'rows' needs threads="));
    EXPECT_THAT(error("rows kernel=silu type= shape=2x8 state=hot threads=1\n"), HasSubstr("1:23: a value is missing"));
    EXPECT_THAT(error("rows kernel=silu kernel=relu type=f32 shape=2x8 state=hot threads=1\n"),
                HasSubstr("1:18: 'kernel' is given twice"));
    EXPECT_THAT(error("rows kernel=silu size=3 type=f32 shape=2x8 state=hot threads=1\n"),
                HasSubstr("1:18: unknown key 'size'; 'rows' has: kernel, type"));
    EXPECT_THAT(error("rows silu type=f32 shape=2x8 state=hot threads=1\n"),
                HasSubstr("1:6: 'silu' is not of the form"));
    EXPECT_THAT(error("rows kernel=cast_to_f32 type=f32 shape=2x8 state=hot threads=1\n"),
                HasSubstr("1:13: 'cast_to_f32'"));
    EXPECT_THAT(error("include models.txt\nblock model=medium prompt=1 type=f32 state=hot threads=1\n"),
                HasSubstr("list.txt:2:13: unknown model 'medium'; there are: old, small"));
    EXPECT_THAT(error("include models.txt\nlayers model=small part=middle rows=1 type=f32 state=hot threads=1\n"),
                HasSubstr("2:25: unknown part 'middle'; there are: all, up"));
    EXPECT_THAT(error("include models.txt\nlayers model=small part=up_q4_k rows=1 type=f32 state=hot threads=1\n"),
                HasSubstr("2:25: 'up_q4_k' needs a multiple of 256 inputs, and 'small' has d=64"));
    EXPECT_THAT(error("include models.txt\nstack model=small prompt=1 type=f32 state=hot threads=1\n"),
                HasSubstr("2:13: 'small' has no vocabulary="));
    EXPECT_THAT(error("model m d=8 ff=8 heads=3 kv_heads=2 head_dim=8 norm=rms activation=silu gated=yes bias=no\n"),
                HasSubstr("1:35: 'kv_heads' must divide 'heads'"));
}

TEST_F(WorkList, IncludesComeFromBesideTheFileOrFromTheSuite) {
    const fs::path other = folder / "other";
    fs::create_directories(other);
    std::ofstream(other / "mine.txt")
        << "include models.txt\nlayers model=small part=up rows=1 type=f32 state=hot threads=1\n";
    const auto rows = read_work_list((other / "mine.txt").string(), folder.string(), 1);
    ASSERT_EQ(rows.size(), 1u);
    EXPECT_EQ(rows[0].name(), "linear/f32/1x64x256/hot/1t");
    std::ofstream(other / "models.txt")
        << "model small d=8 ff=16 heads=1 kv_heads=1 head_dim=8 norm=rms activation=silu "
           "gated=yes bias=no rope_theta=10000\n";
    EXPECT_EQ(read_work_list((other / "mine.txt").string(), folder.string(), 1)[0].name(), "linear/f32/1x8x16/hot/1t");
}

TEST_F(WorkList, FilesThatAreNotThere) {
    EXPECT_THAT(error("include nothing.txt\n"), HasSubstr("1:9: there is no 'nothing.txt' beside this file or among"));
    EXPECT_THAT(error("include list.txt\n"), HasSubstr("1:9: 'list.txt' includes itself"));
    EXPECT_THAT(error("# nothing\n"), HasSubstr("names no rows"));
    try {
        read_work_list("nowhere", folder.string(), 1);
        FAIL() << "there is such a list";
    } catch (const UsageError &wrong) {
        EXPECT_THAT(wrong.what(), HasSubstr("there is no work list 'nowhere'; there are: list, models"));
    }
}

TEST(WorkLists, ThoseOfTheRepositoryAreRight) {
    const auto rows = [](const char *name) { return read_work_list(name, HALYARD_BENCH_SHAPES_DIR, 2).size(); };
    EXPECT_GE(rows("quick"), 15u);
    EXPECT_GE(rows("default"), 60u);
    EXPECT_GT(rows("layers"), 500u);
    EXPECT_GT(rows("transformers"), 50u);
    EXPECT_GE(rows("training"), 10u);
    EXPECT_GT(rows("full"), 5000u);
}

// ---- Ties ----

Estimate ratio(double median, double mad) {
    return {median, mad, median, 7};
}

TEST(Ties, NoiseIsTheGreatestOfThree) {
    EXPECT_DOUBLE_EQ(noise_of(ratio(1.05, 0), ratio(2, 0)), 1.05 - 1);  // ours against ours again
    EXPECT_DOUBLE_EQ(noise_of(ratio(0.95, 0), ratio(2, 0)), 1 - 0.95);
    EXPECT_DOUBLE_EQ(noise_of(ratio(1, 0.02), ratio(2, 0.01)), 1.4826 * 0.02);
    EXPECT_DOUBLE_EQ(noise_of(ratio(1, 0.01), ratio(2, 0.03)), 1.4826 * 0.03);
}

TEST(Ties, WhatTheNoiseHidesIsATie) {
    EXPECT_EQ(verdict_of(ratio(1.2, 0), 0.1), Verdict::ahead);
    EXPECT_EQ(verdict_of(ratio(1.2, 0), 0.25), Verdict::tie);
    EXPECT_EQ(verdict_of(ratio(0.8, 0), 0.1), Verdict::behind);
    EXPECT_EQ(verdict_of(ratio(0.8, 0), 0.25), Verdict::tie);
    // A quiet machine does not make a thousandth worth a word.
    EXPECT_EQ(verdict_of(ratio(1.009, 0), 0), Verdict::tie);
    EXPECT_EQ(verdict_of(ratio(1.011, 0), 0), Verdict::ahead);
    EXPECT_EQ(verdict_of(ratio(0.989, 0), 0), Verdict::behind);
}

TEST(Limits, WhichContradictEachOther) {
    const FlopsLimit one{operations::strongest_isa, 1, 238e9};
    EXPECT_TRUE(is_below(FlopsLimit{operations::strongest_isa, 2, 200e9}, one));
    EXPECT_FALSE(is_below(FlopsLimit{operations::strongest_isa, 2, 237e9}, one)) << "within the noise";
    EXPECT_FALSE(is_below(one, FlopsLimit{operations::strongest_isa, 2, 476e9}))
        << "two threads show nothing about one";
    EXPECT_FALSE(is_below(FlopsLimit{operations::weakest_isa, 2, 60e9}, one)) << "of another instruction set";

    EXPECT_FALSE(is_below(FlopsLimit{operations::strongest_isa, 1, 100e9, true}, one)) << "of bytes";

    const BandwidthLimit copy{stream_copy, "L2", 1 << 20, 1, 100e9};
    EXPECT_TRUE(is_below(BandwidthLimit{stream_copy, "L2", 2 << 20, 2, 90e9}, copy));
    EXPECT_FALSE(is_below(BandwidthLimit{stream_copy, "memory", 2 << 20, 2, 20e9}, copy));
    EXPECT_FALSE(is_below(BandwidthLimit{stream_read, "L2", 2 << 20, 2, 90e9}, copy));
    EXPECT_TRUE(is_below(BandwidthLimit{stream_copy, "L1", 1 << 14, 1, 90e9}, copy)) << "a nearer level is no slower";
    EXPECT_FALSE(is_below(BandwidthLimit{stream_copy, "L1", 1 << 14, 1, 99e9}, copy)) << "within the noise";
    const BandwidthLimit past_caches{stream_copy_nontemporal, "L2", 1 << 20, 1, 100e9};
    EXPECT_FALSE(is_below(BandwidthLimit{stream_copy_nontemporal, "L1", 1 << 14, 1, 50e9}, past_caches));
    EXPECT_TRUE(is_below(BandwidthLimit{stream_copy_nontemporal, "L2", 2 << 20, 2, 50e9}, past_caches));
}

TEST(Limits, WhatIsTooLowIsMeasuredAgainAndNamedIfItStays) {
    const Machine machine = describe_machine();
    Limits limits{};
    limits.isa = operations::weakest_isa;
    // A thousandth of what any processor reaches is mended by measuring it again; a thousand times of that cannot be.
    limits.flops = {{operations::weakest_isa, 1, 1e6}};
    repeat_contradicted(limits, {{operations::weakest_isa, 1, 1e8}}, machine, [] { return false; });
    EXPECT_GT(limits.flops[0].flops, 1e8);
    EXPECT_TRUE(limits.contradictions.empty());
    repeat_contradicted(limits, {{operations::weakest_isa, 1, 1e15}}, machine, [] { return false; });
    EXPECT_EQ(limits.contradictions.size(), 1U);
    // So are the bandwidths of levels, the lower one alone.
    limits.flops.clear();
    limits.bandwidth = {{stream_read, "L1", 1 << 14, 1, 1e6}, {stream_read, "L2", 1 << 18, 1, 1e8}};
    repeat_contradicted(limits, {}, machine, [] { return false; });
    EXPECT_GT(limits.bandwidth[0].bandwidth, 1e8);
    EXPECT_EQ(limits.bandwidth[1].bandwidth, 1e8);
    EXPECT_TRUE(limits.contradictions.empty());
    limits.bandwidth[1].bandwidth = 1e15;
    repeat_contradicted(limits, {}, machine, [] { return false; });
    EXPECT_THAT(limits.contradictions, ElementsAre("L1 read, 1 thread"));
}

TEST(Limits, BytesHaveTheirOwn) {
    const Machine machine = describe_machine();
    const halyard_isa isa = isa_of_products(halyard_context_isa(nullptr), Dtype::f32);
    Limits limits{};
    limits.isa = isa;
    limits.flops = {{isa, 1, 1e6}, {isa, 1, 1e6, true}};
    repeat_contradicted(limits, {{isa, 1, 1e8}, {isa, 1, 1e8, true}}, machine, [] { return false; });
    EXPECT_GT(limits.flops[0].flops, 1e8);
    EXPECT_GT(limits.flops[1].flops, 1e8);
    EXPECT_TRUE(limits.contradictions.empty());
    EXPECT_EQ(byte_products(isa, 4), 1);
    EXPECT_EQ(byte_products(isa, 8), streams_of(isa).multiplies_whole_bytes() ? 1 : 2);
}

TEST(Limits, ARowBeyondItsLimitByMoreThanTheNoise) {
    RowResult row{};
    row.rounds = 7;
    row.again = ratio(1.02, 0.001);
    row.fraction = ratio(1.019, 0.001);
    EXPECT_FALSE(row.is_beyond_limit());
    row.fraction = ratio(1.03, 0.001);
    EXPECT_TRUE(row.is_beyond_limit());
    row.fraction = ratio(1.03, 0.03);
    EXPECT_FALSE(row.is_beyond_limit()) << "the spread of the fraction itself is noise";
    row.fraction = ratio(0.5, 0.001);
    EXPECT_FALSE(row.is_beyond_limit());
}

TEST(Ties, EstimatesAreMedians) {
    const Estimate found = estimate({5, 1, 3, 2, 100});
    EXPECT_EQ(found.median, 3);
    EXPECT_EQ(found.mad, 2);
    EXPECT_EQ(found.least, 1);
    EXPECT_EQ(found.samples, 5);
    EXPECT_EQ(estimate({1, 2}).median, 1.5);
    EXPECT_EQ(estimate({}).samples, 0);
}

// ---- Errors in units in the last place ----

TEST(Accuracy, UnitsInTheLastPlaceOfTheExactResult) {
    const Kernel *add = nullptr;
    for (const Kernel &kernel : catalogue()) {
        add = kernel.name == "add" ? &kernel : add;
    }
    ASSERT_NE(add, nullptr);
    BenchmarkCase bench_case({add, Dtype::f32, 1, 2, false, 1}, 0, halyard_context_isa(nullptr));
    const auto values = [](Matrix &matrix, float first, float second) {
        float *data = reinterpret_cast<float *>(matrix.data());
        data[0] = first;
        data[1] = second;
    };
    values(bench_case.sets[0].inputs[0], 1, 4);
    values(bench_case.sets[0].inputs[1], 0, 0);
    values(bench_case.sets[0].outputs[0], 1 + 0x1p-22f, 4 - 0x1p-21f);  // two units of 2^-23, one of 2^-21
    EXPECT_EQ(bench_case.accuracy().ulps, 2);
    EXPECT_EQ(bench_case.accuracy().error, 0x1p-21 / 4);
    bench_case.spoil_outputs();
    EXPECT_TRUE(std::isinf(bench_case.accuracy().error));
    EXPECT_TRUE(std::isinf(bench_case.accuracy().ulps));
}

}  // namespace
}  // namespace halyard::bench
