// See arena.h.
#include "arena.h"

#include <algorithm>
#include <cmath>
#include <ctime>
#include <stdexcept>
#include <thread>

namespace halyard::tune {
namespace {

using nlohmann::json;

std::string utc_now() {
    const std::time_t now = std::time(nullptr);
    char text[32];
    std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", std::gmtime(&now));
    return text;
}

json to_json(const Gain &gain) {
    return {{"ratio", gain.ratio}, {"error", gain.error}, {"low", gain.low}, {"high", gain.high}};
}

Gain gain_of(const json &object) {
    return {object.at("ratio"), object.at("error"), object.at("low"), object.at("high")};
}

json to_json(const Effort &effort) {
    return {{"rounds", effort.rounds}, {"seconds_per_sample", effort.seconds_per_sample}};
}

/** Calls out of cache take many times as long as a sample should, but differ less from one to the next. */
Effort effort_on(const Workload &workload, Effort effort) {
    constexpr int least_rounds = 9;
    if (workload.id.cold) {
        effort.rounds = std::min(effort.rounds, std::max(least_rounds, effort.rounds / 3));
    }
    return effort;
}

}  // namespace

struct KernelArena::Candidate {
    Choice choice;
    std::string object, failure;
    std::unique_ptr<Loaded> loaded;
};

/** Calls of the library on one piece of work, with one kernel in its place. */
class KernelArena::Calls : public Competitor {
public:
    Calls(const KernelArena &of, bench::Work &on, const Choice &with, KernelFunction kernel)
        : arena(of), work(on), choice(with), function(kernel) {}

    void enter() override {
        arena.install(choice, function);
        if (work.sets.size() == 1) {
            work.call(0);  // the code and what it learns of the data, after somebody else's
        }
    }

    double seconds(std::int64_t calls) override {
        const std::size_t sets = work.sets.size();
        const bench::Kernel &kernel = *work.id.kernel;
        const double begin = now();
        for (std::int64_t i = 0; i < calls; i++) {
            kernel.call(work, work.sets[next]);
            next = next + 1 == sets ? 0 : next + 1;
        }
        return now() - begin;
    }

private:
    /** A call on one thread stays on this one. The time that it has had a processor leaves out what other processes
     * took of it meanwhile, which on a busy machine is most of the time. */
    double now() const {
        timespec time{};
        clock_gettime(work.id.threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &time);
        return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
    }

