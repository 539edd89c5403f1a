// See evaluator.h.
#include "evaluator.h"

#include <algorithm>
#include <ctime>
#include <stdexcept>
#include <thread>

#include "bench/timing/measure.h"
#include "mutable_dispatch_table.h"
#include "verify.h"

namespace halyard::tune {
namespace {

using nlohmann::json;

json to_json(const Sampling &sampling) {
    return {{"rounds", sampling.rounds}, {"seconds_per_sample", sampling.seconds_per_sample}};
}

bool is_large(const TuningCase &tuning_case) {
    return tuning_case.id.cold || tuning_case.id.bytes_moved() > std::size_t{32} << 20;
}

/** Calls out of cache, and others that take longer than a sample should, differ less from one to the next. */
int rounds_on(const TuningCase &tuning_case, const Sampling &sampling) {
    constexpr int least_rounds = 9;
    return is_large(tuning_case) ? std::min(sampling.rounds, std::max(least_rounds, sampling.rounds / 3))
                                 : sampling.rounds;
}

/** Makes a call and looks at what came out. */
tune::Result result_of(const CaseFamily &kind, bench::BenchmarkCase &bench_case) {
    bench_case.call(0);
    if (kind.finish) {
        kind.finish(bench_case);
    }
    std::string bytes;
    for (const bench::Matrix &output : bench_case.sets[0].outputs) {
        bytes.append(output.data(), output.bytes());
    }
    tune::Result result{};
    hash_of(bytes).copy(result.hash, sizeof(result.hash) - 1);
    result.error = kind.error ? kind.error(bench_case) : bench_case.accuracy().error;
    result.tolerance = bench_case.tolerance();
    return result;
}

}  // namespace

struct CallEvaluator::Candidate {
    Choice choice;
    std::string object, failure;
    std::unique_ptr<Loaded> loaded;  // null where the runtime's parameters are chosen

    KernelFunction function() const { return loaded == nullptr ? nullptr : loaded->function(); }
};

/** Calls of the library on one case, with a candidate in its place. */
class CallEvaluator::Calls : public bench::Contender {
public:
    Calls(const Subject &of, bench::BenchmarkCase &on, const Choice &with, KernelFunction kernel)
        : subject(of), bench_case(on), choice(with), function(kernel) {}

