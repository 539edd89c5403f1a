// What a run found, and the file that keeps it: one line of JSON for the machine, one for each row, one for the end.
// bench/report/report.py makes tables and pages of it.
#ifndef HALYARD_BENCH_RESULT_H
#define HALYARD_BENCH_RESULT_H

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "benchmark_case.h"
#include "timing/machine.h"
#include "timing/machine_limits.h"
#include "timing/measure.h"

namespace halyard::bench {

/** What a ratio says: ours takes less time, neither, or the peer does. */
enum class Verdict { ahead, tie, behind };
const char *name_of(Verdict verdict);

/** How far from 1 a ratio must be to mean anything: the distance of ours from ours again, its spread, and the spread of
 *  the ratio itself, whichever is greatest. Spreads are median absolute deviations in the measure of a standard
 *  deviation; they are not divided by the root of the number of samples, because a machine's slow phases outlast some
 *  samples. */
double noise_of(const Estimate &again, const Estimate &ratio);
/** A tie if the ratio is nearer to 1 than the noise, or nearer than a hundredth. */
Verdict verdict_of(const Estimate &ratio, double noise);

struct PeerResult {
    std::string peer;
    std::string reason;     // why there is no time, or empty
    bool is_wrong = false;  // its output missed the tolerance, so it was not timed
    Accuracy accuracy;
    Estimate seconds;
    Estimate ratio;  // its time over ours: above 1 ours is faster
    std::string note;
    std::size_t resident = 0;  // bytes, of models
};

struct RowResult {
    CaseId id;
    std::string isa;
    std::string failure;    // why the library could not be measured; then nothing below counts
    bool is_wrong = false;  // its output missed the tolerance, so it was not timed
    Accuracy accuracy;
    double tolerance = 0;
    int rounds = 0;
    int attempts = 1;  // measurements, of which this is the last: those before it were beyond the limit
    Estimate seconds;
    Estimate again;                               // ours over ours again: the noise of the row
    Estimate limit_seconds;                       // of a copy that moves the same bytes the same way, or the roofline's
    Loop limit_loop = Loop::plain;                // of the copy
    Estimate fraction;                            // of the limit: its time over ours
    Estimate read_seconds, multiply_add_seconds;  // of a roofline: what it is the greater of
    std::size_t sets = 1;                         // how many copies of matrices and caches go round
    std::size_t resident = 0;                     // bytes, of models
    std::vector<PeerResult> peers;

    double noise(const PeerResult &peer) const { return noise_of(again, peer.ratio); }
    Verdict verdict(const PeerResult &peer) const { return verdict_of(peer.ratio, noise(peer)); }
    /** The noise of ours against ours again alone. */
    double own_noise() const { return noise_of(again, {}); }
    /** Whether it took less time than its limit by more than the noise: then the limit is none. */
    bool is_beyond_limit() const;
};

struct Run {
    std::string date;
    int threads;
    Machine machine;
    std::string isa, library_version, compiler;
    double loop_overhead = 0;  // seconds per iteration, included in every time
    Limits limits;
    std::string work_list;
    struct PeerInfo {
        std::string name, missing;  // why it is not there
        nlohmann::json about;       // what it says of itself
    };
    std::vector<PeerInfo> peers;
    std::vector<RowResult> rows;
    double busy_elsewhere = 0;  // share of all processors that other programs and virtual machines used meanwhile
    bool interrupted = false;
};

/** A file that results are appended to, a line each, so that a run that is killed leaves what it measured. */
class ResultFile {
public:
    /** Throws std::runtime_error if `name` cannot be written, and leaves what it holds until the first line. Without a
     *  name nothing is written. */
    explicit ResultFile(const std::string &name);
    void write(const nlohmann::ordered_json &line);

private:
    std::string name;
    std::ofstream file;
};

/** The lines of a file: what is known before the rows are measured, a row, and what is known after them. */
nlohmann::ordered_json header_of(const Run &run);
nlohmann::ordered_json to_json(const RowResult &row);
nlohmann::ordered_json end_of(const Run &run);

/** A row's result in one line, without its name. */
std::string summary_of(const RowResult &row);

}  // namespace halyard::bench

#endif
