// The program of examples/generate: its arguments, and what it says about them.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <sstream>
#include <string>
#include <tuple>

#include "support/files.h"
#include "support/gguf_model.h"

namespace halyard::tests {
namespace {

const std::string model = HALYARD_TEST_MODELS "/llama3_f32";

struct Result {
    int status;
    std::string tokens, messages;
};

Result generate(const std::string &arguments, const std::string &to = "", const std::string &environment = "") {
    const TemporaryFolder folder;
    const std::string out = to.empty() ? (folder / "out").string() : to, err = (folder / "err").string();
    const std::string command = "env " + environment + " " + HALYARD_EMULATOR " \"" HALYARD_GENERATE "\" " + arguments +
                                " >\"" + out + "\" 2>\"" + err + "\"";
    const int status = std::system(command.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, to.empty() ? read_text(out) : "", read_text(err)};
}

/** It says `words` in one line, generates nothing, and does not load the model. */
testing::AssertionResult refused(const std::string &arguments, const std::string &words) {
    const Result result = generate(arguments);
    if (result.status != 1 || !result.tokens.empty() || result.messages != "halyard-generate: " + words + "\n") {
        return testing::AssertionFailure()
               << arguments << ": status " << result.status << ", tokens '" << result.tokens << "', messages:\n"
               << result.messages;
    }
    return testing::AssertionSuccess();
}

std::string option(const std::string &name, const std::string &value) {
    return value.empty() ? " " + name + " ''" : " '" + name + "=" + value + "'";
}

const std::string prompt = model + " --prompt-ids 38,59,20,9,23,4,29,16,48,6,60,33,58,14,5,38,59,29,29,32,37,35,47";

TEST(Generate, GivesTokens) {
    const Result result = generate(prompt + " --max-new-tokens 8");
    EXPECT_EQ(result.status, 0) << result.messages;
    EXPECT_EQ(result.tokens, "6 9 48 17 54 17 44 51\n");
    EXPECT_EQ(result.messages.find("stopped"), std::string::npos) << result.messages;
    // The largest values that there are.
    const Result drawn =
        generate(prompt + " --max-new-tokens 2 --seed 18446744073709551615 --top-k 9223372036854775807 --top-p 1 "
                          "--temperature 1e-3 --threads 2 --cache-dtype bf16 --device cpu");
    EXPECT_EQ(drawn.status, 0) << drawn.messages;
    EXPECT_EQ(drawn.tokens, "6 9\n");
}

TEST(Generate, TakesIdsInDecimalOnly) {
    const auto wrong = [](const std::string &word, int number) {
        return "--prompt-ids: '" + word + "' is not an integer from 0 to 60, in decimal digits (id " +
               std::to_string(number) + "; the model has 61 tokens)";
    };
    const struct {
        std::string ids, word;
        int number;
    } all[] = {{"", "", 1},         {"-1", "-1", 1},     {"010", "010", 1},
               {"5,,7", "", 2},     {"5,", "", 2},       {",5", "", 1},
               {"0x10", "0x10", 1}, {"1,2 3", "2 3", 2}, {" 1", " 1", 1},
               {"+1", "+1", 1},     {"1.0", "1.0", 1},   {"60,61", "61", 2},
               {"one", "one", 1},   {"1e1", "1e1", 1},   {"99999999999999999999", "99999999999999999999", 1}};
    for (const auto &each : all) {
        EXPECT_TRUE(refused(model + option("--prompt-ids", each.ids), wrong(each.word, each.number)));
    }
}

TEST(Generate, AnswersATextAndAFileWithWhatHelps) {
    const std::string answer =
        "--prompt: there is no tokenizer here: give token ids in --prompt-ids, as the model's own tokenizer makes "
        "them: "
        "python3 -c \"import sys, transformers as t; "
        "print(*t.AutoTokenizer.from_pretrained(sys.argv[1])(sys.argv[2]).input_ids, sep=',')\" MODEL TEXT";
    EXPECT_TRUE(refused(model + " --prompt hello", answer));
    EXPECT_TRUE(refused("--prompt 'hello world'", answer));
    EXPECT_TRUE(refused(prompt + " --prompt=1,2,3", answer));
    const std::string weights = model + "/model.safetensors";
    EXPECT_TRUE(
        refused(weights + " --prompt-ids 1", weights + " is a .safetensors file: give the folder that holds it"));
}

TEST(Generate, TakesNumbersInDecimalOnly) {
    const auto range = [](const std::string &name, const std::string &word, const std::string &limits) {
        return refused(prompt + option(name, word),
                       name + ": '" + word + "' is not an integer from " + limits + ", in decimal digits");
    };
    const struct {
        const char *name, *limits, *below, *above;
    } integers[] = {
        {"--max-new-tokens", "1 to 16777216", "0", "16777217"},
        {"--max-positions", "1 to 9223372036854775807", "0", "9223372036854775808"},
        {"--seed", "0 to 18446744073709551615", "-1", "18446744073709551616"},
        {"--top-k", "0 to 9223372036854775807", "-1", "9223372036854775808"},
        {"--threads", "0 to 256", "-1", "257"},
    };
    for (const auto &each : integers) {
        for (const char *const word : {"", "010", "0x10", "1.0", "1e2", "two", " 2", "2 ", each.below, each.above}) {
            EXPECT_TRUE(range(each.name, word, each.limits));
        }
    }
    for (const std::string name : {"--temperature", "--top-p"}) {
        for (const std::string word : {"", "0x1", "nan", "inf", " 0.5", "half"}) {
            EXPECT_TRUE(refused(prompt + option(name, word), name + ": '" + word + "' is not a decimal number"));
        }
    }
    EXPECT_TRUE(refused(prompt + " --temperature=-1", "halyard::Sampler: temperature is not finite and >= 0"));
    EXPECT_TRUE(refused(prompt + " --top-p 0", "halyard::Sampler: top_p is not in (0, 1]"));
    EXPECT_TRUE(refused(prompt + " --top-p 1.5", "halyard::Sampler: top_p is not in (0, 1]"));
    for (const std::string device : {"", "gpu", "cuda:", "cuda:01", "cuda:-1", "cuda:1000", "cpu:0"}) {
        EXPECT_TRUE(refused(prompt + option("--device", device), "--device: must be cpu, cuda or cuda:N"));
    }
    for (const std::string name : {"--cache-dtype", "--dtype", "--products"}) {
        for (const std::string word : {"", "f64", "F32", "bf16,f32"}) {
            EXPECT_EQ(generate(prompt + option(name, word)).status, 1) << name << " " << word;
        }
    }
    for (const std::string word : {"", "avx", "AVX2", "neon,avx2", "300"}) {
        const Result result = generate(prompt + option("--isa", word));
        EXPECT_EQ(result.status, 1) << word;
        EXPECT_EQ(result.messages.find("halyard-generate: --isa: '" + word + "' is not one of auto, "), 0u)
            << result.messages;
    }
    EXPECT_EQ(generate(prompt + " 1").status, 1);
    EXPECT_EQ(generate(prompt + " --unknown 1").status, 1);
    EXPECT_EQ(generate(model).status, 1);
}

/** How many lines that HALYARD_VERBOSE writes begin with `fields` and contain `other`. */
int lines_with(const Result &result, const std::string &fields, const std::string &other = "") {
    int count = 0;
    std::istringstream lines(result.messages);
    for (std::string line; std::getline(lines, line);) {
        const bool begins = line.find("halyard_verbose," + fields) == 0;
        count += begins && line.find(other) != std::string::npos ? 1 : 0;
    }
    return count;
}

TEST(Generate, RunsOnTheInstructionSetThatIsAsked) {
    const std::string few = prompt + " --max-new-tokens 2 --isa ", forward = "call,halyard_stack_forward,";
    std::string weakest;
    for (int i = 0; i < halyard_isa_count(); i++) {
        if (halyard_isa_supported(halyard_isa_at(i)) == 0) {
            continue;
        }
        const std::string name = halyard_isa_name(halyard_isa_at(i));
        const Result result = generate(few + name, "", "HALYARD_VERBOSE=1");
        EXPECT_EQ(result.status, 0) << result.messages;
        EXPECT_EQ(result.tokens, "6 9\n") << name;
        EXPECT_EQ(lines_with(result, forward), 2) << result.messages;
        EXPECT_EQ(lines_with(result, forward, "," + name + ","), 2) << result.messages;
        if (weakest.empty()) {
            weakest = name;
            continue;
        }
        const Result capped = generate(few + name, "", "HALYARD_MAX_ISA=" + weakest);
        EXPECT_EQ(capped.status, 1);
        EXPECT_EQ(capped.messages, "halyard-generate: --isa: HALYARD_MAX_ISA allows " + weakest + " at most\n");
    }
}

// A network that rounds its hidden values to bf16 has an epilogue that stores bf16.
TEST(Generate, RoundsBetweenProductsAsAsked) {
    const std::string few = HALYARD_TEST_MODELS "/llama3_bf16 --prompt-ids 38,59,20 --max-new-tokens 1";
    const auto epilogues = [&](const std::string &options, const std::string &environment, const std::string &dtype) {
        const Result result = generate(few + options, "", "HALYARD_VERBOSE=2 " + environment);
        EXPECT_EQ(result.status, 0) << result.messages;
        return lines_with(result, "kernel,epilogue_silu_gated," + dtype + ",") > 0;
    };
    for (const auto &[options, environment, rounds] :
         {std::tuple("", "", true), std::tuple(" --products auto", "HALYARD_PRODUCTS=full", false),
          std::tuple(" --products storage", "HALYARD_PRODUCTS=full", true),
          std::tuple(" --products full", "", false)}) {
        EXPECT_EQ(epilogues(options, environment, "bf16"), rounds) << options << " " << environment;
        EXPECT_EQ(epilogues(options, environment, "f32"), !rounds) << options << " " << environment;
    }
}

TEST(Generate, KeepsQuantizedWeightsOrUnpacksThemToTheDtypeThatIsAsked) {
    Folder folder("llama3_f32");
    widen(folder, 32);
    GgufFile file = gguf_of(folder);
    for (GgufFile::Tensor tensor : file.take_tensors()) {
        if (tensor.shape.size() == 2) {
            tensor.type = 8;  // Q8_0: a scale in f16 and 32 quantized values
            tensor.data.clear();
            for (std::uint64_t block = 0; block < tensor.shape[0] * tensor.shape[1] / 32; block++) {
                tensor.data += std::string("\x01\x0c", 2);
                for (std::uint64_t i = 0; i < 32; i++) {
                    tensor.data += static_cast<char>(37 * (block + 1) * (i + 1));
                }
            }
        }
        file.add(tensor);
    }
    write_text(folder / "model.gguf", file.bytes());
    const std::string quantized = (folder / "model.gguf").string() + " --prompt-ids 38,59,20 --max-new-tokens 1";
    for (const std::string asked : {"", "f32", "f16", "bf16"}) {
        const Result result = generate(quantized + (asked.empty() ? "" : " --dtype " + asked), "", "HALYARD_VERBOSE=2");
        EXPECT_EQ(result.status, 0) << result.messages;
        for (const std::string dtype : {"f32", "f16", "bf16"}) {
            EXPECT_EQ(lines_with(result, "kernel,pack_out_in," + dtype + ",") > 0, dtype == asked)
                << dtype << " instead of '" << asked << "'";
        }
        EXPECT_NE(result.messages.find(asked.empty() ? " Q8_0," : " Q8_0 as " + asked + ","), std::string::npos)
            << result.messages;
    }
    for (const auto &[options, environment, in_8_bits] :
         {std::tuple("", "", false), std::tuple(" --products int8", "", true),
          std::tuple("", "HALYARD_PRODUCTS=int8", true),
          std::tuple(" --products full", "HALYARD_PRODUCTS=int8", false)}) {
        const Result result = generate(quantized + options, "", "HALYARD_VERBOSE=2 " + std::string(environment));
        EXPECT_EQ(result.status, 0) << result.messages;
        EXPECT_EQ(result.messages.find(", activations in 8 bits where weights are quantized\n") != std::string::npos,
                  in_8_bits)
            << result.messages;
        EXPECT_EQ(lines_with(result, "kernel,round_to_int8") > 0, in_8_bits) << result.messages;
    }
}

TEST(Generate, SaysThatPositionsAreFilled) {
    const Result result = generate(prompt + " --max-new-tokens 8 --max-positions 25");
    EXPECT_EQ(result.status, 0);
    EXPECT_EQ(result.tokens, "6 9 48\n");
    EXPECT_NE(
        result.messages.find("halyard-generate: stopped after 3 of 8 tokens, because all 25 positions are filled\n"),
        std::string::npos)
        << result.messages;
    const Result enough = generate(prompt + " --max-new-tokens 3 --max-positions 25");
    EXPECT_EQ(enough.tokens, "6 9 48\n");
    EXPECT_EQ(enough.messages.find("stopped"), std::string::npos) << enough.messages;
    EXPECT_TRUE(
        refused(prompt + " --max-positions 22", "--prompt-ids: the prompt has 23 tokens, and there are 22 positions"));
}

TEST(Generate, FailsWhereItCannotWrite) {
    const Result result = generate(prompt + " --max-new-tokens 100 --max-positions 25", "/dev/full");
    EXPECT_EQ(result.status, 1);
    EXPECT_NE(result.messages.find("halyard-generate: the tokens cannot be written\n"), std::string::npos)
        << result.messages;
    EXPECT_EQ(result.messages.find("stopped"), std::string::npos) << "it went on: " << result.messages;
}

}  // namespace
}  // namespace halyard::tests
