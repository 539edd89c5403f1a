// What a schedule needs to know of the target.
#ifndef HALYARD_SCHEDULES_MACHINE_H
#define HALYARD_SCHEDULES_MACHINE_H

#include "Halide.h"

namespace halyard::schedules {

/** f32 values in a vector register. (Target::natural_vector_size does not know that avx512_skylake implies AVX-512F.) */
inline int f32_lanes(const Halide::Target &target) {
    if (target.has_feature(Halide::Target::AVX512_Skylake)) {
        return 16;
    }
    return target.has_feature(Halide::Target::AVX2) ? 8 : 4;
}

/** Architectural vector registers. */
inline int vector_registers(const Halide::Target &target) {
    if (target.arch == Halide::Target::X86) {
        return target.has_feature(Halide::Target::AVX512_Skylake) ? 32 : 16;
    }
    return 32;
}

}  // namespace halyard::schedules

#endif
