// See database.h.
#include "database.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#define XXH_INLINE_ALL
#include "xxhash.h"

namespace halyard::tune {
namespace {

constexpr int schema = 2;

/** A file descriptor that closes itself. */
class Descriptor {
public:
    Descriptor(const std::string &file, int flags) : number(open(file.c_str(), flags | O_CLOEXEC, 0666)) {}
    ~Descriptor() {
        if (number >= 0) {
            close(number);
        }
    }
    Descriptor(const Descriptor &) = delete;
    Descriptor &operator=(const Descriptor &) = delete;
    const int number;
};

std::string text_of_field(const nlohmann::json &object, const char *field) {
    const auto found = object.find(field);
    return found == object.end() ? "nothing" : found->is_string() ? found->get<std::string>() : found->dump();
}

[[noreturn]] void fail(const std::string &file, int error) {
    throw DatabaseError("the database '" + file + "' cannot be written: " + std::strerror(error));
}

}  // namespace

std::string hash_of(const std::string &bytes) {
    char text[17];
    std::snprintf(text, sizeof(text), "%016llx",
                  static_cast<unsigned long long>(XXH3_64bits(bytes.data(), bytes.size())));
    return text;
}

std::string hash_of_space(const SearchSpace &space) {
    std::ostringstream text;
    text << space.family;
    for (const schedules::Tunable &parameter : space.parameters) {
        text << '\n' << parameter.name << ' ' << parameter.by_default << ':';
        for (const int value : parameter.values) {
            text << ' ' << value;
        }
    }
    return hash_of(text.str());
}

Database::Database(std::string file) : path(std::move(file)) {
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
        const bool is_cut_off = in.eof();  // there was no end of line
        nlohmann::json record = nlohmann::json::parse(line, nullptr, false);
        if (line.empty()) {
            continue;
        }
        if (record.is_object() && record.contains("kind")) {
            lines.push_back(std::move(record));
        } else {
            unreadable.push_back(path + ":" + std::to_string(number) +
                                 (is_cut_off ? ": the last line is cut off and left out" : ": no record; left out"));
        }
    }
}

void Database::open_for_append() {
    const std::filesystem::path folder = std::filesystem::path(path).parent_path();
    std::error_code error;
    if (!folder.empty()) {
        std::filesystem::create_directories(folder, error);
    }
    const Descriptor descriptor(path, O_RDWR | O_APPEND | O_CREAT);
    if (descriptor.number < 0) {
        fail(path, errno);
    }
    // What follows a line that was cut off must not become part of it.
    struct stat status {};
    char last = '\n';
    if (fstat(descriptor.number, &status) != 0 ||
        (status.st_size > 0 && pread(descriptor.number, &last, 1, status.st_size - 1) != 1) ||
        (last != '\n' && write(descriptor.number, "\n", 1) != 1)) {
        fail(path, errno);
    }
    is_open = true;
}

void Database::append(const nlohmann::json &record) {
    if (!is_open) {
        open_for_append();
    }
    const Descriptor descriptor(path, O_WRONLY | O_APPEND);
    struct stat status {};
    if (descriptor.number < 0 || fstat(descriptor.number, &status) != 0) {
        fail(path, errno);
    }
    const std::string line = record.dump() + "\n";
    // In one call, so that a process that is killed leaves a whole line or the beginning of one.
    errno = 0;
    const ssize_t written = write(descriptor.number, line.data(), line.size());
    if (written != static_cast<ssize_t>(line.size()) || fsync(descriptor.number) != 0) {
        const int error = errno != 0 ? errno : ENOSPC;
        if (ftruncate(descriptor.number, status.st_size) != 0) {
            fail(path, errno);
        }
        fail(path, error);
    }
    lines.push_back(record);
}

nlohmann::json record_of(const Setting &setting, const SubjectKey &subject) {
    return {{"schema", schema},         {"machine", setting.machine}, {"versions", setting.versions},
            {"kernel", subject.kernel}, {"dtype", subject.dtype},     {"isa", subject.isa},
            {"family", subject.family}, {"threads", subject.threads}, {"cases", subject.cases},
            {"space", subject.space},   {"code", subject.code}};
}

