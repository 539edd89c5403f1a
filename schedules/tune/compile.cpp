// See compile.h.
#include "compile.h"

#include <dlfcn.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <vector>

#include "Halide.h"
#include "schedules/apart.h"
#include "schedules/autoschedule.h"

extern char **environ;

namespace halyard::tune {
namespace {

std::string read_file(const std::string &name) {
    std::ifstream file(name, std::ios::binary);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
}

void write_file(const std::string &name, const std::string &text) {
    std::ofstream file(name, std::ios::binary);
    file << text;
    file.close();
    if (!file) {
        throw std::runtime_error("cannot write '" + name + "'");
    }
}

void run_program(const std::vector<std::string> &words) {
    std::vector<char *> arguments;
    for (const std::string &word : words) {
        arguments.push_back(const_cast<char *>(word.c_str()));
    }
    arguments.push_back(nullptr);
    pid_t process = 0;
    int status = 0;
    if (posix_spawnp(&process, arguments[0], nullptr, nullptr, arguments.data(), environ) != 0 ||
        waitpid(process, &status, 0) != process || status != 0) {
        throw std::runtime_error("'" + words.front() + "' failed");
    }
}

/** What cmake/PrefetchIntoCache.cmake does. */
void prefetch_into_cache(const std::string &assembly_file) {
    const std::string from = "prefetchnta", to = "prefetcht1";
    std::string text = read_file(assembly_file);
    for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at)) {
        text.replace(at, from.size(), to);
    }
    write_file(assembly_file, text);
}

/** To STEM.o, as the build does. */
void compile(const Variant &variant, const Choice &choice, const std::string &stem) {
    using Halide::OutputFileType;
    const bool by_assembly = variant.kernel->family == "matmul";
    const Halide::GeneratorContext context{Halide::Target(variant.halide_target())};
    const auto generator = Halide::Internal::GeneratorRegistry::create(variant.kernel->generator, context);
    for (const auto &[name, value] : variant.parameters()) {
        generator->set_generatorparam_value(name, value);
    }
    for (const auto &[name, value] : choice) {
        generator->set_generatorparam_value(name, std::to_string(value));
    }
    generator->build_module(variant.symbol())
        .compile({by_assembly ? std::make_pair(OutputFileType::assembly, stem + ".s")
                              : std::make_pair(OutputFileType::object, stem + ".o")});
    if (by_assembly) {
        prefetch_into_cache(stem + ".s");
        run_program({HALYARD_TUNE_CC, "-c", stem + ".s", "-o", stem + ".o"});
    }
}

}  // namespace

Loaded::Loaded(const std::string &file, const std::string &symbol)
    : handle(dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL)), entry(nullptr) {
    std::remove(file.c_str());
    if (handle != nullptr) {
        entry = reinterpret_cast<KernelFunction>(dlsym(handle, (symbol + "_argv").c_str()));
    }
    if (entry == nullptr) {
        throw std::runtime_error(dlerror());
    }
}

Loaded::~Loaded() {
    dlclose(handle);
}

Compiler::Compiler() {
    std::string name = (std::filesystem::temp_directory_path() / "halyard-tune-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) {
        throw std::runtime_error("no directory can be made in " + std::filesystem::temp_directory_path().string());
    }
    directory = name;
}

Compiler::~Compiler() {
    std::error_code ignored;
    std::filesystem::remove_all(directory, ignored);
}

std::vector<Compiled> Compiler::objects(const Variant &variant, const std::vector<Choice> &choices) {
    const std::string stem = directory + "/" + variant.symbol() + "-";
    std::vector<std::unique_ptr<schedules::Apart>> processes;
    for (std::size_t i = 0; i < choices.size(); i++) {
        const std::string each = stem + std::to_string(i);
        processes.push_back(
            std::make_unique<schedules::Apart>([&] { compile(variant, choices[i], each); }, each + ".log"));
    }
    std::vector<Compiled> compiled;
    for (std::size_t i = 0; i < choices.size(); i++) {
        const std::string failure = processes[i]->wait();
        compiled.push_back({failure.empty() ? read_file(stem + std::to_string(i) + ".o") : "", failure});
    }
    return compiled;
}

std::string Compiler::object(const Variant &variant, const Choice &choice) {
    const Compiled compiled = objects(variant, {choice}).front();
    if (!compiled.failure.empty()) {
        throw std::runtime_error(compiled.failure);
    }
    return compiled.object;
}

std::vector<int> Compiler::argument_ranks(const Variant &variant) {
    const Halide::GeneratorContext context{Halide::Target(variant.halide_target())};
    const auto generator = Halide::Internal::GeneratorRegistry::create(variant.kernel->generator, context);
    for (const auto &[name, value] : variant.parameters()) {
        generator->set_generatorparam_value(name, value);
    }
    std::vector<int> ranks;
    for (const auto &argument : generator->arginfos()) {
        const bool is_buffer = argument.kind == Halide::Internal::ArgInfoKind::Buffer;
        const bool is_integer = !is_buffer && argument.types.front() == Halide::Int(32);
        ranks.push_back(is_buffer ? argument.dimensions : is_integer ? integer_rank : other_rank);
    }
    return ranks;
}

std::unique_ptr<Loaded> Compiler::autoscheduled(const Variant &variant, const std::string &scheduler,
                                                const std::vector<std::vector<int>> &estimates) {
    constexpr int most_seconds = 300;
    const std::string symbol = variant.symbol(), stem = directory + "/" + symbol + "-" + scheduler;
    const std::string shared = stem + "-" + std::to_string(loads++) + ".so";
    const Halide::Target target = Halide::Target(variant.halide_target()).without_feature(Halide::Target::NoRuntime);
    // Serial, as every kernel is.
    const std::string failure = schedules::autoschedule(
        {variant.kernel->generator, variant.parameters(), target.to_string(), symbol, 1, estimates}, scheduler,
        HALYARD_TUNE_PLUGIN_DIR, stem + ".o", most_seconds);
    if (!failure.empty()) {
        throw std::runtime_error("the autoscheduler gives up: " + failure);
    }
    run_program({HALYARD_TUNE_CC, "-shared", "-Wl,-Bsymbolic", "-o", shared, stem + ".o", "-lpthread", "-ldl", "-lm"});
    return std::make_unique<Loaded>(shared, symbol);
}

std::unique_ptr<Loaded> Compiler::load(const std::string &object, const std::string &symbol) {
    const std::string stem = directory + "/" + symbol, shared = stem + "-" + std::to_string(loads++) + ".so";
    write_file(stem + ".o", object);
    run_program({HALYARD_TUNE_LINKER, "-shared", "-Bsymbolic", "-o", shared, stem + ".o"});
    return std::make_unique<Loaded>(shared, symbol);
}

std::string halide_version() {
    return std::to_string(HALIDE_VERSION_MAJOR) + "." + std::to_string(HALIDE_VERSION_MINOR) + "." +
           std::to_string(HALIDE_VERSION_PATCH);
}

}  // namespace halyard::tune
