// What a user sees while the tuner works.
#ifndef HALYARD_TUNE_PROGRESS_H
#define HALYARD_TUNE_PROGRESS_H

#include <unistd.h>

#include <string>

#include "kernels.h"
#include "verdict.h"

namespace halyard::tune {

/** One line on a terminal that is written again and again; elsewhere only what is to stay. */
class Progress {
public:
    void show(const std::string &text);
    void say(const std::string &text);

private:
    const bool is_terminal = isatty(STDERR_FILENO) != 0;
};

/** A verdict in one sentence. */
std::string summary_of(const Variant &variant, const Verdict &verdict);

}  // namespace halyard::tune

#endif
