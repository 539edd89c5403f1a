// See busy_elsewhere.h.
#include "busy_elsewhere.h"

#include <time.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "machine.h"

namespace halyard::bench {
namespace {

double seconds_of(clockid_t clock) {
    timespec time{};
    return clock_gettime(clock, &time) == 0
               ? static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec)
               : 0;
}

}  // namespace

std::vector<pid_t> with_descendants(const std::vector<pid_t> &processes) {
    std::multimap<pid_t, pid_t> children;
    std::error_code ignored;
    for (const auto &entry : std::filesystem::directory_iterator("/proc", ignored)) {
        std::string line;
        std::ifstream file(entry.path() / "stat");
        std::getline(file, line);  // number (name) state parent ...
        const std::size_t name_end = line.rfind(") ");
        if (name_end != std::string::npos) {
            children.emplace(std::stoi(line.substr(name_end + 4)), std::stoi(line));
        }
    }
    std::vector<pid_t> all;
    std::copy_if(processes.begin(), processes.end(), std::back_inserter(all), [](pid_t each) { return each > 0; });
    for (std::size_t i = 0; i < all.size(); i++) {
        const auto [begin, end] = children.equal_range(all[i]);
        std::for_each(begin, end, [&all](const auto &child) { all.push_back(child.second); });
    }
    return all;
}

void BusyElsewhere::begin(const std::vector<pid_t> &processes) {
    own = processes;
    start = Clock::now();
    used_before = used();
}

void BusyElsewhere::end() {
    elsewhere += used() - used_before;
    seconds += std::chrono::duration<double>(Clock::now() - start).count();
}

double BusyElsewhere::share() const {
    return seconds > 0 ? std::clamp(elsewhere / (seconds * processors), 0.0, 1.0) : 0;
}

double BusyElsewhere::used() const {
    const ProcessorTime all = processor_time();
    double others = all.busy + all.stolen - seconds_of(CLOCK_PROCESS_CPUTIME_ID);
    for (const pid_t process : own) {
        clockid_t clock;
        if (clock_getcpuclockid(process, &clock) == 0) {
            others -= seconds_of(clock);
        }
    }
    return others;
}

}  // namespace halyard::bench
