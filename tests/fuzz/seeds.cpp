// Writes what the fuzzers begin with: fuzz_seeds MODELS DIRECTORY puts calls of the C API, files of packed weights,
// GGUF files, safetensors, and configurations and models from the folder MODELS, into a folder of DIRECTORY each.
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

#include "halyard/halyard.hpp"
#include "support/gguf.h"

namespace {

namespace fs = std::filesystem;

void write(const fs::path &path, const std::string &bytes) {
    std::ofstream file(path, std::ios::binary | std::ios::trunc);
    file << bytes;
    if (!file.flush()) {
        throw std::runtime_error("cannot write " + path.string());
    }
}

std::string read(const fs::path &path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

/** All steps of c_api.cpp one after another, plainly, which makes something to work with, and again in other ways. */
void write_calls(const fs::path &folder) {
    for (char way = 0; way < 12; way++) {
        std::string calls;
        for (const char choice : {'\0', way}) {
            for (char step = 0; step < 26; step++) {
                calls += {step, 3, 0, choice, choice};
            }
        }
        write(folder / std::to_string(way), calls);
    }
}

void write_weights(const fs::path &folder) {
    std::vector<std::uint32_t> numbers(64, 0x3f803f80);
    const DLDataType dtypes[] = {{kDLFloat, 32, 1}, {kDLFloat, 16, 1}, {kDLBfloat, 16, 1}};
    for (std::size_t dtype = 0; dtype < 3; dtype++) {
        for (int form = 0; form < 5; form++) {
            std::int64_t shape[] = {5, 3};
            const DLTensor matrix{numbers.data(), {kDLCPU, 0}, 2, dtypes[dtype], shape, nullptr, 0};
            const DLTensor vector{numbers.data(), {kDLCPU, 0}, 1, dtypes[dtype], shape + 1, nullptr, 0};
            halyard_pack_options options{};
            options.up = form == 1 ? &matrix : nullptr;
            options.norm_weight = form == 2 ? &vector : nullptr;
            options.quantization.bits = form == 3 ? 8 : form == 4 ? 4 : 0;
            options.quantization.asymmetric = form == 4;
            halyard_weights *weights = nullptr;
            const std::string path = folder / (std::to_string(dtype) + std::to_string(form));
            if (halyard_weights_pack(nullptr, &matrix, &options, nullptr, 0, &weights) != HALYARD_OK ||
                halyard_weights_save(weights, path.c_str()) != HALYARD_OK) {
                throw std::runtime_error(halyard_last_error());
            }
            halyard_weights_destroy(weights);
        }
    }
}

/** Metadata and a few tensors of every architecture. */
void write_gguf(const fs::path &folder) {
    for (const std::string name : {"gpt2", "llama", "qwen2", "qwen3", "gemma", "gemma2", "gemma3"}) {
        halyard::tests::GgufFile file;
        file.set("general.architecture", name.c_str());
        for (const char *const key : {"context_length", "embedding_length", "block_count", "feed_forward_length",
                                      "attention.head_count", "attention.key_length", "rope.dimension_count"}) {
            if (name != "gpt2" || std::string(key) != "rope.dimension_count") {
                file.set(name + "." + key, std::uint32_t{2});
            }
        }
        file.set(name + (name == "gpt2" ? ".attention.layer_norm_epsilon" : ".attention.layer_norm_rms_epsilon"),
                 1e-5f);
        if (name == "llama") {
            file.set("llama.rope.scaling.type", "linear");
            file.set("llama.attention.sliding_window", std::uint32_t{8});
        }
        file.entries.push_back(
            {"tokenizer.ggml.tokens", 9, halyard::tests::gguf_array(8, 1, halyard::tests::gguf_string("a"))});
        file.add({"token_embd.weight", {3, 2}, 0, std::string(24, '\x3f')});
        file.add({"rope_freqs.weight", {1}, 0, std::string("\0\0\x80\x3f", 4)});
        std::uint32_t types[] = {8, 2, 3, 6, 7, 12, 13, 14};
        for (const std::uint32_t type : types) {
            file.add(
                {std::to_string(type), {1, type < 12 ? 32u : 256u}, type, std::string(type < 12 ? 34 : 210, '\x11')});
        }
        write(folder / name, file.bytes());
    }
}

/** A whole model of one layer, all of whose tensors are quantized. */
void write_gguf_model(const fs::path &path) {
    halyard::tests::GgufFile file;
    file.set("general.architecture", "llama");
    for (const char *const key : {"embedding_length", "feed_forward_length", "attention.key_length",
                                  "attention.value_length", "rope.dimension_count"}) {
        file.set(std::string("llama.") + key, std::uint32_t{32});
    }
    for (const char *const key : {"context_length", "block_count", "attention.head_count"}) {
        file.set(std::string("llama.") + key, std::uint32_t{1});
    }
    file.set("llama.attention.layer_norm_rms_epsilon", 1e-5f);
    constexpr std::uint32_t q8_0 = 8, block_bytes = 34;
    const auto add = [&](const std::string &name, std::vector<std::uint64_t> shape) {
        const std::size_t blocks = shape.size() == 1 ? 1 : shape[0];
        file.add({name, std::move(shape), q8_0, std::string(blocks * block_bytes, '\x11')});
    };
    add("token_embd.weight", {3, 32});
    add("output_norm.weight", {32});
    for (const char *const name : {"attn_norm", "ffn_norm"}) {
        add(std::string("blk.0.") + name + ".weight", {32});
    }
    for (const char *const name : {"attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"}) {
        add(std::string("blk.0.") + name + ".weight", {32, 32});
    }
    for (const char *const name : {"attn_q", "attn_k", "attn_v", "attn_output"}) {
        add(std::string("blk.0.") + name + ".bias", {32});
    }
    write(path, file.bytes());
}

void write_safetensors(const fs::path &path, const std::string &header, std::size_t bytes) {
    std::string file;
    for (int i = 0; i < 8; i++) {
        file += static_cast<char>(header.size() >> (8 * i));
    }
    write(path, file + header + std::string(bytes, '\x3f'));
}

}  // namespace

int main(int count, char **arguments) {
    try {
        if (count != 3) {
            throw std::runtime_error("usage: fuzz_seeds MODELS DIRECTORY");
        }
        const fs::path models = arguments[1], directory = arguments[2];
        for (const char *target : {"c_api", "config", "folder", "gguf", "safetensors", "weights"}) {
            fs::create_directories(directory / target);
        }
        write_calls(directory / "c_api");
        write_weights(directory / "weights");
        write_gguf(directory / "gguf");
        write_gguf_model(directory / "gguf" / "model");
        const fs::path safetensors = directory / "safetensors";
        write_safetensors(safetensors / "empty", "{}", 0);
        write_safetensors(safetensors / "one", R"({"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}})", 24);
        write_safetensors(safetensors / "three",
                          R"({"__metadata__":{"format":"pt"},"b":{"dtype":"BF16","shape":[4],"data_offsets":[0,8]},)"
                          R"("c":{"dtype":"F16","shape":[],"data_offsets":[8,10]},)"
                          R"("d":{"dtype":"I64","shape":[1,0],"data_offsets":[10,10]}}  )",
                          10);
        write(directory / "config" / "gptq",
              R"({"architectures":["LlamaForCausalLM"],"quantization_config":{)"
              R"("quant_method":"gptq","bits":4,"group_size":128,"desc_act":true,"sym":false,)"
              R"("checkpoint_format":"gptq_v2","dynamic":null}})");
        write(directory / "config" / "awq", R"({"architectures":["LlamaForCausalLM"],"quantization_config":{)"
                                            R"("quant_method":"awq","bits":4,"group_size":128,"zero_point":true,)"
                                            R"("version":"gemm","backend":"autoawq","modules_to_not_convert":null}})");
        for (const fs::directory_entry &model : fs::directory_iterator(models)) {
            if (fs::exists(model.path() / "config.json")) {
                fs::copy_file(model.path() / "config.json", directory / "config" / model.path().filename(),
                              fs::copy_options::overwrite_existing);
                write(directory / "folder" / model.path().filename(),
                      read(model.path() / "config.json") + '\0' + read(model.path() / "model.safetensors"));
            }
        }
    } catch (const std::exception &error) {
        std::fprintf(stderr, "fuzz_seeds: %s\n", error.what());
        return 1;
    }
    return 0;
}
