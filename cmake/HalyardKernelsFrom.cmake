# The programs that make the kernels, and the processor's kernels, of another build of the same sources: for builds that
# differ from it in the C++ around the kernels (a sanitizer) or have more kernels (CUDA). That build's target
# halyard_kernels must be up to date.
#
# Needs HALYARD_KERNELS_FROM. Sets HALYARD_HOST_DIR and HALYARD_KERNEL_DIR, where they lie, HALYARD_TUNED, with which they
# were made, and HALIDE_INCLUDE_DIRS.
if(HALYARD_BUILD_TUNER OR CMAKE_CROSSCOMPILING)
    message(FATAL_ERROR "HALYARD_KERNELS_FROM is neither for cross builds nor for builds of the tuner.")
endif()
if(NOT EXISTS "${HALYARD_KERNELS_FROM}/CMakeCache.txt")
    message(FATAL_ERROR "HALYARD_KERNELS_FROM is '${HALYARD_KERNELS_FROM}', and nothing was configured there.")
endif()
load_cache("${HALYARD_KERNELS_FROM}" READ_WITH_PREFIX _other_ CMAKE_HOME_DIRECTORY HALYARD_TUNED)
if(NOT _other_CMAKE_HOME_DIRECTORY STREQUAL CMAKE_SOURCE_DIR)
    message(FATAL_ERROR "HALYARD_KERNELS_FROM is '${HALYARD_KERNELS_FROM}', a build of '${_other_CMAKE_HOME_DIRECTORY}'.")
endif()
set(HALYARD_TUNED "${_other_HALYARD_TUNED}")
message(STATUS "Kernels: those of ${HALYARD_KERNELS_FROM}")

include(cmake/FindHalideWheel.cmake)
set(HALYARD_HOST_DIR "${HALYARD_KERNELS_FROM}")
set(HALYARD_KERNEL_DIR "${HALYARD_KERNELS_FROM}/kernels")
