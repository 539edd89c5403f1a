// What was measured, as one JSON object per line, appended and never changed.
//
// A line says on which machine, with which versions and for which code it was measured. Only lines that agree with what
// is there now are used again; of the others it is said why not.
#ifndef HALYARD_TUNE_DATABASE_H
#define HALYARD_TUNE_DATABASE_H

#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "search.h"

namespace halyard::tune {

/** Where and with what something is measured. */
struct Setting {
    nlohmann::json machine;   // name, cpu, processors, caches
    nlohmann::json versions;  // halyard, halide
};

/** What a record is about besides the setting. */
struct SubjectKey {
    std::string kernel, dtype, isa;  // of the runtime's parameters "runtime.<group>" and "all"
    std::string family;
    int threads = 1;
    std::vector<std::string> cases;
    std::string space;  // hash of the space
    std::string code;   // hash of the kernel's object with the default parameters, or of the program

    std::string name() const { return kernel + " " + dtype + " " + isa; }
};

std::string hash_of(const std::string &bytes);
/** Of its parameters, their values and what a kernel gets that names none. */
std::string hash_of_space(const SearchSpace &space);

/** That something could not be kept. */
struct DatabaseError : std::runtime_error {
    using std::runtime_error::runtime_error;
};

class Database {
public:
    /** Reads a file, which need not be there yet. A last line that was cut off is left out, and so is what is no JSON;
     *  complaints() says which. Throws std::runtime_error if the file is there and cannot be read. */
    explicit Database(std::string file);

    const std::vector<nlohmann::json> &records() const { return lines; }
    const std::vector<std::string> &complaints() const { return unreadable; }

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
std::string why_stale(const nlohmann::json &record, const SubjectKey &subject);
/** The fields that these two compare. */
nlohmann::json record_of(const Setting &setting, const SubjectKey &subject);

// ---- records of kind "decision" ----

nlohmann::json record_of(const Decision &decision);
/** Throws nlohmann::json::exception if something in it is damaged or missing. */
Decision decision_of(const nlohmann::json &record);

/** The decisions of a database that count in this setting: on each subject the newest. Why others do not is told to
 *  `complaints`, each reason once with the number of records. */
std::vector<nlohmann::json> current_decisions(const Database &database, const Setting &setting,
                                              std::vector<std::string> &complaints);

/** The decision on a subject that the database holds in this setting, from at least this effort. */
std::optional<Decision> known_decision(const Database &database, const Setting &setting, const SubjectKey &subject,
                                       const Effort &effort);

}  // namespace halyard::tune

#endif
