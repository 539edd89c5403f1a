// See tuned_file.h.
#include "tuned_file.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>

namespace halyard::tune {
namespace {

double rounded(double value) {
    return std::round(value * 1000) / 1000;
}

/** Whether it is an object of objects of objects. */
bool is_table(const json &value, int depth) {
    return value.is_object() && (depth == 0 || std::all_of(value.begin(), value.end(), [depth](const json &entry) {
                                     return is_table(entry, depth - 1);
                                 }));
}

/** Sets part[table][key], or takes it away where there is no value, and a table that is empty then. */
void set(json &part, const std::string &table, const std::string &key, const json &value) {
    if (!value.is_null()) {
        part[table][key] = value;
    } else if (part.contains(table)) {
        part[table].erase(key);
        if (part[table].empty()) {
            part.erase(table);
        }
    }
}

}  // namespace

json read_tuned(const std::string &file, const std::string &machine) {
    if (!std::filesystem::is_regular_file(file) && !std::filesystem::is_directory(file)) {
        return json::object();  // none, or a device or pipe: it would be waited for
    }
    std::ifstream in(file);
    const json tuned = json::parse(in, nullptr, false);
    const json of = tuned.is_object() ? tuned.value("machine", json()) : json();
    const char *reason = nullptr;
    if (!tuned.is_object() || !tuned.contains("schedules")) {
        reason = "is no JSON with an object 'schedules'";
    } else if (!is_table(tuned["schedules"], 2) || !is_table(tuned.value("measured", json::object()), 2) ||
               !is_table(tuned.value("runtime", json::object()), 0)) {
        reason = "has entries that are no objects";
    } else if (of.is_object() && of.value("name", json(machine)) != machine) {
        reason = "was measured on another machine";
    }
    if (reason != nullptr) {
        throw std::runtime_error(
            "'" + file + "' " + reason +
            ", so what it holds would be lost: mend it, move it away or name another with --output");
    }
    return tuned;
}

json tuned_file(const std::vector<json> &decisions, const json &setting, const json &before) {
    json tuned = before;
    const json machine = setting.at("machine");
    tuned.update({{"hardware", machine.at("cpu")}, {"machine", machine}, {"versions", setting.at("versions")}});
    json &schedules = tuned["schedules"], &measured = tuned["measured"], &runtime = tuned["runtime"];
    for (json *part : {&schedules, &measured, &runtime}) {
        *part = part->is_null() ? json::object() : *part;
    }
    std::string date = tuned.value("date", "");
    for (const json &record : decisions) {
        const Decision decision = decision_of(record);
        date = std::max(date, record.at("time").get<std::string>().substr(0, 10));
        const json gain =
            !decision.is_better ? json() : json{{"gain", rounded(decision.ratio)}, {"noise", rounded(decision.noise)}};
        const std::string kernel = record.at("kernel"), isa = record.at("isa");
        const std::string key = kernel + "_" + record.at("dtype").get<std::string>();
        if (record.at("family") != "runtime") {
            set(schedules, isa, key, decision.is_better ? json(decision.best) : json());
            set(measured, isa, key, gain);
            continue;
        }
        for (const auto &[name, value] : decision.defaults) {
            const auto best = decision.best.find(name);
            runtime.erase(name);
            if (decision.is_better && best != decision.best.end() && best->second != value) {
                runtime[name] = best->second;
            }
        }
        set(measured, "runtime", kernel.substr(kernel.find('.') + 1), gain);
    }
    tuned["date"] = date;
    return tuned;
}

}  // namespace halyard::tune
