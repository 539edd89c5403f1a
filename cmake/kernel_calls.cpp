// Writes the arguments of every kernel as C++, from what the generators say of themselves: runtime/core/kernel_call.h and
// runtime/cuda/kernel_call.h include it.
//
//     halyard_kernel_calls <Halide target> <list of kernels> <output>
//
// A line of the list is a variant of a kernel: the kernel, how it reads memory (of devices: words or elements), the
// generator and its parameters. Where variants differ in what a buffer holds, it holds `Stored` elements. Variants with
// other arguments than the kernel's first have the name <kernel>_<how they read>.
#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "Halide.h"

namespace {

struct Argument {
    std::string name, type;
    int rank;    // negative: a scalar
    int length;  // of an array of scalars; else 1

    bool operator==(const Argument &other) const {
        return name == other.name && type == other.type && rank == other.rank && length == other.length;
    }
};
using Arguments = std::vector<Argument>;

struct Kernel {
    std::string name, own_name, generator;
    Arguments arguments;
};

constexpr const char *stored = "Stored";

[[noreturn]] void fail(const std::string &message) {
    std::cerr << "halyard_kernel_calls: " << message << "\n";
    std::exit(1);
}

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
    fail("a scalar has a type without a name here");
}

Arguments arguments_of(const std::string &generator, const std::vector<std::string> &parameters,
                       const Halide::Target &target) {
    const auto instance = Halide::Internal::GeneratorRegistry::create(generator, Halide::GeneratorContext(target));
    std::vector<Halide::Internal::AbstractGenerator::ArgInfo> infos;
    try {
        for (const std::string &parameter : parameters) {
            const std::size_t equals = parameter.find('=');
            instance->set_generatorparam_value(parameter.substr(0, equals), parameter.substr(equals + 1));
        }
        infos = instance->arginfos();
        instance->build_pipeline();  // which alone tells how long arrays are
    } catch (const Halide::Error &error) {
        fail(generator + ": " + error.what());  // the generator cannot be destroyed
    }
    Arguments arguments;
    for (const auto &each : infos) {
        const bool is_buffer = each.kind != Halide::Internal::ArgInfoKind::Scalar;
        const bool is_output = each.dir == Halide::Internal::ArgInfoDirection::Output;
        const int length = is_output ? 1 : static_cast<int>(instance->input_parameter(each.name).size());
        if (is_buffer && length != 1) {
            fail(generator + " has an array of buffers, which have no name here");
        }
        for (std::size_t i = 0; i < each.types.size(); i++) {
            const std::string part = each.types.size() > 1 ? std::to_string(i) : "";
            arguments.push_back(
                {each.name + part, type_name(each.types[i], is_buffer), is_buffer ? each.dimensions : -1, length});
        }
    }
    return arguments;
}

/** Whether variants are called alike but for what buffers hold. */
bool alike(const Arguments &a, const Arguments &b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const Argument &x, const Argument &y) {
        return x.name == y.name && x.rank == y.rank && x.length == y.length && (x.rank >= 0 || x.type == y.type);
    });
}

void join(Arguments &all, const Arguments &variant) {
    for (std::size_t i = 0; i < variant.size(); i++) {
        if (all[i].type != variant[i].type) {
            all[i].type = stored;
        }
    }
}

std::vector<Kernel> read_kernels(const std::string &file, const Halide::Target &target) {
    std::vector<Kernel> kernels;
    std::ifstream list(file);
    for (std::string line; std::getline(list, line);) {
        std::istringstream words(line);
        std::string name, access, generator;
        words >> name >> access >> generator;
        const std::vector<std::string> parameters{std::istream_iterator<std::string>(words), {}};
        const Arguments arguments = arguments_of(generator, parameters, target);
        const auto same = [&](const Kernel &kernel) {
            return kernel.name == name && alike(kernel.arguments, arguments);
        };
        const auto found = std::find_if(kernels.begin(), kernels.end(), same);
        if (found != kernels.end()) {
            join(found->arguments, arguments);
            continue;
        }
        const bool is_first = kernels.empty() || kernels.back().name != name;
        kernels.push_back({name, is_first ? name : name + "_" + access, generator, arguments});
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

std::string member_type(const Argument &argument) {
    if (argument.rank >= 0) {
        const std::string element = argument.type == stored ? "" : ", " + argument.type;
        return "BufferArgument<" + std::to_string(argument.rank) + element + ">";
    }
    const bool is_array = argument.length != 1;
    return is_array ? "Scalars<" + argument.type + ", " + std::to_string(argument.length) + ">"
                    : "Scalar<" + argument.type + ">";
}

/** The member of argument `index` of those that a kernel gets. */
std::string read(const Argument &argument, int index) {
    const bool is_buffer = argument.rank >= 0;
    return member_type(argument) + (is_buffer ? "(" : "(*") + "static_cast<const " +
           (is_buffer ? "halide_buffer_t" : argument.type) + " *>(arguments[" + std::to_string(index) + "]))";
}

void write_struct(std::ostream &out, const std::string &name, const Arguments &arguments) {
    std::string parameters, pointers, members, members_read;
    int count = 0;
    bool has_arrays = false;
    for (const Argument &argument : arguments) {
        members_read += (count == 0 ? "" : ", ") + read(argument, count);
        has_arrays = has_arrays || argument.length != 1;
        members += "    " + member_type(argument) + " " + argument.name + ";\n";
        for (int i = 0; i < argument.length; i++, count++) {
            const std::string separator = count == 0 ? "" : ", ", index = argument.length == 1 ? "" : std::to_string(i);
            parameters += separator + "{\"" + argument.name + index + "\", " + std::to_string(argument.rank) + "}";
            pointers += separator + argument.name + ".pointer(" + index + ")";
        }
    }
    // The parameters are no member: that would be a symbol of its own, which nothing hides.
    const std::string of_parameters = "parameters_of_" + name;
    out << "constexpr Parameter " << of_parameters << "[] = {" << parameters << "};\nstruct " << name << " {\n"
        << members << "\n    static const auto &parameters() { return " << of_parameters << "; }\n    Pointers<"
        << count << "> pointers() { return {" << pointers << "}; }\n";
    if (!has_arrays) {
        out << "    static " << name << " of(void **arguments) { return {" << members_read << "}; }\n";
    }
    out << "};\n";
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
            types[&kernel] = type_of_name(known.size() == 1 ? kernel.generator : kernel.own_name);
            write_struct(out, types[&kernel], kernel.arguments);
        } else {
            types[&kernel] = types.at(*first);
        }
    }
    out << "}\n\nnamespace kernels {\n";
    for (const Kernel &kernel : kernels) {
        out << "constexpr KernelOf<arguments::" << types.at(&kernel) << "> " << kernel.own_name
            << "{Kernel::" << kernel.name << "};\n";
    }
    out << "}\n";
}

}  // namespace

int main(int argc, char **argv) {
    if (argc != 4) {
        fail("three arguments are needed: target, list and output");
    }
    std::ostringstream text;
    write(text, read_kernels(argv[2], Halide::Target(argv[1])));
    // What is the same stays as it is, and so does the runtime, which includes it.
    std::ifstream before(argv[3]);
    if (before && std::string(std::istreambuf_iterator<char>(before), {}) == text.str()) {
        return 0;
    }
    std::ofstream out(argv[3]);
    out << text.str();
    out.close();
    if (!out) {
        fail(std::string("cannot write ") + argv[3]);
    }
    return 0;
}
