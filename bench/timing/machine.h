// What the report says about the machine, and the cache sizes that decide the sizes of working sets.
#ifndef HALYARD_BENCH_TIMING_MACHINE_H
#define HALYARD_BENCH_TIMING_MACHINE_H

#include <cstddef>
#include <string>

namespace halyard::bench {

struct Machine {
    std::string cpu;         // as /proc/cpuinfo names it
    std::string system;      // kernel name and release
    int processors;          // that this process may run on
    std::size_t l1, l2, l3;  // bytes of one data cache of each level; 0 where there is none
    std::size_t memory;      // bytes
    std::size_t last_level() const { return l3 != 0 ? l3 : l2; }
    /** Bytes that a set of buffers must exceed so that going round it finds nothing in any cache. */
    std::size_t cold_set() const;
};

Machine describe_machine();

/** Processor time of the whole machine since it started, in seconds over all processors. */
struct ProcessorTime {
    double busy, stolen;  // by programs; by other virtual machines
};
ProcessorTime processor_time();

/** "32 KiB", "1.5 MiB". */
std::string readable_bytes(double bytes);

}  // namespace halyard::bench

#endif
