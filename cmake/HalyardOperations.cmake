# What is built: HALYARD_ISAS, HALYARD_DTYPES and HALYARD_OPERATIONS, of which each takes all or names with commas between them.
#
# Needs the table of kernels as cmake/HalyardTuned.cmake reads it. Replaces the three by lists of what is built, what that needs
# included, and sets, for the including scope:
#   HALYARD_BUILT_KERNELS      the kernels of the operations (those of devices are in every build with HALYARD_CUDA)
#   HALYARD_DECLARED_KERNELS   these, and others that are named by C++ that is compiled
#   HALYARD_NEEDED_GENERATORS  the generators of these
#   HALYARD_IS_SUBSET          whether anything is left out
#   HALYARD_NAMES_OPERATIONS   what HALYARD_OPERATIONS may name, HALYARD_GROUP_<group> what a group stands for
# and the function halyard_select_sources() for the runtime.

# Sets `out` to the values of an option, which `names` lists.
function(_halyard_read_choice out option names)
    string(REPLACE "," ";" values "${${option}}")
    if(NOT values OR "all" IN_LIST values)
        set(values ${names})
    endif()
    foreach(value IN LISTS values)
        if(NOT value IN_LIST names)
            list(JOIN names ", " known)
            message(FATAL_ERROR "${option}: there is no '${value}'. It takes all, or with commas between them: ${known}.")
        endif()
    endforeach()
    set(${out} ${values} PARENT_SCOPE)
endfunction()

# Those of `all` that are in `chosen`, in the order of `all`.
function(_halyard_in_order out all)
    set(chosen ${ARGN})
    set(${out} ${all})
    foreach(name IN LISTS all)
        if(NOT name IN_LIST chosen)
            list(REMOVE_ITEM ${out} ${name})
        endif()
    endforeach()
    set(${out} ${${out}} PARENT_SCOPE)
endfunction()

# ---- the table ----

set(HALYARD_ALL_OPERATIONS)
set(HALYARD_GROUPS)
function(halyard_operation name)
    cmake_parse_arguments(PARSE_ARGV 1 arg "" "GROUP" "NEEDS;KERNELS;FUNCTIONS;SOURCES")
    set(HALYARD_ALL_OPERATIONS ${HALYARD_ALL_OPERATIONS} ${name} PARENT_SCOPE)
    set(HALYARD_NEEDS_${name} ${arg_NEEDS} PARENT_SCOPE)
    set(HALYARD_SOURCES_${name} ${arg_SOURCES} PARENT_SCOPE)
    foreach(kind IN ITEMS KERNELS FUNCTIONS)
        list(JOIN arg_${kind} "|" regex)
        if(NOT regex)
            set(regex ${name})
        endif()
        set(HALYARD_${kind}_${name} "^(${regex})$" PARENT_SCOPE)
    endforeach()
    if(arg_GROUP)
        set(HALYARD_GROUP_${arg_GROUP} ${HALYARD_GROUP_${arg_GROUP}} ${name} PARENT_SCOPE)
        set(groups ${HALYARD_GROUPS} ${arg_GROUP})
        list(REMOVE_DUPLICATES groups)
        set(HALYARD_GROUPS ${groups} PARENT_SCOPE)
    endif()
endfunction()
include("${CMAKE_CURRENT_LIST_DIR}/../operations.cmake")
set(HALYARD_NAMES_OPERATIONS ${HALYARD_GROUPS} ${HALYARD_ALL_OPERATIONS})

# ---- the choice, and what it needs ----

_halyard_read_choice(pending HALYARD_OPERATIONS "${HALYARD_NAMES_OPERATIONS}")
_halyard_read_choice(dtypes HALYARD_DTYPES "${HALYARD_ALL_DTYPES}")
_halyard_read_choice(isas HALYARD_ISAS "${HALYARD_ALL_ISAS}")
set(operations)
while(pending)
    list(POP_FRONT pending name)
    if(HALYARD_GROUP_${name})
        list(APPEND pending ${HALYARD_GROUP_${name}})
    elseif(name IN_LIST HALYARD_ALL_DTYPES)
        list(APPEND dtypes ${name})
    elseif(NOT name IN_LIST operations)
        list(APPEND operations ${name})
        list(APPEND pending ${HALYARD_NEEDS_${name}})
    endif()
