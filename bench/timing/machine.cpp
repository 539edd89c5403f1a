// See machine.h.
#include "machine.h"

#include <sched.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <thread>
#include <utility>

namespace halyard::bench {
namespace {

std::string first_line(const std::string &path) {
    std::string line;
    std::ifstream file(path);
    std::getline(file, line);
    return line;
}

/** Size of the data or unified cache of a level as the kernel describes it; where it does not (some virtual machines),
 *  what the C library finds. */
std::size_t cache_size(int level, int sysconf_name) {
    for (int index = 0; index < 8; index++) {
        const std::string folder = "/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index) + "/";
        const std::string size = first_line(folder + "size");  // "32K"
        if (first_line(folder + "level") != std::to_string(level) || first_line(folder + "type") == "Instruction" ||
            size.empty()) {
            continue;
        }
        const std::size_t value = std::strtoull(size.c_str(), nullptr, 10);
        return size.back() == 'M' ? value << 20 : size.back() == 'K' ? value << 10 : value;
    }
    return static_cast<std::size_t>(std::max(0L, sysconf(sysconf_name)));
}

/** Where /proc/cpuinfo has numbers instead of a name, as on ARM: the names of ARM's own designs in servers and boards.
 */
std::string name_of_part(const std::string &implementer, const std::string &part) {
    constexpr std::pair<const char *, const char *> parts[] = {
        {"0xd03", "Cortex-A53"},  {"0xd04", "Cortex-A35"},  {"0xd05", "Cortex-A55"}, {"0xd07", "Cortex-A57"},
        {"0xd08", "Cortex-A72"},  {"0xd09", "Cortex-A73"},  {"0xd0a", "Cortex-A75"}, {"0xd0b", "Cortex-A76"},
        {"0xd0c", "Neoverse-N1"}, {"0xd40", "Neoverse-V1"}, {"0xd41", "Cortex-A78"}, {"0xd44", "Cortex-X1"},
        {"0xd49", "Neoverse-N2"}, {"0xd4f", "Neoverse-V2"},
    };
    const auto known =
        std::find_if(std::begin(parts), std::end(parts), [&](const auto &each) { return part == each.first; });
    return implementer == "0x41" && known != std::end(parts) ? std::string("ARM ") + known->second
                                                             : "implementer " + implementer + ", part " + part;
}

std::string cpu_name() {
    std::ifstream file("/proc/cpuinfo");
    std::string implementer;
    for (std::string line; std::getline(file, line);) {
        const std::size_t colon = line.find(": ");
        const std::string value = colon == std::string::npos ? "" : line.substr(colon + 2);
        if (line.rfind("model name", 0) == 0) {
            return value;
        }
        if (line.rfind("CPU implementer", 0) == 0) {
            implementer = value;
        }
        if (line.rfind("CPU part", 0) == 0) {
            return name_of_part(implementer, value);
        }
    }
    return "unknown processor";
}

int usable_processors() {
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof(set), &set) == 0) {
        return CPU_COUNT(&set);
    }
    return static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
}

}  // namespace

std::size_t Machine::cold_set() const {
    // Twice the size of a cache of hundreds of megabytes is enough: other virtual machines share it.
    constexpr std::size_t large = std::size_t{1} << 30, least = std::size_t{64} << 20;
    const std::size_t wanted = std::max({std::min(4 * last_level(), large), 2 * last_level(), least});
    return std::min(wanted, memory / 16);  // each contender has one
}

Machine describe_machine() {
    Machine machine{};
    machine.cpu = cpu_name();
    utsname system{};
    if (uname(&system) == 0) {
        machine.system = std::string(system.sysname) + " " + system.release + " " + system.machine;
    }
    machine.processors = usable_processors();
    machine.l1 = cache_size(1, _SC_LEVEL1_DCACHE_SIZE);
    machine.l2 = cache_size(2, _SC_LEVEL2_CACHE_SIZE);
    machine.l3 = cache_size(3, _SC_LEVEL3_CACHE_SIZE);
    machine.memory =
        static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    return machine;
}

ProcessorTime processor_time() {
    // cpu user nice system idle iowait irq softirq steal, in ticks
    std::ifstream file("/proc/stat");
    std::string name;
    double user = 0, nice = 0, system = 0, idle = 0, iowait = 0, irq = 0, softirq = 0, steal = 0;
    file >> name >> user >> nice >> system >> idle >> iowait >> irq >> softirq >> steal;
    const auto tick = static_cast<double>(sysconf(_SC_CLK_TCK));
    return {(user + nice + system + irq + softirq) / tick, steal / tick};
}

std::string readable_bytes(double bytes) {
    const char *units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    int unit = 0;
    for (; bytes >= 1024 && unit < 4; unit++) {
        bytes /= 1024;
    }
    char text[32];
    std::snprintf(text, sizeof(text), bytes == static_cast<int>(bytes) ? "%.0f %s" : "%.1f %s", bytes, units[unit]);
    return text;
}

}  // namespace halyard::bench
