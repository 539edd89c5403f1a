# Kernels for NVIDIA GPUs: the function halyard_device_kernel(), which halyard_kernel() calls for every line of the table.
#
# Halide makes PTX and the host code that launches it. The PTX is assembled here, for each architecture, so that nothing is
# compiled when a program runs; what a later architecture needs, the PTX itself, is kept too. All of it becomes data of the
# library (docs/cuda.md).
#
# Adds to HALYARD_KERNEL_OBJECTS and HALYARD_KERNEL_SYMBOLS, and sets HALYARD_DEVICE_IMAGES, the object that has the images as data.
set(HALYARD_CUDA_ARCHITECTURES 80 86 89 90 100 120 CACHE STRING "Architectures that kernels are assembled for, least first")

find_program(HALYARD_PTXAS ptxas HINTS "$ENV{CUDA_PATH}/bin" /usr/local/cuda/bin)
if(NOT HALYARD_PTXAS)
    message(FATAL_ERROR "ptxas of the CUDA toolkit was not found, which HALYARD_CUDA needs: install the toolkit and set "
                        "HALYARD_PTXAS or CUDA_PATH.")
endif()
execute_process(COMMAND "${HALYARD_PTXAS}" --version OUTPUT_VARIABLE version COMMAND_ERROR_IS_FATAL ANY)
if(NOT version MATCHES "release ([0-9]+)\\.([0-9]+)")
    message(FATAL_ERROR "${HALYARD_PTXAS} does not say its version.")
endif()
# As the driver counts: 13.0 is 13000.
math(EXPR HALYARD_CUDA_VERSION "${CMAKE_MATCH_1} * 1000 + ${CMAKE_MATCH_2} * 10")
list(GET HALYARD_CUDA_ARCHITECTURES 0 HALYARD_CUDA_MIN_CAPABILITY)
message(STATUS "CUDA kernels: ${HALYARD_PTXAS} ${CMAKE_MATCH_1}.${CMAKE_MATCH_2} for sm_${HALYARD_CUDA_ARCHITECTURES}")

# `words` for tensors of aligned rows, `elements` for all others (schedules/element_access.h). Some have one of them alone, and
# kernels that read a row several times have `staged` too: by words, of rows that fit in shared memory.
set(HALYARD_DEVICE_ACCESS words elements)
set(HALYARD_DEVICE_ACCESS_row words elements staged)
set(HALYARD_DEVICE_ACCESS_device_row words elements staged)
set(HALYARD_DEVICE_ACCESS_device_matmul elements)
set(HALYARD_DEVICE_ACCESS_device_fold elements)
set(HALYARD_DEVICE_ACCESS_device_embed elements)
set(HALYARD_DEVICE_ACCESS_device_join elements)
# By words, its registers would not do.
set(HALYARD_DEVICE_ACCESS_device_epilogue_gelu_gated elements)
# Scores lie as the runtime has put them; the weights that they become are operands of tensor cores.
foreach(name attention_block_sums attention_block_weights)
    set(HALYARD_DEVICE_ACCESS_${name} words)
    set(HALYARD_DEVICE_DTYPES_${name} f16 bf16)
endforeach()

# Kernels of rows are built for their largest block, elementwise ones for their only one; either way 1024 threads must fit in a
# multiprocessor, half of what it holds.
set(HALYARD_DEVICE_THREADS_elementwise 256)
set(HALYARD_DEVICE_THREADS_row 512)
set(HALYARD_DEVICE_THREADS_statistics 512)
set(HALYARD_DEVICE_THREADS_device_row 512)
set(HALYARD_DEVICE_THREADS_device_matmul 256)
set(HALYARD_DEVICE_THREADS_device_elementwise 256)
set(HALYARD_DEVICE_THREADS_device_fold 256)
set(HALYARD_DEVICE_THREADS_device_embed 256)
set(HALYARD_DEVICE_THREADS_device_heads 128)
set(HALYARD_DEVICE_THREADS_device_split 128)
set(HALYARD_DEVICE_THREADS_device_join 128)

# No expression is contracted or reordered, so that a row has the same bits by words and by elements, but for the sums of
# matrix products: `sum + a * b` is to become a fused multiply-add there.
set(HALYARD_DEVICE_CONTRACTED_FAMILIES device_matmul)

