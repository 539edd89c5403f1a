// What candidates of all kernels are made and measured with: a compiler, the calls that reach each kernel, and the
// library's dispatch table filled with the usual choices.
#ifndef HALYARD_TUNE_WORKSHOP_H
#define HALYARD_TUNE_WORKSHOP_H

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "compile.h"
#include "database.h"
#include "verdict.h"
#include "works.h"

namespace halyard::tune {

struct TuneOptions {
    std::string shapes = "usual";
    Rigor rigor;
    int threads = 1;
    unsigned seed = 1;
    std::size_t cold_set = 0;
    std::int64_t l1 = 0, l2 = 0;
};

/** What a variant's candidates are made and measured with. */
class Workshop {
public:
    Workshop(const UsualParameters &usual_parameters, const TuneOptions &chosen);

    const UsualParameters &usual;
    const TuneOptions &options;
    Compiler compiler;
    WorkFinder finder;

    /** The object with the usual parameters. */
    const std::string &usual_object(const Variant &variant);
    Subject subject(const Variant &variant, const std::vector<Workload> &workloads);

    /** The operands of a call. Those out of cache are a gigabyte: the ones that were given back last are taken again if
     *  they have the shapes. */
    std::unique_ptr<bench::Work> take(const Workload &workload, const std::string &isa);
    void give_back(std::unique_ptr<bench::Work> work);

    /** Families whose spaces say the usual values of their GeneratorParams: found out once. */
    std::set<std::string> checked_families;

private:
    void drop_spare();

    std::unique_ptr<bench::Work> spare;
    std::map<std::string, std::string> objects;     // by symbol
    std::map<int, std::unique_ptr<Loaded>> loaded;  // by slot
};

/** Whether the processes that judge candidates get the operands of a call, too. A gigabyte that they do not look at
 *  takes long to pass on, and long to write to afterwards: page by page, in the calls that are timed. */
void set_inherited(const bench::Work &work, bool inherited);

}  // namespace halyard::tune

#endif
