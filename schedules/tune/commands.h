// The commands of halyard-tune, each of which returns an exit status.
#ifndef HALYARD_TUNE_COMMANDS_H
#define HALYARD_TUNE_COMMANDS_H

#include <csignal>

#include "session.h"

namespace halyard::tune {

constexpr int exit_failure = 1, exit_usage = 2, exit_interrupted = 130;

/** Set by a signal; commands end well then. */
extern volatile std::sig_atomic_t interrupted;

/** The search. */
int command_tune(const Options &options);
int command_list(const Options &options);
/** Decisions as tables in Markdown: what they came to per family, and each that found something else than the default. */
int command_show(const Options &options);
/** Writes the file of parameters. */
int command_export(Session &session);
int command_compare(const Options &options);
int command_object(const Options &options);

/** A sentence on a decision. */
std::string sentence_of(const json &record);
/** What decisions came to, per family, as a table in Markdown. */
std::string families_table(const std::vector<json> &records);

/** printf() to a string. */
template<typename... Values>
std::string print(const char *format, const Values &...values) {
    char text[512];
    std::snprintf(text, sizeof(text), format, values...);
    return text;
}

}  // namespace halyard::tune

#endif
