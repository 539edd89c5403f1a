// How often what grows is written: the whole of it after every row would be half a terabyte in a long run.
#ifndef HALYARD_BENCH_PACE_H
#define HALYARD_BENCH_PACE_H

#include <algorithm>

namespace halyard::bench {

/** Of something done again and again: the first time at once, then at most every ten seconds and for a twentieth of the
 *  time. Times are in seconds from any beginning. */
class Pace {
public:
    bool is_due(double now) const { return now >= next; }
    void was_done(double begin, double end) { next = end + std::max(10.0, 20 * (end - begin)); }

private:
    double next = 0;
};

}  // namespace halyard::bench

#endif
