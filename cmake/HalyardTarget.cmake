# The processor that is built for: its instruction sets, the Halide target of each, and the storage types.
#
# Sets, for the including scope:
#   HALYARD_TARGET_PROCESSOR what Halide and schedules/tuned call the processor
#   HALYARD_ARCH             the folder of its schedules and of its part of the runtime: x86 or arm
#   HALYARD_ALL_ISAS         its instruction sets, weakest first
#   HALYARD_ALL_DTYPES       the storage types, as DType numbers them
#   HALYARD_TARGET_<isa>     their Halide targets
#   HALYARD_ASSEMBLE_<isa>   what the assembler is told about them; if set, kernels are made by way of assembly
#   HALYARD_BASE_<isa>       if set, those whose kernels and parameters it has, weakest first, but for those that are its own:
#   HALYARD_OWN_<isa>        <family>_<dtype>
#   HALYARD_WRITTEN_<isa>    <family>_<dtype> of those that no generator makes, but runtime/cpu/linear/<isa>/<generator>.cpp

set(HALYARD_ALL_DTYPES f32 f16 bf16)

# The compiler says which it is: it is native, or a toolchain file in cmake/toolchains names another.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
    set(HALYARD_TARGET_PROCESSOR x86-64)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64|ARM64)$")
    set(HALYARD_TARGET_PROCESSOR arm-64)
else()
    message(FATAL_ERROR "halyard has no kernels for the processor '${CMAKE_SYSTEM_PROCESSOR}'; it has them for x86_64 and aarch64.")
endif()

if(CMAKE_SYSTEM_NAME STREQUAL "Linux")
    set(HALYARD_TARGET_SYSTEM linux)
elseif(CMAKE_SYSTEM_NAME STREQUAL "Android")
    set(HALYARD_TARGET_SYSTEM android)
elseif(CMAKE_SYSTEM_NAME STREQUAL "Darwin")
    set(HALYARD_TARGET_SYSTEM osx)
else()
    message(FATAL_ERROR "halyard has no kernels for the system '${CMAKE_SYSTEM_NAME}'; it has them for Linux, Android and Darwin.")
endif()

if(HALYARD_TARGET_PROCESSOR STREQUAL "x86-64")
    set(HALYARD_ARCH x86)
    set(HALYARD_ALL_ISAS sse41 avx2 avx512 avx512_bf16 amx)
    set(HALYARD_TARGET_sse41 ${HALYARD_TARGET_PROCESSOR}-${HALYARD_TARGET_SYSTEM}-sse41)
    set(HALYARD_TARGET_avx2 ${HALYARD_TARGET_sse41}-avx-avx2-fma-f16c)
    set(HALYARD_TARGET_avx512 ${HALYARD_TARGET_avx2}-avx512-avx512_skylake)
    set(HALYARD_TARGET_avx512_bf16 ${HALYARD_TARGET_avx512}-avx512_cannonlake-avx512_zen4)
    # Halide 21 compiles for znver4 then. What the processor is asked for is less: AVX-512 and its bf16. The assembler vouches
    # that kernels use no more; Clang's own does not look.
    set(HALYARD_ASSEMBLE_avx512_bf16
        -Wa,-march=generic64+sse4.2+avx2+fma+f16c+avx512f+avx512bw+avx512cd+avx512dq+avx512vl+avx512_bf16)
    if(CMAKE_C_COMPILER_ID MATCHES "Clang" AND NOT HALYARD_HOST_COMPILERS)
        list(APPEND HALYARD_ASSEMBLE_avx512_bf16 -fno-integrated-as)
    endif()
    set(HALYARD_TARGET_amx ${HALYARD_TARGET_avx512})
    set(HALYARD_WRITTEN_avx512 matmul_codes_f32 matmul_codes_f16 matmul_codes_bf16 matmul_int8_f32 matmul_int8_f16 matmul_int8_bf16)
    set(HALYARD_WRITTEN_avx2 ${HALYARD_WRITTEN_avx512})
    set(HALYARD_BASE_avx512_bf16 avx512)
    set(HALYARD_OWN_avx512_bf16 matmul_pairs_bf16)
    set(HALYARD_WRITTEN_avx512_bf16 matmul_pairs_codes_f32 matmul_pairs_codes_f16 matmul_pairs_codes_bf16)
    set(HALYARD_BASE_amx avx512)
    set(HALYARD_WRITTEN_amx matmul_tiles_bf16 matmul_tiles_codes_f32 matmul_tiles_codes_f16 matmul_tiles_codes_bf16)
else()
    # Conversions of halves belong to ARMv8.0, arithmetic with them to ARMv8.2; Halide's feature arm_fp16 stands for both
    # (schedules/storage.h says how kernels for the former are kept from the latter). The assembler vouches for it: it
    # refuses an instruction that the set lacks.
    set(HALYARD_ARCH arm)
    set(HALYARD_ALL_ISAS neon neon_fp16 neon_bf16 neon_bfdot neon_bfmmla)
    set(HALYARD_TARGET_neon ${HALYARD_TARGET_PROCESSOR}-${HALYARD_TARGET_SYSTEM}-arm_fp16)
    set(HALYARD_TARGET_neon_fp16 ${HALYARD_TARGET_neon}-armv82a-arm_dot_prod)
    set(HALYARD_TARGET_neon_bf16 ${HALYARD_TARGET_neon_fp16})
    set(HALYARD_TARGET_neon_bfdot ${HALYARD_TARGET_neon_fp16})
    set(HALYARD_TARGET_neon_bfmmla ${HALYARD_TARGET_neon_fp16})
    set(HALYARD_ASSEMBLE_neon -march=armv8-a)
    set(HALYARD_ASSEMBLE_neon_fp16 -march=armv8.2-a+fp16+dotprod)
    set(HALYARD_ASSEMBLE_neon_bf16 -march=armv8.2-a+bf16)
    set(HALYARD_ASSEMBLE_neon_bfdot ${HALYARD_ASSEMBLE_neon_bf16})
    set(HALYARD_ASSEMBLE_neon_bfmmla ${HALYARD_ASSEMBLE_neon_bf16})
    if(CMAKE_C_COMPILER_TARGET)
        # Clang is told what it compiles for: the Android NDK's does.
        list(APPEND HALYARD_ASSEMBLE_neon --target=${CMAKE_C_COMPILER_TARGET})
        list(APPEND HALYARD_ASSEMBLE_neon_fp16 --target=${CMAKE_C_COMPILER_TARGET})
    endif()
    # All arithmetic is f32. It is the same in halves only where a single operation lies between load and store. Bytes are
    # multiplied four at a time.
    set(HALYARD_BASE_neon_fp16 neon)
    set(HALYARD_OWN_neon_fp16 elementwise_f16 matmul_int8_f32 matmul_int8_f16 matmul_int8_bf16)
    set(HALYARD_BASE_neon_bf16 neon neon_fp16)
    set(HALYARD_WRITTEN_neon_bf16 matmul_pairs_bf16)
    set(HALYARD_BASE_neon_bfdot neon neon_fp16 neon_bf16)
    set(HALYARD_WRITTEN_neon_bfdot matmul_pairs_bf16)
    set(HALYARD_BASE_neon_bfmmla neon neon_fp16 neon_bf16 neon_bfdot)
    set(HALYARD_WRITTEN_neon_bfmmla matmul_pairs_bf16)
endif()
