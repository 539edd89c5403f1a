// See export.h.
#include "export.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <map>
#include <stdexcept>

#include "verdict.h"

namespace halyard::tune {
namespace {

using nlohmann::json;

double rounded(double value) {
    return std::round(value * 1000) / 1000;
}

std::string text_of(const json &record, const char *field) {
    return record.at(field).get<std::string>();
}

/** Whether it is an object of objects. */
bool is_table(const json &value) {
    return value.is_object() &&
           std::all_of(value.begin(), value.end(), [](const json &entry) { return entry.is_object(); });
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
        std::string reason = why_foreign(record, setting);
        if (reason.empty() && !is_whole(record)) {
            reason = "something in it is damaged or missing";
        }
        if (!reason.empty()) {
            reasons[reason]++;
            continue;
        }
        newest[text_of(record, "isa") + " " + text_of(record, "kernel") + " " + text_of(record, "dtype")] = record;
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

json read_tuned(const std::string &file, const Setting &setting) {
    const auto refuse = [&file](const std::string &reason) {
        throw std::runtime_error(
            "'" + file + "' " + reason +
            ", so what it holds would be lost: mend it, move it away or name another with --output");
    };
    struct stat status {};
    if (stat(file.c_str(), &status) == 0 && !S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode)) {
        return json::object();  // a device or pipe: it would be waited for
    }
    const int descriptor = open(file.c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) {
        if (errno != ENOENT) {
            refuse(std::string("cannot be read (") + std::strerror(errno) + ")");
        }
        return json::object();
    }
    std::string text;
    char buffer[4096];
    ssize_t count = 0;
    while ((count = read(descriptor, buffer, sizeof(buffer))) > 0) {
        text.append(buffer, static_cast<std::size_t>(count));
    }
    const int error = errno;
    close(descriptor);
    if (count < 0) {
        refuse(std::string("cannot be read (") + std::strerror(error) + ")");
    }
    json tuned = json::parse(text, nullptr, false);
    if (!tuned.is_object() || !tuned.contains("schedules")) {
        refuse("is no JSON with an object 'schedules'");
    }
    for (const char *part : {"schedules", "measured"}) {
        const json entries = tuned.value(part, json::object());
        if (!entries.is_object() || !std::all_of(entries.begin(), entries.end(), is_table)) {
            refuse("has entries in '" + std::string(part) + "' that are no objects");
        }
    }
    const json machine = tuned.value("machine", json());
    if (machine.is_object() && machine.value("name", setting.machine.at("name")) != setting.machine.at("name")) {
        refuse("was measured on another machine");
    }
    return tuned;
}

json tuned_file(const std::vector<json> &verdicts, const Setting &setting, const json &before) {
    json schedules = before.value("schedules", json::object()), measured = before.value("measured", json::object());
    std::string date = before.value("date", json()).is_string() ? before["date"] : "";
    for (const json &verdict : verdicts) {
        date = std::max(date, verdict.at("time").get<std::string>().substr(0, 10));
        const std::string isa = verdict.at("isa"),
                          key = verdict.at("kernel").get<std::string>() + "_" + verdict.at("dtype").get<std::string>();
        if (verdict.at("is_better").get<bool>()) {
            schedules[isa][key] = verdict.at("best");
            measured[isa][key] = {{"gain", rounded(verdict.at("ratio"))}, {"noise", rounded(verdict.at("noise"))}};
            continue;
        }
        for (json *part : {&schedules, &measured}) {
            if (part->contains(isa)) {
                (*part)[isa].erase(key);
                if ((*part)[isa].empty()) {
                    part->erase(isa);
                }
            }
        }
    }
    json tuned = before;
    tuned.update({{"hardware", setting.machine.at("cpu")},
                  {"machine", setting.machine},
                  {"versions", setting.versions},
                  {"date", date},
                  {"schedules", schedules},
                  {"measured", measured}});
    return tuned;
}

}  // namespace halyard::tune