    const KernelArena &arena;
    bench::Work &work;
    const Choice &choice;
    KernelFunction function;
    std::size_t next = 0;
};

KernelArena::KernelArena(Workshop &shop, const Variant &of, std::vector<Workload> on, Database &records,
                         const Setting &setting, std::mt19937 &generator, std::function<bool()> stopper,
                         Progress reporter)
    : workshop(shop), variant(of), workloads(std::move(on)), database(records),
      head(record_of(setting, shop.subject(of, workloads))), random(generator), stop(std::move(stopper)),
      progress(std::move(reporter)), usual(shop.usual.complete(of)), check_list(shop.finder.checks(of)) {
    const Subject subject = shop.subject(of, workloads);
    for (const json &record : database.records()) {
        if (record["kind"] == "trial" && record.value("kernel", "") == subject.kernel &&
            record.value("dtype", "") == subject.dtype && record.value("isa", "") == subject.isa &&
            why_foreign(record, setting).empty() && why_stale(record, subject).empty()) {
            known.push_back(record);
        }
    }
    for (const Workload &check : check_list) {
        checks.push_back(shop.finder.make(check, of.isa));
    }
    works.resize(workloads.size());
    Candidate &first = candidate(usual);
    if (first.failure.empty()) {
        first.failure = judge(first, right);
    }
    if (!first.failure.empty()) {
        throw std::runtime_error(variant.name() + " with its usual parameters: " + first.failure);
    }
    if (workshop.checked_families.insert(variant.kernel->family).second &&
        workshop.compiler.object(variant, usual) != first.object) {
        throw std::logic_error("the space of the family " + variant.kernel->family +
                               " does not say the usual values of its GeneratorParams");
    }
    usual_again = workshop.compiler.load(first.object, variant.symbol());
}

KernelArena::~KernelArena() {
    const int slot = slot_of(variant);
    clear_slot(slot);
    if (variant.kernel->family == "matmul") {
        set_tile_panels(variant, usual.at("panels"));
    }
    for (std::unique_ptr<bench::Work> &work : works) {
        workshop.give_back(std::move(work));
    }
}

void KernelArena::install(const Choice &choice, KernelFunction function) const {
    set_slot(slot_of(variant), function);
    if (variant.kernel->family == "matmul") {
        set_tile_panels(variant, choice.at("panels"));
    }
}

KernelArena::Candidate &KernelArena::candidate(const Choice &choice) {
    if (candidates.count(choice) == 0) {
        compile({choice});
    }
    return *candidates.at(choice);
}

void KernelArena::compile(const std::vector<Choice> &choices) {
    const bool is_usual = choices == std::vector<Choice>{usual};
    const std::vector<Compiled> compiled = is_usual ? std::vector<Compiled>{{workshop.usual_object(variant), ""}}
                                                    : workshop.compiler.objects(variant, choices);
    for (std::size_t i = 0; i < choices.size(); i++) {
        auto made = std::make_unique<Candidate>();
        made->choice = choices[i];
        made->object = compiled[i].object;
        made->failure = compiled[i].failure;
        try {
            if (made->failure.empty()) {
                made->loaded = workshop.compiler.load(made->object, variant.symbol());
            }
        } catch (const NoRoom &) {
            throw;
        } catch (const std::runtime_error &error) {
            made->failure = error.what();
        }
        if (!made->failure.empty()) {
            made->failure = "does not compile: " + made->failure;
        }
        candidates[choices[i]] = std::move(made);
    }
}

void KernelArena::expect(const std::vector<Choice> &choices) {
    const std::size_t at_once = std::max(1u, std::thread::hardware_concurrency());
    std::vector<Choice> next;
    for (std::size_t i = 0; i < choices.size() && !stop(); i++) {
        if (candidates.count(choices[i]) == 0) {
            next.push_back(choices[i]);
        }
        if (next.size() == at_once || (!next.empty() && i + 1 == choices.size())) {
            progress("compiling " + text_of(next.front()) + (next.size() > 1 ? " and others" : ""));
            compile(next);
            next.clear();
        }
    }
}

std::string KernelArena::judge(const Candidate &tested, std::vector<Judged> &results) {
    std::vector<Check> all;
    for (std::size_t i = 0; i < checks.size(); i++) {
        all.push_back({&check_list[i], checks[i].get()});
    }
    const std::string failure = judge_on(all, tested.choice, *tested.loaded, results);
    for (std::size_t i = 0; failure.empty() && &results != &right && i < results.size(); i++) {
        if (results[i].hash != right[i].hash) {
            return "gives other bits at " + check_list[i].name();
        }
    }
    return failure;
}

std::string KernelArena::judge_on(const std::vector<Check> &all, const Choice &choice, const Loaded &tested,
                                  std::vector<Judged> &results) {
    return judge_apart(
        all, [this] { install(usual, candidate(usual).loaded->function()); },
        [&] { install(choice, tested.function()); }, results);
}

void KernelArena::append(json fields) {
    json record = head;
    record.update(fields);
    record["family"] = variant.kernel->family;
    record["time"] = utc_now();
    double load = 0;
    getloadavg(&load, 1);
    record["load"] = load;
    database.append(record);
}

bool KernelArena::admits(const Choice &choice) {
    progress("checking " + text_of(choice));
    Candidate &tested = candidate(choice);
    if (tested.failure.empty()) {
        std::vector<Judged> results;
        tested.failure = judge(tested, results);
    }
    if (!tested.failure.empty() && !stop()) {
        append({{"kind", "trial"}, {"params", choice}, {"verdict", tested.failure}});
    }
    return tested.failure.empty();
}

std::optional<std::vector<Gain>> KernelArena::remembered(const Choice &choice, const Effort &effort) const {
    for (const json &record : known) {
        if (record["verdict"] == "compared" && record["params"] == json(choice) &&
            record["effort"] == to_json(effort)) {
            std::vector<Gain> gains;
            for (const json &gain : record["gains"]) {
                gains.push_back(gain_of(gain));
            }
            return gains;
        }
    }
    return std::nullopt;
}

bench::Work &KernelArena::work_on(std::size_t workload) {
    if (works[workload] == nullptr) {
        // One large set of operands at a time.
        for (std::size_t other = 0; other < works.size(); other++) {
            if (works[other] != nullptr && workloads[other].id.cold) {
                workshop.give_back(std::move(works[other]));
            }
        }
        works[workload] = workshop.take(workloads[workload], variant.isa);
    }
    return *works[workload];
}

bench::Work &KernelArena::work_elsewhere(std::size_t workload) {
    if (!workloads[workload].id.cold) {
        // The old ones go when the new ones are there, which so lie in other memory.
        works[workload] = workshop.take(workloads[workload], variant.isa);
    }
    return work_on(workload);
}

Arena::Result KernelArena::compare(const std::vector<Choice> &choices, const Effort &effort, bool is_final) {
    Result result;
    result.gains.resize(choices.size());
    std::vector<std::size_t> to_measure;
    for (std::size_t i = 0; i < choices.size(); i++) {
        const auto before = is_final ? std::nullopt : remembered(choices[i], effort);
        if (before) {
            result.gains[i] = *before;
        } else {
            to_measure.push_back(i);
        }
    }
    if (to_measure.empty()) {
        return result;
    }

    std::vector<std::vector<std::vector<double>>> samples(choices.size());  // [choice][piece of work][round]
    for (std::size_t w = 0; w < workloads.size(); w++) {
        if (stop()) {
            return {};
        }
        progress((is_final ? "final: " : "timing " + std::to_string(to_measure.size()) + " at ") + workloads[w].name());
        bench::Work &work = is_final ? work_elsewhere(w) : work_on(w);
        std::vector<std::unique_ptr<Calls>> calls;
        const auto add = [&](const Choice &choice, KernelFunction function) {
            calls.push_back(std::make_unique<Calls>(*this, work, choice, function));
        };
        add(usual, candidate(usual).loaded->function());
        add(usual, usual_again->function());
        for (const std::size_t i : to_measure) {
            add(choices[i], candidate(choices[i]).loaded->function());
        }
        std::vector<Competitor *> competitors;
        for (const auto &each : calls) {
            competitors.push_back(each.get());
        }
        const Effort on_this = effort_on(workloads[w], effort);
        const auto seconds = sample_rounds(competitors, on_this, random, stop);
        if (static_cast<int>(seconds[0].size()) < on_this.rounds) {
            return {};
        }
        result.again.push_back(gain_over(seconds[0], seconds[1]));
        for (std::size_t k = 0; k < to_measure.size(); k++) {
            const std::size_t i = to_measure[k];
            result.gains[i].push_back(gain_over(seconds[0], seconds[k + 2]));
            samples[i].push_back(seconds[k + 2]);
        }
        samples.push_back({seconds[0]});
    }
    for (const std::size_t i : to_measure) {
        json gains = json::array(), again = json::array(), usual_samples = json::array();
        for (const Gain &gain : result.gains[i]) {
            gains.push_back(to_json(gain));
        }
        for (const Gain &gain : result.again) {
            again.push_back(to_json(gain));
        }
        for (std::size_t w = 0; w < workloads.size(); w++) {
            usual_samples.push_back(samples[choices.size() + w][0]);
        }
        const Gain mean = mean_gain(result.gains[i]);
        append({{"kind", "trial"},
                {"params", choices[i]},
                {"verdict", is_final ? "final" : "compared"},
                {"effort", to_json(effort)},
                {"seconds", samples[i]},
                {"usual_seconds", usual_samples},
                {"gains", gains},
                {"again", again},
                {"ratio", mean.ratio},
                {"error", mean.error},
                {"noise", noise_of(mean_gain(result.again))}});
    }
    return result;
}

std::optional<KernelArena::Duel> KernelArena::duel(const Choice &first, const Choice &second, const Effort &effort) {
    for (const Choice &choice : {first, second}) {
        if (choice != usual && !admits(choice)) {
            throw std::runtime_error(text_of(choice) + " " + candidate(choice).failure);
        }
    }
    const std::unique_ptr<Loaded> first_again = workshop.compiler.load(candidate(first).object, variant.symbol());
    std::optional<Duel> result;
    for (int repetition = 0; repetition < 2; repetition++) {
        std::vector<Gain> gains, again;
        for (std::size_t w = 0; w < workloads.size(); w++) {
            bench::Work &work = work_on(w);
            Calls a(*this, work, first, candidate(first).loaded->function());
            Calls a_again(*this, work, first, first_again->function());
            Calls b(*this, work, second, candidate(second).loaded->function());
            const Effort on_this = effort_on(workloads[w], effort);
            const auto seconds = sample_rounds({&a, &a_again, &b}, on_this, random, stop);
            if (static_cast<int>(seconds[0].size()) < on_this.rounds) {
                return std::nullopt;
            }
            again.push_back(gain_over(seconds[0], seconds[1]));
            gains.push_back(gain_over(seconds[0], seconds[2]));
        }
        const Gain gain = mean_gain(gains);
        const double noise = std::max(noise_of(mean_gain(again)), result ? result->noise : 0.0);
        const int winner = is_beyond_noise(gain, noise) ? 1 : is_slower_beyond_noise(gain, noise) ? -1 : 0;
        if (!result || std::fabs(std::log(gain.ratio)) < std::fabs(std::log(result->gain.ratio))) {
            result = Duel{gain, noise, result && result->winner != winner ? 0 : winner};
        } else {
            result->noise = noise;
            result->winner = result->winner == winner ? winner : 0;
        }
    }
    return result;
}

std::vector<std::vector<int>> KernelArena::arguments() {
    bench::Work &work = work_on(0);
    return arguments_in(slot_of(variant), workshop.compiler.argument_ranks(variant), [&work] { work.call(0); });
}

KernelArena::Race KernelArena::race(const std::string &label, const std::function<std::unique_ptr<Loaded>()> &make,
                                    const Effort &effort) {
    Race result;
    std::unique_ptr<Loaded> other;
    try {
        other = make();
        // On the very calls: such a schedule serves no smaller ones.
        std::vector<Check> all;
        for (std::size_t w = 0; w < workloads.size(); w++) {
            all.push_back({&workloads[w], &work_on(w)});
            set_inherited(work_on(w), true);
        }
        std::vector<Judged> results;
        result.failure = judge_on(all, usual, *other, results);
    } catch (const std::runtime_error &error) {
        result.failure = error.what();
    }
    json gains = json::array();
    for (std::size_t w = 0; w < workloads.size() && result.failure.empty(); w++) {
        bench::Work &work = work_on(w);
        Calls ours(*this, work, usual, candidate(usual).loaded->function());
        Calls theirs(*this, work, usual, other->function());
        const auto seconds = sample_rounds({&ours, &theirs}, effort, random, stop);
        if (static_cast<int>(seconds[0].size()) < effort.rounds) {
            result.failure = "interrupted";
            return result;
        }
        result.usual_seconds.push_back(median_of(seconds[0]));
        result.seconds.push_back(median_of(seconds[1]));
        result.gains.push_back(gain_over(seconds[0], seconds[1]));
        gains.push_back(to_json(result.gains.back()));
    }
    append({{"kind", "baseline"},
            {"label", label},
            {"failure", result.failure},
            {"seconds", result.seconds},
            {"usual_seconds", result.usual_seconds},
            {"gains", gains}});
    return result;
}

void KernelArena::keep(const Verdict &verdict, unsigned seed) {
    json record = record_of(verdict);
    record["kind"] = "verdict";
    record["rigor"] = workshop.options.rigor.name;
    record["seed"] = seed;
    append(record);
}

}  // namespace halyard::tune
