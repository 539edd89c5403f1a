# Edits the assembly of a matrix product: its prefetches go to the second-level cache.
#
# Halide 21 emits prefetches of the non-temporal kind alone, which on x86 bypass that cache. What is fetched here is read by
# every tile of rows in turn, long after: with 24 rows the products take two and a half times as long with that kind, and
# three quarters as long with this one, as without prefetching.
#
#   cmake -DASSEMBLY=<file> -P PrefetchIntoCache.cmake
file(READ "${ASSEMBLY}" text)
string(REPLACE "prefetchnta" "prefetcht1" text "${text}")
file(WRITE "${ASSEMBLY}" "${text}")
