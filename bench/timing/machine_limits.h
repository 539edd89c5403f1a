// The machine's limits, measured in the same run as the kernels: peak rate of multiply-adds per instruction set, and the
// bandwidth of each pattern of streams in each level of the memory hierarchy, on one thread and on all.
#ifndef HALYARD_BENCH_TIMING_MACHINE_LIMITS_H
#define HALYARD_BENCH_TIMING_MACHINE_LIMITS_H

#include <functional>
#include <string>
#include <vector>

#include "buffer.h"
#include "halyard/halyard.h"
#include "machine.h"
#include "operations/dtype.h"
#include "streams.h"
#include "team.h"

namespace halyard::bench {

const char *name_of(Stream stream);
/** Bytes read and written per byte of `StreamArguments::bytes`, as the program sees them: the read of a cache line
 *  before it is written is not counted. */
double bytes_moved(Stream stream);
const StreamTable &streams_of(halyard_isa isa);

/** Whose multiply-adds products in a dtype may take under `isa`: those of pairs and tiles are for bf16 alone. */
halyard_isa isa_of_products(halyard_isa isa, operations::Dtype dtype);
/** How many multiply-adds of bytes a product with a code of so many bits takes under `isa`. */
int byte_products(halyard_isa isa, int bits);
/** Runs a stream split over the team. */
void run_stream(const StreamTable &table, Stream stream, Loop loop, const StreamArguments &arguments, Team &team);

struct FlopsLimit {
    halyard_isa isa;
    int threads;
    double flops;       // per second
    bool int8 = false;  // of bytes, with codes of 4 bits
};

struct BandwidthLimit {
    Stream stream;
    std::string level;        // "L1", "L2", "L3", "memory"
    std::size_t working_set;  // bytes over all streams and threads
    int threads;
    double bandwidth;  // bytes per second
};

struct Limits {
    std::vector<FlopsLimit> flops;
    std::vector<BandwidthLimit> bandwidth;
    halyard_isa isa;                          // of the streams
    std::vector<std::string> contradictions;  // limits that stayed below what another measurement shows
};

/** Whether a limit is lower, by more than its noise, than what `shown` proves possible: the same on as many threads or
 *  fewer, and of bandwidths that of a level farther from the core. Non-temporal stores go to the memory from each level,
 *  so that theirs are compared within a level alone. */
bool is_below(const FlopsLimit &limit, const FlopsLimit &shown);
bool is_below(const BandwidthLimit &limit, const BandwidthLimit &shown);

/** Measures limits again that are below others, or below the rates in `shown`, up to three times, of which the best stays;
 *  `contradictions` names those that stay below. */
void repeat_contradicted(Limits &limits, const std::vector<FlopsLimit> &shown, const Machine &machine,
                         const std::function<bool()> &stop);

/** Measures all of them with instruction sets up to `isa`, and again what contradicts itself; `progress` is told what
 *  comes next and `stop` asked before. */
Limits measure_limits(const Machine &machine, halyard_isa isa, int threads,
                      const std::function<void(const std::string &)> &progress, const std::function<bool()> &stop);

}  // namespace halyard::bench

#endif
