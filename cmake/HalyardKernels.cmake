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

# Elementwise kernels and the like contain no expression that may be contracted or reordered. Row kernels say so
# expression by expression, because the shape `sum + a * b` of their accumulations is to become a fused multiply-add; so
# do the matrix products.
set(HALYARD_FAMILY_FEATURES_elementwise -strict_float)
set(HALYARD_FAMILY_FEATURES_epilogue -strict_float)
set(HALYARD_FAMILY_FEATURES_rope -strict_float)
set(HALYARD_FAMILY_FEATURES_kv_move -strict_float)

include("${CMAKE_CURRENT_LIST_DIR}/HalyardTuned.cmake")

set(HALYARD_PREFETCH_SCRIPT "${CMAKE_CURRENT_SOURCE_DIR}/cmake/PrefetchIntoCache.cmake")

set(HALYARD_KERNEL_DIR "${CMAKE_CURRENT_BINARY_DIR}/kernels")
set(HALYARD_KERNEL_LIST_DIR "${CMAKE_CURRENT_BINARY_DIR}/generated")
set(HALYARD_KERNEL_OBJECTS)
file(MAKE_DIRECTORY "${HALYARD_KERNEL_DIR}")

# A program for every file in generators/, with the schedules whose headers it includes: a change of one rebuilds no
# kernel of another. HALYARD_GENERATOR_<class> is the program of a generator. The tuner is linked of the same objects.
function(_halyard_compile_for_host target)
    target_include_directories(${target} PRIVATE "${CMAKE_CURRENT_SOURCE_DIR}")
    target_compile_options(${target} PRIVATE -O1 -Wall)
    target_link_libraries(${target} PRIVATE Halide::Halide)