# The host code needs nothing of a processor.
list(GET HALYARD_ISAS 0 isa)
set(HALYARD_DEVICE_HOST_TARGET ${HALYARD_TARGET_${isa}})
set(HALYARD_DEVICE_TARGET ${HALYARD_DEVICE_HOST_TARGET}-cuda-cuda_capability_80)

set(HALYARD_DEVICE_DIR "${CMAKE_CURRENT_BINARY_DIR}/kernels/cuda")
file(MAKE_DIRECTORY "${HALYARD_DEVICE_DIR}")
set(HALYARD_DEVICE_SCRIPT "${CMAKE_CURRENT_SOURCE_DIR}/cmake/AssembleDeviceKernel.cmake")
set(HALYARD_DEVICE_HOST_SCRIPT "${CMAKE_CURRENT_SOURCE_DIR}/cmake/DropDeviceSource.cmake")

# Kernels that only processors have: softmax is one kernel here, and gradients of attention and losses have none.
set(HALYARD_NO_DEVICE_KERNELS softmax_exponentials softmax_normalize row_dot cross_entropy_statistics cross_entropy_gradient)

function(halyard_device_kernel name family generator)
    set(threads ${HALYARD_DEVICE_THREADS_${family}})
    if(NOT threads OR name IN_LIST HALYARD_NO_DEVICE_KERNELS OR name MATCHES "_backward(_weight)?$")
        foreach(dtype IN LISTS HALYARD_DTYPES)
            set_property(GLOBAL APPEND PROPERTY HALYARD_LIST_device_variants "HALYARD_DEVICE_ABSENT(${name}, ${dtype})")
        endforeach()
        return()
    endif()
    set(program ${HALYARD_PROGRAM_${generator}})
    set(features ${HALYARD_TARGET_FEATURES}-user_context)
    if(NOT family IN_LIST HALYARD_DEVICE_CONTRACTED_FAMILIES)
        string(APPEND features -strict_float)
    endif()
    set(sources)
    set(objects)
    set(accesses ${HALYARD_DEVICE_ACCESS})
    set(variant WORDS_ELEMENTS)
    if(HALYARD_DEVICE_ACCESS_${family} OR HALYARD_DEVICE_ACCESS_${name})
        set(accesses ${HALYARD_DEVICE_ACCESS_${family}})
        if(HALYARD_DEVICE_ACCESS_${name})
            set(accesses ${HALYARD_DEVICE_ACCESS_${name}})
        endif()
        list(JOIN accesses _ variant)
        string(TOUPPER ${variant} variant)
    endif()
    foreach(dtype IN LISTS HALYARD_DTYPES)
        if(HALYARD_DEVICE_DTYPES_${name} AND NOT dtype IN_LIST HALYARD_DEVICE_DTYPES_${name})
            set_property(GLOBAL APPEND PROPERTY HALYARD_LIST_device_variants "HALYARD_DEVICE_ABSENT(${name}, ${dtype})")
            continue()
        endif()
        set_property(GLOBAL APPEND PROPERTY HALYARD_LIST_device_variants "HALYARD_DEVICE_${variant}(${name}, ${dtype})")
        foreach(access IN LISTS accesses)
            set(symbol hk_${name}_${dtype}_cuda_${access})
            set(stem "${HALYARD_DEVICE_DIR}/${symbol}")
            set(params dtype=${dtype} packed=true ${ARGN})
            if(access STREQUAL "elements")
                set(params dtype=${dtype} packed=false ${ARGN})
            elseif(access STREQUAL "staged")
                list(APPEND params staged=true)
            endif()
            halyard_kernel_call(device_calls ${name} ${access} ${generator} ${params})
            add_custom_command(
                OUTPUT "${stem}.o" "${stem}.device_code"
                COMMAND ${program} -g ${generator} -f ${symbol} -o "${HALYARD_DEVICE_DIR}" -e assembly,device_code
                        target=${HALYARD_DEVICE_TARGET}-${features} ${params}
                COMMAND ${CMAKE_COMMAND} "-DASSEMBLY=${stem}.s" -P "${HALYARD_DEVICE_HOST_SCRIPT}"
                COMMAND ${CMAKE_C_COMPILER} -c "${stem}.s" -o "${stem}.o"
                DEPENDS "${HALYARD_DIGEST_${generator}}" "${HALYARD_DEVICE_HOST_SCRIPT}" ${HALYARD_HOST_TARGETS}
                COMMENT "CUDA kernel ${name} ${dtype} by ${access}"
                VERBATIM)
            list(APPEND sources "${stem}.device_code")
            list(APPEND objects "${stem}.o")
            # The tests run this schedule in OpenCL.
            set_property(GLOBAL APPEND PROPERTY HALYARD_OPENCL_KERNELS "${symbol}")
            set_property(GLOBAL PROPERTY HALYARD_OPENCL_COMMAND_${symbol}
                         ${program} -g ${generator} -f ${symbol} -e device_code
                         target=${HALYARD_DEVICE_HOST_TARGET}-opencl-${features} ${params})
        endforeach()
    endforeach()

    set(stem "${HALYARD_DEVICE_DIR}/${name}")
    set(images "${stem}.ptx")
    set_property(GLOBAL APPEND PROPERTY HALYARD_LIST_device_images "HALYARD_DEVICE_PTX(${name})")
    foreach(architecture IN LISTS HALYARD_CUDA_ARCHITECTURES)
        list(APPEND images "${stem}.sm_${architecture}.cubin")
        set_property(GLOBAL APPEND PROPERTY HALYARD_LIST_device_images "HALYARD_DEVICE_IMAGE(${name}, ${architecture})")
    endforeach()
    add_custom_command(
        OUTPUT ${images} "${stem}.registers"
        COMMAND ${CMAKE_COMMAND} "-DPTXAS=${HALYARD_PTXAS}" "-DARCHITECTURES=${HALYARD_CUDA_ARCHITECTURES}"
                "-DTHREADS=${threads}" "-DSOURCES=${sources}" "-DSTEM=${stem}" -P "${HALYARD_DEVICE_SCRIPT}"
        DEPENDS ${sources} "${HALYARD_DEVICE_SCRIPT}"
        COMMENT "CUDA images of ${name}"
        VERBATIM)
    set_property(GLOBAL APPEND PROPERTY HALYARD_DEVICE_OBJECTS ${objects})
    set_property(GLOBAL APPEND PROPERTY HALYARD_DEVICE_IMAGES ${images})
    set_property(GLOBAL APPEND PROPERTY HALYARD_DEVICE_KERNELS ${name})
