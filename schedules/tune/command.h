// What a command line asks for.
#ifndef HALYARD_TUNE_COMMAND_H
#define HALYARD_TUNE_COMMAND_H

#include <optional>
#include <string>
#include <vector>

#include "bench/machine.h"
#include "kernels.h"
#include "verdict.h"
#include "workshop.h"

namespace halyard::tune {

struct Options {
    std::string kernels, isas, dtypes = "all", shapes = "usual", budget = "30m", rigor = "normal";
    int threads = 1;
    unsigned seed = 1;
    std::string target = "x86-64";  // whose spaces are listed
    bool dry_run = false, list = false, again = false;
    std::string database = "tune.jsonl", tuned_directory = HALYARD_TUNE_TUNED_DIR, output;
    std::string first, second;  // of compare
};

// All of these throw std::invalid_argument with a sentence that lists what there is.
std::vector<const KernelInfo *> chosen_kernels(const std::string &list);
/** Those that have a space and are in the dispatch table. */
std::vector<Variant> chosen_variants(const Options &options);
TuneOptions tune_options(const Options &options, const bench::Machine &machine);
/** "default", "best" or "vectors=4,rows=1" as a choice of the variant. */
Choice choice_named(const std::string &text, const Variant &variant, const UsualParameters &usual,
                    const std::optional<Verdict> &known);

/** The parameters for any machine. */
UsualParameters usual_parameters(const Options &options);
/** Where the result goes. */
std::string output_file(const Options &options, const bench::Machine &machine);

}  // namespace halyard::tune

#endif
