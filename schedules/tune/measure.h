// Choices of a subject as calls of the library: compiled, verified, and timed side by side.
#ifndef HALYARD_TUNE_MEASURE_H
#define HALYARD_TUNE_MEASURE_H

#include <functional>
#include <memory>

#include "session.h"

namespace halyard::tune {

/** How many rounds a sampling has of a case. */
int rounds_on(const CaseId &id, const Sampling &sampling);

/** When it goes, it leaves the library with the default parameters. `stop` is asked between samples; `progress` is told what is
 *  done next. */
std::unique_ptr<Evaluator> make_evaluator(Session &session, const Subject &subject, std::function<bool()> stop,
                                          std::function<void(const std::string &)> progress);

}  // namespace halyard::tune

#endif