endfunction()

# The images as data. To be called when the table has been read.
function(halyard_device_images)
    get_property(names GLOBAL PROPERTY HALYARD_DEVICE_KERNELS)
    get_property(images GLOBAL PROPERTY HALYARD_DEVICE_IMAGES)
    get_property(objects GLOBAL PROPERTY HALYARD_DEVICE_OBJECTS)
    set(text "        .section .rodata\n")
    foreach(name IN LISTS names)
        foreach(architecture IN ITEMS ptx ${HALYARD_CUDA_ARCHITECTURES})
            set(label hk_image_${name}_${architecture})
            set(file ${name}.sm_${architecture}.cubin)
            if(architecture STREQUAL "ptx")
                set(file ${name}.ptx)
            endif()
            string(APPEND text "        .balign 64\n        .globl ${label}\n${label}:\n"
                               "        .incbin \"${file}\"\n        .byte 0\n")
        endforeach()
    endforeach()
    string(APPEND text "        .section .note.GNU-stack,\"\",%progbits\n")
    set(source "${HALYARD_DEVICE_DIR}/images.s")
    set(object "${HALYARD_DEVICE_DIR}/images.o")
    file(CONFIGURE OUTPUT "${source}" CONTENT "@text@" @ONLY)
    add_custom_command(
        OUTPUT "${object}"
        COMMAND ${CMAKE_C_COMPILER} "-Wa,-I${HALYARD_DEVICE_DIR}" -c "${source}" -o "${object}"
        DEPENDS "${source}" ${images}
        COMMENT "CUDA images as data"
        VERBATIM)
    set(HALYARD_KERNEL_OBJECTS ${HALYARD_KERNEL_OBJECTS} ${objects} PARENT_SCOPE)
    list(TRANSFORM objects REPLACE ".*/(.+)\\.o$" "\\1_argv")
    set(HALYARD_KERNEL_SYMBOLS ${HALYARD_KERNEL_SYMBOLS} ${objects} PARENT_SCOPE)
    set(HALYARD_DEVICE_IMAGES "${object}" PARENT_SCOPE)
endfunction()
