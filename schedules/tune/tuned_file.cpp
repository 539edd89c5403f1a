// See tuned_file.h.
#include "tuned_file.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>

namespace halyard::tune {
namespace {

double rounded(double value) {
    return std::round(value * 1000) / 1000;
}

template<typename Value>
using Table = std::map<std::string, std::map<std::string, std::map<std::string, Value>>>;

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
    try {
        std::ifstream in(file);
        const json tuned = json::parse(in);
        tuned.at("schedules").get<Table<int>>();
        tuned.value("measured", json::object()).get<Table<double>>();
        tuned.value("runtime", json::object()).get<Choice>();
        const std::string of = tuned.value("machine", json::object()).value("name", machine);
        return of == machine ? tuned : throw std::runtime_error("it was measured on another machine, " + of);
    } catch (const std::exception &error) {
        throw std::runtime_error(
            "'" + file + "' is no file of parameters for here (" + error.what() +
            "), so what it holds would be lost: mend it, move it away or name another with --output");
    }
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
