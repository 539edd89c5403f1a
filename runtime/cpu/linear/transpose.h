// Tiles of 16 x 16 floats transposed, which right and left operands of gradients are made of.
#ifndef HALYARD_RUNTIME_CPU_LINEAR_TRANSPOSE_H
#define HALYARD_RUNTIME_CPU_LINEAR_TRANSPOSE_H

#include <cstdint>

#include "layout/matmul.h"

namespace halyard {

/** to[j][i] = from[i][j] for i < rows and j < columns, both at most 16; pitches in floats. */
inline void transpose_tile(const float *from, int64_t from_pitch, int64_t rows, int64_t columns, float *to,
                           int64_t to_pitch) {
    if (rows == panel_width && columns == panel_width) {  // of constant extents the compiler makes shuffles
        for (int j = 0; j < panel_width; j++) {
            for (int i = 0; i < panel_width; i++) {
                to[j * to_pitch + i] = from[i * from_pitch + j];
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
