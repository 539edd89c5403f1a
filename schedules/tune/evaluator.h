// One subject's choices: compiled, verified and timed in calls of the library, and what came out kept in the database.
#ifndef HALYARD_TUNE_EVALUATOR_H
#define HALYARD_TUNE_EVALUATOR_H

#include <functional>
#include <map>
#include <memory>

#include "session.h"

namespace halyard::tune {

class CallEvaluator : public Evaluator {
public:
    using Progress = std::function<void(const std::string &)>;

    /** Throws std::runtime_error if the default parameters themselves give wrong results. */
    CallEvaluator(TuningSession &session, const Subject &subject, std::function<bool()> stop, Progress progress);
    /** Leaves the library with the default parameters. */
    ~CallEvaluator() override;

    std::vector<Choice> admitted(const std::vector<Choice> &choices) override;
    Result compare(const std::vector<Choice> &choices, const Sampling &sampling, bool is_final) override;
    bool stopped() override { return stop(); }

    /** Puts the decision into the database. */
    void keep(const Decision &decision);

private:
    struct Candidate;
    class Calls;

    /** Compiles choices that are not there yet, as many at a time as there are processors. */
    void compile(const std::vector<Choice> &choices);
    /** Why a candidate is no good, or nothing. */
    std::string failure_of(const Candidate &candidate, std::vector<std::string> &hashes);
    void append(nlohmann::json fields);
    /** What an earlier run measured. */
    std::vector<Gain> remembered(const Choice &choice, const Sampling &sampling) const;

    TuningSession &session;
    const Subject &subject;
    const SubjectKey key;
    std::function<bool()> stop;
    Progress progress;
    std::vector<std::unique_ptr<bench::BenchmarkCase>> checks, bench_cases;
    std::map<Choice, std::unique_ptr<Candidate>> candidates;
    std::unique_ptr<Loaded> defaults_again;
    std::vector<std::string> right;  // hashes of the results with the default parameters
};

}  // namespace halyard::tune

#endif
