# Edits the assembly of a matrix product: its prefetches go to the second-level cache.
#
# Halide 21 emits prefetches of the non-temporal kind alone, which on x86 bypass that cache, and on ARM ask for the first.
# What is prefetched here is read by every tile of rows in turn, long after: that kind is slower than none
# (docs/results/kernel-notes.md).
#
#   cmake -DASSEMBLY=<file> -P PrefetchIntoCache.cmake
file(READ "${ASSEMBLY}" text)
string(REPLACE "prefetchnta" "prefetcht1" text "${text}")
string(REPLACE "pldl1strm" "pldl2keep" text "${text}")
file(WRITE "${ASSEMBLY}" "${text}")
