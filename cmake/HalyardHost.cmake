# The programs that make the kernels (cmake/host/CMakeLists.txt): of this build, or files of a build of their own where this one is for
# another machine, or where HALYARD_HOST_COMPILERS names other compilers for them.
#
# Needs HALYARD_ARCH and HALYARD_NEEDED_GENERATORS, the generators that are used. Sets, for the including scope:
#   HALYARD_FAMILIES_OF_GENERATORS   the families of which there are programs
#   HALYARD_PROGRAM_<generator>      the path of a generator's program
#   HALYARD_DIGEST_<generator>       of the file with the digest of what its kernels are made by
#   HALYARD_MAKE_KERNELS, HALYARD_KERNEL_CALLS   the paths of the other programs
#   HALYARD_ASSEMBLER                the compiler that assembles kernels
#   HALYARD_ASSEMBLER_DIGEST         of the file with the digest of it and of the assembler that it calls
#   HALYARD_HOST_TARGETS             what a command that calls one depends on besides it
#   HALIDE_INCLUDE_DIRS
include(cmake/HalyardGenerators.cmake)
set(HALYARD_HOST_DIR "${CMAKE_CURRENT_BINARY_DIR}/host")
set(HALYARD_MAKE_KERNELS "${HALYARD_HOST_DIR}/halyard_make_kernels")
set(HALYARD_KERNEL_CALLS "${HALYARD_HOST_DIR}/halyard_kernel_calls")
set(HALYARD_FAMILIES_OF_GENERATORS)
set(digests)
foreach(generator IN LISTS HALYARD_NEEDED_GENERATORS)
    set(family ${HALYARD_GENERATOR_FAMILY_${generator}})
    if(NOT family)
        message(FATAL_ERROR "kernels.cmake names the generator '${generator}', which no file of generators/generators.cmake has.")
    endif()
    list(APPEND HALYARD_FAMILIES_OF_GENERATORS ${family})
    set(HALYARD_PROGRAM_${generator} "${HALYARD_HOST_DIR}/halyard_generate_${family}")
    set(HALYARD_DIGEST_${generator} "${HALYARD_HOST_DIR}/digests/${generator}")
    list(APPEND digests "${HALYARD_DIGEST_${generator}}")
endforeach()
list(REMOVE_DUPLICATES HALYARD_FAMILIES_OF_GENERATORS)

set(HALYARD_HOST_COMPILERS "" CACHE STRING "C and C++ compiler of GCC to make kernels with, in place of those of the library: a build by Clang \
then finds the kernels of one by GCC in the cache")
mark_as_advanced(HALYARD_HOST_COMPILERS)
set(HALYARD_ASSEMBLER "${CMAKE_C_COMPILER}")
set(of_host -DCMAKE_BUILD_TYPE=Release)
if(HALYARD_HOST_COMPILERS)
    if(HALYARD_BUILD_TUNER)
        message(FATAL_ERROR "The tuner is linked of the generators of its own build: with HALYARD_BUILD_TUNER leave HALYARD_HOST_COMPILERS empty.")
    endif()
    list(GET HALYARD_HOST_COMPILERS 0 c)
    list(GET HALYARD_HOST_COMPILERS 1 cxx)
    find_program(assembler "${c}" REQUIRED NO_CACHE)
    set(HALYARD_ASSEMBLER "${assembler}")
    list(APPEND of_host "-DCMAKE_CXX_COMPILER=${cxx}")
endif()

if(CMAKE_CROSSCOMPILING OR HALYARD_HOST_COMPILERS)
    execute_process(
        COMMAND ${CMAKE_COMMAND} -E env --unset=CMAKE_TOOLCHAIN_FILE --unset=CFLAGS --unset=CXXFLAGS --unset=LDFLAGS
                ${CMAKE_COMMAND} -S "${CMAKE_CURRENT_SOURCE_DIR}/cmake/host" -B "${HALYARD_HOST_DIR}" -G "${CMAKE_GENERATOR}"
                "-DCMAKE_MAKE_PROGRAM=${CMAKE_MAKE_PROGRAM}" "-DCMAKE_PREFIX_PATH=${CMAKE_PREFIX_PATH}" ${of_host}
                -DHALYARD_ARCH=${HALYARD_ARCH} "-DHALYARD_FAMILIES_OF_GENERATORS=${HALYARD_FAMILIES_OF_GENERATORS}"
                "-DHALYARD_NEEDED_GENERATORS=${HALYARD_NEEDED_GENERATORS}" -Wno-dev
        OUTPUT_VARIABLE output ERROR_VARIABLE output RESULT_VARIABLE failed)
    if(failed)
        message(FATAL_ERROR "The programs that make the kernels could not be configured for this machine:\n${output}")
    endif()
    list(TRANSFORM HALYARD_FAMILIES_OF_GENERATORS REPLACE "(.+)" "${HALYARD_HOST_DIR}/halyard_generate_\\1" OUTPUT_VARIABLE programs)
    # The other build knows which of them are to be made anew; the others stay as they are, and so do their kernels.
    file(GLOB sources CONFIGURE_DEPENDS "generators/*.cpp" "generators/*.h" "schedules/*.h" "schedules/${HALYARD_ARCH}/*"
         "schedules/cpu/*" "schedules/gpu/*" "runtime/layout/*.h" "cmake/*.cpp" "cmake/host/*")
    add_custom_command(
        OUTPUT "${HALYARD_MAKE_KERNELS}" "${HALYARD_KERNEL_CALLS}" ${programs} ${digests}
        COMMAND ${CMAKE_COMMAND} --build "${HALYARD_HOST_DIR}"
        DEPENDS ${sources}
        COMMENT "Programs that make the kernels, for this machine"
        USES_TERMINAL VERBATIM)
    set(HALYARD_HOST_TARGETS)
    file(READ "${HALYARD_HOST_DIR}/halide_include_dirs" HALIDE_INCLUDE_DIRS)
else()
    include(cmake/FindHalideWheel.cmake)
    add_subdirectory(cmake/host host)
    set(HALYARD_HOST_TARGETS halyard_generators)
endif()

# A compiler that brings its own assembler counts alone.
set(HALYARD_ASSEMBLER_DIGEST "${HALYARD_HOST_DIR}/digests/assembler")
execute_process(COMMAND "${HALYARD_ASSEMBLER}" -print-prog-name=as OUTPUT_VARIABLE as OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
find_program(assembler_of_compiler "${as}" NO_CACHE NO_CMAKE_FIND_ROOT_PATH)
set(assemblers "${HALYARD_ASSEMBLER}")
if(assembler_of_compiler)
    list(APPEND assemblers "${assembler_of_compiler}")
endif()
add_custom_command(
    OUTPUT "${HALYARD_ASSEMBLER_DIGEST}"
    COMMAND "${HALYARD_MAKE_KERNELS}" digest "${HALYARD_ASSEMBLER_DIGEST}" ${assemblers}
    DEPENDS "${HALYARD_MAKE_KERNELS}" ${HALYARD_HOST_TARGETS} ${assemblers}
    COMMENT "Digest of the assembler"
    VERBATIM)