endfunction()
file(GLOB HALYARD_SCHEDULE_SOURCES CONFIGURE_DEPENDS schedules/x86/*.cpp)
foreach(source IN LISTS HALYARD_SCHEDULE_SOURCES)
    get_filename_component(name "${source}" NAME_WE)
    add_library(halyard_schedule_${name} OBJECT "${source}")
    _halyard_compile_for_host(halyard_schedule_${name})
    list(APPEND HALYARD_GENERATOR_OBJECTS halyard_schedule_${name})
endforeach()
file(GLOB HALYARD_GENERATOR_SOURCES CONFIGURE_DEPENDS generators/*.cpp)
foreach(source IN LISTS HALYARD_GENERATOR_SOURCES)
    get_filename_component(name "${source}" NAME_WE)
    set(program halyard_generate_${name})
    add_library(halyard_generator_${name} OBJECT "${source}")
    _halyard_compile_for_host(halyard_generator_${name})
    list(APPEND HALYARD_GENERATOR_OBJECTS halyard_generator_${name})
    add_executable(${program} $<TARGET_OBJECTS:halyard_generator_${name}>)
    target_link_libraries(${program} PRIVATE Halide::Generator)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${source}")
    file(STRINGS "${source}" lines REGEX "^(#include \"schedules/|HALIDE_REGISTER_GENERATOR)")
    foreach(line IN LISTS lines)
        if(line MATCHES "\"schedules/(.+)\\.h\"")
            target_link_libraries(${program} PRIVATE halyard_schedule_${CMAKE_MATCH_1})
        elseif(line MATCHES ", *([a-z0-9_]+)\\)")
            set(HALYARD_GENERATOR_${CMAKE_MATCH_1} ${program})
        endif()
    endforeach()
endforeach()

file(GLOB sources CONFIGURE_DEPENDS schedules/gpu/*.cpp)
add_library(halyard_schedule_gpu OBJECT ${sources})
_halyard_compile_for_host(halyard_schedule_gpu)
list(APPEND HALYARD_GENERATOR_OBJECTS halyard_schedule_gpu)

if(HALYARD_CUDA)
    include(cmake/HalyardCuda.cmake)
endif()

function(halyard_kernel name signature family generator)
    set(program ${HALYARD_GENERATOR_${generator}})
    if(NOT program)
        message(FATAL_ERROR "kernels.cmake: kernel ${name} names the generator '${generator}', which no file in generators/ registers.")
    endif()
    set_property(GLOBAL APPEND PROPERTY HALYARD_LIST_all "HALYARD_KERNEL(${name})")
    set_property(GLOBAL APPEND PROPERTY HALYARD_LIST_${signature} "HALYARD_KERNEL(${name})")
    if(NOT signature STREQUAL "device")
        list(JOIN ARGN " " fixed_params)
        set_property(GLOBAL APPEND PROPERTY HALYARD_LIST_generated
                     "HALYARD_GENERATED(${name}, ${family}, ${generator}, \"${fixed_params}\")")
    endif()
    if(family MATCHES "^(elementwise|row)$")
        set_property(GLOBAL APPEND PROPERTY HALYARD_LIST_tensorwise "HALYARD_KERNEL(${name})")
    endif()
    foreach(isa IN LISTS HALYARD_ISAS)
        foreach(dtype IN LISTS HALYARD_DTYPES)
            if(signature STREQUAL "device" OR (signature STREQUAL "internal_f32" AND NOT dtype STREQUAL "f32"))
                set_property(GLOBAL APPEND PROPERTY HALYARD_LIST_variants "HALYARD_ABSENT(${name}, ${dtype}, ${isa})")
                continue()
            endif()
            halyard_tuned_params(params ${isa} ${dtype} ${family} ${name})
            if(family STREQUAL "matmul")
                # The tiles that an instruction set has are those that have a width.
                if(NOT params)
                    set_property(GLOBAL APPEND PROPERTY HALYARD_LIST_variants "HALYARD_ABSENT(${name}, ${dtype}, ${isa})")
                    continue()
                endif()
                string(REPLACE "panels=" "" panels "${params}")
                set_property(GLOBAL APPEND PROPERTY HALYARD_LIST_tiles "HALYARD_TILE(${name}, ${dtype}, ${isa}, ${panels})")
            endif()
            set(symbol hk_${name}_${dtype}_${isa})
            set(object "${HALYARD_KERNEL_DIR}/${symbol}.o")
            set(generate
                ${program} -g ${generator} -f ${symbol} -o "${HALYARD_KERNEL_DIR}"
                target=${HALYARD_TARGET_${isa}}-${HALYARD_TARGET_FEATURES}${HALYARD_FAMILY_FEATURES_${family}} dtype=${dtype}
                ${ARGN} ${params})
            if(family STREQUAL "matmul")
                # By way of assembly, where the kind of its prefetches is chosen.
                set(assembly "${HALYARD_KERNEL_DIR}/${symbol}.s")
                set(commands COMMAND ${generate} -e assembly
                             COMMAND ${CMAKE_COMMAND} "-DASSEMBLY=${assembly}" -P "${HALYARD_PREFETCH_SCRIPT}"
                             COMMAND ${CMAKE_C_COMPILER} -c "${assembly}" -o "${object}")
            else()
                set(commands COMMAND ${generate} -e object)
            endif()
            add_custom_command(
                OUTPUT "${object}"
                ${commands}
                DEPENDS ${program} ${HALYARD_PREFETCH_SCRIPT}
                COMMENT "Kernel ${name} ${dtype} ${isa}"
                VERBATIM)
            list(APPEND HALYARD_KERNEL_OBJECTS "${object}")
            set_property(GLOBAL APPEND PROPERTY HALYARD_LIST_variants "HALYARD_VARIANT(${name}, ${dtype}, ${isa})")
        endforeach()
    endforeach()
    if(HALYARD_CUDA)
        halyard_device_kernel(${name} ${family} ${generator} ${ARGN})
    endif()
    set(HALYARD_KERNEL_OBJECTS ${HALYARD_KERNEL_OBJECTS} PARENT_SCOPE)
endfunction()

include("${CMAKE_CURRENT_SOURCE_DIR}/kernels.cmake")
if(HALYARD_CUDA)
    halyard_device_images()
endif()

# The lists for C++: HALYARD_KERNEL(name) for all kernels, for those of each public signature, and for `tensorwise` ones,
# which take nothing but tensors of one shape or of rows; HALYARD_DTYPE(name); HALYARD_ISA(name). For the dispatch table
# HALYARD_VARIANT(kernel, dtype, isa) or, where an instruction set does not have the kernel, HALYARD_ABSENT. For the matrix
# products HALYARD_TILE(kernel, dtype, isa, panels). For the tuner HALYARD_GENERATED(kernel, family, generator,
# "parameters"), HALYARD_TARGET(isa, "Halide target"), and HALYARD_FEATURES(family, "more of it").
function(_halyard_write_list file)
    list(JOIN ARGN "\n" text)
    file(CONFIGURE OUTPUT "${HALYARD_KERNEL_LIST_DIR}/kernels/${file}.inc" CONTENT "@text@\n" @ONLY)
endfunction()
foreach(list all tensorwise unary unary_beta gated gated_beta epilogue epilogue_gated variants tiles generated
             device_variants device_images)
    get_property(entries GLOBAL PROPERTY HALYARD_LIST_${list})
    _halyard_write_list(${list} ${entries})
endforeach()
list(TRANSFORM HALYARD_DTYPES REPLACE "(.+)" "HALYARD_DTYPE(\\1)" OUTPUT_VARIABLE entries)
_halyard_write_list(dtypes ${entries})
list(TRANSFORM HALYARD_ISAS REPLACE "(.+)" "HALYARD_ISA(\\1)" OUTPUT_VARIABLE entries)
_halyard_write_list(isas ${entries})
set(entries)
foreach(isa IN LISTS HALYARD_ISAS)
    list(APPEND entries "HALYARD_TARGET(${isa}, \"${HALYARD_TARGET_${isa}}-${HALYARD_TARGET_FEATURES}\")")
endforeach()
_halyard_write_list(targets ${entries})
set(entries)
foreach(family IN LISTS HALYARD_FAMILIES)
    list(APPEND entries "HALYARD_FEATURES(${family}, \"${HALYARD_FAMILY_FEATURES_${family}}\")")
endforeach()
_halyard_write_list(features ${entries})

add_library(halyard_kernel_lists INTERFACE)
target_include_directories(halyard_kernel_lists INTERFACE "${HALYARD_KERNEL_LIST_DIR}")
