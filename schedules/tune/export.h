// The verdicts as a file of parameters that the build reads.
#ifndef HALYARD_TUNE_EXPORT_H
#define HALYARD_TUNE_EXPORT_H

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "database.h"

namespace halyard::tune {

/** The verdicts of a database that count in this setting: of each kernel, type and instruction set the newest. Why
 * others do not is told to `complaints`, each reason once with the number of records. */
std::vector<nlohmann::json> current_verdicts(const Database &database, const Setting &setting,
                                             std::vector<std::string> &complaints);

/** What an earlier file of parameters holds; an empty object if there is none or it is a device. Throws
 * std::runtime_error if it cannot be read, is no such file or is another machine's. */
nlohmann::json read_tuned(const std::string &file, const Setting &setting);

/** schedules/tuned/<hardware>.json: the earlier file with what the verdicts say. An entry that lost goes, so that the
 * usual parameters count again; one without a verdict stays. The same bytes for the same verdicts. */
nlohmann::json tuned_file(const std::vector<nlohmann::json> &verdicts, const Setting &setting,
                          const nlohmann::json &before);

}  // namespace halyard::tune

#endif
