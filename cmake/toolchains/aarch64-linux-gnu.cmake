# 64-bit ARM Linux, from another machine: Debian's g++-aarch64-linux-gnu, and qemu-user-static to run what it makes.
#
#   cmake -S . -B build/arm64 --toolchain cmake/toolchains/aarch64-linux-gnu.cmake
#
# The environment variable QEMU_CPU names the processor that is emulated, `max` if it is not set, which has every extension;
# qemu-aarch64-static -cpu help lists them.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)

set(HALYARD_TRIPLE aarch64-linux-gnu)
find_program(HALYARD_CROSS_CC ${HALYARD_TRIPLE}-gcc)
find_program(HALYARD_CROSS_CXX ${HALYARD_TRIPLE}-g++)
mark_as_advanced(HALYARD_CROSS_CC HALYARD_CROSS_CXX)
if(NOT HALYARD_CROSS_CC OR NOT HALYARD_CROSS_CXX)
    message(FATAL_ERROR "There is no compiler for 64-bit ARM: install it with 'apt-get install g++-aarch64-linux-gnu'.")
endif()
set(CMAKE_C_COMPILER "${HALYARD_CROSS_CC}")
set(CMAKE_CXX_COMPILER "${HALYARD_CROSS_CXX}")

# Programs are the building machine's. Its headers will do where they are the same for every processor (DLPack, xxHash);
# its libraries will not.
set(CMAKE_FIND_ROOT_PATH /usr/${HALYARD_TRIPLE})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE BOTH)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE BOTH)

find_program(HALYARD_QEMU NAMES qemu-aarch64-static qemu-aarch64)
mark_as_advanced(HALYARD_QEMU)
if(HALYARD_QEMU)
    set(CMAKE_CROSSCOMPILING_EMULATOR "${HALYARD_QEMU};-L;/usr/${HALYARD_TRIPLE}")
endif()
