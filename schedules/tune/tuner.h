// One kernel after another: its candidates compiled, judged and timed in calls of the library, and what came out kept
// in the database.
#ifndef HALYARD_TUNE_TUNER_H
#define HALYARD_TUNE_TUNER_H

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <set>

#include "compile.h"
#include "database.h"
#include "search.h"
#include "verdict.h"
#include "works.h"

namespace halyard::tune {

struct TuneOptions {
    std::string shapes = "usual";
    Rigor rigor;
    int threads = 1;
    unsigned seed = 1;
    std::size_t cold_set = 0;
    std::int64_t l1 = 0, l2 = 0;
};

/** What a variant's candidates are made and measured with. */
class Workshop {
public:
    Workshop(const UsualParameters &usual_parameters, const TuneOptions &chosen);

    const UsualParameters &usual;
    const TuneOptions &options;
    Compiler compiler;
    WorkFinder finder;

    /** The object with the usual parameters. */
    const std::string &usual_object(const Variant &variant);
    Subject subject(const Variant &variant, const std::vector<Workload> &workloads);

    /** The operands of a call. Those out of cache are a gigabyte: the ones that were given back last are taken again if
     *  they have the shapes. */
    std::unique_ptr<bench::Work> take(const Workload &workload, const std::string &isa);
    void give_back(std::unique_ptr<bench::Work> work);

    /** Families whose spaces say the usual values of their GeneratorParams: found out once. */
    std::set<std::string> checked_families;

private:
    void drop_spare();

    std::unique_ptr<bench::Work> spare;
    std::map<std::string, std::string> objects;     // by symbol
    std::map<int, std::unique_ptr<Loaded>> loaded;  // by slot
};

class KernelArena : public Arena {
public:
    using Progress = std::function<void(const std::string &)>;

    KernelArena(Workshop &workshop, const Variant &variant, std::vector<Workload> workloads, Database &database,
                const Setting &setting, std::mt19937 &random, std::function<bool()> stop, Progress progress);
    ~KernelArena() override;

    void expect(const std::vector<Choice> &choices) override;
    bool admits(const Choice &choice) override;
    Result compare(const std::vector<Choice> &choices, const Effort &effort, bool is_final) override;
    bool stopped() override { return stop(); }

    /** Puts the verdict into the database. */
    void keep(const Verdict &verdict, unsigned seed);

    struct Race {
        std::string failure;                         // why there are no times, or empty
        std::vector<double> seconds, usual_seconds;  // per piece of work
        std::vector<Gain> gains;                     // over the usual choice
    };
    /** Times another kernel for the same calls, called `label` in the database. Its results must be right, but may have
     *  other bits. */
    Race race(const std::string &label, const std::function<std::unique_ptr<Loaded>()> &make, const Effort &effort);
    /** What the kernel is called with in the first of the pieces of work (arguments_in()). */
    std::vector<std::vector<int>> arguments();

    struct Duel {
        Gain gain;     // of the second over the first
        double noise;  // the first against itself
        /** 1 if the second is faster, -1 if the first is, 0 if nothing can be said. */
        int winner;
    };
    /** Compares two choices that need not be worthy; twice, for a winner must win twice. Nothing if stopped. */
    std::optional<Duel> duel(const Choice &first, const Choice &second, const Effort &effort);

private:
    struct Candidate;
    class Calls;
    struct Judged {
        std::string hash;  // of the outputs
        double error = 0, tolerance = 0;
    };

    Candidate &candidate(const Choice &choice);
    void compile(const std::vector<Choice> &choices);
    void install(const Choice &choice, KernelFunction function) const;
    struct Check {
        const Workload *workload;
        bench::Work *work;
    };
    std::string judge(const Candidate &candidate, std::vector<Judged> &results);
    std::string judge_on(const std::vector<Check> &checks, const Candidate &candidate, std::vector<Judged> &results);
    bench::Work &work_on(std::size_t workload);
    /** The same, but hot operands lie somewhere else than before: what wins by how its operands happen to lie in the
     *  caches does not win twice. */
    bench::Work &work_elsewhere(std::size_t workload);
    void append(nlohmann::json fields);
    std::optional<std::vector<Gain>> remembered(const Choice &choice, const Effort &effort) const;

    Workshop &workshop;
    const Variant variant;
    const std::vector<Workload> workloads;
    Database &database;
    const nlohmann::json head;
    std::mt19937 &random;
    std::function<bool()> stop;
    Progress progress;
    Choice usual;
    std::vector<std::unique_ptr<bench::Work>> checks, works;
    std::vector<Workload> check_list;
    std::map<Choice, std::unique_ptr<Candidate>> candidates;
    std::unique_ptr<Loaded> usual_again;
    std::vector<Judged> right;          // results of the usual choice
    std::vector<nlohmann::json> known;  // records of earlier runs that count
};

}  // namespace halyard::tune

#endif
