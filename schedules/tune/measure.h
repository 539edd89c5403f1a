// Times of several competitors for one piece of work, such that noise does not make a winner.
//
// Samples are taken in rounds, one of each competitor, in an order that changes from round to round; ratios are formed
// within a round, so that a slow phase of the machine meets both sides. The incumbent competes twice: what lies between
// it and itself is the noise. A winner must beat it by more than both 2 % and three times the noise, and then do so
// again in samples that had no part in choosing it.
#ifndef HALYARD_TUNE_MEASURE_H
#define HALYARD_TUNE_MEASURE_H

#include <cmath>
#include <cstdint>
#include <functional>
#include <random>
#include <vector>

namespace halyard::tune {

/** Something that does one piece of work again and again, and says how long it took. */
class Competitor {
public:
    virtual ~Competitor() = default;
    /** Makes whatever the competitors do not share ready for it: called before each sample, untimed. */
    virtual void enter() {}
    /** Seconds for `calls` calls. */
    virtual double seconds(std::int64_t calls) = 0;
};

struct Effort {
    int rounds;
    double seconds_per_sample;
};

/** Seconds per call, [competitor][round]. All make the same number of calls per sample, as many as take the first one
 *  about seconds_per_sample. Fewer rounds if `stop` says so, which is asked before each. */
std::vector<std::vector<double>> sample_rounds(const std::vector<Competitor *> &competitors, const Effort &effort,
                                               std::mt19937 &random, const std::function<bool()> &stop);

double median_of(std::vector<double> values);

/** How many times as fast as the incumbent something is. */
struct Gain {
    double ratio = 1;  // the median over the rounds of the incumbent's time over its own
    double error = 0;  // standard error of that median, from the median absolute deviation
    // What the median is hardly below or above, whatever the distribution: order statistics of the ratios that it is
    // outside of in one of 200 cases on either side.
    double low = HUGE_VAL, high = 0;
};

Gain gain_over(const std::vector<double> &incumbent, const std::vector<double> &candidate);
/** The geometric mean over several pieces of work. */
Gain mean_gain(const std::vector<Gain> &gains);

/** What the incumbent's gain over itself says: how far from 1 it was, and how sure that is. */
double noise_of(const Gain &incumbent_over_itself);

/** Whether a gain this large is one: beyond 2 %, beyond three times the noise, and in nearly all rounds. `noise`: of
 * the incumbent against itself. */
bool is_beyond_noise(const Gain &gain, double noise);
/** The same of a loss. */
bool is_slower_beyond_noise(const Gain &gain, double noise);

}  // namespace halyard::tune

#endif
