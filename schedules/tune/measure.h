// Choices of a subject as calls of the library: compiled, verified, and timed side by side.
#ifndef HALYARD_TUNE_MEASURE_H
#define HALYARD_TUNE_MEASURE_H

#include <functional>
#include <map>
#include <memory>

#include "session.h"
#include "verify.h"

namespace halyard::tune {

/** How many rounds a sampling has of a case. */
int rounds_on(const CaseId &id, const Sampling &sampling);

class CallEvaluator : public Evaluator {
public:
    CallEvaluator(Session &session, const Subject &subject, std::function<bool()> stop,
                  std::function<void(const std::string &)> progress);
    /** Leaves the library with the default parameters. */
    ~CallEvaluator() override { install(subject, subject.defaults, nullptr); }

    std::vector<Choice> admitted(const std::vector<Choice> &choices) override;
    Result compare(const std::vector<Choice> &choices, const Sampling &sampling, bool is_final) override;
    bool stopped() override { return stop(); }

    std::vector<std::string> refused;  // choices that were not admitted, each with the reason

private:
    struct Candidate {
        Choice choice;
        Loaded kernel;  // none where the runtime's parameters are chosen
    };
    class Calls;

    /** The gains of candidates in one case; of those that are clearly slower, unless it is a final, after a few rounds. */
    std::vector<Gain> gains_in(std::size_t index, const std::vector<const Candidate *> &compared,
                               const Sampling &sampling, bool is_final, std::vector<bool> &given_up);

    Session &session;
    const Subject &subject;
    const std::function<bool()> stop;
    const std::function<void(const std::string &)> progress;
    std::vector<Check> checks;
    std::vector<std::shared_ptr<bench::BenchmarkCase>> cases;
    std::map<Choice, Candidate> candidates;
    Candidate defaults, defaults_again;
};

}  // namespace halyard::tune

#endif
