// A candidate's results, computed and looked at in a process of its own, which it may bring down.
#ifndef HALYARD_TUNE_VERIFY_H
#define HALYARD_TUNE_VERIFY_H

#include <functional>
#include <string>
#include <vector>

namespace halyard::tune {

/** What came out of a call: a hash of its outputs, their error against the float64 reference, and what that may be. */
struct Result {
    char hash[17];
    double error, tolerance;
};

struct Check {
    std::string name;
    std::function<Result()> call;
};

/** Makes the calls in another process after `install`. Says why what came out is no good, or nothing: a result is wrong, or
 *  its hash is not in `right` (which may be empty), or the process crashed or took longer than `most_seconds`. Throws
 *  std::runtime_error where no process can be started. */
std::string verify(const std::vector<Check> &checks, const std::function<void()> &install,
                   const std::vector<std::string> &right, std::vector<std::string> &hashes, int most_seconds = 30);

}  // namespace halyard::tune

#endif
