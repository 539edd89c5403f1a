// See export.h.
#include "export.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>
#include <stdexcept>

namespace halyard::tune {
namespace {

using nlohmann::json;

double rounded(double value) {
    return std::round(value * 1000) / 1000;
}

}  // namespace

std::vector<json> current_verdicts(const Database &database, const Setting &setting,
                                   std::vector<std::string> &complaints) {
    std::map<std::string, json> newest;
    std::map<std::string, int> reasons;
    for (const json &record : database.records()) {
        if (record["kind"] != "verdict") {
            continue;
        }
        const std::string reason = why_foreign(record, setting);
        if (!reason.empty()) {
            reasons[reason]++;
            continue;
        }
        newest[record.value("isa", "") + " " + record.value("kernel", "") + " " + record.value("dtype", "")] = record;
    }
    for (const auto &[reason, count] : reasons) {
        complaints.push_back(std::to_string(count) + (count == 1 ? " verdict does" : " verdicts do") +
                             " not count: " + reason + ".");
    }
    std::vector<json> verdicts;
    for (const auto &[name, record] : newest) {
        verdicts.push_back(record);
    }
    return verdicts;
}

json tuned_file(const std::vector<json> &verdicts, const Setting &setting) {
    json schedules = json::object(), measured = json::object();
    std::string date;
    for (const json &verdict : verdicts) {
        date = std::max(date, verdict.at("time").get<std::string>());
        if (!verdict.at("is_better").get<bool>()) {
            continue;
        }
        const std::string isa = verdict.at("isa"),
                          key = verdict.at("kernel").get<std::string>() + "_" + verdict.at("dtype").get<std::string>();
        schedules[isa][key] = verdict.at("best");
        measured[isa][key] = {{"gain", rounded(verdict.at("ratio"))}, {"noise", rounded(verdict.at("noise"))}};
    }
    return {{"hardware", setting.machine.at("cpu")},
            {"machine", setting.machine},
            {"versions", setting.versions},
            {"date", date.substr(0, 10)},
            {"schedules", schedules},
            {"measured", measured}};
}

void replace_file(const std::string &file, const std::string &text) {
    const std::string unfinished = file + ".part";
    const auto fail = [&unfinished, &file] {
        const int error = errno;
        std::remove(unfinished.c_str());
        throw std::runtime_error("'" + file + "' cannot be written: " + std::strerror(error));
    };
    const int descriptor = open(unfinished.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (descriptor < 0) {
        fail();
    }
    errno = ENOSPC;  // what a short write means
    const bool is_written =
        write(descriptor, text.data(), text.size()) == static_cast<ssize_t>(text.size()) && fsync(descriptor) == 0;
    if (close(descriptor) != 0 || !is_written || std::rename(unfinished.c_str(), file.c_str()) != 0) {
        fail();
    }
}

}  // namespace halyard::tune
