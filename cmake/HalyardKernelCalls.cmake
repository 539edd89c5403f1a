# The arguments of every kernel as C++ types (cmake/kernel_calls.cpp): kernels/calls.inc for processors and
# kernels/device_calls.inc for GPUs, which only a build with CUDA has.

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
    add_custom_command(
        OUTPUT "${file}"
        COMMAND "${HALYARD_KERNEL_CALLS}" ${target}-${HALYARD_TARGET_FEATURES}-strict_float "${file}.txt" "${file}"
        DEPENDS "${HALYARD_KERNEL_CALLS}" "${file}.txt" ${HALYARD_HOST_TARGETS}
        COMMENT "Arguments of the kernels: ${list}"
        VERBATIM)
    set(${out} "${file}" PARENT_SCOPE)
endfunction()
