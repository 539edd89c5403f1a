# The parameters of the schedules: schedules/tuned/x86-64.json or arm-64.json, which hold those for any machine, and over
# it the file that HALYARD_TUNED chooses, as the tuner writes it for one machine (docs/tuning.md). Both are checked against the
# table of kernels and against the legal values in schedules/search_spaces.cmake.
#
#   halyard_tuned_params(out isa dtype family name)   the parameters of a kernel as name=value
#
# Needs what cmake/HalyardTarget.cmake sets. Sets HALYARD_TUNED_FILE to the file that won, empty if it is the one for any machine.

set(HALYARD_TUNED_DIR "${CMAKE_CURRENT_LIST_DIR}/../schedules/tuned")
cmake_path(NORMAL_PATH HALYARD_TUNED_DIR)
set(HALYARD_TUNED_BASE "${HALYARD_TUNED_DIR}/${HALYARD_TARGET_PROCESSOR}.json")

# ---- what a file may name ----

# The families with parameters HALYARD_SPACES_<arch>, the parameters HALYARD_SPACE_<arch>_<family> of each, and their values
# HALYARD_VALUES_<arch>_<family>_<parameter> and HALYARD_DEFAULT_<...>.
function(halyard_search_space arch family parameter default)
    list(APPEND HALYARD_SPACES_${arch} ${family})
    list(REMOVE_DUPLICATES HALYARD_SPACES_${arch})
    list(APPEND HALYARD_SPACE_${arch}_${family} ${parameter})
    set(HALYARD_VALUES_${arch}_${family}_${parameter} ${ARGN})
    set(HALYARD_DEFAULT_${arch}_${family}_${parameter} ${default})
    return(PROPAGATE HALYARD_SPACES_${arch} HALYARD_SPACE_${arch}_${family}
                     HALYARD_VALUES_${arch}_${family}_${parameter} HALYARD_DEFAULT_${arch}_${family}_${parameter})
endfunction()
include("${CMAKE_CURRENT_LIST_DIR}/../schedules/search_spaces.cmake")

# The names of all kernels with the signature, family and generator of each, from the table of kernels.
set(HALYARD_KERNEL_NAMES)
set(HALYARD_FAMILIES)
function(halyard_kernel name signature family generator)
    set(HALYARD_KERNEL_NAMES ${HALYARD_KERNEL_NAMES} ${name} PARENT_SCOPE)
    set(HALYARD_SIGNATURE_OF_${name} ${signature} PARENT_SCOPE)
    set(HALYARD_FAMILY_OF_${name} ${family} PARENT_SCOPE)
    set(HALYARD_GENERATOR_OF_${name} ${generator} PARENT_SCOPE)
    set(families ${HALYARD_FAMILIES} ${family})
    list(REMOVE_DUPLICATES families)
    set(HALYARD_FAMILIES ${families} PARENT_SCOPE)
endfunction()
include("${CMAKE_CURRENT_LIST_DIR}/../kernels.cmake")

function(_halyard_join out)
    list(JOIN ARGN ", " text)
    set(${out} "${text}" PARENT_SCOPE)
endfunction()

# ---- reading ----

# What a member of a JSON object is must be an object itself; `where` names it.
function(_halyard_require_object file where object member)
    string(JSON type TYPE "${object}" "${member}")
    if(NOT type STREQUAL "OBJECT")
        message(FATAL_ERROR "${file}: ${where}: it is no object.")
    endif()
endfunction()

