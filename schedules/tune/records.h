// What was decided, as one JSON object per line, appended and never changed.
//
// A record says for which machine, versions, code, space and calls it holds. Only one that agrees with what is there now is used
// again; of others it is said why not.
#ifndef HALYARD_TUNE_RECORDS_H
#define HALYARD_TUNE_RECORDS_H

#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "search.h"

namespace halyard::tune {

using nlohmann::json;

/** That something could not be kept. */
struct RecordsError : std::runtime_error {
    using std::runtime_error::runtime_error;
};

class Records {
public:
    /** Reads a file, which need not be there yet. Throws std::runtime_error if it is there and cannot be read. */
    explicit Records(std::string file);

    const std::vector<json> &decisions() const { return all; }
    /** What is no decision and was left out, a last line that was cut off among it. */
    const std::vector<std::string> &complaints() const { return unreadable; }

    /** Throws RecordsError if nothing can be appended. */
    void require_writable() { write(""); }
    /** Appends a line, or throws RecordsError. */
    void append(const json &record);

private:
    void write(const std::string &line);

    std::string path;
    bool is_cut_off = false;  // the last line, so that what follows must not become part of it
    std::vector<json> all;
    std::vector<std::string> unreadable;
};

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Decision, defaults, best, is_better, ratio, error, noise, tried)

/** What every record holds for in any case: its schema and `versions` ("halide": "21.0.0"), and the machine. */
json setting_of(const json &machine, const json &versions);
/** A record: facts that it holds for, among them kernel, dtype, isa, family, threads, cases, and hashes of space and code; then
 *  what was decided, how (the effort) and when. */
json record_of(const json &facts, const Decision &decision, const std::string &effort, const std::string &time);
/** Throws if something in it is damaged or missing. */
Decision decision_of(const json &record);
/** "silu f32 avx2", of the runtime's parameters "runtime.gemm all avx2" */
std::string subject_of(const json &record);

/** Why a record does not hold for these facts, or nothing. */
std::string why_stale(const json &record, const json &facts);

/** On each subject the newest decision that holds for the setting. Why others do not is told to `complaints`, each reason once
 *  with the number of records. */
std::vector<json> current_decisions(const Records &records, const json &setting, std::vector<std::string> &complaints);
/** The newest decision that holds for these facts and was made with at least this effort. */
std::optional<Decision> known_decision(const Records &records, const json &facts, const Effort &effort);

std::string hash_of(const std::string &bytes);
/** A hash of a space's parameters, their values and what a kernel gets that names none. */
std::string hash_of_space(const SearchSpace &space);

}  // namespace halyard::tune

#endif
