// See parameters.h.
#include "core/parameters.h"

namespace halyard {
namespace {

constexpr Parameters parameters_of_build() {
    Parameters tuned;
#define HALYARD_TUNED(name, value) tuned.name = value;
#include "kernels/parameters.inc"
#undef HALYARD_TUNED
    return tuned;
}

constexpr Parameters of_build = parameters_of_build();

}  // namespace

Parameters parameters = of_build;

}  // namespace halyard
