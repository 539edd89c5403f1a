// Choices of a subject as calls of the library: compiled, verified, and timed side by side.
#ifndef HALYARD_TUNE_MEASURE_H
#define HALYARD_TUNE_MEASURE_H

#include <functional>
#include <map>
#include <memory>

#include "session.h"

namespace halyard::tune {

/** How many rounds a sampling has of a case. */
int rounds_on(const TuningCase &tuning_case, const Sampling &sampling);

class CallEvaluator : public Evaluator {
public:
    CallEvaluator(Session &session, const Subject &subject, std::function<bool()> stop,
                  std::function<void(const std::string &)> progress);
    /** Leaves the library with the default parameters. */
    ~CallEvaluator() override;

    std::vector<Choice> admitted(const std::vector<Choice> &choices) override;
    Result compare(const std::vector<Choice> &choices, const Sampling &sampling, bool is_final) override;
    bool stopped() override { return stop(); }

    /** Choices that were not admitted, each with the reason. */
    const std::vector<std::string> &refused() const { return refusals; }

private:
    struct Candidate {
        Choice choice;
        std::unique_ptr<Loaded> loaded;  // null where the runtime's parameters are chosen
        std::string failure;

        KernelFunction function() const { return loaded == nullptr ? nullptr : loaded->function(); }
    };
    class Calls;

    /** Compiles choices that are not there yet, as many at a time as there are processors. */
    void compile(const std::vector<Choice> &choices);
    void load(Candidate &candidate, const std::string &object);
    /** The gains of candidates in one case; of those that are clearly slower, unless it is a final, after a few rounds. */
    std::vector<Gain> gains_in(std::size_t tuning_case, const std::vector<const Candidate *> &compared,
                               const Sampling &sampling, bool is_final, std::vector<bool> &given_up);

    Session &session;
    const Subject &subject;
    std::function<bool()> stop;
    std::function<void(const std::string &)> progress;
    std::vector<std::unique_ptr<bench::BenchmarkCase>> checks, cases;
    std::vector<std::string> right;  // hashes of the results with the default parameters
    std::map<Choice, Candidate> candidates;
    Candidate defaults, defaults_again;
    std::vector<std::string> refusals;
};

}  // namespace halyard::tune

#endif
