// The GEMM kernels of rows in 8 bits on AVX2, of 1 to 4 rows.
//
// vpmaddubsw multiplies unsigned by signed bytes and adds neighbours, in 16 bits: of codes of 4 bits the sum of a unit, 32 inputs of
// at most 15 * 127, stays below 2^15, so it is widened once a unit. Codes of 8 bits are taken as two of 4 bits.
#include <immintrin.h>

#include <cstdint>
#include <cstring>

#define HALYARD_INT8_ISA avx2
#define HALYARD_INT8_TARGET __attribute__((target("avx2,fma")))

namespace halyard::avx2 {
namespace {

#define HALYARD_VECTOR HALYARD_INT8_TARGET __attribute__((always_inline)) inline

struct Vector {
    using Int = __m256i;
    using Float = __m256;
    static constexpr int lanes = 8;
    /** Sums take 4 or 8 of 16 registers. */
    static constexpr int tile_vectors(int bits, int rows) {
        return bits == 4 ? (rows == 1 ? 4 : 2) : (rows <= 2 ? 2 : 1);
    }

    HALYARD_VECTOR static Float zero() { return _mm256_setzero_ps(); }
    HALYARD_VECTOR static Float floats(const float *from) { return _mm256_loadu_ps(from); }
    HALYARD_VECTOR static void store(float *to, Float value) { _mm256_storeu_ps(to, value); }
    HALYARD_VECTOR static Int broadcast(const void *from) {
        int32_t word;
        memcpy(&word, from, 4);
        return _mm256_set1_epi32(word);
    }
    HALYARD_VECTOR static Float broadcast_float(const void *from) { return _mm256_castsi256_ps(broadcast(from)); }
    HALYARD_VECTOR static Int add(Int a, Int b) { return _mm256_add_epi32(a, b); }
    HALYARD_VECTOR static Float to_float(Int a) { return _mm256_cvtepi32_ps(a); }
    HALYARD_VECTOR static Float multiply(Float a, Float b) { return _mm256_mul_ps(a, b); }
    HALYARD_VECTOR static Float fma(Float a, Float b, Float c) { return _mm256_fmadd_ps(a, b, c); }

    /** The lower and the upper four bits of the bytes of words. */
    template<int bits>
    struct Codes {
        HALYARD_VECTOR void load(const uint32_t *words) {
            const Int all = _mm256_loadu_si256(reinterpret_cast<const Int *>(words)), four_bits = _mm256_set1_epi8(15);
            parts[0] = _mm256_and_si256(all, four_bits);
            parts[1] = _mm256_and_si256(_mm256_srli_epi16(all, 4), four_bits);
        }
        Int parts[2];
    };

    /** What the lower and the upper bits are multiplied with: where codes have 4 bits, the upper ones are four inputs further. */
    template<int bits>
    struct Numbers {
        HALYARD_VECTOR explicit Numbers(const char *x)
            : lower(broadcast(x)), upper(bits == 4 ? broadcast(x + 4) : lower) {}
        Int lower, upper;
    };

    /** The parts of 4-bit codes are different inputs; those of 8-bit codes belong to one, and have sums of their own. */
    template<int bits>
    struct Sums {
        static constexpr int count = bits / 4;

        HALYARD_VECTOR void clear() {
            for (Int &sum : sums) {
                sum = _mm256_setzero_si256();
            }
        }
        HALYARD_VECTOR void add(const Codes<bits> &codes, const Numbers<bits> &numbers) {
            add(sums[0], _mm256_maddubs_epi16(codes.parts[0], numbers.lower));
            add(sums[count - 1], _mm256_maddubs_epi16(codes.parts[1], numbers.upper));
        }
        HALYARD_VECTOR Int total() const {
            const Int lower = _mm256_madd_epi16(sums[0], _mm256_set1_epi16(1));
            if constexpr (bits == 4) {
                return lower;
            } else {
                return _mm256_add_epi32(lower, _mm256_madd_epi16(sums[1], _mm256_set1_epi16(16)));
            }
        }
        Int sums[count];

    private:
        /** In this order: compilers add products to each other first, and run out of registers. */
        HALYARD_VECTOR static void add(Int &sum, Int products) {
            sum = _mm256_add_epi16(sum, products);
            __asm__("" : "+x"(sum));
        }
    };
};

#undef HALYARD_VECTOR

}  // namespace
}  // namespace halyard::avx2

#include "cpu/linear/int8_tiles.h"
#undef HALYARD_INT8_ISA
#undef HALYARD_INT8_TARGET

#define HALYARD_INT8_KERNEL(bits, rows)                                                                                \
    extern "C" int hk_matmul_int8_codes##bits##_##rows##_f32_avx2_argv(void **arguments) {                             \
        return halyard::avx2::multiply_int8_panels<bits, rows>(arguments);                                             \
    }
HALYARD_INT8_KERNELS
#undef HALYARD_INT8_KERNEL
