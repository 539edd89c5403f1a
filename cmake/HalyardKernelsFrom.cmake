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
load_cache("${HALYARD_KERNELS_FROM}" READ_WITH_PREFIX _other_ CMAKE_HOME_DIRECTORY HALYARD_TUNED_FILE HALYARD_ISAS
           HALYARD_DTYPES HALYARD_OPERATIONS)
foreach(option IN ITEMS HALYARD_ISAS HALYARD_DTYPES HALYARD_OPERATIONS)
    if(_other_${option} AND NOT _other_${option} STREQUAL "all" AND NOT _other_${option} STREQUAL "$CACHE{${option}}")
        message(FATAL_ERROR "HALYARD_KERNELS_FROM is '${HALYARD_KERNELS_FROM}', a build of ${option}=${_other_${option}} alone.")
    endif()
endforeach()
# A build of another checkout will do if all that makes a kernel is the same there.
if(NOT _other_CMAKE_HOME_DIRECTORY STREQUAL PROJECT_SOURCE_DIR)
    foreach(home IN ITEMS "${PROJECT_SOURCE_DIR}" "${_other_CMAKE_HOME_DIRECTORY}")
        file(GLOB files LIST_DIRECTORIES false RELATIVE "${home}"
             "${home}/kernels.cmake" "${home}/operations.cmake" "${home}/cmake/HalyardKernels.cmake" "${home}/cmake/HalyardTarget.cmake"
             "${home}/cmake/HalyardOperations.cmake" "${home}/cmake/HalyardTuned.cmake" "${home}/cmake/PrefetchIntoCache.cmake"
             "${home}/cmake/kernel_calls.cpp"
             "${home}/generators/*" "${home}/schedules/*" "${home}/schedules/${HALYARD_ARCH}/*" "${home}/schedules/cpu/*"
             "${home}/schedules/gpu/*" "${home}/schedules/tuned/${HALYARD_TARGET_PROCESSOR}.json" "${home}/runtime/layout/*.h")
        list(APPEND _kernel_sources ${files})
    endforeach()
    list(REMOVE_DUPLICATES _kernel_sources)
    foreach(file IN LISTS _kernel_sources)
        execute_process(COMMAND ${CMAKE_COMMAND} -E compare_files "${PROJECT_SOURCE_DIR}/${file}"
                                "${_other_CMAKE_HOME_DIRECTORY}/${file}" RESULT_VARIABLE differs ERROR_QUIET)
        if(differs)
            message(FATAL_ERROR "HALYARD_KERNELS_FROM is '${HALYARD_KERNELS_FROM}', a build of "
                                "'${_other_CMAKE_HOME_DIRECTORY}', whose ${file} is another: build it from the same sources.")
        endif()
    endforeach()
endif()
include(cmake/FindHalideWheel.cmake)
set(HALYARD_HOST_DIR "${HALYARD_KERNELS_FROM}")
set(_other_tuned "${_other_HALYARD_TUNED_FILE}")
set(_own_tuned "${HALYARD_TUNED_FILE}")
if(_other_tuned AND _own_tuned)
    file(SHA256 "${_other_tuned}" _other_tuned)
    file(SHA256 "${_own_tuned}" _own_tuned)
endif()
if(_other_tuned STREQUAL _own_tuned)
    set(HALYARD_TAKES_KERNELS ON)
    set(HALYARD_KERNEL_DIR "${HALYARD_KERNELS_FROM}/kernels")
    message(STATUS "Kernels: those of ${HALYARD_KERNELS_FROM}")
else()
    message(STATUS "Kernels: made by the programs of ${HALYARD_KERNELS_FROM}")
endif()