std::string why_foreign(const nlohmann::json &record, const Setting &setting) {
    if (text_of_field(record, "schema") != std::to_string(schema)) {
        return "it has schema " + text_of_field(record, "schema") + ", and this program reads " +
               std::to_string(schema);
    }
    if (!record.contains("machine") || !record.contains("versions")) {
        return "it does not say where it was measured";
    }
    for (const auto &[field, value] : setting.machine.items()) {
        if (text_of_field(record["machine"], field.c_str()) != text_of_field(setting.machine, field.c_str())) {
            return "it was measured on another machine: " + field + " is " +
                   text_of_field(record["machine"], field.c_str()) + " there and " +
                   text_of_field(setting.machine, field.c_str()) + " here";
        }
    }
    for (const auto &[field, value] : setting.versions.items()) {
        if (text_of_field(record["versions"], field.c_str()) != text_of_field(setting.versions, field.c_str())) {
            return "it was measured with " + field + " " + text_of_field(record["versions"], field.c_str()) +
                   ", and this is " + text_of_field(setting.versions, field.c_str());
        }
    }
    return {};
}

std::string why_stale(const nlohmann::json &record, const SubjectKey &subject) {
    if (text_of_field(record, "space") != subject.space) {
        return "the parameters or their values have changed since";
    }
    if (text_of_field(record, "code") != subject.code) {
        return "the code with the default parameters has changed since";
    }
    if (text_of_field(record, "threads") != std::to_string(subject.threads)) {
        return "it was measured on " + text_of_field(record, "threads") + " threads, and these are " +
               std::to_string(subject.threads);
    }
    if (!record.contains("cases") || record["cases"] != nlohmann::json(subject.cases)) {
        return "it was measured on other shapes";
    }
    return {};
}

nlohmann::json record_of(const Decision &decision) {
    return {{"kind", "decision"},           {"defaults", decision.defaults},
            {"best", decision.best},        {"is_better", decision.is_better},
            {"ratio", decision.gain.ratio}, {"error", decision.gain.error},
            {"noise", decision.noise},      {"tried", decision.tried}};
}

Decision decision_of(const nlohmann::json &record) {
    Decision decision;
    decision.is_made = decision.is_remembered = true;
    decision.defaults = record.at("defaults").get<Choice>();
    decision.best = record.at("best").get<Choice>();
    decision.is_better = record.at("is_better");
    decision.gain = {record.at("ratio"), record.at("error")};
    decision.noise = record.at("noise");
    decision.tried = record.at("tried");
    for (const char *field : {"kernel", "dtype", "isa", "family", "space", "code", "effort", "time"}) {
        record.at(field).get<std::string>();
    }
    record.at("threads").get<int>();
    record.at("cases").get<std::vector<std::string>>();
    return decision;
}

namespace {

bool is_whole(const nlohmann::json &record) {
    try {
        decision_of(record);
        return true;
    } catch (const nlohmann::json::exception &) {
        return false;
    }
}

/** How much effort one of that name is; -1 if there is none. */
int rank_of_effort(const std::string &name) {
    for (std::size_t i = 0; i < efforts().size(); i++) {
        if (efforts()[i].name == name) {
            return static_cast<int>(i);
        }
    }
    return -1;
}

}  // namespace

std::vector<nlohmann::json> current_decisions(const Database &database, const Setting &setting,
                                              std::vector<std::string> &complaints) {
    std::map<std::string, nlohmann::json> newest;
    std::map<std::string, int> reasons;
    for (const nlohmann::json &record : database.records()) {
        if (record["kind"] != "decision") {
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
        newest[record.value("isa", "") + " " + record.value("kernel", "") + " " + record.value("dtype", "")] = record;
    }
    for (const auto &[reason, count] : reasons) {
        complaints.push_back(std::to_string(count) + (count == 1 ? " decision does" : " decisions do") +
                             " not count: " + reason + ".");
    }
    std::vector<nlohmann::json> decisions;
    for (const auto &[name, record] : newest) {
        decisions.push_back(record);
    }
    return decisions;
}

std::optional<Decision> known_decision(const Database &database, const Setting &setting, const SubjectKey &subject,
                                       const Effort &effort) {
    std::optional<Decision> newest;
    for (const nlohmann::json &record : database.records()) {
        if (record["kind"] == "decision" && why_foreign(record, setting).empty() && is_whole(record) &&
            record["kernel"] == subject.kernel && record["dtype"] == subject.dtype && record["isa"] == subject.isa &&
            rank_of_effort(record["effort"]) >= rank_of_effort(effort.name) && why_stale(record, subject).empty()) {
            newest = decision_of(record);
        }
    }
    return newest;
}

}  // namespace halyard::tune
