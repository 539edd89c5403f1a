// See search.h.
#include "search.h"

#include <algorithm>
#include <set>
#include <stdexcept>

namespace halyard::tune {
namespace {

struct Scored {
    Choice choice;
    Gain gain;
};

/** The final, and if it is won, its repetition. False if it was interrupted. */
bool decide(const Choice &candidate, const Rigor &rigor, Arena &arena, Outcome &outcome) {
    Gain least;
    double noise = 0;
    for (int repetition = 0; repetition < 2; repetition++) {
        const Arena::Result result = arena.compare({candidate}, rigor.last, true);
        if (arena.stopped() || result.gains.empty()) {
            return false;
        }
        const Gain gain = mean_gain(result.gains[0]);
        noise = std::max(noise, noise_of(mean_gain(result.again)));
        if (repetition == 0 || gain.ratio < least.ratio) {
            least = gain;
        }
        bool wins = is_beyond_noise(gain, noise);
        for (std::size_t i = 0; i < result.gains[0].size(); i++) {
            wins = wins && !is_slower_beyond_noise(result.gains[0][i], noise_of(result.again[i]));
        }
        outcome.noise = noise;
        if (!wins) {
            outcome.runner_up = candidate;
            outcome.runner_up_gain = least;
            return true;
        }
    }
    outcome.best = candidate;
    outcome.is_better = true;
    outcome.gain = least;
    return true;
}

/** One search. */
class Search {
public:
    Search(const SearchSpace &of, const schedules::TargetInfo &met, const Choice &usual_choice, const Rigor &patience,
           std::mt19937 &generator, Arena &where)
        : space(of), target(met), usual(usual_choice), rigor(patience), random(generator), arena(where) {}

    Outcome run() {
        outcome.best = outcome.runner_up = usual;
        std::vector<Scored> survivors = halve(random_start());
        if (arena.stopped()) {
            return outcome;
        }
        if (!survivors.empty()) {
            climb(survivors);
        }
        if (arena.stopped() || (!survivors.empty() && !decide(survivors.front().choice, rigor, arena, outcome))) {
            return outcome;
        }
        outcome.is_decided = true;
        return outcome;
    }

private:
    std::vector<Choice> admitted(const std::vector<Choice> &choices) {
        std::vector<Choice> fresh, good;
        for (const Choice &choice : choices) {
            if (choice != usual && seen.insert(choice).second) {
                fresh.push_back(choice);
            }
        }
        arena.expect(fresh);
        for (const Choice &choice : fresh) {
            if (arena.stopped()) {
                break;
            }
            outcome.tried++;
            if (arena.admits(choice)) {
                good.push_back(choice);
            }
        }
        return good;
    }

    std::vector<Choice> random_start() {
        std::vector<Choice> choices = worthy_choices(space, target, usual);
        const auto wanted = static_cast<std::size_t>(rigor.population);
        if (choices.size() > wanted) {
            std::shuffle(choices.begin(), choices.end(), random);
            choices.resize(wanted);
        }
        return admitted(choices);
    }

    /** Compares, best first. */
    std::vector<Scored> rank(const std::vector<Choice> &choices, const Effort &effort) {
        std::vector<Scored> scored;
        const Arena::Result result = arena.compare(choices, effort, false);
        for (std::size_t i = 0; i < result.gains.size(); i++) {
            scored.push_back({choices[i], mean_gain(result.gains[i])});
        }
        std::stable_sort(scored.begin(), scored.end(),
                         [](const Scored &a, const Scored &b) { return a.gain.ratio > b.gain.ratio; });
        return scored;
    }

    std::vector<Scored> halve(std::vector<Choice> choices) {
        std::vector<Scored> scored;
        Effort effort = rigor.first;
        while (!choices.empty() && !arena.stopped()) {
            scored = rank(choices, effort);
            const auto finalists = static_cast<std::size_t>(rigor.finalists);
            if (choices.size() <= finalists) {
                break;
            }
            scored.resize(std::max(finalists, (scored.size() + 1) / 2));
            choices.clear();
            for (const Scored &each : scored) {
                choices.push_back(each.choice);
            }
            effort.rounds *= 2;
        }
        return scored;
    }

