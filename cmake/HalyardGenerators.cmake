# The programs that make the kernels: one for every file in generators/generators.cmake, with the schedules of the family
# that stands there, so that a change of one rebuilds no kernel of another. They run on the machine that builds, whatever it
# builds for.
#
# Needs HALYARD_ARCH, HALYARD_SOURCE_DIR and HALYARD_NEEDED_GENERATORS, the generators that are used. Sets, for the including
# scope:
#   HALYARD_PROGRAMS              the programs
#   HALYARD_GENERATORS_<program>  the generators in each
#   HALYARD_GENERATOR_SOURCES     their files, HALYARD_SCHEDULE_SOURCES those of the schedules
#   HALYARD_GENERATOR_OBJECTS     object libraries that the programs are linked of, where they are targets: for the tuner
include("${CMAKE_CURRENT_LIST_DIR}/HalyardKernelCalls.cmake")
function(halyard_generators file family)
    set(needed ${ARGN})
    list(REMOVE_ITEM needed ${HALYARD_NEEDED_GENERATORS})
    if(needed STREQUAL "${ARGN}")
        return()
    endif()
    list(APPEND HALYARD_FILES ${file})
    list(APPEND HALYARD_PROGRAMS halyard_generate_${file})
    list(APPEND HALYARD_GENERATOR_SOURCES "${HALYARD_SOURCE_DIR}/generators/${file}.cpp")
    list(APPEND HALYARD_FILE_FAMILIES ${family})
    set(HALYARD_GENERATORS_halyard_generate_${file} ${ARGN} PARENT_SCOPE)
    return(PROPAGATE HALYARD_FILES HALYARD_FILE_FAMILIES HALYARD_PROGRAMS HALYARD_GENERATOR_SOURCES)
endfunction()
include("${HALYARD_SOURCE_DIR}/generators/generators.cmake")
file(GLOB HALYARD_SCHEDULE_SOURCES CONFIGURE_DEPENDS "${HALYARD_SOURCE_DIR}/schedules/${HALYARD_ARCH}/*.cpp"
     "${HALYARD_SOURCE_DIR}/schedules/cpu/*.cpp" "${HALYARD_SOURCE_DIR}/schedules/gpu/*.cpp")

# An object library of sources that run on this machine; adds it to HALYARD_GENERATOR_OBJECTS.
function(_halyard_add_objects name)
    add_library(${name} OBJECT ${ARGN})
    target_include_directories(${name} PRIVATE "${HALYARD_SOURCE_DIR}")
    target_compile_options(${name} PRIVATE -O1 -Wall)
    target_link_libraries(${name} PRIVATE Halide::Halide)
    set(HALYARD_GENERATOR_OBJECTS ${HALYARD_GENERATOR_OBJECTS} ${name} PARENT_SCOPE)
endfunction()

# The programs as targets of this build.
function(halyard_compile_generators)
    set(families ${HALYARD_FILE_FAMILIES})
    list(REMOVE_DUPLICATES families)
    foreach(family IN LISTS families)
        set(sources ${HALYARD_SCHEDULE_SOURCES})
        list(FILTER sources INCLUDE REGEX "/${family}\\.cpp$")
        _halyard_add_objects(halyard_schedule_${family} ${sources})
    endforeach()
    foreach(file program family source IN ZIP_LISTS HALYARD_FILES HALYARD_PROGRAMS HALYARD_FILE_FAMILIES
                                                    HALYARD_GENERATOR_SOURCES)
        _halyard_add_objects(halyard_generator_${file} "${source}")
        add_executable(${program})
        target_link_libraries(${program} PRIVATE Halide::Generator halyard_generator_${file} halyard_schedule_${family})
    endforeach()
    halyard_compile_kernel_calls(${HALYARD_GENERATOR_OBJECTS})
    set(HALYARD_GENERATOR_OBJECTS ${HALYARD_GENERATOR_OBJECTS} PARENT_SCOPE)
endfunction()

# The programs as files of a build of their own, cmake/host, with the compiler of this machine: for cross builds. Sets
# HALYARD_HOST_DIR, where they lie, and HALIDE_INCLUDE_DIRS.
function(halyard_compile_generators_for_host)
    set(HALYARD_HOST_DIR "${CMAKE_CURRENT_BINARY_DIR}/host")
    execute_process(
        COMMAND ${CMAKE_COMMAND} -E env --unset=CMAKE_TOOLCHAIN_FILE --unset=CFLAGS --unset=CXXFLAGS --unset=LDFLAGS
                ${CMAKE_COMMAND} -S "${HALYARD_SOURCE_DIR}/cmake/host" -B "${HALYARD_HOST_DIR}" -G "${CMAKE_GENERATOR}"
                "-DCMAKE_MAKE_PROGRAM=${CMAKE_MAKE_PROGRAM}" "-DCMAKE_PREFIX_PATH=${CMAKE_PREFIX_PATH}" -DCMAKE_BUILD_TYPE=Release
                -DHALYARD_ARCH=${HALYARD_ARCH} "-DHALYARD_NEEDED_GENERATORS=${HALYARD_NEEDED_GENERATORS}" -Wno-dev
        OUTPUT_VARIABLE output ERROR_VARIABLE output RESULT_VARIABLE failed)
    if(failed)
        message(FATAL_ERROR "The programs that make the kernels could not be configured for this machine:\n${output}")
    endif()
    set(programs ${HALYARD_PROGRAMS} ${HALYARD_KERNEL_CALLS})
    list(TRANSFORM programs PREPEND "${HALYARD_HOST_DIR}/" OUTPUT_VARIABLE files)
    # The other build knows which of them are to be made anew; the others stay as they are, and so do their kernels.
    file(GLOB headers CONFIGURE_DEPENDS "${HALYARD_SOURCE_DIR}/generators/*.h" "${HALYARD_SOURCE_DIR}/schedules/*.h"
         "${HALYARD_SOURCE_DIR}/schedules/${HALYARD_ARCH}/*.h" "${HALYARD_SOURCE_DIR}/runtime/layout/*.h")
    add_custom_command(
        OUTPUT ${files}
        COMMAND ${CMAKE_COMMAND} --build "${HALYARD_HOST_DIR}"
        DEPENDS ${HALYARD_GENERATOR_SOURCES} ${HALYARD_SCHEDULE_SOURCES} ${HALYARD_KERNEL_CALLS_SOURCE} ${headers}
        COMMENT "Programs that make the kernels, for this machine"
        USES_TERMINAL VERBATIM)
    file(READ "${HALYARD_HOST_DIR}/halide_include_dirs" include_dirs)
    set(HALIDE_INCLUDE_DIRS "${include_dirs}" PARENT_SCOPE)
    set(HALYARD_HOST_DIR "${HALYARD_HOST_DIR}" PARENT_SCOPE)
endfunction()
