// The GEMM kernels of rows in 8 bits on AVX-512, of 1 to 4 rows: by vpdpbusd where the processor has AVX-512 VNNI, which multiplies
// unsigned by signed bytes and adds four to a lane; else as on AVX2.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // GCC's own header leaves a register undefined on purpose
#endif
#include <immintrin.h>

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "cpu/linear/avx512/load_scales.h"
#include "layout/codes.h"

#define HALYARD_VECTOR HALYARD_AVX512_INLINE

namespace halyard {
namespace {

/** What both have. */
struct Avx512 {
    using Int = __m512i;
    using Float = __m512;
    static constexpr int lanes = 16;

    HALYARD_VECTOR static Float zero() { return _mm512_setzero_ps(); }
    HALYARD_VECTOR static Float floats(const float *from) { return _mm512_loadu_ps(from); }
    template<DType dtype>
    HALYARD_VECTOR static Float scales(const char *from) {
        return load_scales<dtype>(from);
    }
    template<ScaleKind kind>
    HALYARD_VECTOR static Float factors(const char *from) {
        const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i *>(from));
        return _mm512_cvtepi32_ps(kind == ScaleKind::two_levels_signed ? _mm512_cvtepi8_epi32(bytes)
                                                                       : _mm512_cvtepu8_epi32(bytes));
    }
    HALYARD_VECTOR static Float all(float value) { return _mm512_set1_ps(value); }
    HALYARD_VECTOR static void store(float *to, Float value) { _mm512_storeu_ps(to, value); }
    HALYARD_VECTOR static Int broadcast(const void *from) {
        int32_t word;
        memcpy(&word, from, 4);
        return _mm512_set1_epi32(word);
    }
    HALYARD_VECTOR static Float broadcast_float(const void *from) { return _mm512_castsi512_ps(broadcast(from)); }
    HALYARD_VECTOR static Int add(Int a, Int b) { return _mm512_add_epi32(a, b); }
    HALYARD_VECTOR static Float to_float(Int a) { return _mm512_cvtepi32_ps(a); }
    HALYARD_VECTOR static Float multiply(Float a, Float b) { return _mm512_mul_ps(a, b); }
    HALYARD_VECTOR static Float fma(Float a, Float b, Float c) { return _mm512_fmadd_ps(a, b, c); }
    HALYARD_VECTOR static Float fms(Float a, Float b, Float c) { return _mm512_fmsub_ps(a, b, c); }

    /** The lower and the upper four bits of the bytes of words. */
    struct Halves {
        HALYARD_VECTOR void load(const uint32_t *words, Int) {
            const Int all = _mm512_loadu_si512(words), four_bits = _mm512_set1_epi8(15);
            lower = _mm512_and_si512(all, four_bits);
            upper = _mm512_and_si512(_mm512_srli_epi16(all, 4), four_bits);
        }
        Int lower, upper;
    };

    /** What the lower and the upper bits are multiplied with: where codes have 4 bits, the upper ones are four inputs further. */
    template<int bits>
    struct Numbers {
        HALYARD_VECTOR explicit Numbers(const char *x)
            : lower(broadcast(x)), upper(bits == 4 ? broadcast(x + 4) : lower) {}
        Int lower, upper;
    };
};

}  // namespace

namespace avx512 {
namespace {

struct Vector : Avx512 {
    /** Sums take at most 16 of 32 registers, and codes at most 16. */
    static constexpr int tile_vectors(int bits, int rows) {
        return bits == 4 ? (rows == 1 ? 8 : 4) : rows <= 2 ? 4 : 2;
    }

    template<int bits>
    using Codes = Halves;

    /** Codes of 4 bits as on AVX2; those of 8 bits as two of 4 bits, that have sums of their own. */
    template<int bits>
    struct Sums {
        static constexpr bool of_unsigned = true;
        static constexpr int count = bits / 4;

        HALYARD_VECTOR void clear() {
            for (Int &sum : sums) {
                sum = _mm512_setzero_si512();
            }
        }
        HALYARD_VECTOR void add(const Halves &codes, const Numbers<bits> &numbers) {
            add(sums[0], _mm512_maddubs_epi16(codes.lower, numbers.lower));
            add(sums[count - 1], _mm512_maddubs_epi16(codes.upper, numbers.upper));
        }
        HALYARD_VECTOR Int total() const {
            const Int lower = _mm512_madd_epi16(sums[0], _mm512_set1_epi16(1));
            if constexpr (bits == 4) {
                return lower;
            } else {
                return _mm512_add_epi32(lower, _mm512_madd_epi16(sums[1], _mm512_set1_epi16(16)));
            }
        }
        Int sums[count];

    private:
        HALYARD_VECTOR static void add(Int &sum, Int products) {
            sum = _mm512_add_epi16(sum, products);
            __asm__("" : "+v"(sum));
        }
    };
};

}  // namespace
}  // namespace avx512

#undef HALYARD_VECTOR
#define HALYARD_VECTOR __attribute__((target(HALYARD_AVX512_FEATURES ",avx512vnni"), always_inline)) inline

namespace avx512_vnni {
namespace {

struct Vector : Avx512 {
    /** Sums take at most 16 of 32 registers. */
    static constexpr int tile_vectors(int, int rows) { return rows == 1 ? 8 : 4; }

    struct Bytes {
        HALYARD_VECTOR void load(const uint32_t *words, Int) { all = _mm512_loadu_si512(words); }
        Int all;
    };
    template<int bits>
    using Codes = std::conditional_t<bits == 4, Halves, Bytes>;

    template<int bits>
    struct Sums {
        static constexpr bool of_unsigned = true;
        HALYARD_VECTOR void clear() { sum = _mm512_setzero_si512(); }
        HALYARD_VECTOR void add(const Halves &codes, const Numbers<bits> &numbers) {
            sum = _mm512_dpbusd_epi32(sum, codes.lower, numbers.lower);
            sum = _mm512_dpbusd_epi32(sum, codes.upper, numbers.upper);
        }
        HALYARD_VECTOR void add(const Bytes &codes, const Numbers<bits> &numbers) {
            sum = _mm512_dpbusd_epi32(sum, codes.all, numbers.lower);
        }
        HALYARD_VECTOR Int total() const { return sum; }
        Int sum;
    };
};

}  // namespace
}  // namespace avx512_vnni
}  // namespace halyard

#undef HALYARD_VECTOR

#define HALYARD_INT8_ISA avx512
#define HALYARD_INT8_TARGET HALYARD_AVX512
#include "cpu/linear/int8_tiles.h"
#undef HALYARD_INT8_ISA
#undef HALYARD_INT8_TARGET

#define HALYARD_INT8_ISA avx512_vnni
#define HALYARD_INT8_TARGET __attribute__((target(HALYARD_AVX512_FEATURES ",avx512vnni")))
#include "cpu/linear/int8_tiles.h"
#undef HALYARD_INT8_ISA
#undef HALYARD_INT8_TARGET

#define HALYARD_INT8_KERNEL(name, dtype, ...)                                                                          \
    extern "C" int hk_matmul_int8_##name##_##dtype##_avx512_argv(void **arguments) {                                   \
        using namespace halyard;                                                                                       \
        return __builtin_cpu_supports("avx512vnni") ? avx512_vnni::multiply_int8_panels<__VA_ARGS__>(arguments)        \
                                                    : avx512::multiply_int8_panels<__VA_ARGS__>(arguments);            \
    }
HALYARD_INT8_KERNELS
#undef HALYARD_INT8_KERNEL
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif
