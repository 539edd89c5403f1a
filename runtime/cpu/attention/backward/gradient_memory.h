// What one thread keeps while it computes gradients of attention.
#ifndef HALYARD_RUNTIME_CPU_ATTENTION_BACKWARD_GRADIENT_MEMORY_H
#define HALYARD_RUNTIME_CPU_ATTENTION_BACKWARD_GRADIENT_MEMORY_H

#include <cstdint>

#include "layout/matmul.h"

namespace halyard {

// Part of the numerics: dQ adds sums over so many keys, dK and dV over so many queries.
constexpr int64_t gradient_keys = 192, gradient_queries = 128;
static_assert(gradient_keys <= k_block && gradient_queries <= k_block, "a block of sums each");

// Columns of the kernels between the products at a time.
constexpr int64_t gradient_lanes = 32;

/** Pointers into a thread's memory. */
struct GradientMemory {
    float *keys, *values;               // [key][x_pitch]
    float *scores, *products;           // S, then P; dP, then dS: [key][x_pitch]
    float *transposed;                  // dS^T: [query][x_pitch]
    float *dk, *dv, *dq;                // [key or query][columns]
    float *key_panels;                  // keys x features
    float *q_panels, *dy_panels;        // queries x features
    float *q_turned, *dy_turned;        // features x queries
    float *log_sum_exp, *dot, *no_dot;  // [query]

    /** Features of a head, up to whole panels. */
    static constexpr int64_t columns(int64_t head_dim) { return whole(head_dim, panel_width); }
    /** n, rounded up to whole ones of a size. */
    static constexpr int64_t whole(int64_t n, int64_t of) { return (n + of - 1) / of * of; }

    /** How many it takes. */
    static int64_t floats(int64_t head_dim) { return GradientMemory().place(nullptr, columns(head_dim)); }

    /** `memory`: that many floats, aligned to 64 bytes. */
    GradientMemory(float *memory, int64_t head_dim) { place(memory, columns(head_dim)); }

private:
    GradientMemory() = default;

    /** Returns how many floats it takes. */
    int64_t place(float *memory, int64_t columns) {
        int64_t used = 0;
        const auto take = [&](float *&piece, int64_t floats) {
            piece = memory ? memory + used : nullptr;
            used += whole(floats, panel_width);
        };
        for (float **piece : {&keys, &values, &scores, &products}) {
            take(*piece, gradient_keys * x_pitch);
        }
        take(transposed, gradient_queries * x_pitch);
        for (float **piece : {&dk, &dv, &key_panels}) {
            take(*piece, gradient_keys * columns);
        }
        for (float **piece : {&dq, &q_panels, &dy_panels, &q_turned, &dy_turned}) {
            take(*piece, gradient_queries * columns);
        }
        for (float **piece : {&log_sum_exp, &dot, &no_dot}) {
            take(*piece, gradient_queries + gradient_lanes);
        }
        return used;
    }
};

}  // namespace halyard

#endif