endwhile()
foreach(isa IN LISTS isas)
    list(APPEND isas ${HALYARD_BASE_${isa}})
endforeach()
# As they were asked for, for messages.
string(REPLACE ";" "," HALYARD_ASKED_OPERATIONS "${HALYARD_OPERATIONS}")
set(HALYARD_IS_SUBSET FALSE)
foreach(list IN ITEMS OPERATIONS DTYPES ISAS)
    string(TOLOWER ${list} chosen)
    _halyard_in_order(HALYARD_${list} "${HALYARD_ALL_${list}}" ${${chosen}})
    if(NOT HALYARD_${list} STREQUAL HALYARD_ALL_${list})
        set(HALYARD_IS_SUBSET TRUE)
        list(JOIN HALYARD_${list} " " text)
        message(STATUS "HALYARD_${list}: ${text}")
    endif()
endforeach()
list(JOIN HALYARD_ALL_ISAS ";" all)
list(JOIN HALYARD_ISAS ";" built)
string(FIND ";${all};" ";${built};" found)
if(found LESS 0)
    message(FATAL_ERROR "HALYARD_ISAS: ${built} leave out one between them. What is built is without a gap in: ${all}.")
endif()
if((HALYARD_CUDA AND NOT "${HALYARD_OPERATIONS};${HALYARD_DTYPES}" STREQUAL "${HALYARD_ALL_OPERATIONS};${HALYARD_ALL_DTYPES}")
   OR (HALYARD_BUILD_TUNER AND HALYARD_IS_SUBSET))
    message(FATAL_ERROR "HALYARD_CUDA needs all of HALYARD_OPERATIONS and HALYARD_DTYPES; so does HALYARD_BUILD_TUNER, and all of "
                        "HALYARD_ISAS.")
endif()

# halyard/config.h
set(HALYARD_CONFIG_DIR "${CMAKE_CURRENT_BINARY_DIR}/generated/include")
list(JOIN HALYARD_DTYPES "," dtypes)
set(macros)
foreach(list IN ITEMS ISAS DTYPES OPERATIONS)
    foreach(name IN LISTS HALYARD_ALL_${list})
        string(TOUPPER ${name} macro)
        set(has 0)
        if(name IN_LIST HALYARD_${list})
            set(has 1)
        endif()
        string(APPEND macros "#define HALYARD_HAS_${macro} ${has}\n")
    endforeach()
endforeach()
file(CONFIGURE OUTPUT "${HALYARD_CONFIG_DIR}/halyard/config.h" @ONLY CONTENT [[
/* What this library was built with: 1 for the instruction sets, dtypes and operations that it has, else 0. */
#ifndef HALYARD_CONFIG_H
#define HALYARD_CONFIG_H

#define HALYARD_DTYPES "@dtypes@"
@macros@
#endif
]])

# ---- kernels and sources ----

# What is named by core/calls/ops.h, which is always compiled, and by no operation alone.
set(sources cpu/ops/elementwise.cpp)
set(listed)
foreach(name IN LISTS HALYARD_ALL_OPERATIONS)
    list(APPEND listed ${HALYARD_SOURCES_${name}})
    if(name IN_LIST HALYARD_OPERATIONS)
        list(APPEND sources ${HALYARD_SOURCES_${name}})
    endif()
endforeach()
set(HALYARD_UNUSED_SOURCES ${listed})
list(REMOVE_ITEM HALYARD_UNUSED_SOURCES ${sources})

