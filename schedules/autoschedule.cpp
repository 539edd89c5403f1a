// See autoschedule.h.
#include "schedules/autoschedule.h"

#include <algorithm>
#include <cctype>

#include "Halide.h"
#include "schedules/subprocess.h"

namespace halyard::schedules {
namespace {

using namespace Halide;

void compile(const AutoscheduleRequest &request, const std::string &scheduler, const std::string &plugin_folder,
             const std::string &object_file) {
    std::string plugin = scheduler;
    std::transform(plugin.begin(), plugin.end(), plugin.begin(), [](unsigned char c) { return std::tolower(c); });
    load_plugin(plugin_folder + "/libautoschedule_" + plugin + ".so");
    const Target target(request.target);
    const AutoschedulerParams params(scheduler, {{"parallelism", std::to_string(request.parallelism)}});
    const auto generator = Internal::GeneratorRegistry::create(request.generator, GeneratorContext(target, params));
    for (const auto &[name, value] : request.parameters) {
        generator->set_generatorparam_value(name, value);
    }
    Pipeline pipeline = generator->build_pipeline();
    std::vector<Argument> arguments;
    std::size_t place = 0;
    for (const auto &info : generator->arginfos()) {
        const std::vector<int> &estimate = request.estimates.at(place++);
        if (info.dir == Internal::ArgInfoDirection::Output) {
            Func output = generator->output_func(info.name).front();
            for (std::size_t dim = 0; dim < estimate.size(); dim++) {
                output.set_estimate(output.args()[dim], 0, estimate[dim]);
            }
            continue;
        }
        Parameter parameter = generator->input_parameter(info.name).front();
        if (parameter.is_buffer()) {
            for (std::size_t dim = 0; dim < estimate.size(); dim++) {
                parameter.set_min_constraint_estimate(static_cast<int>(dim), 0);
                parameter.set_extent_constraint_estimate(static_cast<int>(dim), estimate[dim]);
            }
        } else {
            parameter.set_estimate(cast(parameter.type(), estimate.empty() ? 1 : estimate[0]));
        }
        arguments.emplace_back(parameter.name(), parameter.is_buffer() ? Argument::InputBuffer : Argument::InputScalar,
                               parameter.type(), parameter.dimensions(), parameter.get_argument_estimates());
    }
    pipeline.apply_autoscheduler(target, params);
    pipeline.compile_to_object(object_file, arguments, request.symbol, target);
}

}  // namespace

const std::vector<std::string> &autoschedulers() {
    static const std::vector<std::string> names = {"Adams2019", "Li2018", "Mullapudi2016"};
    return names;
}

std::string autoschedule(const AutoscheduleRequest &request, const std::string &scheduler,
                         const std::string &plugin_folder, const std::string &object_file, int most_seconds) {
    Subprocess process([&] { compile(request, scheduler, plugin_folder, object_file); }, most_seconds);
    return process.wait();
}

}  // namespace halyard::schedules
