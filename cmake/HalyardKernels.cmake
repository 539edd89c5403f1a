# Turns the table of kernels into objects and lists: the function halyard_kernel() that kernels.cmake calls.
#
# Sets, for the including scope:
#   HALYARD_KERNEL_OBJECTS   every generated object file
#   halyard_kernel_lists     an interface target with the include directory of kernels/*.inc

set(HALYARD_DTYPES f32 f16 bf16)

# Instruction sets of the target processor, weakest first, with the Halide target of each.
set(HALYARD_ISAS sse41 avx2 avx512)
set(HALYARD_TARGET_sse41 x86-64-linux-sse41)
set(HALYARD_TARGET_avx2 ${HALYARD_TARGET_sse41}-avx-avx2-fma-f16c)
set(HALYARD_TARGET_avx512 ${HALYARD_TARGET_avx2}-avx512-avx512_skylake)

# runtime/ checks every argument once and builds the buffers itself, so that Halide's own checks could not fail; they
# would double the time of a 64-wide row. Kernels allocate nothing and start no threads: no Halide runtime is needed.
set(HALYARD_TARGET_FEATURES no_asserts-no_bounds_query-no_runtime)

# Elementwise kernels contain no expression that may be contracted or reordered. Row kernels say so expression by
# expression, because the shape `sum + a * b` of their accumulations is to become a fused multiply-add.
set(HALYARD_FAMILY_FEATURES_elementwise -strict_float)

set(HALYARD_TUNED "${CMAKE_CURRENT_SOURCE_DIR}/schedules/tuned/x86-64.json" CACHE FILEPATH
    "Parameters of the schedules, per instruction set and kernel (see docs/schedules.md)")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${HALYARD_TUNED}")
file(READ "${HALYARD_TUNED}" HALYARD_TUNED_JSON)
message(STATUS "Schedule parameters: ${HALYARD_TUNED}")

set(HALYARD_KERNEL_DIR "${CMAKE_CURRENT_BINARY_DIR}/kernels")
set(HALYARD_KERNEL_LIST_DIR "${CMAKE_CURRENT_BINARY_DIR}/generated")
set(HALYARD_KERNEL_OBJECTS)
file(MAKE_DIRECTORY "${HALYARD_KERNEL_DIR}")

# Appends to `out` the parameters under schedules/<isa>/<key> of the tuned file as name=value.
function(_halyard_tuned_params out isa key)
    string(JSON entry ERROR_VARIABLE missing GET "${HALYARD_TUNED_JSON}" schedules ${isa} ${key})
    if(NOT missing)
        string(JSON count LENGTH "${entry}")
        math(EXPR last "${count} - 1")
        foreach(i RANGE ${last})
            string(JSON name MEMBER "${entry}" ${i})
            string(JSON value GET "${entry}" ${name})
            list(FILTER ${out} EXCLUDE REGEX "^${name}=")
            list(APPEND ${out} "${name}=${value}")
        endforeach()
    endif()
    set(${out} ${${out}} PARENT_SCOPE)
endfunction()

function(halyard_kernel name signature family generator)
    set_property(GLOBAL APPEND PROPERTY HALYARD_LIST_all ${name})
    set_property(GLOBAL APPEND PROPERTY HALYARD_LIST_${signature} ${name})
    foreach(isa IN LISTS HALYARD_ISAS)
        foreach(dtype IN LISTS HALYARD_DTYPES)
            set(params)
            foreach(key IN ITEMS ${family} ${family}_${dtype} ${name} ${name}_${dtype})
                _halyard_tuned_params(params ${isa} ${key})
            endforeach()
            set(symbol hk_${name}_${dtype}_${isa})
            set(object "${HALYARD_KERNEL_DIR}/${symbol}.o")
            add_custom_command(
                OUTPUT "${object}"
                COMMAND halyard_generate -g ${generator} -f ${symbol} -e object -o "${HALYARD_KERNEL_DIR}"
                        target=${HALYARD_TARGET_${isa}}-${HALYARD_TARGET_FEATURES}${HALYARD_FAMILY_FEATURES_${family}} dtype=${dtype} ${ARGN} ${params}
                DEPENDS halyard_generate
                COMMENT "Kernel ${name} ${dtype} ${isa}"
                VERBATIM)
            list(APPEND HALYARD_KERNEL_OBJECTS "${object}")
            set_property(GLOBAL APPEND PROPERTY HALYARD_LIST_variants "${name}, ${dtype}, ${isa}")
        endforeach()
    endforeach()
    set(HALYARD_KERNEL_OBJECTS ${HALYARD_KERNEL_OBJECTS} PARENT_SCOPE)
endfunction()

include("${CMAKE_CURRENT_SOURCE_DIR}/kernels.cmake")

# The lists for C++: HALYARD_KERNEL(name) per kernel, HALYARD_DTYPE(name), HALYARD_ISA(name), and for the dispatch table
# HALYARD_VARIANT(kernel, dtype, isa) per object.
function(_halyard_write_list file macro)
    list(TRANSFORM ARGN PREPEND "${macro}(")
    list(TRANSFORM ARGN APPEND ")\n")
    string(CONCAT text ${ARGN})
    file(CONFIGURE OUTPUT "${HALYARD_KERNEL_LIST_DIR}/kernels/${file}.inc" CONTENT "@text@" @ONLY)
endfunction()
foreach(signature all unary unary_beta gated gated_beta)
    get_property(names GLOBAL PROPERTY HALYARD_LIST_${signature})
    _halyard_write_list(${signature} HALYARD_KERNEL ${names})
endforeach()
get_property(variants GLOBAL PROPERTY HALYARD_LIST_variants)
_halyard_write_list(variants HALYARD_VARIANT ${variants})
_halyard_write_list(dtypes HALYARD_DTYPE ${HALYARD_DTYPES})
_halyard_write_list(isas HALYARD_ISA ${HALYARD_ISAS})

add_library(halyard_kernel_lists INTERFACE)
target_include_directories(halyard_kernel_lists INTERFACE "${HALYARD_KERNEL_LIST_DIR}")
