# The programs that make the kernels: one for every file in generators/, with the schedules whose headers it includes, so
# that a change of one rebuilds no kernel of another. They run on the machine that builds, whatever it builds for.
#
# Needs HALYARD_ARCH and HALYARD_SOURCE_DIR. Sets, for the including scope:
#   HALYARD_PROGRAMS              the programs
#   HALYARD_GENERATORS_<program>  the generators in each
#   HALYARD_GENERATOR_OBJECTS     object libraries that the programs are linked of, where they are targets: for the tuner
include("${CMAKE_CURRENT_LIST_DIR}/HalyardKernelCalls.cmake")
file(GLOB HALYARD_SCHEDULE_SOURCES CONFIGURE_DEPENDS "${HALYARD_SOURCE_DIR}/schedules/${HALYARD_ARCH}/*.cpp")
file(GLOB HALYARD_GENERATOR_SOURCES CONFIGURE_DEPENDS "${HALYARD_SOURCE_DIR}/generators/*.cpp")

# What can be read from a generator's source: generators and schedules.
set(HALYARD_PROGRAMS)
foreach(source IN LISTS HALYARD_GENERATOR_SOURCES)
    get_filename_component(name "${source}" NAME_WE)
    set(program halyard_generate_${name})
    list(APPEND HALYARD_PROGRAMS ${program})
    set(HALYARD_GENERATORS_${program})
    set(HALYARD_SCHEDULES_${program})
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${source}")
    file(STRINGS "${source}" lines REGEX "^(#include \"schedules/|HALIDE_REGISTER_GENERATOR)")
    foreach(line IN LISTS lines)
        if(line MATCHES "\"schedules/(.+)\\.h\"")
            list(APPEND HALYARD_SCHEDULES_${program} halyard_schedule_${CMAKE_MATCH_1})
        elseif(line MATCHES ", *([a-z0-9_]+)\\)")
            list(APPEND HALYARD_GENERATORS_${program} ${CMAKE_MATCH_1})
        endif()
    endforeach()
endforeach()

function(_halyard_compile_for_host target)
    target_include_directories(${target} PRIVATE "${HALYARD_SOURCE_DIR}")
    target_compile_options(${target} PRIVATE -O1 -Wall)
    target_link_libraries(${target} PRIVATE Halide::Halide)
endfunction()

# The programs as targets of this build.
function(halyard_compile_generators)
    # Whatever the processor: schedules/gpu.h, of rows and elementwise kernels, and a header gpu_<name>.h for every other
    # file.
    file(GLOB sources CONFIGURE_DEPENDS "${HALYARD_SOURCE_DIR}/schedules/gpu/*.cpp")
    set(common_sources ${sources})
    list(FILTER common_sources INCLUDE REGEX "/(row|elementwise)\\.cpp$")
    list(FILTER sources EXCLUDE REGEX "/(row|elementwise)\\.cpp$")
    add_library(halyard_schedule_gpu OBJECT ${common_sources})
    set(objects halyard_schedule_gpu)
    foreach(source IN LISTS sources)
        get_filename_component(name "${source}" NAME_WE)
        add_library(halyard_schedule_gpu_${name} OBJECT "${source}")
        list(APPEND objects halyard_schedule_gpu_${name})
    endforeach()
    foreach(target IN LISTS objects)
        _halyard_compile_for_host(${target})
    endforeach()
    foreach(source IN LISTS HALYARD_SCHEDULE_SOURCES)
        get_filename_component(name "${source}" NAME_WE)
        add_library(halyard_schedule_${name} OBJECT "${source}")
        _halyard_compile_for_host(halyard_schedule_${name})
        list(APPEND objects halyard_schedule_${name})
    endforeach()
    foreach(source program IN ZIP_LISTS HALYARD_GENERATOR_SOURCES HALYARD_PROGRAMS)
        get_filename_component(name "${source}" NAME_WE)
        add_library(halyard_generator_${name} OBJECT "${source}")
        _halyard_compile_for_host(halyard_generator_${name})
        list(APPEND objects halyard_generator_${name})
        add_executable(${program} $<TARGET_OBJECTS:halyard_generator_${name}>)
        target_link_libraries(${program} PRIVATE Halide::Generator ${HALYARD_SCHEDULES_${program}})
    endforeach()
    halyard_compile_kernel_calls(${objects})
    set(HALYARD_GENERATOR_OBJECTS ${objects} PARENT_SCOPE)
endfunction()

# The programs as files of a build of their own, cmake/host, with the compiler of this machine: for cross builds. Sets
# HALYARD_HOST_DIR, where they lie, and HALIDE_INCLUDE_DIRS.
function(halyard_compile_generators_for_host)
    set(HALYARD_HOST_DIR "${CMAKE_CURRENT_BINARY_DIR}/host")
    execute_process(
        COMMAND ${CMAKE_COMMAND} -E env --unset=CMAKE_TOOLCHAIN_FILE --unset=CFLAGS --unset=CXXFLAGS --unset=LDFLAGS
                ${CMAKE_COMMAND} -S "${HALYARD_SOURCE_DIR}/cmake/host" -B "${HALYARD_HOST_DIR}" -G "${CMAKE_GENERATOR}"
                "-DCMAKE_MAKE_PROGRAM=${CMAKE_MAKE_PROGRAM}" "-DCMAKE_PREFIX_PATH=${CMAKE_PREFIX_PATH}" -DCMAKE_BUILD_TYPE=Release
                -DHALYARD_ARCH=${HALYARD_ARCH} -Wno-dev
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
