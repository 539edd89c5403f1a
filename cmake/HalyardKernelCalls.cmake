# The arguments of every kernel as C++ types (cmake/kernel_calls.cpp): kernels/calls.inc for processors and
# kernels/device_calls.inc for GPUs, which only a build with CUDA has.
set(HALYARD_KERNEL_CALLS halyard_kernel_calls)
set(HALYARD_KERNEL_CALLS_SOURCE "${CMAKE_CURRENT_LIST_DIR}/kernel_calls.cpp")

# The program, of the objects of all generators and schedules.
function(halyard_compile_kernel_calls)
    add_executable(${HALYARD_KERNEL_CALLS} "${HALYARD_KERNEL_CALLS_SOURCE}")
    foreach(objects IN LISTS ARGN)
        target_sources(${HALYARD_KERNEL_CALLS} PRIVATE $<TARGET_OBJECTS:${objects}>)
    endforeach()
    target_compile_options(${HALYARD_KERNEL_CALLS} PRIVATE -O1 -Wall -Wextra)
    target_link_libraries(${HALYARD_KERNEL_CALLS} PRIVATE Halide::Halide)
endfunction()

# A variant of a kernel of the list `calls` or `device_calls`.
function(halyard_kernel_call list name access generator)
    list(JOIN ARGN " " parameters)
    set_property(GLOBAL APPEND PROPERTY HALYARD_${list} "${name} ${access} ${generator} ${parameters}")
endfunction()

# To be called when the table of kernels has been read: OUT becomes the file. (Elementwise generators insist on
# strict_float; no argument depends on it.)
function(halyard_write_kernel_calls out list target)
    get_property(entries GLOBAL PROPERTY HALYARD_${list})
    list(JOIN entries "\n" text)
    set(file "${HALYARD_KERNEL_LIST_DIR}/kernels/${list}.inc")
    file(CONFIGURE OUTPUT "${file}.txt" CONTENT "@text@\n" @ONLY)
    set(program ${HALYARD_KERNEL_CALLS})
    if(HALYARD_HOST_DIR)
        set(program "${HALYARD_HOST_DIR}/${program}")
    endif()
    add_custom_command(
        OUTPUT "${file}"
        COMMAND ${program} ${target}-${HALYARD_TARGET_FEATURES}-strict_float "${file}.txt" "${file}"
        DEPENDS ${program} "${file}.txt"
        COMMENT "Arguments of the kernels: ${list}"
        VERBATIM)
    set(${out} "${file}" PARENT_SCOPE)
endfunction()