set(HALYARD_BUILT_KERNELS)
set(HALYARD_DECLARED_KERNELS)
set(HALYARD_NEEDED_GENERATORS)
set(owned)
foreach(name IN LISTS HALYARD_ALL_OPERATIONS)
    set(kernels ${HALYARD_KERNEL_NAMES})
    list(FILTER kernels INCLUDE REGEX "${HALYARD_KERNELS_${name}}")
    list(APPEND owned ${kernels})
    if(name IN_LIST HALYARD_OPERATIONS)
        list(APPEND HALYARD_BUILT_KERNELS ${kernels})
    endif()
    # A file names the kernels of all that it is for.
    set(used ${HALYARD_SOURCES_${name}})
    list(REMOVE_ITEM used ${HALYARD_UNUSED_SOURCES})
    list(FILTER used INCLUDE REGEX "^cpu/")
    if(used)
        list(APPEND HALYARD_DECLARED_KERNELS ${kernels})
    endif()
endforeach()
foreach(kernel IN LISTS HALYARD_KERNEL_NAMES)
    if(HALYARD_SIGNATURE_OF_${kernel} STREQUAL "device")
        if(HALYARD_CUDA)
            list(APPEND HALYARD_NEEDED_GENERATORS ${HALYARD_GENERATOR_OF_${kernel}})
        endif()
    elseif(NOT kernel IN_LIST owned)
        message(FATAL_ERROR "operations.cmake: no operation has the kernel ${kernel}.")
    elseif(kernel IN_LIST HALYARD_DECLARED_KERNELS)
        list(APPEND HALYARD_NEEDED_GENERATORS ${HALYARD_GENERATOR_OF_${kernel}})
    endif()
endforeach()
list(REMOVE_DUPLICATES HALYARD_NEEDED_GENERATORS)

# ---- the runtime ----

# Public functions of operations that are left out: they say so. Appends the file to `sources`, which loses what is unused.
function(halyard_select_sources sources folder)
    foreach(name IN LISTS HALYARD_UNUSED_SOURCES)
        list(FILTER ${sources} EXCLUDE REGEX "runtime/${name}$")
    endforeach()
    set(functions)
    file(GLOB headers CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/runtime/include/halyard/*.h")
    foreach(header IN LISTS headers)
        file(READ "${header}" text)
        string(REGEX MATCHALL "HALYARD_API [a-zA-Z0-9_* \n]+\\([^;]*\\)" declarations "${text}")
        foreach(declaration IN LISTS declarations)
            string(REGEX MATCH "^HALYARD_API ([^(]*[* ])halyard_([a-z0-9_]+)" match "${declaration}")
            set(type "${CMAKE_MATCH_1}")
            set(function ${CMAKE_MATCH_2})
            foreach(name IN LISTS HALYARD_ALL_OPERATIONS)
                if(function MATCHES "${HALYARD_FUNCTIONS_${name}}" AND NOT name IN_LIST HALYARD_OPERATIONS)
                    set(body "return {};")
                    if(type STREQUAL "halyard_status ")
                        set(body "return halyard::left_out(\"halyard_${function}\", \"${name}\");")
                    elseif(type STREQUAL "void ")
                        set(body "")
                    elseif(type MATCHES "[*].*[*]")  # a list that ends with null
                        set(body "static constexpr const char *none = nullptr;\n    return &none;")
                    endif()
                    string(REGEX REPLACE "^HALYARD_API " "" declaration "${declaration}")
                    string(APPEND functions "${declaration} {\n    ${body}\n}\n")
                endif()
            endforeach()
        endforeach()
    endforeach()
    if(functions)
        file(CONFIGURE OUTPUT "${folder}/left_out.cpp" @ONLY CONTENT [[
// Public functions of operations that this library was built without (operations.cmake).
#include "core/check.h"
#include "halyard/attention.h"
#include "halyard/block.h"

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
namespace halyard {
static halyard_status left_out(const char *function, const char *operation) {
    Checker check(function);
    return check.fail(HALYARD_UNSUPPORTED,
                      "this library was built without %s; configure with -DHALYARD_OPERATIONS=@HALYARD_ASKED_OPERATIONS@,%s",
                      operation, operation);
}
}  // namespace halyard

@functions@#pragma GCC diagnostic pop
]])
        list(APPEND ${sources} "${folder}/left_out.cpp")
    endif()
    set(${sources} ${${sources}} PARENT_SCOPE)
endfunction()