# Reads and checks a file into HALYARD_PARAMS_<prefix>_<isa>_<key>, lists of name=value.
function(_halyard_read_tuned file prefix)
    if(NOT EXISTS "${file}")
        message(FATAL_ERROR "HALYARD_TUNED is '${file}', and there is no such file; it takes native, none or a file.")
    endif()
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${file}")
    file(READ "${file}" text)
    string(REPLACE "\"matmul_tall_" "\"matmul_prefetch4_" text "${text}")  # as these kernels were once called
    string(JSON schedules ERROR_VARIABLE error GET "${text}" schedules)
    if(error)
        message(FATAL_ERROR "${file}: it is no JSON with an object 'schedules': ${error}")
    endif()
    _halyard_require_object("${file}" schedules "${text}" schedules)
    string(JSON isa_count LENGTH "${schedules}")
    set(isa_index 0)
    while(isa_index LESS isa_count)
        string(JSON isa MEMBER "${schedules}" ${isa_index})
        if(NOT isa IN_LIST HALYARD_ALL_ISAS)
            _halyard_join(known ${HALYARD_ALL_ISAS})
            message(FATAL_ERROR "${file}: schedules.${isa}: it is for another instruction set; this build has "
                                "${known}.")
        endif()
        _halyard_require_object("${file}" "schedules.${isa}" "${schedules}" "${isa}")
        string(JSON entries GET "${schedules}" "${isa}")
        string(JSON key_count LENGTH "${entries}")
        set(key_index 0)
        while(key_index LESS key_count)
            string(JSON key MEMBER "${entries}" ${key_index})
            _halyard_family_of(family "${key}")
            if(NOT family)
                _halyard_join(known ${HALYARD_FAMILIES} ${HALYARD_KERNEL_NAMES})
                message(FATAL_ERROR "${file}: schedules.${isa}.${key}: there is no such family or kernel. There are, alone or "
                                    "with _f32, _f16 or _bf16 after them: ${known}.")
            endif()
            _halyard_require_object("${file}" "schedules.${isa}.${key}" "${entries}" "${key}")
            string(JSON entry GET "${entries}" "${key}")
            _halyard_read_entry("${file}" "schedules.${isa}.${key}" ${family} "${entry}")
            set(HALYARD_PARAMS_${prefix}_${isa}_${key} ${params} PARENT_SCOPE)
            math(EXPR key_index "${key_index} + 1")
        endwhile()
        math(EXPR isa_index "${isa_index} + 1")
    endwhile()
endfunction()

# Sets `out` to the family that an entry is about, or to nothing.
function(_halyard_family_of out key)
    set(${out} "" PARENT_SCOPE)
    list(JOIN HALYARD_ALL_DTYPES "|" dtypes)
    string(REGEX REPLACE "_(${dtypes})$" "" name "${key}")
    # The name of a kernel may end in a type itself.
    foreach(candidate IN ITEMS "${key}" "${name}")
        if(candidate IN_LIST HALYARD_FAMILIES)
            set(${out} ${candidate} PARENT_SCOPE)
            return()
        elseif(candidate IN_LIST HALYARD_KERNEL_NAMES)
            set(${out} ${HALYARD_FAMILY_OF_${candidate}} PARENT_SCOPE)
            return()
        endif()
    endforeach()
endfunction()

# Sets `params`.
function(_halyard_read_entry file where family entry)
    if(NOT HALYARD_SPACE_${HALYARD_ARCH}_${family})
        message(FATAL_ERROR "${file}: ${where}: the family ${family} has no parameters.")
    endif()
    set(params)
    string(JSON count LENGTH "${entry}")
    set(i 0)
    while(i LESS count)
        string(JSON parameter MEMBER "${entry}" ${i})
        if(NOT parameter IN_LIST HALYARD_SPACE_${HALYARD_ARCH}_${family})
            _halyard_join(known ${HALYARD_SPACE_${HALYARD_ARCH}_${family}})
            message(FATAL_ERROR "${file}: ${where}.${parameter}: the family ${family} has no such "
                                "parameter; it has ${known}.")
        endif()
        string(JSON value GET "${entry}" ${parameter})
        string(JSON type TYPE "${entry}" ${parameter})
        if(type STREQUAL "STRING")
            set(value "\"${value}\"")
        endif()
        if(NOT "${value}" IN_LIST HALYARD_VALUES_${HALYARD_ARCH}_${family}_${parameter})
            _halyard_join(known ${HALYARD_VALUES_${HALYARD_ARCH}_${family}_${parameter}})
            message(FATAL_ERROR "${file}: ${where}.${parameter}: ${value} is no legal value; these are: "
                                "${known}.")
        endif()
        list(APPEND params "${parameter}=${value}")
        math(EXPR i "${i} + 1")
    endwhile()
    set(params ${params} PARENT_SCOPE)
endfunction()

# ---- the file of this machine ----

