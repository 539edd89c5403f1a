// The decisions as a file of parameters that the build reads (cmake/HalyardTuned.cmake, cmake/HalyardParameters.cmake).
#ifndef HALYARD_TUNE_TUNED_FILE_H
#define HALYARD_TUNE_TUNED_FILE_H

#include "database.h"

namespace halyard::tune {

/** What an earlier file of parameters holds; an empty object if there is none or it is a device. Throws
 * std::runtime_error if it cannot be read, is no such file or is another machine's. */
nlohmann::json read_tuned(const std::string &file, const Setting &setting);

/** schedules/tuned/<hardware>.json: the earlier file with what the decisions say. An entry that lost goes, so that the
 * default parameters count again; what was not decided stays. The same bytes for the same decisions. */
nlohmann::json tuned_file(const std::vector<nlohmann::json> &decisions, const Setting &setting,
                          const nlohmann::json &before);

}  // namespace halyard::tune

#endif
