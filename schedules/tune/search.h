// The search for the best choice in a space: a random start among the choices that are worth compiling, successive
// halving, moves to neighbours of the best, and a final against the usual choice.
#ifndef HALYARD_TUNE_SEARCH_H
#define HALYARD_TUNE_SEARCH_H

#include <functional>
#include <random>
#include <string>
#include <vector>

#include "measure.h"
#include "schedules/search_space.h"

namespace halyard::tune {

using schedules::Choice;
using schedules::SearchSpace;

/** How patient a search is. */
struct Rigor {
    std::string name;
    int population;   // choices of the random start; spaces that are no larger are searched whole
    int finalists;    // at which halving ends
    int moves;        // from the best to a better neighbour, at most
    Effort first;     // of the first comparison; each halving doubles its rounds
    Effort last;      // of the final and of its repetition
    bool large_sets;  // pieces of work out of cache, too
};

/** Samples are short and many: on a busy machine some are interrupted, and the others remain. */
const std::vector<Rigor> &rigors();
/** Throws std::invalid_argument. */
const Rigor &rigor_named(const std::string &name);

/** Where choices are compared. */
class Arena {
public:
    virtual ~Arena() = default;

    /** These will be asked about next: whatever can be done for several at a time. */
    virtual void expect(const std::vector<Choice> &) {}
    /** Whether a choice compiles and gives the right bits. Asked once for every choice before it is compared. */
    virtual bool admits(const Choice &choice) = 0;

    struct Result {
        std::vector<std::vector<Gain>> gains;  // over the usual choice, [choice][piece of work]
        std::vector<Gain> again;               // of the usual choice over itself, [piece of work]
    };
    /** Compares choices with the usual one. What was measured before may be given again, but not in a final. */
    virtual Result compare(const std::vector<Choice> &choices, const Effort &effort, bool is_final) = 0;

    /** Whether time is up or the user wants to stop. What was found by then is thrown away but for what compare() and
     *  admits() kept. */
    virtual bool stopped() = 0;
};

struct Outcome {
    bool is_decided = false;  // false if stopped before
    Choice best;              // the usual choice, if nothing beat it
    bool is_better = false;   // than the usual one
    Gain gain;                // of the best over the usual one, in the final; 1 if nothing was better
    double noise = 0;         // of the final
    Choice runner_up;         // the best of the others, where the usual one stays
    Gain runner_up_gain;
    int tried = 0;
};

/** All choices of a space that are worth compiling, but the usual one. */
std::vector<Choice> worthy_choices(const SearchSpace &space, const schedules::TargetInfo &target, const Choice &usual);

/** The choices that differ from one in one parameter, by one step among its values. */
std::vector<Choice> neighbours_of(const SearchSpace &space, const Choice &choice);

/** The final alone, of one choice against the usual one: for what a search found too noisy to tell. */
Outcome challenge(const Choice &challenger, const Choice &usual, const Rigor &rigor, Arena &arena);

Outcome search(const SearchSpace &space, const schedules::TargetInfo &target, const Choice &usual, const Rigor &rigor,
               std::mt19937 &random, Arena &arena);

}  // namespace halyard::tune

#endif
