// See setting.h.
#include "setting.h"

#include <algorithm>
#include <cctype>
#include <fstream>

#include "compile.h"
#include "halyard/halyard.h"

namespace halyard::tune {
namespace {

std::string processor_field(const std::string &name) {
    std::ifstream file("/proc/cpuinfo");
    for (std::string line; std::getline(file, line);) {
        const std::size_t colon = line.find(':');
        if (colon == std::string::npos) {
            continue;
        }
        std::string field = line.substr(0, colon);
        field.erase(field.find_last_not_of(" \t") + 1);
        if (field == name) {
            const std::size_t value = line.find_first_not_of(" \t", colon + 1);
            return value == std::string::npos ? "" : line.substr(value);
        }
    }
    return {};
}

}  // namespace

std::string machine_name(const bench::Machine &machine) {
    const auto kibibytes = [](std::size_t bytes) { return std::to_string(bytes / 1024) + "k"; };
    std::string name = "x86-64-" + processor_field("vendor_id") + "-" + processor_field("cpu family") + "-" +
                       processor_field("model") + "-" + kibibytes(machine.l1) + "-" + kibibytes(machine.l2);
    std::transform(name.begin(), name.end(), name.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    return name;
}

Setting describe_setting(const bench::Machine &machine) {
    return {{{"name", machine_name(machine)},
             {"cpu", machine.cpu},
             {"processors", machine.processors},
             {"l1", machine.l1},
             {"l2", machine.l2},
             {"l3", machine.l3}},
            {{"halyard", halyard_version()}, {"halide", halide_version()}}};
}

}  // namespace halyard::tune
