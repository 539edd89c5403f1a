// See compile.h.
#include "compile.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <stdexcept>
#include <vector>

#include "Halide.h"

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

/** Compiles what an autoscheduler makes of a kernel. */
void compile_autoscheduled(const Variant &variant, const std::string &scheduler,
                           const std::vector<std::vector<int>> &extents, const std::string &object_file) {
    using namespace Halide;
    std::string plugin = scheduler;
    std::transform(plugin.begin(), plugin.end(), plugin.begin(), [](unsigned char c) { return std::tolower(c); });
    load_plugin(HALYARD_TUNE_PLUGIN_DIR "/libautoschedule_" + plugin + ".so");
    const Target target = Target(variant.halide_target()).without_feature(Target::NoRuntime);
    // Serial, as every kernel is.
    const AutoschedulerParams params(scheduler, {{"parallelism", "1"}});
    const auto generator =
        Internal::GeneratorRegistry::create(variant.kernel->generator, GeneratorContext(target, params));
    for (const auto &[name, value] : variant.parameters()) {
        generator->set_generatorparam_value(name, value);
    }
    Pipeline pipeline = generator->build_pipeline();
    std::vector<Argument> arguments;
    std::size_t place = 0;
    for (const auto &info : generator->arginfos()) {
        const std::vector<int> &extent = extents[place++];
        if (info.dir == Internal::ArgInfoDirection::Output) {
            Func output = generator->output_func(info.name).front();
            for (std::size_t dim = 0; dim < extent.size(); dim++) {
                output.set_estimate(output.args()[dim], 0, extent[dim]);
            }
            continue;
        }
        Parameter parameter = generator->input_parameter(info.name).front();
        for (std::size_t dim = 0; dim < extent.size(); dim++) {
            parameter.set_min_constraint_estimate(static_cast<int>(dim), 0);
            parameter.set_extent_constraint_estimate(static_cast<int>(dim), extent[dim]);
        }
        if (!parameter.is_buffer()) {
            parameter.set_estimate(cast(parameter.type(), 1));
        }
        arguments.emplace_back(parameter.name(), parameter.is_buffer() ? Argument::InputBuffer : Argument::InputScalar,
                               parameter.type(), parameter.dimensions(), parameter.get_argument_estimates());
    }
    pipeline.apply_autoscheduler(target, params);
    pipeline.compile_to_object(object_file, arguments, variant.symbol(), target);
}

/** The line of a log that says why the program stopped: the last one that is neither empty nor a warning. */
std::string reason_in(const std::string &log) {
    std::istringstream lines(log);
    std::string reason = "it stopped without a word";
    for (std::string line; std::getline(lines, line);) {
        if (!line.empty() && line.rfind("Warning", 0) != 0) {
            reason = line.substr(0, 120);
        }
    }
    return reason;
}

/** Runs what compiles in a process of its own, whose output goes to a file. Halide never gives back all the memory that a
 *  compilation took (9 GB after a thousand candidates, which made every fork slow), and its assertions may end the
 *  process. Throws std::runtime_error with the reason that it gave. */
void run_apart(const std::string &log, const std::function<void()> &compile) {
    std::fflush(nullptr);
    const pid_t process = fork();
    if (process == 0) {
        const int file = open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
        if (file < 0 || dup2(file, STDOUT_FILENO) < 0 || dup2(file, STDERR_FILENO) < 0) {
            _exit(1);
        }
        int status = 1;
        try {
            compile();
            status = 0;
        } catch (const std::exception &error) {
            std::fprintf(stderr, "%s\n", error.what());
        }
        std::fflush(nullptr);
        _exit(status);
    }
    int status = 0;
    if (process < 0 || waitpid(process, &status, 0) != process || status != 0) {
        throw std::runtime_error(reason_in(read_file(log)));
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

std::string Compiler::object(const Variant &variant, const Choice &choice) {
    using Halide::OutputFileType;
    const std::string symbol = variant.symbol(), stem = directory + "/" + symbol;
    const bool by_assembly = variant.kernel->family == "matmul";
    run_apart(stem + ".log", [&] {
        const Halide::GeneratorContext context{Halide::Target(variant.halide_target())};
        const auto generator = Halide::Internal::GeneratorRegistry::create(variant.kernel->generator, context);
        for (const auto &[name, value] : variant.parameters()) {
            generator->set_generatorparam_value(name, value);
        }
        for (const auto &[name, value] : choice) {
            generator->set_generatorparam_value(name, std::to_string(value));
        }
        generator->build_module(symbol).compile({by_assembly ? std::make_pair(OutputFileType::assembly, stem + ".s")
                                                             : std::make_pair(OutputFileType::object, stem + ".o")});
    });
    if (by_assembly) {
        prefetch_into_cache(stem + ".s");
        run_program({HALYARD_TUNE_CC, "-c", stem + ".s", "-o", stem + ".o"});
    }
    return read_file(stem + ".o");
}

std::vector<int> Compiler::argument_dimensions(const Variant &variant) {
    const Halide::GeneratorContext context{Halide::Target(variant.halide_target())};
    const auto generator = Halide::Internal::GeneratorRegistry::create(variant.kernel->generator, context);
    for (const auto &[name, value] : variant.parameters()) {
        generator->set_generatorparam_value(name, value);
    }
    std::vector<int> dimensions;
    for (const auto &argument : generator->arginfos()) {
        dimensions.push_back(argument.kind == Halide::Internal::ArgInfoKind::Buffer ? argument.dimensions : 0);
    }
    return dimensions;
}

const std::vector<std::string> &autoschedulers() {
    static const std::vector<std::string> names = {"Adams2019", "Li2018", "Mullapudi2016"};
    return names;
}

std::unique_ptr<Loaded> Compiler::autoscheduled(const Variant &variant, const std::string &scheduler,
                                                const std::vector<std::vector<int>> &extents) {
    const std::string symbol = variant.symbol(), stem = directory + "/" + symbol + "-" + scheduler;
    const std::string shared = stem + "-" + std::to_string(loads++) + ".so";
    const std::string log = stem + ".log";
    try {
        run_apart(log, [&] { compile_autoscheduled(variant, scheduler, extents, stem + ".o"); });
    } catch (const std::exception &error) {
        throw std::runtime_error("the autoscheduler gives up: " + std::string(error.what()));
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
