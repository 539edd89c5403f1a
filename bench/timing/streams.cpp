// One StreamTable, for the instruction set this file is compiled for (see streams.h and CMakeLists.txt).
//
// Each loop moves whole vectors; a compiler barrier per step keeps the compiler from turning it into a call of memcpy,
// which would choose its own kind of store.
#include "streams.h"

#if defined(__x86_64__)
#include <immintrin.h>
#else
#include <arm_neon.h>
#endif

namespace halyard::bench {
namespace {

// What the compiler's vector types leave to say of an instruction set.
#if defined(__aarch64__)
#if defined(HALYARD_BENCH_BFMMLA)
#define HALYARD_BENCH_TABLE streams_neon_bfmmla
#elif defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
#define HALYARD_BENCH_TABLE streams_neon_bfdot
#elif defined(HALYARD_BENCH_DOTPROD)
#define HALYARD_BENCH_TABLE streams_neon_fp16
#else
#define HALYARD_BENCH_TABLE streams_neon
#endif
constexpr std::size_t width = 16;
constexpr int chains = 24;
#elif defined(__AVX512F__)
#if defined(HALYARD_BENCH_AMX)
#define HALYARD_BENCH_TABLE streams_amx
#elif defined(__AVX512BF16__)
#define HALYARD_BENCH_TABLE streams_avx512_bf16
#else
#define HALYARD_BENCH_TABLE streams_avx512
#endif
constexpr std::size_t width = 64;  // bytes of a vector
constexpr int chains = 24;         // of multiply-adds: they hide the latency and fit the registers
#elif defined(__AVX2__)
#define HALYARD_BENCH_TABLE streams_avx2
constexpr std::size_t width = 32;
constexpr int chains = 12;
#else
#define HALYARD_BENCH_TABLE streams_sse41
constexpr std::size_t width = 16;
constexpr int chains = 12;
#endif

using Bits = long long __attribute__((vector_size(width)));
using UnalignedBits = long long __attribute__((vector_size(width), aligned(1), may_alias));
using Floats = float __attribute__((vector_size(width)));

inline Bits load(const char *p) {
    return *reinterpret_cast<const UnalignedBits *>(p);
}

struct Ordinary {
    static void store(char *p, const Bits &v) { *reinterpret_cast<UnalignedBits *>(p) = v; }
    static void finish() {}
};

/** Bypasses the caches. */
struct Nontemporal {
    static void store(char *p, const Bits &v) {
#if defined(__aarch64__)
        using Halves = double __attribute__((vector_size(width)));
        const Halves halves = reinterpret_cast<Halves>(v);
        asm volatile("stnp %d0, %d1, [%2]" : : "w"(halves[0]), "w"(halves[1]), "r"(p) : "memory");
#elif defined(__AVX512F__)
        _mm512_stream_si512(reinterpret_cast<__m512i *>(p), reinterpret_cast<__m512i>(v));
#elif defined(__AVX2__)
        _mm256_stream_si256(reinterpret_cast<__m256i *>(p), reinterpret_cast<__m256i>(v));
#else
        _mm_stream_si128(reinterpret_cast<__m128i *>(p), reinterpret_cast<__m128i>(v));
#endif
    }
    static void finish() {
#if defined(__x86_64__)
        _mm_sfence();
#endif
    }
};

constexpr int unroll = 4;

inline void keep_loop() {
    asm volatile("" ::: "memory");
}

/** How a stream is read and written: by vectors, and by bytes for what is left. */
template<typename Stores>
struct Vectors {
    static constexpr std::size_t size = width;
    static Bits load(const char *p) { return bench::load(p); }
    static void store(char *p, const Bits &v) { Stores::store(p, v); }
};
struct Bytes {
    static constexpr std::size_t size = 1;
    static char load(const char *p) { return *p; }
    static void store(char *p, int v) { *p = static_cast<char>(v); }
};

/** Calls step(lane, offset) for each vector of a stream of `bytes`, then for the bytes that are left. */
template<typename Stores, typename Step>
inline void for_each_vector(std::size_t bytes, const Step &step) {
    std::size_t offset = 0;
    for (; offset + unroll * width <= bytes; offset += unroll * width) {
        for (int i = 0; i < unroll; i++) {
            step(Vectors<Stores>(), offset + i * width);
        }
        keep_loop();
    }
    for (; offset + width <= bytes; offset += width) {
        step(Vectors<Stores>(), offset);
        keep_loop();
    }
    for (; offset < bytes; offset++) {
        step(Bytes(), offset);
        keep_loop();
    }
    Stores::finish();
}

/** Keeps the compiler from leaving out what was read. */
inline void keep(const Bits *sums) {
    alignas(width) char sink[width];
    Ordinary::store(sink, sums[0] ^ sums[1] ^ sums[2] ^ sums[3]);
    asm volatile("" ::"r"(sink) : "memory");
}

/** What lies beyond a core's own caches, read as fast as it comes where the hardware alone does not ask for it early enough: four places
 *  are read at once, four lines at a time, each with requests for what comes 1 KiB later, into the second-level cache. */
void read_far(StreamArguments s) {
    constexpr std::size_t line = 64, lines = 4 * line, ahead = 1024, places = 4;
    const std::size_t part = s.bytes / places / lines * lines;
    Bits sums[4] = {};
    for (std::size_t offset = 0; offset < part; offset += lines) {
        for (std::size_t place = 0; place < places; place++) {
            const char *const from = s.a + place * part + offset;
            for (std::size_t i = 0; i < lines; i += line) {
                __builtin_prefetch(from + ahead + i, 0, 2);
            }
            for (std::size_t i = 0; i < lines / width; i++) {
                sums[i % 4] ^= load(from + i * width);
            }
        }
    }
    keep(sums);
}

/** As fast as it comes from a core's own caches, and from farther away where the hardware asks for it early enough. */
void read(StreamArguments s) {
    Bits sums[unroll] = {};
    std::size_t offset = 0;
    for (; offset + unroll * width <= s.bytes; offset += unroll * width) {
        for (int i = 0; i < unroll; i++) {
            sums[i] ^= load(s.a + offset + i * width);
        }
    }
    keep(sums);
}

void read_with_hints(StreamArguments s) {
    constexpr std::size_t far = std::size_t{4} << 20;  // more than a core's own caches hold
    (s.bytes > far ? read_far : read)(s);
}

/** The streams that write, with one kind of store. */
template<typename Stores>
struct Writing {
    static void write(StreamArguments s) {
        for_each_vector<Stores>(s.bytes,
                                [s](auto lane, std::size_t i) { lane.store(s.c + i, decltype(lane.load(s.a)){}); });
    }
    static void copy(StreamArguments s) {
        for_each_vector<Stores>(s.bytes, [s](auto lane, std::size_t i) { lane.store(s.c + i, lane.load(s.a + i)); });
    }
    static void read2_write1(StreamArguments s) {
        for_each_vector<Stores>(
            s.bytes, [s](auto lane, std::size_t i) { lane.store(s.c + i, lane.load(s.a + i) ^ lane.load(s.b + i)); });
    }
    static void read2_write2(StreamArguments s) {
        for_each_vector<Stores>(s.bytes, [s](auto lane, std::size_t i) {
            const auto v = lane.load(s.a + i) ^ lane.load(s.b + i);
            lane.store(s.c + i, v);
            lane.store(s.d + i, v);
        });
    }
    static void halve(StreamArguments s) {
        for_each_vector<Stores>(s.bytes / 2, [s](auto lane, std::size_t i) {
            lane.store(s.c + i, lane.load(s.a + 2 * i) ^ lane.load(s.a + 2 * i + lane.size));
        });
    }
    static void double_up(StreamArguments s) {
        for_each_vector<Stores>(s.bytes / 2, [s](auto lane, std::size_t i) {
            const auto v = lane.load(s.a + i);
            lane.store(s.c + 2 * i, v);
            lane.store(s.c + 2 * i + lane.size, v);
        });
    }
};

/** Rounds of chains that begin at numbers from `first` on. */
template<typename Vector, typename Number, typename Step>
inline float run_chains(std::int64_t rounds, Number first, const Step &step) {
    Vector x[chains];
    for (int i = 0; i < chains; i++) {
        x[i] = Vector{} + (first + static_cast<Number>(i));
    }
    for (std::int64_t n = 0; n < rounds; n++) {
#pragma GCC unroll 32
        for (int i = 0; i < chains; i++) {
            x[i] = step(x[i]);
        }
    }
    Vector sum = x[0];
    for (int i = 1; i < chains; i++) {
        sum += x[i];
    }
    return static_cast<float>(sum[0]);
}

#if defined(HALYARD_BENCH_AMX)
constexpr double operations_of_round = 4 * 2.0 * 16 * 16 * 32;

/** Products of tiles of zeros, added to four tiles in turn. */
float multiply_add_chains(std::int64_t rounds) {
    // What LDTILECFG loads: palette 1, 64 bytes a row, 16 rows.
    alignas(64) static const unsigned char configuration[64] = {
        1,  0, 0,  0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 64, 0, 64, 0, 64, 0,  64, 0,  64, 0,  64, 0,
        64, 0, 64, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,  0, 0,  0, 16, 16, 16, 16, 16, 16, 16, 16};
    __asm__ volatile("ldtilecfg %0" : : "m"(configuration));
    for (std::int64_t i = 0; i < rounds; i++) {
        __asm__ volatile("tdpbf16ps %tmm6, %tmm4, %tmm0\n\t"
                         "tdpbf16ps %tmm7, %tmm4, %tmm1\n\t"
                         "tdpbf16ps %tmm6, %tmm5, %tmm2\n\t"
                         "tdpbf16ps %tmm7, %tmm5, %tmm3");
    }
    __asm__ volatile("tilerelease");
    return 0;
}
#else
#if defined(__AVX512BF16__)
constexpr int pair = 2;  // multiply-adds of a step

/** x + 0 * 0 + 0 * 0 */
inline Floats step(const Floats &x, const Floats &zeros) {
    const auto pairs = reinterpret_cast<__m512bh>(zeros);
    return reinterpret_cast<Floats>(_mm512_dpbf16_ps(reinterpret_cast<__m512>(x), pairs, pairs));
}
constexpr float operand = 0.0f;
#elif defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
#if defined(HALYARD_BENCH_BFMMLA)
constexpr int pair = 4;
#else
constexpr int pair = 2;
#endif

/** x + 0 * 0 + 0 * 0 by vbfdotq_f32, or with two more products by vbfmmlaq_f32. */
inline Floats step(const Floats &x, const Floats &zeros) {
    const auto pairs = reinterpret_cast<bfloat16x8_t>(zeros);
    const auto sum = reinterpret_cast<float32x4_t>(x);
    return reinterpret_cast<Floats>(pair == 4 ? vbfmmlaq_f32(sum, pairs, pairs) : vbfdotq_f32(sum, pairs, pairs));
}
constexpr float operand = 0.0f;
#else
constexpr int pair = 1;

/** Values that stay near 1: x = x * 0.5 + 0.5. CMakeLists.txt lets the compiler fuse the two where it can. */
inline Floats step(const Floats &x, const Floats &half) {
    return x * half + half;
}
constexpr float operand = 0.5f;
#endif
constexpr double operations_of_round = 2.0 * pair * chains * sizeof(Floats) / sizeof(float);

float multiply_add_chains(std::int64_t rounds) {
    const Floats operands = Floats{} + operand;
    return run_chains<Floats>(rounds, 1.0f, [&](const Floats &x) { return step(x, operands); });
}
#endif

// ---- bytes ----

#if defined(__aarch64__)
bool multiplies_whole_bytes() {
    return true;
}

#if defined(HALYARD_BENCH_DOTPROD)
constexpr double bytes_of_step = 16;

inline Bits multiply_add_bytes(const Bits &x, const Bits &bytes) {
    const auto numbers = reinterpret_cast<int8x16_t>(bytes);
    return reinterpret_cast<Bits>(vdotq_s32(reinterpret_cast<int32x4_t>(x), numbers, numbers));
}
#else
constexpr double bytes_of_step = 8;

inline Bits multiply_add_bytes(const Bits &x, const Bits &bytes) {
    const int8x8_t numbers = vget_low_s8(reinterpret_cast<int8x16_t>(bytes));
    return reinterpret_cast<Bits>(vmlal_s8(reinterpret_cast<int16x8_t>(x), numbers, numbers));
}
#endif
#else
constexpr double bytes_of_step = width;

bool multiplies_whole_bytes() {
#if defined(__AVX512F__)
    return __builtin_cpu_supports("avx512vnni") != 0;
#else
    return false;
#endif
}

/** Products of unsigned with signed bytes, neighbours added, and an addition. x itself is multiplied, so that no product can be taken
 *  out of the loop; compilers would spill registers. */
inline Bits multiply_add_bytes(Bits x, const Bits &bytes) {
#if defined(__AVX2__)
    asm("vpmaddubsw %1, %0, %0\n\tvpaddw %1, %0, %0" : "+v"(x) : "v"(bytes));
#else
    asm("pmaddubsw %1, %0\n\tpaddw %1, %0" : "+x"(x) : "x"(bytes));
#endif
    return x;
}

#if defined(__AVX512F__)
/** By its name, since the file is compiled for processors without it too. */
inline Bits multiply_add_whole_bytes(Bits x, const Bits &bytes) {
    asm("vpdpbusd %1, %1, %0" : "+v"(x) : "v"(bytes));
    return x;
}
#endif
#endif

float byte_chains(std::int64_t rounds) {
    const Bits bytes = Bits{} + 0x0101010101010101LL;
#if defined(__AVX512F__)
    if (multiplies_whole_bytes()) {
        return run_chains<Bits>(rounds, 1LL, [&](const Bits &x) { return multiply_add_whole_bytes(x, bytes); });
    }
#endif
    return run_chains<Bits>(rounds, 1LL, [&](const Bits &x) { return multiply_add_bytes(x, bytes); });
}

}  // namespace

const StreamTable HALYARD_BENCH_TABLE = {
    {read, Writing<Ordinary>::write, Writing<Ordinary>::copy, Writing<Nontemporal>::copy,
     Writing<Ordinary>::read2_write1, Writing<Ordinary>::read2_write2, Writing<Ordinary>::halve,
     Writing<Ordinary>::double_up},
    {read_with_hints, Writing<Nontemporal>::write, Writing<Nontemporal>::copy, Writing<Nontemporal>::copy,
     Writing<Nontemporal>::read2_write1, Writing<Nontemporal>::read2_write2, Writing<Nontemporal>::halve,
     Writing<Nontemporal>::double_up},
    {multiply_add_chains, operations_of_round},
    {byte_chains, 2.0 * bytes_of_step *chains},
    multiplies_whole_bytes,
};

}  // namespace halyard::bench
