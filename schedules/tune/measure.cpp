// See measure.h.
#include "measure.h"

#include <algorithm>
#include <ctime>
#include <stdexcept>

#include "bench/timing/measure.h"
#include "mutable_dispatch_table.h"
#include "verify.h"

namespace halyard::tune {
namespace {

using bench::BenchmarkCase;

bool is_large(const CaseId &id) {
    return id.cold || id.bytes_moved() > std::size_t{32} << 20;
}

std::shared_ptr<BenchmarkCase> make_case(const Session &session, const Subject &subject, const CaseId &id) {
    return std::make_shared<BenchmarkCase>(id, session.machine.cold_set(), isa_named(subject.isa));
}

/** Makes a call and hashes what came out. */
std::string result_of(BenchmarkCase &bench_case) {
    bench_case.spoil_outputs();
    bench_case.call(0);
    std::string bytes;
    for (const bench::Matrix &output : bench_case.sets[0].outputs) {
        bytes.append(output.data(), output.bytes());
    }
    return hash_of(bytes);
}

struct Candidate {
    Choice choice;
    Loaded kernel;  // none where the runtime's parameters are chosen
};

/** Calls of the library in one case, with a candidate in its place. */
class Calls : public bench::Contender {
public:
    Calls(const Subject &of, BenchmarkCase &on, const Candidate &with) : subject(of), bench_case(on), candidate(with) {}

    void run(benchmark::State &state) override {
        install(subject, candidate.choice, candidate.kernel.forms);
        const std::size_t sets = bench_case.sets.size();
        const auto &call = bench_case.id.kernel->call;
        if (sets == 1) {
            call(bench_case, bench_case.sets[0]);  // the code and what it learns of the data, after somebody else's
        }
        const double begin = now();
        for (auto _ : state) {
            call(bench_case, bench_case.sets[next]);
            next = next + 1 == sets ? 0 : next + 1;
        }
        state.SetIterationTime(now() - begin);  // of all
    }

    bool times_itself() const override { return true; }

private:
    /** A call on one thread stays on this one. The time that it has had a processor leaves out what other processes
     * took of it meanwhile, which on a busy machine is most of the time. */
    double now() const {
        timespec time{};
        clock_gettime(bench_case.id.threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &time);
        return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
    }

    const Subject &subject;
    BenchmarkCase &bench_case;
    const Candidate &candidate;
    std::size_t next = 0;
};

class CallEvaluator : public Evaluator {
public:
    CallEvaluator(Session &in, const Subject &of, std::function<bool()> stopper,
                  std::function<void(const std::string &)> reporter)
        : session(in), subject(of), stop(std::move(stopper)), progress(std::move(reporter)), cases(of.cases.size()) {
        for (Candidate *each : {&defaults, &defaults_again}) {
            each->choice = subject.defaults;
            if (subject.variant) {
                each->kernel =
                    session.compiler.load(session.default_object(*subject.variant), subject.variant->symbol());
            }
        }
        // What the library needs besides is resolved here, once for all processes.
        install(subject, subject.defaults, defaults.kernel.forms);
        for (const CaseId &id : subject.checks) {
            const std::shared_ptr<BenchmarkCase> check = make_case(session, subject, id);
            if (!subject.variant) {
                bench::require(halyard_context_set_streaming_min_bytes(check->context.get(), 0));
            }
            checks.push_back({id.name(), [check] { return result_of(*check); }, result_of(*check)});
        }
    }

    ~CallEvaluator() override { install(subject, subject.defaults, {}); }

    bool stopped() override { return stop(); }

    std::vector<Choice> admitted(const std::vector<Choice> &choices) override {
        std::vector<Compiled> compiled(choices.size());
        if (subject.variant) {
            progress("compiling " + std::to_string(choices.size()) + " choices");
            compiled = session.compiler.objects(*subject.variant, choices);
        }
        std::vector<Choice> good;
        for (std::size_t i = 0; i < choices.size(); i++) {
            if (stop()) {
                return {};
            }
            progress("verifying " + text_of(choices[i]));
            Candidate candidate{choices[i], {}};
            std::string failure = compiled[i].failure;
            if (failure.empty()) {
                if (subject.variant) {
                    candidate.kernel = session.compiler.load(compiled[i].object, subject.variant->symbol());
                }
                failure = verify(checks, [&] { install(subject, choices[i], candidate.kernel.forms); });
            }
            if (failure.empty()) {
                good.push_back(choices[i]);
                candidates[choices[i]] = candidate;
            } else {
                refused.push_back(text_of(choices[i]) + ": " + failure);
            }
        }
        return good;
    }

