// Whether a candidate gives the bits of the default parameters, found out in a process of its own, which it may bring down.
#ifndef HALYARD_TUNE_VERIFY_H
#define HALYARD_TUNE_VERIFY_H

#include <csignal>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "schedules/subprocess.h"

namespace halyard::tune {

struct Check {
    std::string name;
    std::function<std::string()> call;  // returns a hash of what came out
    std::string right;                  // that hash with the default parameters
};

/** Makes the calls in another process after `install`. Says why what came out is no good, or nothing. */
inline std::string verify(const std::vector<Check> &checks, const std::function<void()> &install,
                          int most_seconds = 30) {
    const auto call_all = [&] {
        std::signal(SIGINT, SIG_IGN);  // the tuner's business
        install();
        for (const Check &check : checks) {
            if (check.call() != check.right) {
                throw std::runtime_error("gives other bits at " + check.name);
            }
        }
    };
    return schedules::Subprocess(call_all, most_seconds).wait();
}

}  // namespace halyard::tune

#endif