    void run(benchmark::State &state) override {
        TuningSession::install(subject, choice, function);
        const std::size_t sets = bench_case.sets.size();
        const bench::Kernel &kernel = *bench_case.id.kernel;
        if (sets == 1) {
            kernel.call(bench_case,
                        bench_case.sets[0]);  // the code and what it learns of the data, after somebody else's
        }
        const double begin = now();
        for (auto _ : state) {
            kernel.call(bench_case, bench_case.sets[next]);
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
    bench::BenchmarkCase &bench_case;
    const Choice &choice;
    KernelFunction function;
    std::size_t next = 0;
};

CallEvaluator::CallEvaluator(TuningSession &in, const Subject &of, std::function<bool()> stopper, Progress reporter)
    : session(in), subject(of), key(in.key_of(of)), stop(std::move(stopper)), progress(std::move(reporter)),
      bench_cases(of.cases.size()) {
    for (const TuningCase &check : subject.checks) {
        checks.push_back(session.finder.make(check, subject.isa));
        if (!subject.variant && halyard_context_set_streaming_min_bytes(checks.back()->context.get(), 0) != 0) {
            throw std::runtime_error(halyard_last_error());
        }
    }
    compile({subject.defaults});
    Candidate &defaults = *candidates.at(subject.defaults);
    if (defaults.failure.empty()) {
        // What the library needs besides is resolved here, once for all processes.
        TuningSession::install(subject, subject.defaults, defaults.function());
        for (std::size_t i = 0; i < checks.size(); i++) {
            result_of(*subject.checks[i].kind, *checks[i]);
        }
        std::vector<std::string> hashes;
        defaults.failure = failure_of(defaults, hashes);
        right = hashes;
    }
    if (!defaults.failure.empty()) {
        throw std::runtime_error(subject.name() + " with its default parameters: " + defaults.failure);
    }
    if (subject.variant) {
        const Variant &variant = *subject.variant;
        if (session.checked_families.insert(subject.family()).second &&
            session.compiler.object(variant, subject.defaults) != defaults.object) {
            throw std::logic_error("the space of the family " + subject.family() +
                                   " does not say the default values of its GeneratorParams");
        }
        defaults_again = session.compiler.load(defaults.object, variant.symbol());
    }
}

CallEvaluator::~CallEvaluator() {
    TuningSession::install(subject, subject.defaults, nullptr);
    if (subject.variant) {
        clear_kernel(table_index_of(*subject.variant));
    }
}

void CallEvaluator::compile(const std::vector<Choice> &choices) {
    const std::size_t at_once = std::max(1u, std::thread::hardware_concurrency());
    for (std::size_t begin = 0; begin < choices.size() && (begin == 0 || !stop()); begin += at_once) {
        const std::size_t end = std::min(choices.size(), begin + at_once);
        const std::vector<Choice> batch(&choices[begin], &choices[begin] + (end - begin));
        std::vector<Compiled> compiled(batch.size());
        if (subject.variant && batch != std::vector<Choice>{subject.defaults}) {
            progress("compiling " + text_of(batch.front()) + (batch.size() > 1 ? " and others" : ""));
            compiled = session.compiler.objects(*subject.variant, batch);
        } else if (subject.variant) {
            compiled[0].object = session.default_object(*subject.variant);
        }
        for (std::size_t i = 0; i < batch.size(); i++) {
            auto made =
                std::make_unique<Candidate>(Candidate{batch[i], compiled[i].object, compiled[i].failure, nullptr});
            try {
                if (subject.variant && made->failure.empty()) {
                    made->loaded = session.compiler.load(made->object, subject.variant->symbol());
                }
            } catch (const NoRoom &) {
                throw;
            } catch (const std::runtime_error &error) {
                made->failure = error.what();
            }
            if (!made->failure.empty()) {
                made->failure = "does not compile: " + made->failure;
            }
            candidates[batch[i]] = std::move(made);
        }
    }
}

std::string CallEvaluator::failure_of(const Candidate &tested, std::vector<std::string> &hashes) {
    std::vector<Check> all;
    for (std::size_t i = 0; i < checks.size(); i++) {
        all.push_back({subject.checks[i].name(), [&kind = *subject.checks[i].kind, &bench_case = *checks[i]] {
                           bench_case.spoil_outputs();
                           return result_of(kind, bench_case);
                       }});
    }
    return verify(
        all, [&] { TuningSession::install(subject, tested.choice, tested.function()); }, right, hashes);
}

std::vector<Choice> CallEvaluator::admitted(const std::vector<Choice> &choices) {
    compile(choices);
    std::vector<Choice> good;
    for (const Choice &choice : choices) {
        if (stop()) {
            return {};
        }
        progress("verifying " + text_of(choice));
        Candidate &tested = *candidates.at(choice);
        if (tested.failure.empty()) {
            std::vector<std::string> hashes;
            tested.failure = failure_of(tested, hashes);
        }
        if (tested.failure.empty()) {
            good.push_back(choice);
        } else {
            append({{"kind", "refused"}, {"params", choice}, {"reason", tested.failure}});
        }
    }
    return good;
}

std::vector<Gain> CallEvaluator::remembered(const Choice &choice, const Sampling &sampling) const {
    for (const json &record : session.database.records()) {
        try {
            if (record.at("kind") == "trial" && record.at("kernel") == key.kernel && record.at("dtype") == key.dtype &&
                record.at("isa") == key.isa && record.at("params") == json(choice) &&
                record.at("sampling") == to_json(sampling) && why_foreign(record, session.setting).empty() &&
                why_stale(record, key).empty()) {
                std::vector<Gain> gains;
                for (const json &ratio : record.at("gains")) {
                    gains.push_back({ratio});
                }
                return gains.size() == subject.cases.size() ? gains : std::vector<Gain>();
            }
        } catch (const json::exception &) {  // a damaged one
        }
    }
    return {};
}

CallEvaluator::Result CallEvaluator::compare(const std::vector<Choice> &choices, const Sampling &sampling,
                                             bool is_final) {
    // So many side by side that a group's rounds do not take minutes.
    constexpr std::size_t at_once = 16;
    Result result;
    std::vector<std::size_t> to_measure;
    for (std::size_t i = 0; i < choices.size(); i++) {
        result.gains.push_back(is_final ? std::vector<Gain>() : remembered(choices[i], sampling));
        if (result.gains.back().empty()) {
            to_measure.push_back(i);
        }
    }
    for (std::size_t begin = 0; begin < to_measure.size(); begin += at_once) {
        const std::size_t end = std::min(to_measure.size(), begin + at_once);
        std::vector<Gain> again;
        for (std::size_t w = 0; w < subject.cases.size(); w++) {
            const TuningCase &tuning_case = subject.cases[w];
            progress(
                (is_final ? "final" : "timing " + std::to_string(end) + " of " + std::to_string(to_measure.size())) +
                " at " + tuning_case.name());
            // Unless they are large, operands lie somewhere else than those before, which go when the new ones are there: how
            // they lie in the caches is worth more than most parameters.
            std::unique_ptr<bench::BenchmarkCase> &bench_case = bench_cases[w];
            if (bench_case == nullptr || !is_large(tuning_case)) {
                bench_case = session.finder.make(tuning_case, subject.isa);
            }
            const KernelFunction of_defaults = candidates.at(subject.defaults)->function();
            std::vector<std::unique_ptr<Calls>> calls;
            calls.push_back(std::make_unique<Calls>(subject, *bench_case, subject.defaults, of_defaults));
            calls.push_back(std::make_unique<Calls>(subject, *bench_case, subject.defaults,
                                                    defaults_again ? defaults_again->function() : nullptr));
            for (std::size_t k = begin; k < end; k++) {
                const Choice &choice = choices[to_measure[k]];
                calls.push_back(
                    std::make_unique<Calls>(subject, *bench_case, choice, candidates.at(choice)->function()));
            }
            std::vector<bench::Contender *> contenders;
            for (const auto &each : calls) {
                contenders.push_back(each.get());
            }
            const auto seconds =
                bench::measure(contenders, {rounds_on(tuning_case, sampling), sampling.seconds_per_sample, {}, stop});
            if (stop()) {
                return {};
            }
            again.push_back(gain_over(seconds[0], seconds[1]));
            for (std::size_t k = begin; k < end; k++) {
                result.gains[to_measure[k]].push_back(gain_over(seconds[0], seconds[2 + k - begin]));
            }
            if (is_large(tuning_case) && !tuning_case.id.cold) {
                bench_case = nullptr;  // several of these at a time may be more than there is memory
            }
        }
        result.again = again;
        for (std::size_t k = begin; k < end && !is_final; k++) {
            json gains = json::array();
            for (const Gain &gain : result.gains[to_measure[k]]) {
                gains.push_back(gain.ratio);
            }
            append({{"kind", "trial"},
                    {"params", choices[to_measure[k]]},
                    {"sampling", to_json(sampling)},
                    {"gains", gains}});
        }
    }
    return result;
}

void CallEvaluator::append(json fields) {
    json record = record_of(session.setting, key);
    record.update(fields);
    const std::time_t now = std::time(nullptr);
    char text[32];
    std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", std::gmtime(&now));
    record["time"] = text;
    double load = 0;
    getloadavg(&load, 1);
    record["load"] = load;
    session.database.append(record);
}

void CallEvaluator::keep(const Decision &decision) {
    json record = record_of(decision);
    record["effort"] = session.effort.name;
    append(record);
}

}  // namespace halyard::tune