    Result compare(const std::vector<Choice> &choices, const Sampling &sampling, bool is_final) override {
        // So many side by side that a group's rounds do not take minutes.
        constexpr std::size_t at_once = 16;
        Result result;
        result.gains.resize(choices.size());
        for (std::size_t begin = 0; begin < choices.size(); begin += at_once) {
            const std::size_t end = std::min(choices.size(), begin + at_once);
            std::vector<const Candidate *> compared = {&defaults, &defaults_again};
            for (std::size_t k = begin; k < end; k++) {
                compared.push_back(&candidates.at(choices[k]));
            }
            std::vector<bool> given_up(compared.size(), false);
            result.again.clear();
            for (std::size_t i = 0; i < subject.cases.size(); i++) {
                progress(
                    (is_final ? "final" : "timing " + std::to_string(end) + " of " + std::to_string(choices.size())) +
                    " at " + subject.cases[i].name());
                const std::vector<Gain> gains = gains_in(i, compared, sampling, is_final, given_up);
                if (stop()) {
                    return {};
                }
                result.again.push_back(gains[1]);
                for (std::size_t k = begin; k < end; k++) {
                    if (!given_up[2 + k - begin]) {
                        result.gains[k].push_back(gains[2 + k - begin]);
                    }
                }
            }
        }
        return result;
    }

private:
    /** The gains of candidates in one case; of those that are clearly slower, unless it is a final, after a few rounds. */
    std::vector<Gain> gains_in(std::size_t index, const std::vector<const Candidate *> &compared,
                               const Sampling &sampling, bool is_final, std::vector<bool> &given_up) {
        // After so many rounds in which a candidate needed a tenth more than the default, it is clearly slower.
        constexpr int first_rounds = 3;
        constexpr double clearly_slower = 1 / 1.1;
        const CaseId &id = subject.cases[index];
        // Unless they are large, operands lie somewhere else than those before, which go when the new ones are there: how they lie in
        // the caches is worth more than most parameters.
        std::shared_ptr<BenchmarkCase> &bench_case = cases[index];
        if (bench_case == nullptr || !is_large(id)) {
            bench_case = make_case(session, subject, id);
        }
        std::vector<Calls> calls;
        for (const Candidate *candidate : compared) {  // of which two are the default
            calls.emplace_back(subject, *bench_case, *candidate);
        }
        std::vector<std::vector<double>> seconds(compared.size());
        const auto take = [&](int rounds) {
            std::vector<bench::Contender *> contenders;
            std::vector<std::size_t> taking_part;
            for (std::size_t i = 0; i < compared.size(); i++) {
                if (!given_up[i]) {
                    contenders.push_back(&calls[i]);
                    taking_part.push_back(i);
                }
            }
            const auto measured = bench::measure(contenders, {rounds, sampling.seconds_per_sample, {}, stop});
            for (std::size_t i = 0; i < measured.size(); i++) {
                seconds[taking_part[i]].insert(seconds[taking_part[i]].end(), measured[i].begin(), measured[i].end());
            }
        };
        int rounds = rounds_on(id, sampling);
        if (!is_final) {
            take(first_rounds);
            rounds -= first_rounds;
            for (std::size_t i = 2; i < compared.size(); i++) {
                given_up[i] = given_up[i] || gain_over(seconds[0], seconds[i]).high < clearly_slower;
            }
        }
        take(rounds);
        std::vector<Gain> gains;
        for (const std::vector<double> &of : seconds) {
            gains.push_back(gain_over(seconds[0], of));
        }
        if (is_large(id) && !id.cold) {
            bench_case = nullptr;  // several of these at a time may be more than there is memory
        }
        return gains;
    }

    Session &session;
    const Subject &subject;
    const std::function<bool()> stop;
    const std::function<void(const std::string &)> progress;
    std::vector<Check> checks;
    std::vector<std::shared_ptr<BenchmarkCase>> cases;
    std::map<Choice, Candidate> candidates;
    Candidate defaults, defaults_again;
};

}  // namespace

int rounds_on(const CaseId &id, const Sampling &sampling) {
    // Calls out of cache, and others that take longer than a sample should, differ less from one to the next.
    constexpr int least_rounds = 5;
    return is_large(id) ? std::max(least_rounds, sampling.rounds / 3) : sampling.rounds;
}

std::unique_ptr<Evaluator> make_evaluator(Session &session, const Subject &subject, std::function<bool()> stop,
                                          std::function<void(const std::string &)> progress) {
    return std::make_unique<CallEvaluator>(session, subject, std::move(stop), std::move(progress));
}

}  // namespace halyard::tune
