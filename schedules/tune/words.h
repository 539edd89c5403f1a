// The words of halyard-tune, each of which returns an exit status.
#ifndef HALYARD_TUNE_WORDS_H
#define HALYARD_TUNE_WORDS_H

#include <csignal>

#include "command.h"

namespace halyard::tune {

constexpr int exit_failure = 1, exit_usage = 2, exit_interrupted = 130;

/** Set by a signal, where a word says that it ends well when interrupted. */
extern volatile std::sig_atomic_t interrupted;

int word_tune(const Options &options);
int word_list(const Options &options);
int word_show(const Options &options, bool only_better);
int word_export(const Options &options);
int word_compare(const Options &options);
int word_object(const Options &options);
int word_baseline(const Options &options);

/** On standard error, a line each. */
void print_complaints(const std::vector<std::string> &complaints);

}  // namespace halyard::tune

#endif
