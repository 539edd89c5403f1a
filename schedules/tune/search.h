// The search for the best choice in a space: all of them, or a random part, are compared with the default parameters; the best
// few of those that may gain meet in a final, and who wins it must win again in samples that had no part in choosing it.
#ifndef HALYARD_TUNE_SEARCH_H
#define HALYARD_TUNE_SEARCH_H

#include <cmath>
#include <cstddef>
#include <random>
#include <string>
#include <vector>

#include "schedules/search_space.h"

namespace halyard::tune {

using schedules::Choice;
using schedules::SearchSpace;

// ---- from samples to gains ----

/** How many times as fast as the default parameters something is. */
struct Gain {
    double ratio = 1;  // the median over the rounds of the default's time over its own
    double error = 0;  // standard error of that median, from the median absolute deviation
    // What the median is hardly below or above, whatever the distribution: order statistics of the ratios that it is
    // outside of in one of 200 cases on either side.
    double low = HUGE_VAL, high = 0;
};

/** Ratios are formed within a round, so that a slow phase of the machine meets both sides. */
Gain gain_over(const std::vector<double> &defaults, const std::vector<double> &candidate);
/** The geometric mean over several calls. */
Gain mean_gain(const std::vector<Gain> &gains);
/** What the gain of the default parameters over themselves says: how far from 1 it was, and how sure that is. */
double noise_of(const Gain &over_itself);
/** Whether a gain is one: beyond 2 %, beyond three times the noise, and in nearly all rounds. */
bool is_beyond_noise(const Gain &gain, double noise);
/** Whether a loss is one, as is_beyond_noise() tells it of a gain. */
bool is_slower_beyond_noise(const Gain &gain, double noise);
/** Whether the 2 % are within its error: otherwise nothing is left to find out. */
bool may_gain(const Gain &gain);

// ---- the search ----

struct Sampling {
    int rounds;
    double seconds_per_sample;
};

struct Effort {
    std::string name;
    std::size_t choices;  // that are tried of a space at most
    Sampling screen, final;
    bool large_sets;  // calls out of cache, too
};

/** From the least to the most. */
const std::vector<Effort> &efforts();
/** Throws std::invalid_argument. */
const Effort &effort_named(const std::string &name);

/** Where choices are compared. */
class Evaluator {
public:
    virtual ~Evaluator() = default;

    /** The choices that compile and give the right bits. */
    virtual std::vector<Choice> admitted(const std::vector<Choice> &choices) = 0;
    std::vector<std::string> refused;  // the others, each with the reason

    struct Result {
        std::vector<std::vector<Gain>> gains;  // over the default parameters, [choice][call]; fewer of a choice that
                                               // was given up because it is clearly slower in one
        std::vector<Gain> again;               // of the default parameters over themselves, [call]
    };
    /** Empty if stopped. In a final no choice is given up. */
    virtual Result compare(const std::vector<Choice> &choices, const Sampling &sampling, bool is_final) = 0;

    /** Whether time is up or the user wants to stop. */
    virtual bool stopped() = 0;
};

struct Decision {
    bool is_made = false;   // false if the search was stopped
    Choice defaults, best;  // the best that was found, which may be the default
    bool is_better = false;
    // The gain of the best over the default parameters: the least of final and confirmation, or that of the screen.
    double ratio = 1, error = 0;
    double noise = 0;  // of the default parameters against themselves
    int tried = 0;
};

/** All choices of a space that are worth compiling, but the default. */
std::vector<Choice> worthy_choices(const SearchSpace &space, const schedules::TargetInfo &target,
                                   const Choice &defaults);

Decision search(const SearchSpace &space, const schedules::TargetInfo &target, const Choice &defaults,
                const Effort &effort, std::mt19937 &random, Evaluator &evaluator);

}  // namespace halyard::tune

#endif
