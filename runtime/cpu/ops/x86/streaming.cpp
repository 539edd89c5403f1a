// Non-temporal copies on x86.
#include "cpu/ops/streaming.h"

#include <immintrin.h>

namespace halyard {
namespace {

void copy_lines(char *destination, const char *source, int64_t lines, const char *next) {
    for (int64_t line = 0; line < lines; line++) {
        prefetch_line(next, line * streamed_line);
        for (int64_t j = line * streamed_line; j < (line + 1) * streamed_line; j += 16) {
            _mm_stream_si128(reinterpret_cast<__m128i *>(destination + j),
                             _mm_loadu_si128(reinterpret_cast<const __m128i *>(source + j)));
        }
    }
}

__attribute__((target("avx"))) void copy_lines_avx(char *destination, const char *source, int64_t lines,
                                                   const char *next) {
    for (int64_t line = 0; line < lines; line++) {
        prefetch_line(next, line * streamed_line);
        for (int64_t j = line * streamed_line; j < (line + 1) * streamed_line; j += 32) {
            _mm256_stream_si256(reinterpret_cast<__m256i *>(destination + j),
                                _mm256_loadu_si256(reinterpret_cast<const __m256i *>(source + j)));
        }
    }
}

__attribute__((target("avx512f"))) void copy_lines_avx512(char *destination, const char *source, int64_t lines,
                                                          const char *next) {
    for (int64_t line = 0; line < lines; line++) {
        prefetch_line(next, line * streamed_line);
        const int64_t i = line * streamed_line;
        _mm512_stream_si512(reinterpret_cast<__m512i *>(destination + i), _mm512_loadu_si512(source + i));
    }
}

}  // namespace

const bool outputs_stream = true;

StreamCopy stream_copy(halyard_isa isa) {
    return isa >= HALYARD_ISA_AVX512 ? copy_whole_lines<copy_lines_avx512>
           : isa >= HALYARD_ISA_AVX2 ? copy_whole_lines<copy_lines_avx>
                                     : copy_whole_lines<copy_lines>;
}

void stream_fence() {
    _mm_sfence();
}

}  // namespace halyard
