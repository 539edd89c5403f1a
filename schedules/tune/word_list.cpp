// The word that lists what can be chosen, on this machine or on another.
#include <algorithm>
#include <cstdio>
#include <stdexcept>

#include "text.h"
#include "words.h"

namespace halyard::tune {
namespace {

struct Declared {
    std::string target, family, parameters;
};

/** Those of schedules/search_spaces.cmake. */
const std::vector<Declared> &declared() {
    static const std::vector<Declared> all = {
#define HALYARD_SPACE(target, family, parameters) {target, family, parameters},
#include "spaces.inc"
#undef HALYARD_SPACE
    };
    return all;
}

std::string parameters_of(const std::string &target, const std::string &family) {
    for (const Declared &each : declared()) {
        if (each.target == target && each.family == family) {
            return each.parameters;
        }
    }
    return "none";
}

}  // namespace

int word_list(const Options &options) {
    std::vector<std::string> targets;
    for (const Declared &each : declared()) {
        if (std::find(targets.begin(), targets.end(), each.target) == targets.end()) {
            targets.push_back(each.target);
        }
    }
    if (std::find(targets.begin(), targets.end(), options.target) == targets.end()) {
        throw std::invalid_argument("--target: there is no '" + options.target + "'; there are " + join(targets));
    }
    std::printf("%-26s %-12s %s\n", "kernel", "family", "parameters and their values");
    for (const KernelInfo *kernel : chosen_kernels(options.kernels)) {
        std::printf("%-26s %-12s %s\n", kernel->name.c_str(), kernel->family.c_str(),
                    parameters_of(options.target, kernel->family).c_str());
    }
    return 0;
}

}  // namespace halyard::tune
