// One kernel's choices, compiled, judged and timed in calls of the library, and what came out kept in the database.
#ifndef HALYARD_TUNE_ARENA_H
#define HALYARD_TUNE_ARENA_H

#include <functional>
#include <memory>
#include <optional>
#include <random>

#include "judge.h"
#include "workshop.h"

namespace halyard::tune {

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

    Candidate &candidate(const Choice &choice);
    void compile(const std::vector<Choice> &choices);
    void install(const Choice &choice, KernelFunction function) const;
    /** Why the candidate is no good, or nothing. */
    std::string judge(const Candidate &candidate, std::vector<Judged> &results);
    std::string judge_on(const std::vector<Check> &all, const Choice &choice, const Loaded &tested,
                         std::vector<Judged> &results);
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
