// halyard-autoschedule: what the peers "halide-..." call. Of every kernel that the default work list calls it compiles
// what one of Halide's autoschedulers makes of it for exactly the shape and the threads of the row, into one shared
// library; beside it stands a list of what there is, and of what the autoscheduler could not do and why.
//
// usage: halyard-autoschedule SCHEDULER FOLDER
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "Halide.h"
#include "kernel_calls.h"
#include "schedules/autoschedule.h"
#include "schedules/subprocess.h"
#include "schedules/tune/kernels.h"
#include "work_list.h"

namespace halyard::bench {
namespace {

namespace fs = std::filesystem;
using schedules::AutoscheduleRequest;
using tune::Variant;

/** The best instruction set of this machine. */
std::string isa_of_machine() {
    std::string best;
    for (const std::string &name : tune::isa_names()) {
        for (int isa = 0; isa < halyard_isa_count(); isa++) {
            const auto candidate = static_cast<halyard_isa>(isa);
            if (name == halyard_isa_name(candidate) && halyard_isa_supported(candidate) != 0) {
                best = name;
            }
        }
    }
    return best;
}

/** What the generator is told about an argument. */
std::vector<int> estimate_of(const KernelArgument &argument, std::int64_t rows) {
    if (const auto *tensor = std::get_if<KernelTensor>(&argument.value)) {
        const int width = static_cast<int>(tensor->width);
        const bool is_vector = tensor->which == KernelTensor::weight || tensor->which == KernelTensor::bias;
        return is_vector ? std::vector<int>{width} : std::vector<int>{width, static_cast<int>(rows)};
    }
    const int *integer = std::get_if<int>(&argument.value);
    return integer != nullptr ? std::vector<int>{*integer} : std::vector<int>{};
}

/** Throws if the arguments are not the generator's: this program and kernel_calls.cpp know them by heart. */
void check_arguments(const KernelCall &call, const AutoscheduleRequest &request) {
    const auto generator = Halide::Internal::GeneratorRegistry::create(
        request.generator, Halide::GeneratorContext(Halide::Target(request.target)));
    for (const auto &[name, value] : request.parameters) {
        generator->set_generatorparam_value(name, value);
    }
    std::string wanted, given;
    for (const auto &argument : generator->arginfos()) {
        wanted += argument.name + " ";
    }
    for (const KernelArgument &argument : call.arguments) {
        given += argument.name + " ";
    }
    if (wanted != given) {
        throw std::logic_error(call.kernel + " has the arguments " + wanted + "and is called with " + given);
    }
}

AutoscheduleRequest request_for(const KernelCall &call, const std::string &isa) {
    const tune::KernelInfo *kernel = tune::find_kernel(call.kernel);
    if (kernel == nullptr) {
        throw std::logic_error("there is no kernel " + call.kernel);
    }
    const Variant variant{kernel, tests::name_of(call.dtype), isa};
    AutoscheduleRequest request{kernel->generator, variant.parameters(), variant.halide_target(),
                                call.name(),       call.threads,         {}};
    for (const KernelArgument &argument : call.arguments) {
        request.estimates.push_back(estimate_of(argument, call.rows));
    }
    return request;
}

/** Halide's own runtime, one for all kernels. (Halide 21 makes none for a target with strict_float.) */
void make_runtime(const std::string &isa, const std::string &object) {
    const Variant any{&tune::kernel_table().front(), "f32", isa};
    schedules::Subprocess process([&] {
        const Halide::Target target(any.halide_target());
        Halide::compile_standalone_runtime(
            object, target.without_feature(Halide::Target::NoRuntime).without_feature(Halide::Target::StrictFloat));
    });
    const std::string failure = process.wait();
    if (!failure.empty()) {
        throw std::runtime_error("Halide's runtime: " + failure);
    }
}

void make_library(const std::string &scheduler, const fs::path &folder) {
    constexpr int most_seconds = 60;  // for one kernel; those that are found at all take a tenth of it
    const std::string isa = isa_of_machine();
    std::string name = scheduler;
    std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
    const fs::path objects = folder / (name + ".objects");
    fs::remove_all(objects);
    fs::create_directories(objects);

    const std::string runtime = (objects / "runtime.o").string();
    make_runtime(isa, runtime);
    nlohmann::json kernels;
    const std::string stem = (folder / name).string();
    std::vector<std::string> link{HALYARD_BENCH_CC, "-shared", "-Wl,-Bsymbolic", "-o", stem + ".so", runtime};
    const int processors = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
    for (const WorkId &row : read_work_list("default", HALYARD_BENCH_SHAPES_DIR, processors)) {
        for (const KernelCall &call : kernel_calls(row)) {
            if (kernels.contains(call.name())) {
                continue;
            }
            const AutoscheduleRequest request = request_for(call, isa);
            check_arguments(call, request);
            const std::string object = (objects / (call.name() + ".o")).string();
            const std::string failure =
                schedules::autoschedule(request, scheduler, HALYARD_BENCH_PLUGIN_DIR, object, most_seconds);
            kernels[call.name()] = failure;
            if (failure.empty()) {
                link.push_back(object);
            }
        }
    }
    link.insert(link.end(), {"-lpthread", "-ldl", "-lm"});
    schedules::run_program(link);
    fs::remove_all(objects);

    std::ofstream list(stem + ".json");
    list << nlohmann::json{{"isa", isa}, {"kernels", kernels}}.dump(1) << '\n';
    list.close();
    if (!list) {
        throw std::runtime_error("cannot write '" + stem + ".json'");
    }
}

}  // namespace
}  // namespace halyard::bench

int main(int argc, char **argv) {
    if (argc != 3) {
        std::fputs("usage: halyard-autoschedule SCHEDULER FOLDER\n", stderr);
        return 2;
    }
    try {
        halyard::bench::make_library(argv[1], argv[2]);
    } catch (const std::exception &error) {
        std::fprintf(stderr, "halyard-autoschedule: %s\n", error.what());
        return 1;
    }
    return 0;
}
