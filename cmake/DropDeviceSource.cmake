# Edits the assembly of a kernel's host code: the PTX that Halide puts into it goes, as the library holds assembled code.
#
#   cmake -DASSEMBLY=<file> -P DropDeviceSource.cmake
file(READ "${ASSEMBLY}" text)
string(REGEX REPLACE "(gpu_source_kernels\\.data:[^\n]*\n[ \t]*\\.)asci[iz][ \t]+\"[^\n]*\"" "\\1byte 0" edited "${text}")
if(edited STREQUAL text)
    message(FATAL_ERROR "${ASSEMBLY}: there is no PTX where it was expected.")
endif()
file(WRITE "${ASSEMBLY}" "${edited}")
