// See tuned_file.h.
#include "tuned_file.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace halyard::tune {
namespace {

using nlohmann::json;

double rounded(double value) {
    return std::round(value * 1000) / 1000;
}

/** Whether it is an object of objects. */
bool is_table(const json &value) {
    return value.is_object() &&
           std::all_of(value.begin(), value.end(), [](const json &entry) { return entry.is_object(); });
}

void erase(json &part, const std::string &table, const std::string &key) {
    if (part.contains(table)) {
        part[table].erase(key);
        if (part[table].empty()) {
            part.erase(table);
        }
    }
}

}  // namespace

json read_tuned(const std::string &file, const Setting &setting) {
    const auto refuse = [&file](const std::string &reason) {
        throw std::runtime_error(
            "'" + file + "' " + reason +
            ", so what it holds would be lost: mend it, move it away or name another with --output");
    };
    std::error_code error;
    const auto status = std::filesystem::status(file, error);
    if (!std::filesystem::exists(status) ||
        (!std::filesystem::is_regular_file(status) && !std::filesystem::is_directory(status))) {
        return json::object();  // none, or a device or pipe: it would be waited for
    }
    std::ifstream in(file);
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    if (!in || std::filesystem::is_directory(status)) {
        refuse(std::string("cannot be read (") + std::strerror(in ? EISDIR : errno) + ")");
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
    if (!tuned.value("runtime", json::object()).is_object()) {
        refuse("has a 'runtime' that is no object");
    }
    const json machine = tuned.value("machine", json());
    if (machine.is_object() && machine.value("name", setting.machine.at("name")) != setting.machine.at("name")) {
        refuse("was measured on another machine");
    }
    return tuned;
}

json tuned_file(const std::vector<json> &decisions, const Setting &setting, const json &before) {
    json schedules = before.value("schedules", json::object()), measured = before.value("measured", json::object());
    json runtime = before.value("runtime", json::object());
    std::string date = before.value("date", json()).is_string() ? before["date"] : "";
    for (const json &record : decisions) {
        const Decision decision = decision_of(record);
        date = std::max(date, record.at("time").get<std::string>().substr(0, 10));
        const bool of_runtime = record.at("family") == "runtime";
        const std::string kernel = record.at("kernel"), dtype = record.at("dtype");
        const std::string isa = record.at("isa"), table = of_runtime ? "runtime" : isa,
                          key = of_runtime ? kernel.substr(kernel.find('.') + 1) : kernel + "_" + dtype;
        if (of_runtime) {
            for (const auto &[name, value] : decision.defaults) {
                const auto best = decision.best.find(name);
                runtime.erase(name);
                if (decision.is_better && best != decision.best.end() && best->second != value) {
                    runtime[name] = best->second;
                }
            }
        }
        if (decision.is_better) {
            measured[table][key] = {{"gain", rounded(decision.gain.ratio)}, {"noise", rounded(decision.noise)}};
        } else {
            erase(measured, table, key);
        }
        if (!of_runtime && decision.is_better) {
            schedules[isa][key] = decision.best;
        } else if (!of_runtime) {
            erase(schedules, isa, key);
        }
    }
    json tuned = before;
    tuned.update({{"hardware", setting.machine.at("cpu")},
                  {"machine", setting.machine},
                  {"versions", setting.versions},
                  {"date", date},
                  {"schedules", schedules},
                  {"runtime", runtime},
                  {"measured", measured}});
    return tuned;
}

}  // namespace halyard::tune
