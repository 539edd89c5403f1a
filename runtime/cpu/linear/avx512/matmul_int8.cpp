// The GEMM kernels of rows in 8 bits on AVX-512, of 1 to 4 rows: by vpdpbusd where the processor has AVX-512 VNNI, which multiplies
// unsigned by signed bytes and adds four to a lane; else as on AVX2.
#include <cstdint>
#include <type_traits>

#include "cpu/linear/avx512/vectors.h"

#define HALYARD_VECTOR HALYARD_AVX512_INLINE

namespace halyard {
namespace {

/** What both have. */
struct Int8Avx512 : Avx512 {
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

struct Vector : Int8Avx512 {
    /** Sums take at most 16 of 32 registers, and codes at most 16. */
    static constexpr int tile_vectors(int bits, int rows) {
        return bits == 4 ? (rows == 1 ? 8 : 4) : rows <= 2 ? 4 : 2;
    }

    template<int bits>
    using Codes = Halves;

    /** Codes of 4 bits as on AVX2; those of 8 bits as two of 4 bits, that have sums of their own. */
    template<int bits>
    struct Sums {
        static constexpr int count = bits / 4;

        HALYARD_VECTOR void begin(const char *) {
            for (Int &sum : sums) {
                sum = _mm512_setzero_si512();
            }
        }
        HALYARD_VECTOR void add(const Halves &codes, const Numbers<bits> &numbers) {
            add(sums[0], _mm512_maddubs_epi16(codes.lower, numbers.lower));
            add(sums[count - 1], _mm512_maddubs_epi16(codes.upper, numbers.upper));
        }
        HALYARD_VECTOR Int total(const char *correction) const {
            const Int lower = Avx512::add(broadcast(correction), _mm512_madd_epi16(sums[0], _mm512_set1_epi16(1)));
            if constexpr (bits == 4) {
                return lower;
            } else {
                return Avx512::add(lower, _mm512_madd_epi16(sums[1], _mm512_set1_epi16(16)));
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

struct Vector : Int8Avx512 {
    /** With three and four rows, two panels leave registers for all sums: four would take an eighth longer. */
    static constexpr int tile_vectors(int, int rows) { return rows == 1 ? 8 : rows == 2 ? 4 : 2; }

    struct Bytes {
        HALYARD_VECTOR void load(const uint32_t *words, Int) { all = _mm512_loadu_si512(words); }
        Int all;
    };
    template<int bits>
    using Codes = std::conditional_t<bits == 4, Halves, Bytes>;

    template<int bits>
    struct Sums {
        HALYARD_VECTOR void begin(const char *correction) { sum = broadcast(correction); }
        HALYARD_VECTOR void add(const Halves &codes, const Numbers<bits> &numbers) {
            sum = _mm512_dpbusd_epi32(sum, codes.lower, numbers.lower);
            sum = _mm512_dpbusd_epi32(sum, codes.upper, numbers.upper);
        }
        HALYARD_VECTOR void add(const Bytes &codes, const Numbers<bits> &numbers) {
            sum = _mm512_dpbusd_epi32(sum, codes.all, numbers.lower);
        }
        HALYARD_VECTOR Int total(const char *) const { return sum; }
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
