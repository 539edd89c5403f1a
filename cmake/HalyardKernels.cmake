# Turns the table of kernels into objects and lists: the function halyard_kernel() that kernels.cmake calls.
#
# Sets, for the including scope:
#   HALYARD_KERNEL_OBJECTS   every generated object file
#   HALYARD_KERNEL_SYMBOLS   what of them the runtime calls
#   HALYARD_WRITTEN_KERNELS  the sources of kernels that no generator makes
#   halyard_kernel_lists     an interface target with the include directory of kernels/*.inc

# runtime/ checks every argument once and builds the buffers itself, so that Halide's own checks could not fail; they
# would double the time of a 64-wide row. Kernels allocate nothing and start no threads: no Halide runtime is needed.
set(HALYARD_TARGET_FEATURES no_asserts-no_bounds_query-no_runtime)

# Elementwise kernels and the like contain no expression that may be contracted or reordered. Row kernels say so
# expression by expression, because the shape `sum + a * b` of their accumulations is to become a fused multiply-add; so
# do the matrix products.
set(HALYARD_FAMILY_FEATURES_elementwise -strict_float)
set(HALYARD_FAMILY_FEATURES_epilogue -strict_float)
set(HALYARD_FAMILY_FEATURES_optimizer -strict_float)
set(HALYARD_FAMILY_FEATURES_rope -strict_float)
set(HALYARD_FAMILY_FEATURES_kv_move -strict_float)

# The families or generators of kernels that may run on more than the caches hold, which have a streamed form too, with non-temporal stores
# (cmake/host/streamed_form.h), and how many bytes ahead of its loads that prefetches: far enough for memory to answer, near enough to
# stay in the first-level cache. Norms read a row again when they write it, and meanwhile prefetch the beginning of the next one
# (docs/results/kernel-notes.md).
set(HALYARD_STREAMED_PREFETCH_elementwise 4096)
set(HALYARD_STREAMED_PREFETCH_rms_norm 8192)
set(HALYARD_STREAMED_PREFETCH_layer_norm 8192)
set(HALYARD_STREAMED_PREFETCH_softmax_normalize 0)  # exponentials are in cache
set(HALYARD_STREAMED_PREFETCH_softmax_backward 0)  # rows are in cache when they are written
# Signatures and generators of kernels that prefetch what others read later, which make_kernels.cpp edits.
set(HALYARD_PREFETCHING matmul softmax)

include("${CMAKE_CURRENT_LIST_DIR}/HalyardTuned.cmake")
include("${CMAKE_CURRENT_LIST_DIR}/HalyardOperations.cmake")

set(HALYARD_KERNEL_DIR "${CMAKE_CURRENT_BINARY_DIR}/kernels")
set(HALYARD_KERNEL_LIST_DIR "${CMAKE_CURRENT_BINARY_DIR}/generated")
set(HALYARD_KERNEL_OBJECTS)
set(HALYARD_KERNEL_SYMBOLS)
file(MAKE_DIRECTORY "${HALYARD_KERNEL_DIR}")

include(cmake/HalyardHost.cmake)
include(cmake/HalyardKernelCalls.cmake)
if(HALYARD_CUDA)
    include(cmake/HalyardCuda.cmake)
endif()

