// Writes the arguments of every kernel as C++, from what the generators say of themselves: runtime/core/kernel_call.h and
// runtime/cuda/kernel_call.h include it.
//
//     halyard_kernel_calls <Halide target> <list of kernels> <output>
//
// A line of the list is a variant of a kernel: its name, its generator, and the parameters of that. Where variants differ
// in what a buffer holds, it holds `Stored` elements.
#include <algorithm>
#include <cctype>
#include <fstream>
#include <iostream>
#include <map>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "Halide.h"

namespace {

struct Argument {
    std::string name, type;
    int rank;  // negative: a scalar

    bool operator==(const Argument &other) const {
        return name == other.name && type == other.type && rank == other.rank;
    }
};
using Arguments = std::vector<Argument>;

struct Kernel {
    std::string name, generator;
    Arguments arguments;
};

constexpr const char *stored = "Stored";

std::string type_name(const Halide::Type &type, bool is_buffer) {
    if (type == Halide::Float(32)) {
        return "float";
    }
    if (type == Halide::Float(64)) {
        return "double";
    }
    if (type == Halide::Int(32)) {
        return "int32_t";
    }
    if (type == Halide::Bool()) {
        return "bool";
    }
    if (is_buffer) {
        return stored;
    }
    throw std::invalid_argument("a scalar's type has no name here");
}

Arguments arguments_of(const std::string &generator, const std::vector<std::string> &parameters,
                       const Halide::Target &target) {
    const auto instance = Halide::Internal::GeneratorRegistry::create(generator, Halide::GeneratorContext(target));
    for (const std::string &parameter : parameters) {
        const std::size_t equals = parameter.find('=');
        instance->set_generatorparam_value(parameter.substr(0, equals), parameter.substr(equals + 1));
    }
    Arguments arguments;
    for (const auto &each : instance->arginfos()) {
        const bool is_buffer = each.kind != Halide::Internal::ArgInfoKind::Scalar;
        arguments.push_back({each.name, type_name(each.types.at(0), is_buffer), is_buffer ? each.dimensions : -1});
    }
    return arguments;
}

/** Adds another variant of the kernel. */
void join(Kernel &kernel, const Arguments &variant) {
    if (variant.size() != kernel.arguments.size()) {
        throw std::invalid_argument(kernel.name + " has variants with more arguments than others");
    }
    for (std::size_t i = 0; i < variant.size(); i++) {
        Argument &argument = kernel.arguments[i];
        const Argument &other = variant[i];
        if (argument.name != other.name || argument.rank != other.rank ||
            (argument.rank < 0 && argument.type != other.type)) {
            throw std::invalid_argument(kernel.name + " has variants that differ in their argument " + argument.name);
        }
        if (argument.type != other.type) {
            argument.type = stored;
        }
    }
}

std::vector<Kernel> read_kernels(const std::string &file, const Halide::Target &target) {
    std::vector<Kernel> kernels;
    std::ifstream list(file);
    for (std::string line; std::getline(list, line);) {
        std::istringstream words(line);
        Kernel kernel;
        std::vector<std::string> parameters;
        words >> kernel.name >> kernel.generator;
        for (std::string word; words >> word;) {
            parameters.push_back(word);
        }
        kernel.arguments = arguments_of(kernel.generator, parameters, target);
        if (!kernels.empty() && kernels.back().name == kernel.name) {
            join(kernels.back(), kernel.arguments);
        } else {
            kernels.push_back(kernel);
        }
    }
    return kernels;
}

/** rms_norm: RmsNorm. */
std::string type_of_name(const std::string &name) {
    std::string type;
    bool begins = true;
    for (const char each : name) {
        if (each == '_') {
            begins = true;
        } else {
            type += begins ? static_cast<char>(std::toupper(each)) : each;
            begins = false;
        }
    }
    return type;
}

std::string member(const Argument &argument) {
    if (argument.rank < 0) {
        return "Scalar<" + argument.type + "> " + argument.name;
    }
    const std::string element = argument.type == stored ? "" : ", " + argument.type;
    return "BufferArgument<" + std::to_string(argument.rank) + element + "> " + argument.name;
}

void write_struct(std::ostream &out, const std::string &name, const Arguments &arguments) {
    out << "struct " << name << " {\n";
    for (const Argument &argument : arguments) {
        out << "    " << member(argument) << ";\n";
    }
    out << "\n    static constexpr Parameter parameters[] = {";
    for (const Argument &argument : arguments) {
        out << (&argument == &arguments.front() ? "" : ", ") << "{\"" << argument.name << "\", " << argument.rank
            << "}";
    }
    out << "};\n    Pointers<" << arguments.size() << "> pointers() {\n        return {";
    for (const Argument &argument : arguments) {
        out << (&argument == &arguments.front() ? "" : ", ") << argument.name << ".pointer()";
    }
    out << "};\n    }\n};\n";
}

void write(std::ostream &out, const std::vector<Kernel> &kernels) {
    // Kernels with the same arguments share a type, which has the generator's name or, if that has kernels of several, that
    // of the first of them.
    std::map<std::string, std::vector<const Kernel *>> firsts;  // by generator
    for (const Kernel &kernel : kernels) {
        std::vector<const Kernel *> &known = firsts[kernel.generator];
        if (std::none_of(known.begin(), known.end(),
                         [&](const Kernel *other) { return other->arguments == kernel.arguments; })) {
            known.push_back(&kernel);
        }
    }
    std::map<const Kernel *, std::string> types;
    out << "namespace arguments {\n";
    for (const Kernel &kernel : kernels) {
        const std::vector<const Kernel *> &known = firsts[kernel.generator];
        const auto first = std::find_if(known.begin(), known.end(),
                                        [&](const Kernel *other) { return other->arguments == kernel.arguments; });
        if (*first == &kernel) {
            types[&kernel] = type_of_name(known.size() == 1 ? kernel.generator : kernel.name);
            write_struct(out, types[&kernel], kernel.arguments);
        } else {
            types[&kernel] = types.at(*first);
        }
    }
    out << "}\n\nnamespace kernels {\n";
    for (const Kernel &kernel : kernels) {
        out << "constexpr KernelOf<arguments::" << types.at(&kernel) << "> " << kernel.name
            << "{Kernel::" << kernel.name << "};\n";
    }
    out << "}\n";
}

}  // namespace

int main(int argc, char **argv) {
    try {
        if (argc != 4) {
            throw std::invalid_argument("three arguments are needed: target, list and output");
        }
        std::ostringstream text;
        write(text, read_kernels(argv[2], Halide::Target(argv[1])));
        std::ofstream out(argv[3]);
        out << text.str();
        out.close();
        if (!out) {
            throw std::runtime_error(std::string("cannot write ") + argv[3]);
        }
    } catch (const std::exception &error) {
        std::cerr << "halyard_kernel_calls: " << error.what() << "\n";
        return 1;
    }
    return 0;
}
