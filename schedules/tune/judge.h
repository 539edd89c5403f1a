// A candidate's results, computed and looked at in a process of its own, which it may bring down.
#ifndef HALYARD_TUNE_JUDGE_H
#define HALYARD_TUNE_JUDGE_H

#include <functional>
#include <string>
#include <vector>

#include "works.h"

namespace halyard::tune {

/** A call whose results are compared with the float64 reference. */
struct Check {
    const Workload *workload;
    bench::Work *work;
};

/** What came out of one. */
struct Judged {
    std::string hash;  // of the outputs
    double error = 0, tolerance = 0;
};

/** Makes the calls with the usual kernel here and with the tested one in another process. Says why that is no good, or
 *  nothing; throws std::runtime_error where no process can be started. */
std::string judge_apart(const std::vector<Check> &checks, const std::function<void()> &install_usual,
                        const std::function<void()> &install_tested, std::vector<Judged> &results);

}  // namespace halyard::tune

#endif
