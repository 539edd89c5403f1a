// What the tuner may choose for a schedule. Every family declares its space beside its schedule, once: the build reads
// the legal values from there too, to refuse files of parameters that hold others (cmake/HalyardTuned.cmake).
#ifndef HALYARD_SCHEDULES_SPACE_H
#define HALYARD_SCHEDULES_SPACE_H

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace halyard::schedules {

/** A value for every parameter of a space. */
using Choice = std::map<std::string, int>;

struct Tunable {
    std::string name;
    int usual;  // that of the GeneratorParam, for kernels whose parameters no file names
    std::vector<int> values;
};

/** What a choice may be judged by before anything is compiled. */
struct Circumstances {
    int lanes, registers;                       // f32 values in a vector register, and how many of these there are
    std::int64_t l1, l2;                        // bytes of a core's caches
    std::map<std::string, std::string> kernel;  // the parameters that make the kernel: dtype, rows, function, ...
    std::string generator;                      // whose algorithm it is

    /** One of them as a number. */
    int number(const std::string &parameter, int otherwise) const {
        const auto found = kernel.find(parameter);
        return found == kernel.end() ? otherwise : std::stoi(found->second);
    }
};

/** The space of a family. Declared as
 *
 *      const Space space("<family>", {{"<parameter>", <usual value>, {<values>}}, ...}, fits);
 *
 *  in the source file of the schedule, where fits() says which choices are worth compiling. */
class Space {
public:
    using Fits = bool (*)(const Choice &, const Circumstances &);

    Space(std::string family_name, std::vector<Tunable> of, Fits worth_compiling)
        : family(std::move(family_name)), parameters(std::move(of)), fits(worth_compiling) {
        all().push_back(this);
    }
    Space(const Space &) = delete;
    Space &operator=(const Space &) = delete;

    const std::string family;
    const std::vector<Tunable> parameters;
    const Fits fits;

    /** The space of a family, or null. */
    static const Space *of(const std::string &family) {
        for (const Space *space : all()) {
            if (space->family == family) {
                return space;
            }
        }
        return nullptr;
    }

private:
    static std::vector<const Space *> &all() {
        static std::vector<const Space *> spaces;
        return spaces;
    }
};

}  // namespace halyard::schedules

#endif
