// Tiles of 16 x 16 floats transposed, which right and left operands of gradients are made of.
#ifndef HALYARD_RUNTIME_CPU_LINEAR_TRANSPOSE_H
#define HALYARD_RUNTIME_CPU_LINEAR_TRANSPOSE_H

#include <cstdint>
#include <cstring>

#include "layout/matmul.h"

namespace halyard {

using FourFloats = float __attribute__((vector_size(16)));

/** Four of the eight places of a and b, which compilers have by different names. */
template<int p, int q, int r, int s>
FourFloats shuffled(FourFloats a, FourFloats b) {
#ifdef __clang__
    return __builtin_shufflevector(a, b, p, q, r, s);
#else
    using Places = int __attribute__((vector_size(16)));
    return __builtin_shuffle(a, b, Places{p, q, r, s});
#endif
}

/** to[j][i] = from[i][j] for i and j < 4. */
inline void transpose_4x4(const float *from, int64_t from_pitch, float *to, int64_t to_pitch) {
    FourFloats rows[4];
    for (int i = 0; i < 4; i++) {
        std::memcpy(&rows[i], from + i * from_pitch, sizeof(FourFloats));
    }
    const FourFloats a = shuffled<0, 4, 1, 5>(rows[0], rows[1]), b = shuffled<2, 6, 3, 7>(rows[0], rows[1]);
    const FourFloats c = shuffled<0, 4, 1, 5>(rows[2], rows[3]), d = shuffled<2, 6, 3, 7>(rows[2], rows[3]);
    const FourFloats columns[4] = {shuffled<0, 1, 4, 5>(a, c), shuffled<2, 3, 6, 7>(a, c), shuffled<0, 1, 4, 5>(b, d),
                                   shuffled<2, 3, 6, 7>(b, d)};
    for (int j = 0; j < 4; j++) {
        std::memcpy(to + j * to_pitch, &columns[j], sizeof(FourFloats));
    }
}

/** to[j][i] = from[i][j] for i < rows and j < columns, both at most 16; pitches in floats. */
inline void transpose_tile(const float *from, int64_t from_pitch, int64_t rows, int64_t columns, float *to,
                           int64_t to_pitch) {
    if (rows == panel_width && columns == panel_width) {
        for (int i = 0; i < panel_width; i += 4) {
            for (int j = 0; j < panel_width; j += 4) {
                transpose_4x4(from + i * from_pitch + j, from_pitch, to + j * to_pitch + i, to_pitch);
            }
        }
        return;
    }
    for (int64_t j = 0; j < columns; j++) {
        for (int64_t i = 0; i < rows; i++) {
            to[j * to_pitch + i] = from[i * from_pitch + j];
        }
    }
}

}  // namespace halyard

#endif
