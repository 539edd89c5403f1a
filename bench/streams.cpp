// One StreamTable, for the instruction set this file is compiled for (see streams.h and CMakeLists.txt).
//
// Each loop moves whole vectors; a compiler barrier per step keeps the compiler from turning it into a call of memcpy,
// which would choose its own kind of store.
#include "streams.h"

#include <immintrin.h>

namespace halyard::bench {
namespace {

#if defined(__AVX512F__)
#define HALYARD_BENCH_TABLE streams_avx512
using Bits = __m512i;
using Floats = __m512;
constexpr int chains = 24;
inline Bits zero() {
    return _mm512_setzero_si512();
}
inline Bits load(const char *p) {
    return _mm512_loadu_si512(p);
}
inline void store(char *p, Bits v) {
    _mm512_storeu_si512(p, v);
}
inline void store_nontemporal(char *p, Bits v) {
    _mm512_stream_si512(reinterpret_cast<Bits *>(p), v);
}
inline Bits combine(Bits a, Bits b) {
    return _mm512_xor_si512(a, b);
}
inline Floats broadcast(float v) {
    return _mm512_set1_ps(v);
}
inline Floats add(Floats a, Floats b) {
    return _mm512_add_ps(a, b);
}
inline Floats multiply_add(Floats a, Floats b, Floats c) {
    return _mm512_fmadd_ps(a, b, c);
}
#elif defined(__AVX2__)
#define HALYARD_BENCH_TABLE streams_avx2
using Bits = __m256i;
using Floats = __m256;
constexpr int chains = 12;
inline Bits zero() {
    return _mm256_setzero_si256();
}
inline Bits load(const char *p) {
    return _mm256_loadu_si256(reinterpret_cast<const Bits *>(p));
}
inline void store(char *p, Bits v) {
    _mm256_storeu_si256(reinterpret_cast<Bits *>(p), v);
}
inline void store_nontemporal(char *p, Bits v) {
    _mm256_stream_si256(reinterpret_cast<Bits *>(p), v);
}
inline Bits combine(Bits a, Bits b) {
    return _mm256_xor_si256(a, b);
}
inline Floats broadcast(float v) {
    return _mm256_set1_ps(v);
}
inline Floats add(Floats a, Floats b) {
    return _mm256_add_ps(a, b);
}
inline Floats multiply_add(Floats a, Floats b, Floats c) {
    return _mm256_fmadd_ps(a, b, c);
}
#else
#define HALYARD_BENCH_TABLE streams_sse41
using Bits = __m128i;
using Floats = __m128;
constexpr int chains = 12;
inline Bits zero() {
    return _mm_setzero_si128();
}
inline Bits load(const char *p) {
    return _mm_loadu_si128(reinterpret_cast<const Bits *>(p));
}
inline void store(char *p, Bits v) {
    _mm_storeu_si128(reinterpret_cast<Bits *>(p), v);
}
inline void store_nontemporal(char *p, Bits v) {
    _mm_stream_si128(reinterpret_cast<Bits *>(p), v);
}
inline Bits combine(Bits a, Bits b) {
    return _mm_xor_si128(a, b);
}
inline Floats broadcast(float v) {
    return _mm_set1_ps(v);
}
inline Floats add(Floats a, Floats b) {
    return _mm_add_ps(a, b);
}
inline Floats multiply_add(Floats a, Floats b, Floats c) {
    return _mm_add_ps(_mm_mul_ps(a, b), c);
}
#endif

constexpr std::size_t width = sizeof(Bits);
constexpr int unroll = 4;

inline void keep_loop() {
    asm volatile("" ::: "memory");
}

/** Calls step(offset) for each vector of a stream of `bytes`, then tail(offset) for the bytes that are left. */
template<typename Step, typename Tail>
inline void for_each_vector(std::size_t bytes, const Step &step, const Tail &tail) {
    std::size_t offset = 0;
    for (; offset + unroll * width <= bytes; offset += unroll * width) {
        for (int i = 0; i < unroll; i++) {
            step(offset + i * width);
        }
        keep_loop();
    }
    for (; offset + width <= bytes; offset += width) {
        step(offset);
        keep_loop();
    }
    for (; offset < bytes; offset++) {
        tail(offset);
        keep_loop();
    }
}

void read(const StreamArguments &s) {
    Bits sums[unroll] = {zero(), zero(), zero(), zero()};
    std::size_t offset = 0;
    for (; offset + unroll * width <= s.bytes; offset += unroll * width) {
        for (int i = 0; i < unroll; i++) {
            sums[i] = combine(sums[i], load(s.a + offset + i * width));
        }
    }
    char sink[width];
    store(sink, combine(combine(sums[0], sums[1]), combine(sums[2], sums[3])));
    asm volatile("" ::"r"(sink) : "memory");
}

void write(const StreamArguments &s) {
    const Bits value = zero();
    for_each_vector(
        s.bytes, [&](std::size_t i) { store(s.c + i, value); }, [&](std::size_t i) { s.c[i] = 0; });
}

void copy(const StreamArguments &s) {
    for_each_vector(
        s.bytes, [&](std::size_t i) { store(s.c + i, load(s.a + i)); }, [&](std::size_t i) { s.c[i] = s.a[i]; });
}

void copy_nontemporal(const StreamArguments &s) {
    for_each_vector(
        s.bytes, [&](std::size_t i) { store_nontemporal(s.c + i, load(s.a + i)); },
        [&](std::size_t i) { s.c[i] = s.a[i]; });
    _mm_sfence();
}

void read2_write1(const StreamArguments &s) {
    for_each_vector(
        s.bytes, [&](std::size_t i) { store(s.c + i, combine(load(s.a + i), load(s.b + i))); },
        [&](std::size_t i) { s.c[i] = s.a[i] ^ s.b[i]; });
}

void read2_write2(const StreamArguments &s) {
    for_each_vector(
        s.bytes,
        [&](std::size_t i) {
            const Bits v = combine(load(s.a + i), load(s.b + i));
            store(s.c + i, v);
            store(s.d + i, v);
        },
        [&](std::size_t i) { s.d[i] = s.c[i] = s.a[i] ^ s.b[i]; });
}

void halve(const StreamArguments &s) {
    for_each_vector(
        s.bytes / 2, [&](std::size_t i) { store(s.c + i, combine(load(s.a + 2 * i), load(s.a + 2 * i + width))); },
        [&](std::size_t i) { s.c[i] = s.a[2 * i] ^ s.a[2 * i + 1]; });
}

void double_up(const StreamArguments &s) {
    for_each_vector(
        s.bytes / 2,
        [&](std::size_t i) {
            const Bits v = load(s.a + i);
            store(s.c + 2 * i, v);
            store(s.c + 2 * i + width, v);
        },
        [&](std::size_t i) { s.c[2 * i] = s.c[2 * i + 1] = s.a[i]; });
}

float multiply_add_chains(std::int64_t iterations) {
    // Values that stay near 1: x = x * 0.5 + 0.5.
    const Floats half = broadcast(0.5f);
    Floats x[chains];
    for (int i = 0; i < chains; i++) {
        x[i] = broadcast(1.0f + static_cast<float>(i));
    }
    for (std::int64_t n = 0; n < iterations; n++) {
#pragma GCC unroll 32
        for (int i = 0; i < chains; i++) {
            x[i] = multiply_add(x[i], half, half);
        }
    }
    Floats sum = x[0];
    for (int i = 1; i < chains; i++) {
        sum = add(sum, x[i]);
    }
    return reinterpret_cast<const float *>(&sum)[0];
}

}  // namespace

const StreamTable HALYARD_BENCH_TABLE = {
    {read, write, copy, copy_nontemporal, read2_write1, read2_write2, halve, double_up},
    multiply_add_chains,
    2.0 * chains * sizeof(Floats) / sizeof(float),
};

}  // namespace halyard::bench
