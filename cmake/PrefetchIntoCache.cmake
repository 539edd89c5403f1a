# Edits the assembly of a matrix product: its prefetches go to the second-level cache.
#
# Halide 21 emits prefetches of the non-temporal kind alone, which on x86 bypass that cache, and on ARM ask for the first.
# What is fetched here is read by every tile of rows in turn, long after: with 24 rows of a 4096 x 11008 product that kind
# made 77 ms of the 22 without prefetching, and this kind, in portions, makes 15 (one core of a Xeon with AVX-512).
#
#   cmake -DASSEMBLY=<file> -P PrefetchIntoCache.cmake
file(READ "${ASSEMBLY}" text)
string(REPLACE "prefetchnta" "prefetcht1" text "${text}")
string(REPLACE "pldl1strm" "pldl2keep" text "${text}")
file(WRITE "${ASSEMBLY}" "${text}")
