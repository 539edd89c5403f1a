// What the tuner may choose for a schedule: the values of search_spaces.cmake, of which every schedule says beside itself
// what is worth compiling.
#ifndef HALYARD_SCHEDULES_SEARCH_SPACE_H
#define HALYARD_SCHEDULES_SEARCH_SPACE_H

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace halyard::schedules {

/** A value for every parameter of a space. */
using Choice = std::map<std::string, int>;

struct Tunable {
    std::string name;
    int by_default;  // that of the GeneratorParam, for kernels whose parameters no file names
    std::vector<int> values;
};

/** What a choice may be judged by before anything is compiled. */
struct TargetInfo {
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

using IsWorthCompiling = bool (*)(const Choice &, const TargetInfo &);

/** What a schedule declares in its source file:
 *
 *      const WorthCompiling choices("<family>", [](const Choice &choice, const TargetInfo &target) { ... }); */
class WorthCompiling {
public:
    WorthCompiling(const std::string &family, IsWorthCompiling judge) { all()[family] = judge; }

    /** That of a family; null where no schedule makes its kernels, for which there is nothing to choose. */
    static IsWorthCompiling of(const std::string &family) {
        const auto found = all().find(family);
        return found == all().end() ? nullptr : found->second;
    }

private:
    static std::map<std::string, IsWorthCompiling> &all() {
        static std::map<std::string, IsWorthCompiling> families;
        return families;
    }
};

/** The space of a family. */
struct SearchSpace {
    std::string family;
    std::vector<Tunable> parameters;
    IsWorthCompiling fits;
};

}  // namespace halyard::schedules

#endif
