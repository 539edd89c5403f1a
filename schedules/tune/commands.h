// The commands of halyard-tune, each of which returns an exit status.
#ifndef HALYARD_TUNE_COMMANDS_H
#define HALYARD_TUNE_COMMANDS_H

#include <csignal>
#include <map>

#include "session.h"

namespace halyard::tune {

constexpr int exit_failure = 1, exit_usage = 2, exit_interrupted = 130;

/** Set by a signal; commands end well then. */
extern volatile std::sig_atomic_t interrupted;

int command_tune(const Options &options);
int command_list(const Options &options);
/** Decisions as a table in Markdown. */
int command_show(const Options &options);
int command_export(const Options &options);
int command_compare(const Options &options);
int command_object(const Options &options);

/** On standard error, a line each. */
void print_lines(const std::vector<std::string> &lines);
/** A decision and what it is about. */
struct Decided {
    std::string name, family;
    Decision decision;
};

struct FamilySummary {
    std::vector<Gain> gains, best;  // as tuned, and if every best one counted
    int faster = 0, near = 0;       // beyond the noise; whose default is within 2 % of the best
    double largest = 1;
};

/** By family, and "all". */
std::map<std::string, FamilySummary> summary_of(const std::vector<Decided> &decided);
/** As tables: what decisions came to per family, and each that found something else than the default. */
std::string markdown_of(const std::vector<nlohmann::json> &records, const Setting &setting);
/** Writes the file of parameters. */
int export_decisions(TuningSession &session);

}  // namespace halyard::tune

#endif