# Sets `out` to the name that the tuner gives a file for this machine: maker, family and model of the processor, and the
# first two levels of its data caches in KiB.
function(_halyard_native_name out)
    set(${out} "" PARENT_SCOPE)
    if(NOT HALYARD_TARGET_PROCESSOR STREQUAL "x86-64" OR NOT EXISTS "/proc/cpuinfo")
        return()  # the tuner knows no others
    endif()
    foreach(field IN ITEMS vendor_id "cpu family" model)
        file(STRINGS "/proc/cpuinfo" line LIMIT_COUNT 1 REGEX "^${field}[ \t]*:")
        string(REGEX REPLACE "^[^:]*:[ \t]*" "" value "${line}")
        list(APPEND parts "${value}")
    endforeach()
    foreach(level IN ITEMS 1 2)
        set(kibibytes)
        foreach(index RANGE 7)
            set(folder "/sys/devices/system/cpu/cpu0/cache/index${index}")
            if(EXISTS "${folder}/size")
                file(STRINGS "${folder}/level" found_level)
                file(STRINGS "${folder}/type" type)
                if(found_level EQUAL level AND NOT type STREQUAL "Instruction")
                    file(STRINGS "${folder}/size" size)
                    string(REGEX REPLACE "K$" "" kibibytes "${size}")
                    break()
                endif()
            endif()
        endforeach()
        if(NOT kibibytes)
            # Some virtual machines leave it to the C library to know.
            set(which LEVEL2_CACHE_SIZE)
            if(level EQUAL 1)
                set(which LEVEL1_DCACHE_SIZE)
            endif()
            execute_process(COMMAND getconf ${which} OUTPUT_VARIABLE bytes ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
            if(NOT bytes MATCHES "^[0-9]+$")
                set(bytes 0)
            endif()
            math(EXPR kibibytes "${bytes} / 1024")
        endif()
        list(APPEND parts "${kibibytes}k")
    endforeach()
    list(JOIN parts "-" name)
    string(TOLOWER "x86-64-${name}.json" name)
    set(${out} "${name}" PARENT_SCOPE)
endfunction()

# ---- the choice ----

set(HALYARD_TUNED native CACHE STRING
    "Parameters of the schedules over those for any machine: native (for this one, if there are some), none, or a file")
set(HALYARD_TUNED_FILE "")
_halyard_read_tuned("${HALYARD_TUNED_BASE}" base)
if(HALYARD_TUNED STREQUAL "native")
    set(native_name)
    if(NOT CMAKE_CROSSCOMPILING)
        _halyard_native_name(native_name)
    endif()
    if(native_name AND EXISTS "${HALYARD_TUNED_DIR}/${native_name}")
        set(HALYARD_TUNED_FILE "${HALYARD_TUNED_DIR}/${native_name}")
        message(STATUS "Schedule parameters: ${HALYARD_TUNED_FILE}, tuned on such a machine")
    elseif(native_name)
        message(STATUS "Schedule parameters: ${HALYARD_TUNED_BASE}, for any machine (no ${native_name} beside it)")
    else()
        message(STATUS "Schedule parameters: ${HALYARD_TUNED_BASE}, for any machine")
    endif()
    # A file that the tuner writes later is found by the next build.
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${HALYARD_TUNED_DIR}")
elseif(HALYARD_TUNED STREQUAL "none")
    message(STATUS "Schedule parameters: ${HALYARD_TUNED_BASE}, for any machine (HALYARD_TUNED is none)")
else()
    get_filename_component(HALYARD_TUNED_FILE "${HALYARD_TUNED}" ABSOLUTE)
    message(STATUS "Schedule parameters: ${HALYARD_TUNED_FILE}, as HALYARD_TUNED says")
endif()
if(HALYARD_TUNED_FILE)
    _halyard_read_tuned("${HALYARD_TUNED_FILE}" own)
endif()

# The entry of a family counts for all its kernels; before it goes that of the family in one type, that of the kernel,
# and that of the kernel in one type. A name that is both is the kernel's. An instruction set that has another's parameters
# (HALYARD_BASE) has its own before them. Whatever the chosen file names goes before the one for any machine.
function(halyard_tuned_params out isa dtype family name)
    set(params)
    set(keys ${name} ${name}_${dtype})
    if(NOT family IN_LIST HALYARD_KERNEL_NAMES)
        list(PREPEND keys ${family} ${family}_${dtype})
    endif()
    foreach(prefix IN ITEMS base own)
        foreach(set IN ITEMS ${HALYARD_BASE_${isa}} ${isa})
            foreach(key IN LISTS keys)
                foreach(param IN LISTS HALYARD_PARAMS_${prefix}_${set}_${key})
                    string(REGEX REPLACE "=.*" "" parameter "${param}")
                    list(FILTER params EXCLUDE REGEX "^${parameter}=")
                    list(APPEND params "${param}")
                endforeach()
            endforeach()
        endforeach()
        # Which tiles an instruction set has is no matter of tuning.
        if(family MATCHES "^matmul" AND NOT params)
            break()
        endif()
    endforeach()
    set(${out} ${params} PARENT_SCOPE)
endfunction()
