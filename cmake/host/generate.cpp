// The program of a family of generators: makes an object or assembly of several kernels.
//
//   halyard_generate_<family> kernels GENERATOR TARGET LIST OUT
//       all kernels of a list for one Halide target, as one module: what Halide and LLVM do once for each takes longer than a small
//       kernel. A line is the symbol, how far its streamed form prefetches (which make_kernels.cpp knows) and the GeneratorParams.
//       OUT ends in .o or .s.
//   halyard_generate_<family> -g ...
//       Halide's own interface, which makes kernels of GPUs
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>

#include "Halide.h"

namespace {

/** The kernel of a line of the list. */
Halide::Module lower(const std::string &generator_name, const Halide::Target &target, const std::string &line) {
    std::istringstream words(line);
    std::string symbol, prefetch, argument;
    words >> symbol >> prefetch;
    const auto generator =
        Halide::Internal::GeneratorRegistry::create(generator_name, Halide::GeneratorContext(target));
    while (words >> argument) {
        const std::size_t sign = argument.find('=');
        if (sign == std::string::npos) {
            throw std::runtime_error("'" + argument + "' is no name=value");
        }
        generator->set_generatorparam_value(argument.substr(0, sign), argument.substr(sign + 1));
    }
    return generator->build_module(symbol);
}

void make_kernels(const std::string &generator, const Halide::Target &target, const std::string &list,
                  const std::string &out) {
    std::ifstream lines(list);
    std::optional<Halide::Module> module;
    for (std::string line; std::getline(lines, line);) {
        const Halide::Module kernel = lower(generator, target, line);
        if (!module) {
            module.emplace(std::filesystem::path(out).stem(), target);
        }
        // Kernels without strict expressions have none that may be contracted where others of their generator are strict: they move numbers.
        module->set_any_strict_float(module->any_strict_float() || kernel.any_strict_float());
        for (const Halide::Internal::LoweredFunc &function : kernel.functions()) {
            module->append(function);
        }
        for (const Halide::Buffer<> &buffer : kernel.buffers()) {
            module->append(buffer);
        }
    }
    if (!module) {
        throw std::runtime_error("'" + list + "' has no kernels");
    }
    const bool is_object = std::filesystem::path(out).extension() == ".o";
    module->compile({{is_object ? Halide::OutputFileType::object : Halide::OutputFileType::assembly, out}});
}

}  // namespace

int main(int count, char **arguments) {
    try {
        if (count == 6 && std::strcmp(arguments[1], "kernels") == 0) {
            make_kernels(arguments[2], Halide::Target(arguments[3]), arguments[4], arguments[5]);
            return 0;
        }
        return Halide::Internal::generate_filter_main(count, arguments);
    } catch (const std::exception &error) {
        std::cerr << error.what() << '\n';
        return 1;
    }
}
