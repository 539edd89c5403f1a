// The loops that define a limit: memory streams and chains of multiply-adds of numbers and bytes, once per instruction set.
//
// streams.cpp is compiled once for each instruction set; every copy defines one StreamTable. This header is included by
// those translation units, so it must not bring in inline functions: the linker would be free to keep the copy that was
// compiled for an instruction set the machine lacks.
#ifndef HALYARD_BENCH_TIMING_STREAMS_H
#define HALYARD_BENCH_TIMING_STREAMS_H

#include <cstddef>
#include <cstdint>

namespace halyard::bench {

/** A pattern of memory traffic: which streams are read and written in one pass, forward, with ordinary stores. */
enum Stream {
    stream_read,              // a
    stream_write,             // c
    stream_copy,              // a -> c
    stream_copy_nontemporal,  // the same with stores that bypass the caches
    stream_read2_write1,      // a, b -> c: gated units, add
    stream_read2_write2,      // a, b -> c, d: add+norm
    stream_halve,             // a -> c with half the bytes: packed gated units, casts to 16 bits
    stream_double,            // a -> c with twice the bytes: casts to f32
    stream_count
};

/** A stream has two loops, of which the faster one is a limit: plain loads and stores, and with hints, which are non-temporal stores or,
 *  of stream_read, prefetches. */
enum class Loop { plain, hinted };

/** `bytes` is the length of the streams; stream_halve writes half of it, stream_double reads half of it. Loops take and
 *  capture it by value, or they would read its pointers again for each vector. */
struct StreamArguments {
    const char *a, *b;
    char *c, *d;
    std::size_t bytes;
};

/** Independent chains of multiply-adds. */
struct Chains {
    /** Rounds of them; returns something that depends on all. */
    float (*run)(std::int64_t rounds);
    /** Multiplications and additions of a round. */
    double operations;
};

struct StreamTable {
    void (*plain[stream_count])(StreamArguments arguments);
    void (*hinted[stream_count])(StreamArguments arguments);
    /** In f32 or, where an instruction set is for products of bf16, in these. */
    Chains multiply_adds;
    /** In bytes: products of rows in 8 bits with codes of 4 bits. */
    Chains byte_multiply_adds;
    /** Whether a product with a code of 8 bits takes one of them; else it takes two. */
    bool (*multiplies_whole_bytes)();
};

extern const StreamTable streams_sse41, streams_avx2, streams_avx512, streams_avx512_bf16, streams_amx, streams_neon,
    streams_neon_fp16, streams_neon_bfdot, streams_neon_bfmmla;

}  // namespace halyard::bench

#endif
