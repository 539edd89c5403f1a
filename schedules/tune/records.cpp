// See records.h.
#include "records.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>

#define XXH_INLINE_ALL
#include "xxhash.h"

namespace halyard::tune {
namespace {

constexpr int schema = 3;

std::string text_of_value(const json &value) {
    return value.is_string() ? value.get<std::string>() : value.is_null() ? "nothing" : value.dump();
}

}  // namespace

Records::Records(std::string file) : path(std::move(file)) {
    if (!std::filesystem::is_regular_file(path)) {
        return;  // what is there instead, append() will say
    }
    std::ifstream in(path);
    if (!in) {
        throw std::runtime_error("the database '" + path + "' cannot be read");
    }
    int number = 0;
    for (std::string line; std::getline(in, line);) {
        number++;
        is_cut_off = in.eof();
        try {
            if (!line.empty()) {
                decision_of(json::parse(line));
                all.push_back(json::parse(line));
            }
        } catch (const std::exception &) {
            unreadable.push_back(path + ":" + std::to_string(number) +
                                 (is_cut_off ? ": the last line is cut off and left out" : ": no decision; left out"));
        }
    }
}

void Records::append(const json &record) {
    write(record.dump() + "\n");
    all.push_back(record);
}

void Records::write(const std::string &line) {
    std::error_code ignored;
    std::filesystem::create_directories(std::filesystem::path(path).parent_path(), ignored);
    errno = 0;
    std::ofstream out(path, std::ios::app);
    out << (is_cut_off ? "\n" : "") << line << std::flush;
    is_cut_off = !out;
    if (!out) {
        throw RecordsError("the database '" + path + "' cannot be written: " + std::strerror(errno));
    }
}

json setting_of(const json &machine, const json &versions) {
    return {{"schema", schema}, {"machine", machine}, {"versions", versions}};
}

json record_of(const json &facts, const Decision &decision, const std::string &effort, const std::string &time) {
    json record = facts;
    record.update(decision);
    record.update({{"effort", effort}, {"time", time}});
    return record;
}

Decision decision_of(const json &record) {
    Decision decision = record.get<Decision>();
    decision.is_made = true;
    effort_named(record.at("effort"));
    for (const char *field : {"kernel", "dtype", "isa", "family", "space", "code", "time"}) {
        record.at(field).get<std::string>();
    }
    record.at("threads").get<int>();
    record.at("cases").get<std::vector<std::string>>();
    return decision;
}

std::string subject_of(const json &record) {
    return record.at("kernel").get<std::string>() + " " + record.at("dtype").get<std::string>() + " " +
           record.at("isa").get<std::string>();
}

std::string why_stale(const json &record, const json &facts) {
    for (const auto &[name, fact] : facts.items()) {
        const json recorded = record.value(name, json());
        if (fact.is_object()) {
            const std::string reason = why_stale(recorded.is_object() ? recorded : json::object(), fact);
            if (!reason.empty()) {
                return name + "'s " + reason;
            }
        } else if (recorded != fact && (name == "code" || name == "space")) {
            return name == "code" ? "the code with the default parameters has changed since"
                                  : "the parameters or their values have changed since";
        } else if (recorded != fact) {
            return name + " is " + text_of_value(recorded) + " there and " + text_of_value(fact) + " here";
        }
    }
    return {};
}

std::vector<json> current_decisions(const Records &records, const json &setting, std::vector<std::string> &complaints) {
    std::map<std::string, json> newest;
    std::map<std::string, int> reasons;
    for (const json &record : records.decisions()) {
        const std::string reason = why_stale(record, setting);
        if (reason.empty()) {
            newest[subject_of(record)] = record;
        } else {
            reasons[reason]++;
        }
    }
    for (const auto &[reason, count] : reasons) {
        complaints.push_back(std::to_string(count) + (count == 1 ? " decision does" : " decisions do") +
                             " not count: " + reason + ".");
    }
    std::vector<json> decisions;
    for (const auto &[name, record] : newest) {
        decisions.push_back(record);
    }
    return decisions;
}

std::optional<Decision> known_decision(const Records &records, const json &facts, const Effort &effort) {
    std::optional<Decision> newest;
    for (const json &record : records.decisions()) {
        if (&effort_named(record["effort"]) >= &effort_named(effort.name) && why_stale(record, facts).empty()) {
            newest = decision_of(record);
        }
    }
    return newest;
}

std::string hash_of(const std::string &bytes) {
    char text[17];
    std::snprintf(text, sizeof(text), "%016llx",
                  static_cast<unsigned long long>(XXH3_64bits(bytes.data(), bytes.size())));
    return text;
}

std::string hash_of_space(const SearchSpace &space) {
    std::string text = space.family;
    for (const schedules::Tunable &parameter : space.parameters) {
        text += "\n" + parameter.name + " " + std::to_string(parameter.by_default) + ":";
        for (const int value : parameter.values) {
            text += " " + std::to_string(value);
        }
    }
    return hash_of(text);
}

}  // namespace halyard::tune