function(halyard_kernel name signature family generator)
    set_property(GLOBAL APPEND PROPERTY HALYARD_LIST_all "HALYARD_KERNEL(${name})")
    set(function ${name})
    if(signature MATCHES "_backward$")
        string(REGEX REPLACE "_backward$" "" function ${name})
    endif()
    set_property(GLOBAL APPEND PROPERTY HALYARD_LIST_${signature} "HALYARD_KERNEL(${function})")
    set(program ${HALYARD_PROGRAM_${generator}})
    set(dtypes ${HALYARD_ALL_DTYPES})
    if(signature MATCHES "_(f32|f16)$")
        set(dtypes ${CMAKE_MATCH_1})
    endif()
    set(built_dtypes)
    if(name IN_LIST HALYARD_BUILT_KERNELS)
        # What is of f32 alone has a part in the other types too.
        foreach(dtype IN LISTS dtypes)
            if(dtype IN_LIST HALYARD_DTYPES OR signature MATCHES "_f32$")
                list(APPEND built_dtypes ${dtype})
            endif()
        endforeach()
        set_property(GLOBAL APPEND PROPERTY HALYARD_LIST_built_${signature} "HALYARD_KERNEL(${function})")
        if(family MATCHES "^(elementwise|row)$" AND dtypes STREQUAL HALYARD_ALL_DTYPES)
            set_property(GLOBAL APPEND PROPERTY HALYARD_LIST_tensorwise "HALYARD_KERNEL(${name})")
        endif()
        if(NOT signature MATCHES "^written")
            list(JOIN ARGN " " fixed_params)
            set_property(GLOBAL APPEND PROPERTY HALYARD_LIST_generated
                         "HALYARD_GENERATED(${name}, ${family}, ${generator}, \"${program}\", \"${fixed_params}\")")
        endif()
    endif()
    if(name IN_LIST HALYARD_DECLARED_KERNELS)
        foreach(dtype IN LISTS dtypes)
            halyard_kernel_call(calls ${name} memory ${generator} dtype=${dtype} ${ARGN})
        endforeach()
    endif()
    foreach(isa IN LISTS HALYARD_ISAS)
        foreach(dtype IN LISTS HALYARD_ALL_DTYPES)
            if(NOT dtype IN_LIST built_dtypes)
                set_property(GLOBAL APPEND PROPERTY HALYARD_LIST_variants "HALYARD_ABSENT(${name}, ${dtype}, ${isa})")
                continue()
            endif()
            halyard_tuned_params(params ${isa} ${dtype} ${family} ${name})
            set(writers)
            foreach(candidate IN LISTS HALYARD_BASE_${isa} ITEMS ${isa})
                if("${family}_${dtype}" IN_LIST HALYARD_WRITTEN_${candidate})
                    list(APPEND writers ${candidate})
                endif()
            endforeach()
            # The tiles that an instruction set has are those that have a width.
            if((signature MATCHES "matmul$" AND NOT params) OR (signature MATCHES "^written" AND NOT writers))
                set_property(GLOBAL APPEND PROPERTY HALYARD_LIST_variants "HALYARD_ABSENT(${name}, ${dtype}, ${isa})")
                continue()
            endif()
            if(signature MATCHES "matmul$")
                string(REPLACE "panels=" "" panels "${params}")
                set_property(GLOBAL APPEND PROPERTY HALYARD_LIST_tiles "HALYARD_TILE(${name}, ${dtype}, ${isa}, ${panels})")
            endif()
            if(isa IN_LIST writers)
                set_property(GLOBAL APPEND PROPERTY HALYARD_LIST_variants "HALYARD_WRITTEN(${name}, ${dtype}, ${isa})")
                set(source "${PROJECT_SOURCE_DIR}/runtime/cpu/linear/${isa}/${generator}.cpp")
                list(APPEND HALYARD_WRITTEN_KERNELS "${source}")
                list(REMOVE_DUPLICATES HALYARD_WRITTEN_KERNELS)
                if(HALYARD_SANITIZE STREQUAL "address")
                    # The checks of UndefinedBehaviorSanitizer in unrolled loops take four fifths of the compiling and 30 MB of
                    # each object, which every test links; those of AddressSanitizer take Clang thrice as long to optimize.
                    set_source_files_properties("${source}" PROPERTIES COMPILE_OPTIONS "-O0;-fno-sanitize=undefined")
                elseif(HALYARD_ASSEMBLE_${isa})
                    # Compilers go to the stack if they schedule before they allocate registers, GCC also if it peels loops
                    # as with -O3.
                    set_source_files_properties("${source}" PROPERTIES COMPILE_OPTIONS
                        "${HALYARD_ASSEMBLE_${isa}};-O2;$<IF:$<CXX_COMPILER_ID:GNU>,-fno-schedule-insns,-mllvm;-enable-misched=false>")
                endif()
                continue()
            endif()
            set(owner)
            foreach(candidate IN LISTS HALYARD_BASE_${isa} ITEMS ${isa})
                if(NOT owner OR "${family}_${dtype}" IN_LIST HALYARD_OWN_${candidate})
                    set(owner ${candidate})
                endif()
            endforeach()
            if(NOT owner STREQUAL isa)
                set_property(GLOBAL APPEND PROPERTY HALYARD_LIST_variants "HALYARD_SHARED(${name}, ${dtype}, ${isa}, ${owner})")
                continue()
            endif()
            set(symbol hk_${name}_${dtype}_${isa})
            list(APPEND HALYARD_KERNEL_SYMBOLS ${symbol}_argv)
            set_property(GLOBAL APPEND PROPERTY HALYARD_LIST_variants "HALYARD_VARIANT(${name}, ${dtype}, ${isa})")
            set(prefetch ${HALYARD_STREAMED_PREFETCH_${family}} ${HALYARD_STREAMED_PREFETCH_${generator}})
            if("${prefetch}" STREQUAL "" OR NOT isa MATCHES "^avx")
                set(prefetch -)
            else()
                list(APPEND HALYARD_KERNEL_SYMBOLS ${symbol}_streamed_argv)
                set_property(GLOBAL APPEND PROPERTY HALYARD_LIST_streamed "HALYARD_STREAMED(${name}, ${dtype}, ${isa}, ${prefetch})")
            endif()
            set(by_assembly OFF)
            if(signature IN_LIST HALYARD_PREFETCHING OR generator IN_LIST HALYARD_PREFETCHING OR NOT prefetch STREQUAL "-" OR HALYARD_ASSEMBLE_${isa})
                set(by_assembly ON)
            endif()
            list(JOIN ARGN " " fixed_params)
            list(JOIN params " " tuned_params)
            set(target ${HALYARD_TARGET_${isa}}-${HALYARD_TARGET_FEATURES}${HALYARD_FAMILY_FEATURES_${family}})
            halyard_add_to_object(${isa} ${generator} ${target} ${by_assembly} "${symbol} ${prefetch} dtype=${dtype} ${fixed_params} ${tuned_params}")
        endforeach()
    endforeach()
    if(HALYARD_CUDA)
        halyard_device_kernel(${name} ${family} ${generator} ${ARGN})
    endif()
    set(HALYARD_WRITTEN_KERNELS ${HALYARD_WRITTEN_KERNELS} PARENT_SCOPE)
    set(HALYARD_KERNEL_SYMBOLS ${HALYARD_KERNEL_SYMBOLS} PARENT_SCOPE)
