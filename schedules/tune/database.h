// What was measured, as one JSON object per line, appended and never changed.
//
// A line says on which machine, with which versions and for which code it was measured. Only lines that agree with what
// is there now are used again; of the others it is said why not.
#ifndef HALYARD_TUNE_DATABASE_H
#define HALYARD_TUNE_DATABASE_H

#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "schedules/search_space.h"

namespace halyard::tune {

/** Where and with what something is measured. */
struct Setting {
    nlohmann::json machine;   // name, cpu, processors, caches
    nlohmann::json versions;  // halyard, halide
};

/** What a record is about besides the setting. */
struct Subject {
    std::string kernel, dtype, isa;
    int threads = 1;
    std::vector<std::string> workloads;
    std::string space;  // hash of the space
    std::string code;   // hash of the kernel's object with the usual parameters
};

/** Of its parameters, their values and what a kernel gets that names none. */
std::string hash_of_space(const schedules::SearchSpace &space);

/** That something could not be kept. */
struct DatabaseError : std::runtime_error {
    using std::runtime_error::runtime_error;
};

class Database {
public:
    /** Reads a file, which need not be there yet. A last line that was cut off is left out, and so is what is no JSON;
     *  `complaints` says which. Throws std::runtime_error if the file is there and cannot be read. */
    explicit Database(std::string file);

    const std::vector<nlohmann::json> &records() const { return lines; }
    const std::vector<std::string> &complaints() const { return unreadable; }
    const std::string &file() const { return path; }

    /** Makes sure that lines can be appended; throws DatabaseError if not. */
    void open_for_append();
    /** Appends a line and waits until it is on the disk. If that fails, the file is as it was before, and
     *  DatabaseError says why. */
    void append(const nlohmann::json &record);

private:
    std::string path;
    std::vector<nlohmann::json> lines;
    std::vector<std::string> unreadable;
    bool is_open = false;
};

/** Empty if the record was made in this setting, otherwise a sentence that says why it does not count here. */
std::string why_foreign(const nlohmann::json &record, const Setting &setting);
/** The same for what it is about. The kernel, type and instruction set must agree already. */
std::string why_stale(const nlohmann::json &record, const Subject &subject);

/** The fields that why_foreign() and why_stale() compare. */
nlohmann::json record_of(const Setting &setting, const Subject &subject);

}  // namespace halyard::tune

#endif
