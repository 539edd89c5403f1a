// The program of programs/quantize: its arguments, its table, and what it says when something is wrong.
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

Result quantize(const TemporaryFolder &folder, const std::string &arguments) {
    const std::string out = (folder / "out").string(), err = (folder / "err").string();
    const std::string command =
        HALYARD_EMULATOR " \"" HALYARD_QUANTIZE "\" " + arguments + " >\"" + out + "\" 2>\"" + err + "\"";
    const int status = std::system(command.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read_text(out), read_text(err)};
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

TEST(QuantizeProgram, SaysInOneLineWhatIsWrong) {
    const TemporaryFolder folder;
    const std::string files = model + " " + (folder / "x.gguf").string();
    for (const auto &[arguments, words] :
         {std::pair(model, std::string("OUT is required")),
          {files + " --format Q9", "format is 'Q9'; supported are F32"},
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
}

}  // namespace
}  // namespace halyard::tests