endfunction()

# Kernels of one generator and target share objects: what is done once for an object takes more than half as long
# as a kernel. There are many objects still, for many processors.
set(HALYARD_MOST_KERNELS_OF_OBJECT 12)

function(halyard_add_to_object isa generator target by_assembly line)
    set(series "${isa} ${generator} ${target} ${by_assembly}")
    get_property(lines GLOBAL PROPERTY "HALYARD_KERNELS_OF_${series}")
    if(NOT lines)
        set_property(GLOBAL APPEND PROPERTY HALYARD_SERIES_OF_KERNELS "${series}")
    endif()
    set_property(GLOBAL APPEND PROPERTY "HALYARD_KERNELS_OF_${series}" "${line}")
endfunction()

function(halyard_kernel_object isa generator target by_assembly number lines)
    set(stem "${HALYARD_KERNEL_DIR}/${isa}/${generator}_${number}")
    list(LENGTH lines count)
    list(JOIN lines "\n" text)
    file(CONFIGURE OUTPUT "${stem}.txt" CONTENT "@text@\n" @ONLY)
    set(assemble)
    if(by_assembly)
        set(assemble --assemble "${HALYARD_ASSEMBLER_DIGEST}" "${HALYARD_ASSEMBLER}" ${HALYARD_ASSEMBLE_${isa}})
    endif()
    add_custom_command(
        OUTPUT "${stem}.o"
        COMMAND "${HALYARD_MAKE_KERNELS}" "${stem}.o" "${HALYARD_DIGEST_${generator}}" "${stem}.txt" ${assemble} -- "${HALYARD_PROGRAM_${generator}}"
                ${generator} ${target}
        DEPENDS "${stem}.txt" "${HALYARD_DIGEST_${generator}}" "${HALYARD_ASSEMBLER_DIGEST}" "${HALYARD_MAKE_KERNELS}" ${HALYARD_HOST_TARGETS}
        COMMENT "Kernels of ${generator} for ${isa}: ${count}"
        VERBATIM)
    set(HALYARD_KERNEL_OBJECTS ${HALYARD_KERNEL_OBJECTS} "${stem}.o" PARENT_SCOPE)
endfunction()

include("${CMAKE_CURRENT_SOURCE_DIR}/kernels.cmake")
get_property(all_series GLOBAL PROPERTY HALYARD_SERIES_OF_KERNELS)
foreach(series IN LISTS all_series)
    get_property(lines GLOBAL PROPERTY "HALYARD_KERNELS_OF_${series}")
    separate_arguments(series UNIX_COMMAND "${series}")
    set(number 0)
    while(lines)
        list(SUBLIST lines 0 ${HALYARD_MOST_KERNELS_OF_OBJECT} kernels)
        list(REMOVE_ITEM lines ${kernels})
        halyard_kernel_object(${series} ${number} "${kernels}")
        math(EXPR number "${number} + 1")
    endwhile()
