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

/** schedules/tuned/<hardware>.json of verdicts: sorted, and the same bytes for the same verdicts. */
nlohmann::json tuned_file(const std::vector<nlohmann::json> &verdicts, const Setting &setting);

/** Writes text to a file that is replaced at once when it is complete; throws std::runtime_error. */
void replace_file(const std::string &file, const std::string &text);

}  // namespace halyard::tune

#endif
