// The programs of programs/: their arguments, their tables, and what they say when something is wrong.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <string>

#include "support/files.h"

namespace halyard::tests {
namespace {

const std::string model = HALYARD_TEST_MODELS "/llama3_f32";

struct Result {
    int status;
    std::string table, messages;
};

Result run(const std::string &program, const TemporaryFolder &folder, const std::string &arguments) {
    const std::string out = (folder / "out").string(), err = (folder / "err").string();
    const std::string command =
        HALYARD_EMULATOR " \"" + program + "\" " + arguments + " >\"" + out + "\" 2>\"" + err + "\"";
    const int status = std::system(command.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read_text(out), read_text(err)};
}

Result quantize(const TemporaryFolder &folder, const std::string &arguments) {
    return run(HALYARD_QUANTIZE, folder, arguments);
}

bool holds(const std::string &text, const std::string &part) {
    return text.find(part) != std::string::npos;
}

TEST(QuantizeProgram, WritesAFileAndATable) {
    const TemporaryFolder folder;
    const std::string file = (folder / "x.gguf").string();
    const Result result = quantize(folder, model + " " + file +
                                               " --format Q8_0 --tensor 'blk.1.*=BF16' --tensor '*.attn_q.weight=F32' "
                                               "--output F32 --threads 2");
    EXPECT_EQ(result.status, 0) << result.messages;
    EXPECT_EQ(read_text(file).substr(0, 4), "GGUF");
    EXPECT_TRUE(holds(result.messages, "quantizing: 100 %")) << result.messages;
    for (const char *const words : {"blk.1.attn_q.weight", "30 x 33", "F16 for Q8_0", "\nBF16       7 tensors",
                                    "\nF16       13 tensors", "\nF32       11 tensors", "\nall       31 tensors"}) {
        EXPECT_TRUE(holds(result.table, words)) << words << " in\n" << result.table;
    }
}

TEST(QuantizeProgram, TriesWithoutWriting) {
    const TemporaryFolder folder;
    const std::string file = (folder / "x.gguf").string();
    const Result result = quantize(folder, model + " " + file + " --dry-run");
    EXPECT_EQ(result.status, 0) << result.messages;
    EXPECT_TRUE(holds(result.table, "F16 for Q6_K")) << result.table;
    EXPECT_FALSE(std::filesystem::exists(file));
}

TEST(QuantizeProgram, WritesAFolder) {
    const TemporaryFolder folder;
    const std::string out = (folder / "codes").string();
    const Result result =
        quantize(folder, model + " " + out + " --format gptq-4 --group 16 --asymmetric --scales F32 --output gptq-4");
    EXPECT_EQ(result.status, 0) << result.messages;
    for (const char *const words : {"model.layers.1.self_attn.q_proj.weight", "30 x 33", "\nF32             8 tensors",
                                    "\nGPTQ 4 bits    22 tensors", "\nall            30 tensors"}) {
        EXPECT_TRUE(holds(result.table, words)) << words << " in\n" << result.table;
    }
    EXPECT_TRUE(holds(read_text(folder / "codes" / "config.json"), "\"checkpoint_format\": \"gptq\""));
    EXPECT_TRUE(std::filesystem::exists(folder / "codes" / "model.safetensors"));
    EXPECT_EQ(quantize(folder, model + " " + out + " --format F16").status, 1);  // it is there now
    EXPECT_EQ(quantize(folder, out + " " + (folder / "x.gguf").string() + " --format Q8_0").status, 0);
}

TEST(QuantizeProgram, SaysInOneLineWhatIsWrong) {
    const TemporaryFolder folder;
    const std::string files = model + " " + (folder / "x.gguf").string();
    for (const auto &[arguments, words] :
         {std::pair(model, std::string("OUT is required")),
          {files + " --format Q9", "format is 'Q9'; supported are F32"},
          {files + " --format gptq-4", "format is 'gptq-4'; supported are F32"},
          {model + " " + (folder / "x").string() + " --format Q8_0", "becomes a folder; supported there are F32"},
          {files + " --tensor Q8_0", "--tensor: 'Q8_0' is not PATTERN=FORMAT"},
          {files + " --tensor 'x=Q8_0'", "the pattern 'x' matches no matrix"},
          {files + " --threads 010", "--threads: '010' is not an integer from 0 to 256"},
          {files + " --threads 257", "'257' is not"},
          {files + " --threads -1", "'-1' is not"},
          {"/nowhere " + (folder / "x.gguf").string(), "/nowhere"}}) {
        const Result result = quantize(folder, arguments);
        EXPECT_EQ(result.status, 1) << arguments;
        EXPECT_EQ(result.table, "") << arguments;
        EXPECT_TRUE(holds(result.messages, words)) << result.messages;
        EXPECT_EQ(result.messages.find('\n'), result.messages.size() - 1) << result.messages;
    }
    EXPECT_FALSE(std::filesystem::exists(folder / "x.gguf"));
    EXPECT_FALSE(std::filesystem::exists(folder / "x"));
}

// ---- halyard-evaluate ----

const char *const ids = "38, 59, 20, 9,23\n4 29 16\t48,\n6 60\n";

TEST(EvaluateProgram, FindsNoDifferenceBetweenAModelAndItself) {
    const TemporaryFolder folder;
    write_text(folder / "ids", ids);
    const Result result = run(HALYARD_EVALUATE, folder,
                              model + " --reference " + model + " --window 8 --ids " + (folder / "ids").string());
    EXPECT_EQ(result.status, 0) << result.messages;
    for (const char *const words :
         {"llama3_f32: 23 F32", "9 predictions", "KL divergence from it                 0.000000 ",
          "same most likely token              100.000000 "}) {
        EXPECT_TRUE(holds(result.table, words)) << words << " in\n" << result.table;
    }
}

TEST(EvaluateProgram, SaysInOneLineWhatIsWrong) {
    const TemporaryFolder folder;
    write_text(folder / "ids", ids);
    write_text(folder / "words", "1 2 three");
    const std::string good = model + " --ids " + (folder / "ids").string();
    for (const auto &[arguments, words] :
         {std::pair(model, std::string("--ids is required")),
          {good + " --window 1", "window is 1; it must be 2 or more"},
          {good + " --reference " + model + "x", "cannot be opened"},
          {model + " --ids " + (folder / "words").string(), "'three' is not a token id (word 3)"},
          {model + " --ids " + (folder / "none").string(), "cannot be read"},
          {model + " --ids " + (folder / "").string(), "is a folder; --ids needs a file"}}) {
        const Result result = run(HALYARD_EVALUATE, folder, arguments);
        EXPECT_EQ(result.status, 1) << arguments;
        EXPECT_TRUE(holds(result.messages, words)) << result.messages;
        EXPECT_TRUE(holds(result.messages, "halyard-evaluate: ")) << result.messages;
    }
}

}  // namespace
}  // namespace halyard::tests
