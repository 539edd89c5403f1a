# The programs that make the kernels of another build of the same sources, and the processor's kernels too if they have the
# same schedule parameters: for builds that differ from it in the C++ around the kernels (a sanitizer), have more kernels
# (CUDA) or other parameters. That build's target halyard_kernels, or halyard_generators at least, must be up to date.
#
# Needs HALYARD_KERNELS_FROM and HALYARD_TUNED_FILE. Sets HALYARD_HOST_DIR, where the programs lie, HALYARD_KERNEL_DIR and
# HALYARD_TAKES_KERNELS if the kernels are taken, and HALIDE_INCLUDE_DIRS.
if(HALYARD_BUILD_TUNER OR CMAKE_CROSSCOMPILING)
    message(FATAL_ERROR "HALYARD_KERNELS_FROM is neither for cross builds nor for builds of the tuner.")
endif()
if(NOT EXISTS "${HALYARD_KERNELS_FROM}/CMakeCache.txt")
    message(FATAL_ERROR "HALYARD_KERNELS_FROM is '${HALYARD_KERNELS_FROM}', and nothing was configured there.")
endif()
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${HALYARD_KERNELS_FROM}/CMakeCache.txt")
load_cache("${HALYARD_KERNELS_FROM}" READ_WITH_PREFIX _other_ CMAKE_HOME_DIRECTORY HALYARD_TUNED_FILE)
if(NOT _other_CMAKE_HOME_DIRECTORY STREQUAL CMAKE_SOURCE_DIR)
    message(FATAL_ERROR "HALYARD_KERNELS_FROM is '${HALYARD_KERNELS_FROM}', a build of '${_other_CMAKE_HOME_DIRECTORY}'.")
endif()
include(cmake/FindHalideWheel.cmake)
set(HALYARD_HOST_DIR "${HALYARD_KERNELS_FROM}")
if("${_other_HALYARD_TUNED_FILE}" STREQUAL "${HALYARD_TUNED_FILE}")
    set(HALYARD_TAKES_KERNELS ON)
    set(HALYARD_KERNEL_DIR "${HALYARD_KERNELS_FROM}/kernels")
    message(STATUS "Kernels: those of ${HALYARD_KERNELS_FROM}")
else()
    message(STATUS "Kernels: made by the programs of ${HALYARD_KERNELS_FROM}")
endif()
