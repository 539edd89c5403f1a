// What a run of the tuner works with: what the command line asks for, the subjects that it chooses, and the compiler, calls and
// database by which they are decided.
#ifndef HALYARD_TUNE_SESSION_H
#define HALYARD_TUNE_SESSION_H

#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "bench/timing/machine.h"
#include "compile.h"
#include "database.h"
#include "runtime_groups.h"

namespace halyard::tune {

struct Options {
    std::string kernels, isas, dtypes = "all", shapes = "usual", budget, effort = "normal";
    int threads = 1;
    unsigned seed = 1;
    bool dry_run = false, list = false, again = false, exhaustive = false;
    std::string database = "tune.jsonl", tuned_directory = HALYARD_TUNE_TUNED_DIR, output;
    std::vector<std::string> choices;  // of compare and object
};

/** What is tuned at a time: the schedule of a kernel, or a group of the runtime's parameters. */
struct Subject {
    std::optional<Variant> variant;  // none of the runtime
    std::string isa;
    SearchSpace space;
    schedules::TargetInfo target;
    Choice defaults;
    std::vector<TuningCase> cases, checks;

    std::string name() const { return variant ? variant->name() : "runtime." + space.family; }
    std::string family() const { return variant ? variant->kernel->family : "runtime"; }
};

class TuningSession {
public:
    explicit TuningSession(const Options &options);

    const Options &options;
    const Effort effort;
    const bench::Machine machine;
    const Setting setting;
    const DefaultParameters defaults;
    const std::string output;  // where the result goes
    Database database;
    Compiler compiler;
    CaseFinder finder;
    std::mt19937 random;

    /** Those that the command line asks for, with calls that reach them; why others are not among them. All in a random
     * order, so that a time that is too short leaves out no family. */
    std::vector<Subject> subjects(std::vector<std::string> &left_out);
    /** The parts of it that databases know. */
    SubjectKey key_of(const Subject &subject);
    /** The object with the default parameters. */
    const std::string &default_object(const Variant &variant);
    /** Puts a choice into the library that is linked with the tuner; `function`: its kernel. */
    static void install(const Subject &subject, const Choice &choice, KernelFunction function);

    /** Families whose spaces say the default values of their GeneratorParams: found out once. */
    std::set<std::string> checked_families;

private:
    std::map<std::string, std::string> objects;     // by symbol
    std::map<int, std::unique_ptr<Loaded>> loaded;  // by index
};

// All of these throw std::invalid_argument with a sentence that lists what there is.
/** Kernels and families by their names with commas between them; all if there are none. */
std::vector<const KernelInfo *> chosen_kernels(const std::string &list);
/** The groups of the runtime's parameters that it names, "runtime" being all. */
std::vector<SearchSpace> chosen_groups(const std::string &list);
/** Kernels that have a space and are in the dispatch table. */
std::vector<Variant> chosen_variants(const Options &options);
/** "default" or "vectors=4,rows=1" as a choice of a subject. */
Choice choice_named(const std::string &text, const Choice &defaults, const SearchSpace &space);

/** "x86-64-genuineintel-6-85-32k-1024k": maker, family and model of the processor and the first two levels of its data
 *  caches, as cmake/HalyardTuned.cmake finds them too. */
std::string machine_name(const bench::Machine &machine);

// ---- text ----

std::vector<std::string> words_of(const std::string &list);
std::string join(const std::vector<std::string> &words);
std::string number(const char *format, double value);

}  // namespace halyard::tune

#endif