endforeach()
list(GET HALYARD_ISAS 0 isa)
halyard_write_kernel_calls(HALYARD_KERNEL_HEADERS calls ${HALYARD_TARGET_${isa}})
if(HALYARD_CUDA)
    halyard_device_images()
    halyard_write_kernel_calls(header device_calls ${HALYARD_DEVICE_TARGET})
    list(APPEND HALYARD_KERNEL_HEADERS "${header}")
endif()

# The lists for C++: HALYARD_KERNEL(name) for all kernels, for those of each public signature (without a _backward), for those of them that are
# built, and for `tensorwise` ones that are, which take nothing but tensors of one shape or of rows, in every dtype.
# HALYARD_DTYPE(name) for all dtypes; HALYARD_ISA(name) for what is built; HALYARD_OPERATION(name, whether it is built) and
# HALYARD_FUNCTION(public function, its operation). For the dispatch table HALYARD_VARIANT(kernel, dtype, isa) or, of one that no generator made, HALYARD_WRITTEN(kernel, dtype, isa) or, where an instruction set has the kernel of another, HALYARD_SHARED(kernel, dtype,
# isa, other), or where it does not have the kernel, HALYARD_ABSENT(kernel, dtype, isa); and HALYARD_STREAMED(kernel, dtype, isa,
# bytes that it prefetches ahead) of those with a form that writes around the caches. For the matrix products
# HALYARD_TILE(kernel, dtype, isa, panels). For the tuner HALYARD_GENERATED(kernel, family, generator, "program", "parameters"),
# HALYARD_TARGET(isa, "Halide target", "flags of the assembler"), and HALYARD_FEATURES(family, "more of it").
function(_halyard_write_list file)
    list(JOIN ARGN "\n" text)
    file(CONFIGURE OUTPUT "${HALYARD_KERNEL_LIST_DIR}/kernels/${file}.inc" CONTENT "@text@\n" @ONLY)
endfunction()
set(signatures unary unary_beta gated gated_beta unary_backward unary_beta_backward gated_backward gated_beta_backward)
list(TRANSFORM signatures PREPEND built_ OUTPUT_VARIABLE built_signatures)
foreach(list all tensorwise ${signatures} ${built_signatures} epilogue epilogue_gated variants streamed tiles generated
             device_variants device_images)
    get_property(entries GLOBAL PROPERTY HALYARD_LIST_${list})
    _halyard_write_list(${list} ${entries})
endforeach()
list(TRANSFORM HALYARD_ALL_DTYPES REPLACE "(.+)" "HALYARD_DTYPE(\\1)" OUTPUT_VARIABLE entries)
_halyard_write_list(dtypes ${entries})
list(TRANSFORM HALYARD_ISAS REPLACE "(.+)" "HALYARD_ISA(\\1)" OUTPUT_VARIABLE entries)
_halyard_write_list(isas ${entries})
set(entries)
foreach(isa IN LISTS HALYARD_ISAS)
    list(JOIN HALYARD_ASSEMBLE_${isa} " " flags)
    list(APPEND entries "HALYARD_TARGET(${isa}, \"${HALYARD_TARGET_${isa}}-${HALYARD_TARGET_FEATURES}\", \"${flags}\")")
endforeach()
_halyard_write_list(targets ${entries})
set(entries)
foreach(family IN LISTS HALYARD_FAMILIES)
    list(APPEND entries "HALYARD_FEATURES(${family}, \"${HALYARD_FAMILY_FEATURES_${family}}\")")
endforeach()
_halyard_write_list(features ${entries})

# A target of their own: as parts of the library alone they would wait for the headers.
add_custom_target(halyard_kernels DEPENDS ${HALYARD_KERNEL_OBJECTS})
add_custom_target(halyard_kernel_headers DEPENDS ${HALYARD_KERNEL_HEADERS})
add_library(halyard_kernel_lists INTERFACE)
add_dependencies(halyard_kernel_lists halyard_kernel_headers)
target_include_directories(halyard_kernel_lists INTERFACE "${HALYARD_KERNEL_LIST_DIR}" "${HALYARD_CONFIG_DIR}")
