// See compile.h.
#include "compile.h"

#include <dlfcn.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <thread>

#include "HalideRuntime.h"
#include "schedules/subprocess.h"

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
        throw std::runtime_error("cannot write '" + name + "': " + std::strerror(errno));
    }
}

/** To STEM.o, as the build does: by its programs, and from its cache. */
void compile(const Variant &variant, const Choice &choice, const std::string &stem) {
    const std::string &program = variant.kernel->program;
    const std::filesystem::path digest =
        std::filesystem::path(program).parent_path() / "digests" / variant.kernel->generator;
    const std::string prefetch = variant.streamed_prefetch();
    std::string kernel = variant.symbol() + " " + (prefetch.empty() ? "-" : prefetch);
    for (const auto &[name, value] : variant.parameters()) {
        kernel += " " + name + "=" + value;
    }
    for (const auto &[name, value] : choice) {
        kernel += " " + name + "=" + std::to_string(value);
    }
    write_file(stem + ".txt", kernel + "\n");
    const std::vector<std::string> flags = variant.assembler_flags();
    std::vector<std::string> words = {
        HALYARD_TUNE_MAKE_KERNELS,     stem + ".o",    digest, stem + ".txt", "--assemble",
        HALYARD_TUNE_ASSEMBLER_DIGEST, HALYARD_TUNE_CC};
    words.insert(words.end(), flags.begin(), flags.end());
    words.insert(words.end(), {"--", program, variant.kernel->generator, variant.halide_target()});
    schedules::run_program(words);
}

std::filesystem::path place_of_files() {
    const char *named = std::getenv("TMPDIR");  // a message can then name it, whatever it is
    return named != nullptr && *named != 0 ? named : "/tmp";
}

}  // namespace

Compiler::Compiler() : folder(place_of_files(), "halyard-tune") {}

void Compiler::require_room() const {
    const std::string probe = folder.path() / "room";
    try {
        write_file(probe, std::string(std::size_t{1} << 20, 'x'));
    } catch (const std::runtime_error &error) {
        throw std::runtime_error(std::string(error.what()) +
                                 "; the environment variable TMPDIR can name another folder");
    }
    std::remove(probe.c_str());
}

std::vector<Compiled> Compiler::objects(const Variant &variant, const std::vector<Choice> &choices) {
    const std::size_t at_once = std::max(1u, std::thread::hardware_concurrency());
    const auto stem = [&](std::size_t i) { return folder.path() / (variant.symbol() + "-" + std::to_string(i)); };
    std::deque<std::unique_ptr<schedules::Subprocess>> running;
    std::vector<Compiled> compiled;
    for (std::size_t begun = 0; compiled.size() < choices.size();) {
        if (begun < choices.size() && running.size() < at_once) {
            running.push_back(
                std::make_unique<schedules::Subprocess>([&] { compile(variant, choices[begun], stem(begun)); }));
            begun++;
            continue;
        }
        const std::string failure = running.front()->wait();
        running.pop_front();
        if (!failure.empty()) {
            require_room();
        }
        compiled.push_back({failure.empty() ? read_file(stem(compiled.size()).string() + ".o") : "", failure});
    }
    return compiled;
}

std::string Compiler::object(const Variant &variant, const Choice &choice) {
    const Compiled compiled = objects(variant, {choice}).front();
    return compiled.failure.empty() ? compiled.object : throw std::runtime_error(compiled.failure);
}

Loaded Compiler::load(const std::string &object, const std::string &symbol) {
    const std::string stem = folder.path() / symbol, shared = stem + "-" + std::to_string(loads++) + ".so";
    try {
        write_file(stem + ".o", object);
        schedules::run_program({HALYARD_TUNE_LINKER, "-shared", "-Bsymbolic", "-o", shared, stem + ".o"});
    } catch (const std::runtime_error &) {
        require_room();
        throw;
    }
    void *library = dlopen(shared.c_str(), RTLD_NOW | RTLD_LOCAL);
    std::remove(shared.c_str());
    const auto entry = [&](const char *name) {
        return reinterpret_cast<KernelFunction>(dlsym(library, (symbol + name).c_str()));
    };
    const KernelFunction ordinary = library == nullptr ? nullptr : entry("_argv");
    if (ordinary == nullptr) {
        throw std::runtime_error(dlerror());
    }
    return {{library, dlclose}, {ordinary, entry("_streamed_argv")}};
}

std::string halide_version() {
    return std::to_string(HALIDE_VERSION_MAJOR) + "." + std::to_string(HALIDE_VERSION_MINOR) + "." +
           std::to_string(HALIDE_VERSION_PATCH);
}

}  // namespace halyard::tune
