// The memory of halyard::models: an allocation that fails throws and leaves nothing behind, and what a file makes the
// readers take is bounded.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <functional>
#include <new>
#include <optional>
#include <string>

#include "gguf.h"
#include "gguf_formats.h"
#include "halyard/model.hpp"
#include "support/allocations.h"
#include "support/files.h"
#include "support/gguf_model.h"
#include "support/models.h"
#include "support/test_scale.h"

// Memory of C++ is that of malloc, which is counted, also where the C++ library takes it. Not inlined, or GCC sees malloc
// and delete, and warns that they do not match.
[[gnu::noinline]] void *operator new(std::size_t bytes) {
    if (void *const memory = std::malloc(bytes)) {
        return memory;
    }
    throw std::bad_alloc();
}
[[gnu::noinline]] void *operator new(std::size_t bytes, const std::nothrow_t &) noexcept {
    return std::malloc(bytes);
}
[[gnu::noinline]] void operator delete(void *memory) noexcept {
    std::free(memory);
}
[[gnu::noinline]] void operator delete(void *memory, std::size_t) noexcept {
    std::free(memory);
}

namespace halyard::tests {
namespace {

/** Where everything takes long, each way to fail has one allocation of three, and not those of the other way. */
constexpr long step = reduced ? 3 : 1;

/**
 * Lets `work` fail at each of its allocations: at that one alone, or at it and all that follow. It must throw bad_alloc or
 * an `Error` that says so, and give back what it took. Returns how often it can be made to fail.
 */
template<class Work>
long fails_cleanly(const Work &work) {
    // What is made once stays: workers, and the caches of the C++ library's streams.
    work();
    EXPECT_THROW(Model::load(model_fixtures / "missing"), Error);
    halyard_context_release_scratch(nullptr);
    long failures = 0;
    for (const long count : {1L, LONG_MAX}) {
        bool failed = true;
        for (long after = count == 1 ? 0 : step / 2; failed; after += step) {
            enum class Outcome { done, bad_alloc, out_of_memory, other } outcome = Outcome::done;
            const long before = allocations().bytes_in_use;
            failed = refuse_allocations(after, count, [&] {
                try {
                    work();
                } catch (const std::bad_alloc &) {
                    outcome = Outcome::bad_alloc;
                } catch (const Error &error) {
                    outcome = error.status() == HALYARD_OUT_OF_MEMORY ? Outcome::out_of_memory : Outcome::other;
                }
            });
            halyard_context_release_scratch(nullptr);  // which is kept for the next call, if there was any
            EXPECT_EQ(allocations().bytes_in_use, before) << "at allocation " << after;
            EXPECT_NE(outcome, Outcome::other) << "at allocation " << after;
            EXPECT_TRUE(failed || outcome == Outcome::done);
            failures += outcome != Outcome::done ? step : 0;
        }
    }
    return failures;
}

/** The most bytes in use while `work` runs, beyond those before. */
template<class Work>
long most_taken(const Work &work) {
    const long before = allocations().bytes_in_use;
    count_allocations();
    work();
    return allocations().most_in_use - before;
}

TEST(ModelsMemory, LoadingFailsCleanly) {
    for (const char *const fixture : {"gpt2_f32", "gemma3_bf16", "quantized_pack_4"}) {
        EXPECT_GT(fails_cleanly([&] { Model::load(model_fixtures / fixture); }), 500) << fixture;
    }
}

// Tensors at odd addresses are copied.
TEST(ModelsMemory, LoadingFilesWithOddHeadersFailsCleanly) {
    for (const char *const fixture : {"llama_linear_f32", "quantized_pack_4"}) {
        const TemporaryFolder folder;
        const std::filesystem::path source = model_fixtures / fixture;
        std::filesystem::copy(source / "config.json", folder / "config.json");
        std::string file = read_text(source / "model.safetensors");
        std::uint64_t length = 0;
        std::memcpy(&length, file.data(), sizeof(length));
        file.insert(sizeof(length) + length, " ");
        length++;
        std::memcpy(file.data(), &length, sizeof(length));
        write_text(folder / "model.safetensors", file);
        EXPECT_GT(fails_cleanly([&] { Model::load(folder.path()); }), 500) << fixture;
    }
}

TEST(ModelsMemory, LoadingShardsFailsCleanly) {
    const TemporaryFolder folder;
    const std::filesystem::path source = model_fixtures / "llama_linear_f32";
    std::filesystem::copy(source / "model.safetensors", folder / "one.safetensors");
    std::string index;
    const SafeTensors files = SafeTensors::open(source);
    for (const SafeTensors::Info &info : files.tensors()) {
        index += (index.empty() ? "\"" : ",\"") + info.name + "\":\"one.safetensors\"";
    }
    write_text(folder / "model.safetensors.index.json", "{\"weight_map\":{" + index + "}}");
    EXPECT_GT(fails_cleanly([&] { SafeTensors::open(folder.path()); }), 100);
}

// Rows are put in order and dtypes are made one in copies.
TEST(ModelsMemory, LoadingGgufFilesFailsCleanly) {
    Folder folder("llama_linear_f32");
    GgufFile file = gguf_of(folder);
    for (GgufFile::Tensor tensor : file.take_tensors()) {
        if (tensor.name == "blk.0.ffn_up.weight") {
            tensor.type = models::block_format("Q8_0")->type;
            tensor.data.assign(45 * 34, '\2');
        }
        file.add(tensor);
    }
    write_text(folder / "x.gguf", file.bytes());
    EXPECT_GT(fails_cleanly([&] { Model::load(folder / "x.gguf"); }), 1000);
}

// A file whose matrices stay quantized takes its packed form, and while it is loaded what is joined of one layer's q, k and v.
TEST(ModelsMemory, OfAQuantizedModelIsThatOfItsPackedForm) {
    Folder folder("llama3_f32");
    widen(folder);
    GgufFile file = gguf_of(folder);
    std::size_t of_attention = 0, of_matrices = 0;  // of one layer; of all
    for (GgufFile::Tensor tensor : file.take_tensors()) {
        if (tensor.shape.size() == 2) {
            tensor.type = models::block_format("Q8_0")->type;
            tensor.data.assign(tensor.shape[0] * tensor.shape[1] / 32 * 34, '\2');
            const bool joined = tensor.name.find("blk.0.attn_") == 0 && tensor.name.find("output") == tensor.name.npos;
            of_attention += joined ? tensor.data.size() : 0;
            of_matrices += tensor.data.size();
        }
        file.add(tensor);
    }
    write_text(folder / "x.gguf", file.bytes());
    LoadOptions options;
    options.max_positions = 8;  // a small table of rotations
    std::optional<Model> model;
    long before = allocations().bytes_in_use;
    const long most = most_taken([&] { model.emplace(Model::load(folder / "x.gguf", options)); });
    const long kept = allocations().bytes_in_use - before;
    const auto once = static_cast<long>(of_attention), all = static_cast<long>(of_matrices);
    EXPECT_LT(most - kept, 2 * once + 100'000);  // rows of q and k in order, and the three in one
    EXPECT_LT(kept, 3 * all);                    // the mapped file, and packed matrices with padding
    EXPECT_GT(all, 8 * once);
}

TEST(ModelsMemory, GenerationFailsCleanly) {
    const Model model = Model::load(model_fixtures / "mistral_f32");
    const auto work = [&] {
        KvCache cache = model.make_cache(20);
        std::vector<float> logits(static_cast<std::size_t>(model.config().stack.vocab_size));
        SamplingOptions sampling;
        sampling.temperature = 1;
        sampling.top_k = 5;
        sampling.top_p = 0.9;
        Sampler sampler(sampling);
        model.forward({1, 2, 3}, cache, logits);
        model.forward({sampler(logits)}, cache, logits);
    };
    EXPECT_GT(fails_cleanly(work), 5);
}

// ---- What a file makes the readers take ----

/** `first`, `element(0)`, `element(1)`, ... with commas between them, and `last`: `bytes` at most. */
std::string list_of(const std::string &first, const std::function<std::string(std::size_t)> &element,
                    const std::string &last, std::size_t bytes) {
    std::string text = first;
    for (std::size_t i = 0;; i++) {
        const std::string next = (i > 0 ? "," : "") + element(i);
        if (text.size() + next.size() + last.size() > bytes) {
            return text + last;
        }
        text += next;
    }
}

/** An object with an array of equal elements. */
std::string array_of(const std::string &element, std::size_t bytes) {
    return list_of(
        "{\"a\":[", [&](std::size_t) { return element; }, "]}", bytes);
}

TEST(ModelsMemory, ALargeConfigurationIsRefusedUnread) {
    const TemporaryFolder folder;
    const std::filesystem::path file = folder / "config.json";
    write_text(file, "");
    std::filesystem::resize_file(file, 94'000'000);
    const long taken = most_taken([&] {
        EXPECT_TRUE(throws(
            HALYARD_INVALID_ARGUMENT, [&] { ModelConfig::load(file); }, file.string(), "above the limit of 1000000"));
    });
    EXPECT_LT(taken, 94'000'000 + 50'000);  // the mapping, which is not memory
}

TEST(ModelsMemory, OfAConfigurationIsBounded) {
    constexpr std::size_t limit = 1'000'000;
    const auto taken = [](const std::string &text) {
        return most_taken([&] {
            EXPECT_TRUE(throws(
                HALYARD_INVALID_ARGUMENT, [&] { ModelConfig::parse(text); }, "architectures is missing"));
        });
    };
    for (const char *const element : {"[]", "{}", "0", "0.5", "\"\"", "[[]]", "{\"a\":{}}"}) {
        const std::string text = array_of(element, limit);
        EXPECT_LT(taken(text), 64'000'000) << element;
    }
    const auto members = [](std::size_t i) { return "\"" + std::to_string(i) + "\":[]"; };
    EXPECT_LT(taken(list_of("{", members, "}", limit)), 64'000'000);
    EXPECT_TRUE(throws(
        HALYARD_INVALID_ARGUMENT, [] { ModelConfig::parse(std::string(limit + 1, ' ')); },
        "config.json has 1000001 bytes, above the limit of 1000000"));
}

TEST(ModelsMemory, OfAnIndexIsBounded) {
    const TemporaryFolder folder;
    const auto taken = [&](const std::string &index, const char *words) {
        write_text(folder / "model.safetensors.index.json", index);
        return most_taken([&] {
            EXPECT_TRUE(throws(
                HALYARD_INVALID_ARGUMENT, [&] { SafeTensors::open(folder.path()); }, "model.safetensors.index.json ",
                words));
        });
    };
    EXPECT_LT(taken(std::string(50'000'001, ' '), "above the limit of 50000000"), 50'100'000);
    EXPECT_LT(taken(array_of("[]", emulated ? 5'000'000 : 50'000'000), "holds more than 1000000 values"), 250'000'000);
}

TEST(ModelsMemory, OfAHeaderIsBounded) {
    constexpr std::size_t bytes = emulated ? 400'000 : 4'000'000;
    const auto numbered = [](const char *before, const char *after) {
        return [=](std::size_t i) { return before + std::to_string(i) + after; };
    };
    const auto zero = [](std::size_t) { return "0"; };
    const std::string headers[] = {
        list_of("{", numbered("\"", R"(":{"dtype":"U8","shape":[0],"data_offsets":[0,0]})"), "}", bytes),
        list_of(R"({"__metadata__":{)", numbered("\"", "\":\"\""), "}}", bytes),
        list_of(R"({"a":{"dtype":"U8","data_offsets":[0,0],"shape":[)", zero, "]}}", bytes),
        list_of(R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[)", zero, "]}}", bytes),
    };
    for (const std::string &header : headers) {
        std::string file(8, '\0');
        const std::uint64_t length = header.size();
        std::memcpy(file.data(), &length, 8);
        file += header;
        const long most = most_taken([&] {
            try {
                SafeTensors::from_memory(file.data(), file.size(), "the file");
            } catch (const Error &) {
            }
        });
        EXPECT_LT(most, 10 * bytes) << header.substr(0, 60);
    }
}

TEST(ModelsMemory, OfAGgufFileIsBounded) {
    GgufFile entries, tensors, strings;
    for (int i = 0; i < 100'000; i++) {
        entries.entries.push_back({std::to_string(i), 7, std::string(1, '\1')});
        tensors.add({std::to_string(i), {1}, 0, ""});
    }
    strings.entries.push_back({"x", 9, gguf_array(8, 500'000, std::string(4'000'000, '\0'))});
    for (const std::string &file : {entries.bytes(), tensors.bytes(), strings.bytes()}) {
        const long most = most_taken([&] {
            try {
                models::Gguf::from_memory(file.data(), file.size(), "the file");
            } catch (const Error &) {
            }
        });
        EXPECT_LT(most, static_cast<long>(10 * file.size()));
    }
}

}  // namespace
}  // namespace halyard::tests
