// What a run of the tuner works with: what the command line asks for, the subjects that it chooses, and the compiler, calls and
// records by which they are decided.
#ifndef HALYARD_TUNE_SESSION_H
#define HALYARD_TUNE_SESSION_H

#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "bench/timing/machine.h"
#include "compile.h"
#include "records.h"
#include "tuning_cases.h"

namespace halyard::tune {

/** Instruction sets of this machine. */
std::vector<std::string> supported_isas();
/** Instruction sets whose kernels calls use here: the best one and those that it shares kernels with. */
std::vector<std::string> usual_isas();

struct Options {
    std::vector<std::string> kernels = {"all"}, isas = usual_isas(), dtypes = {"all"};
    std::string shapes = "64x4096,1024x8192x4096/cold", effort = "normal";
    std::optional<double> budget;  // seconds
    int threads = 1;
    bool dry_run = false, list = false, again = false, exhaustive = false;
    std::string database = "tune.jsonl", output;
    std::vector<std::string> choices;  // of compare and object
};

/** What is tuned at a time: the schedule of a kernel, or a group of the runtime's parameters. */
struct Subject {
    std::optional<Variant> variant;  // none of the runtime
    std::string isa;
    SearchSpace space;
    schedules::TargetInfo target;
    Choice defaults;
    std::vector<CaseId> cases = {}, checks = {};

    std::string name() const { return variant ? variant->name() : "runtime." + space.family; }
    std::vector<Choice> choices() const { return worthy_choices(space, target, defaults); }
};

/** Puts a choice into the library that is linked with the tuner; `function`: its kernel. */
void install(const Subject &subject, const Choice &choice, const KernelForms &forms);

class Session {
public:
    explicit Session(const Options &options);

    const Options &options;
    const Effort effort;
    const bench::Machine machine;
    const json setting;                      // that records hold for
    const std::string machine_name, output;  // where the result goes
    Records records;
    Compiler compiler;
    std::mt19937 random{1};

    std::vector<std::string> left_out;  // by subjects(), each with the reason

    /** What the command line asks for, with calls that reach it, in a random order, so that a time that is too short leaves
     *  out no family. */
    std::vector<Subject> subjects();
    /** What a record of the subject holds for. */
    json facts_of(const Subject &subject);
    /** The space and code of a record's subject now: code with the default parameters, or of the runtime the program's. Empty
     *  if there is no such subject any more. */
    json facts_now(const json &record);
    /** The object with the default parameters. */
    const std::string &default_object(const Variant &variant);

private:
    std::map<int, std::string> objects;  // by index
    std::map<int, Loaded> loaded;
};

/** Whether the command line names it; the groups of the runtime's parameters and the variants with a space that it names. */
bool is_chosen(const Options &options, const KernelInfo &kernel);
std::vector<SearchSpace> chosen_groups(const Options &options);
std::vector<Variant> chosen_variants(const Options &options);

}  // namespace halyard::tune

#endif
