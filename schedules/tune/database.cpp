// See database.h.
#include "database.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "hash.h"

namespace halyard::tune {
namespace {

constexpr int schema = 1;

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

std::string hash_of_space(const schedules::SearchSpace &space) {
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

nlohmann::json record_of(const Setting &setting, const Subject &subject) {
    return {{"schema", schema},           {"machine", setting.machine},     {"versions", setting.versions},
            {"kernel", subject.kernel},   {"dtype", subject.dtype},         {"isa", subject.isa},
            {"threads", subject.threads}, {"workloads", subject.workloads}, {"space", subject.space},
            {"code", subject.code}};
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

std::string why_stale(const nlohmann::json &record, const Subject &subject) {
    if (text_of_field(record, "space") != subject.space) {
        return "the parameters of the schedule or their values have changed since";
    }
    if (text_of_field(record, "code") != subject.code) {
        return "the kernel or its schedule has changed since: its code with the usual parameters is another";
    }
    if (text_of_field(record, "threads") != std::to_string(subject.threads)) {
        return "it was measured on " + text_of_field(record, "threads") + " threads, and these are " +
               std::to_string(subject.threads);
    }
    if (!record.contains("workloads") || record["workloads"] != nlohmann::json(subject.workloads)) {
        return "it was measured on other shapes";
    }
    return {};
}

}  // namespace halyard::tune
