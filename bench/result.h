// What a run found, and how it is shown: JSON for programs, tables for people.
#ifndef HALYARD_BENCH_RESULT_H
#define HALYARD_BENCH_RESULT_H

#include <iosfwd>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "machine.h"
#include "machine_limits.h"
#include "measure.h"
#include "work.h"

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
    WorkId id;
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
    Stores limit_stores = Stores::ordinary;       // of the copy
    Estimate fraction;                            // of the limit: its time over ours
    Estimate read_seconds, multiply_add_seconds;  // of a roofline: what it is the greater of
    std::size_t sets = 1;                         // how many copies of matrices and caches go round
    std::size_t resident = 0;                     // bytes, of models
    std::vector<PeerResult> peers;

    double bytes_per_second() const { return static_cast<double>(id.bytes_moved()) / seconds.median; }
    double elements_per_second() const { return static_cast<double>(id.rows * id.d) / seconds.median; }
    double tokens_per_second() const { return static_cast<double>(id.rows) / seconds.median; }
    double flops_per_second() const { return id.flops() / seconds.median; }
    double weight_bytes_per_second() const { return static_cast<double>(id.weight_bytes()) / seconds.median; }
    bool reads_longer() const { return read_seconds.median >= multiply_add_seconds.median; }
    /** Bytes of matrices that the calls go through before they come round. */
    std::size_t weight_set() const { return id.weight_bytes() * sets; }
    double noise(const PeerResult &peer) const { return noise_of(again, peer.ratio); }
    Verdict verdict(const PeerResult &peer) const { return verdict_of(peer.ratio, noise(peer)); }
    /** Of ours against ours again alone. */
    double own_noise() const { return noise_of(again, {}); }
    /** Whether it took less time than its limit by more than the noise: then the limit is none. */
    bool is_beyond_limit() const;
    const PeerResult *find(const std::string &peer) const;
};

/** A number that the project set out to reach. */
struct Bar {
    std::string text;
    std::string row;  // the row it was judged by; empty if none was measured
    std::string value, bound;
    bool is_met = false;
};

/** What readers of a report should know of a peer. */
struct PeerAbout {
    std::string family;     // the library it speaks for: peers of one family are no two opinions
    std::string how;        // a sentence: how it is run
    std::string lacks;      // the same: what it cannot do
    std::string interface;  // "C" or "Python": in which language its calls are timed
};

struct Run {
    std::string mode, date;
    int threads;
    Machine machine;
    std::string isa, library_version, compiler;
    double loop_overhead = 0;  // seconds per iteration, included in every time
    Limits limits;
    std::string work_list;
    struct PeerInfo {
        std::string name, version = {}, missing = {};  // `missing`: why it is not there
        PeerAbout about = {};
    };
    std::vector<PeerInfo> peers;
    std::vector<RowResult> rows;
    double busy_elsewhere = 0;  // share of all processors that other programs and virtual machines used meanwhile
    bool interrupted = false;

    /** Whether others used so much of the processors that rows on all threads may be wrong. */
    bool is_disturbed() const { return busy_elsewhere > 0.05; }
    /** Median over the rows of how far ours was from ours again. */
    double noise() const;
};

/** The bars, with what this run says about each; those that no row of the run speaks about come without a value. */
std::vector<Bar> judge_bars(const Run &run);

/** The peers that a bar compares this row with: the quick mode prepares slow peers for these alone. */
bool has_bar(const WorkId &id, const std::string &peer, int threads);

nlohmann::json to_json(const Run &run);
/** One line for a row, without its name. */
std::string summary_of(const RowResult &row);
/** Everything, and what fits a screen. */
void print_tables(const Run &run, std::ostream &out);
void print_short(const Run &run, std::ostream &out);

}  // namespace halyard::bench

#endif
