// The decisions as a file of parameters that the build reads (cmake/HalyardTuned.cmake, cmake/HalyardParameters.cmake).
#ifndef HALYARD_TUNE_TUNED_FILE_H
#define HALYARD_TUNE_TUNED_FILE_H

#include "records.h"

namespace halyard::tune {

/** What an earlier file of parameters holds; an empty object if there is none or it is a device. Throws std::runtime_error if
 * it cannot be read, is no such file or is another machine's. `machine`: this one's name. */
json read_tuned(const std::string &file, const std::string &machine);

/** schedules/tuned/<hardware>.json: the earlier file with what the decisions say. An entry that lost goes, so that the
 * default parameters count again; what was not decided stays. The same bytes for the same decisions. */
json tuned_file(const std::vector<json> &decisions, const json &setting, const json &before);

}  // namespace halyard::tune

#endif