    /** Moves to better neighbours; leaves the best in front. */
    void climb(std::vector<Scored> &survivors) {
        for (int move = 0; move < rigor.moves && !arena.stopped(); move++) {
            std::vector<Choice> near;
            for (const Choice &choice : neighbours_of(space, survivors.front().choice)) {
                if (space.fits(choice, target)) {
                    near.push_back(choice);
                }
            }
            near = admitted(near);
            if (near.empty()) {
                return;
            }
            near.push_back(survivors.front().choice);
            const std::vector<Scored> ranked = rank(near, {2 * rigor.first.rounds, rigor.first.seconds_per_sample});
            if (arena.stopped() || ranked.empty() || ranked.front().choice == survivors.front().choice) {
                return;
            }
            survivors.insert(survivors.begin(), ranked.front());
        }
    }

    const SearchSpace &space;
    const schedules::TargetInfo &target;
    const Choice &usual;
    const Rigor &rigor;
    std::mt19937 &random;
    Arena &arena;
    Outcome outcome;
    std::set<Choice> seen;
};

}  // namespace

const std::vector<Rigor> &rigors() {
    static const std::vector<Rigor> all = {
        {"quick", 12, 2, 1, {5, 1e-3}, {25, 1e-3}, false},
        {"normal", 32, 3, 3, {7, 1e-3}, {45, 1.5e-3}, true},
        {"patient", 128, 4, 8, {11, 2e-3}, {99, 3e-3}, true},
    };
    return all;
}

const Rigor &rigor_named(const std::string &name) {
    for (const Rigor &rigor : rigors()) {
        if (rigor.name == name) {
            return rigor;
        }
    }
    throw std::invalid_argument("no rigor is called '" + name + "'");
}

std::vector<Choice> worthy_choices(const SearchSpace &space, const schedules::TargetInfo &target, const Choice &usual) {
    std::vector<Choice> choices = {Choice()};
    for (const schedules::Tunable &parameter : space.parameters) {
        std::vector<Choice> longer;
        for (const Choice &choice : choices) {
            for (const int value : parameter.values) {
                longer.push_back(choice);
                longer.back()[parameter.name] = value;
            }
        }
        choices = std::move(longer);
    }
    const auto unworthy = [&](const Choice &choice) { return choice == usual || !space.fits(choice, target); };
    choices.erase(std::remove_if(choices.begin(), choices.end(), unworthy), choices.end());
    return choices;
}

std::vector<Choice> neighbours_of(const SearchSpace &space, const Choice &choice) {
    std::vector<Choice> neighbours;
    for (const schedules::Tunable &parameter : space.parameters) {
        const auto &values = parameter.values;
        const auto at = std::find(values.begin(), values.end(), choice.at(parameter.name));
        if (at == values.end()) {
            continue;
        }
        for (const int step : {-1, 1}) {
            const auto place = at - values.begin() + step;
            if (place >= 0 && place < static_cast<std::ptrdiff_t>(values.size())) {
                neighbours.push_back(choice);
                neighbours.back()[parameter.name] = values[static_cast<std::size_t>(place)];
            }
        }
    }
    return neighbours;
}

Outcome challenge(const Choice &challenger, const Choice &usual, const Rigor &rigor, Arena &arena) {
    Outcome outcome;
    outcome.best = outcome.runner_up = usual;
    outcome.tried = 1;
    outcome.is_decided = arena.admits(challenger) ? decide(challenger, rigor, arena, outcome) : !arena.stopped();
    return outcome;
}

Outcome search(const SearchSpace &space, const schedules::TargetInfo &target, const Choice &usual, const Rigor &rigor,
               std::mt19937 &random, Arena &arena) {
    return Search(space, target, usual, rigor, random, arena).run();
}

}  // namespace halyard::tune
