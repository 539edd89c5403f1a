// A kernel with the schedule that one of Halide's autoschedulers makes of its algorithm, instead of ours: what a user
// would get without schedules written by hand.
#ifndef HALYARD_SCHEDULES_AUTOSCHEDULE_H
#define HALYARD_SCHEDULES_AUTOSCHEDULE_H

#include <map>
#include <string>
#include <vector>

namespace halyard::schedules {

/** What an autoscheduler is told. */
struct AutoscheduleRequest {
    std::string generator;                          // as it is registered
    std::map<std::string, std::string> parameters;  // that make the kernel of it
    std::string target;                             // Halide's name of it
    std::string symbol;                             // the function to make
    int parallelism;                                // threads
    /** Of every argument in turn, the output last: the extents of a buffer, or the one value of an integer. Nothing is
     *  said of other scalars. The schedule is made for exactly these. */
    std::vector<std::vector<int>> estimates;
};

/** Those whose plug-ins come with Halide and that schedule for processors. */
const std::vector<std::string> &autoschedulers();

/** Compiles to an object file, in a process of its own: assertions of an autoscheduler end their process, and some
 *  searches take very long. Returns why there is no object, or nothing. */
std::string autoschedule(const AutoscheduleRequest &request, const std::string &scheduler,
                         const std::string &plugin_folder, const std::string &object_file, int most_seconds);

}  // namespace halyard::schedules

#endif
