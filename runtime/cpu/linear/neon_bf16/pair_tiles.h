// The GEMM kernels of pairs of bf16 on ARM, tiles of 1 to 6 rows, by any of the instructions that multiply such: what
// generators/matmul.cpp says, but for the rounding of BFDOT and BFMMLA.
#ifndef HALYARD_RUNTIME_CPU_LINEAR_NEON_BF16_PAIR_TILES_H
#define HALYARD_RUNTIME_CPU_LINEAR_NEON_BF16_PAIR_TILES_H

#include <arm_neon.h>

#include <cstdint>
#include <utility>

#include "core/kernel_call.h"
#include "cpu/linear/written_tiles.h"

#define HALYARD_INLINE __attribute__((always_inline))

namespace halyard {
namespace {

constexpr int lanes = 4, panel_vectors = panel_width / lanes;

/** Panels at a time: sums take at most 24 of 32 registers. */
constexpr int width(int rows) {
    return rows == 1 ? 4 : rows == 2 ? 3 : rows == 3 ? 2 : 1;
}

/** Pitches are in words, of pairs and of sums. */
struct PairTile : WrittenTile<uint32_t> {
    int pairs;

    explicit PairTile(const arguments::MatmulPairs &a) : WrittenTile(a), pairs(a.depth.value()) {
        w_panel = a.w.stride(2);
        next_tile = static_cast<int64_t>(pairs) * next_step;
    }
};

/** body(0), body(1) ... body(count - 1), of constants. */
template<int count, typename Body>
HALYARD_INLINE inline void unrolled(const Body &body) {
    const auto all = [&]<int... i>(std::integer_sequence<int, i...>) HALYARD_INLINE {
        (body(std::integral_constant<int, i>()), ...);
    };
    all(std::make_integer_sequence<int, count>());
}

/** The sums of a tile, all in registers. Instructions::add<step, pair>(sum, w, x) of each of `steps` steps adds products of w
 *  with pair `pair` of x. */
template<typename Instructions, int rows, int panels>
struct Sums {
    static constexpr int row_vectors = panels * panel_vectors;
    float32x4_t of[rows * row_vectors];

    HALYARD_INLINE Sums() {
        unrolled<rows * row_vectors>([&](auto i) HALYARD_INLINE { of[i] = vdupq_n_f32(0); });
    }

    /** Calls body(sum, row, column) for each vector of sums. */
    template<typename Body>
    HALYARD_INLINE void each(const Body &body) {
        unrolled<rows * row_vectors>([&](auto i)
                                         HALYARD_INLINE { body(of[i], i / row_vectors, i % row_vectors * lanes); });
    }

    /** Adds the products of four pairs; prefetch() is called for each. */
    template<typename Prefetch>
    HALYARD_INLINE void add_four(const uint32_t *x, const uint32_t *w, int64_t w_panel, const Prefetch &prefetch) {
        uint32x4_t of_rows[rows];
        unrolled<rows>([&](auto row) HALYARD_INLINE { of_rows[row] = vld1q_u32(x + row * x_pair_pitch); });
        unrolled<lanes>([&](auto pair) HALYARD_INLINE {
            prefetch();
            add<pair>(of_rows, w + pair * panel_width, w_panel);
        });
    }
    /** Adds the products of one pair. */
    HALYARD_INLINE void add_one(const uint32_t *x, const uint32_t *w, int64_t w_panel) {
        uint32x4_t of_rows[rows];
        unrolled<rows>([&](auto row) HALYARD_INLINE { of_rows[row] = vld1q_dup_u32(x + row * x_pair_pitch); });
        add<0>(of_rows, w, w_panel);
    }
    /** Puts the sums in the order in which each() takes them. */
    HALYARD_INLINE void finish() {}

private:
    /** Adds the products of pair `pair` of each of `x`, which hold four. */
    template<int pair>
    HALYARD_INLINE void add(const uint32x4_t (&x)[rows], const uint32_t *w, int64_t w_panel) {
        // Low tiles would wait for a sum's first step; tall ones need the registers.
        constexpr int held = rows < 4 ? panel_vectors : 1;
        unrolled<row_vectors / held>([&](auto part) HALYARD_INLINE {
            constexpr int first = part * held;
            uint32x4_t weights[held];
            unrolled<held>([&](auto i) HALYARD_INLINE {
                constexpr int vector = first + i;
                weights[i] = vld1q_u32(w + vector / panel_vectors * w_panel + vector % panel_vectors * lanes);
            });
            unrolled<Instructions::steps>([&](auto step) HALYARD_INLINE {
                unrolled<rows * held>([&](auto i) HALYARD_INLINE {
                    float32x4_t &sum = of[i / held * row_vectors + first + i % held];
                    sum = Instructions::template add<step, pair>(sum, weights[i % held], x[i / held]);
                });
            });
        });
    }
};

/** A function of its own, so that the loops round it take no registers from its. */
template<template<int, int> class Tile, int rows, int panels>
__attribute__((noinline)) void multiply_tile(const PairTile &o) {
    Tile<rows, panels> sums;
    const uint32_t *x = o.x, *w = o.w;
    const char *next = o.next;
    const int64_t w_panel = o.w_panel, next_panel = o.next_panel, next_step = o.next_step;
    const auto prefetch = [&]() HALYARD_INLINE {
        unrolled<panels>([&](auto panel) HALYARD_INLINE { __builtin_prefetch(next + panel * next_panel, 0, 2); });
        next += next_step;
    };
    int pairs = o.pairs;
    for (; pairs >= lanes; pairs -= lanes, x += lanes, w += lanes * panel_width) {
        sums.add_four(x, w, w_panel, prefetch);
    }
    for (; pairs > 0; pairs--, x++, w += panel_width) {
        prefetch();
        sums.add_one(x, w, w_panel);
    }
    sums.finish();
    if (!o.first) {
        sums.each([&](float32x4_t &sum, int row, int column)
                      HALYARD_INLINE { sum = vaddq_f32(vld1q_f32(o.so_far + row * o.sum_row + column), sum); });
    }
    sums.each([&](float32x4_t &sum, int row, int column)
                  HALYARD_INLINE { vst1q_f32(o.sum + row * o.sum_row + column, sum); });
}

template<template<int, int> class Tile, int rows>
int multiply_panels(void **pointers) {
    const auto a = arguments::MatmulPairs::of(pointers);
    each_tile<width(rows)>(PairTile(a), a.w.extent(2), a.x.extent(2),
                           [](const PairTile &o, auto panels) { multiply_tile<Tile, rows, panels>(o); });
    return 0;
}

}  // namespace
}  // namespace halyard

/** The kernels of an instruction set. */
#define HALYARD_PAIR_TILE(isa, Tile, rows)                                                                             \
    extern "C" int hk_matmul_pairs_##rows##_bf16_##isa##_argv(void **arguments) {                                      \
        return halyard::multiply_panels<Tile, rows>(arguments);                                                        \
    }
#define HALYARD_PAIR_TILES(isa, Tile)                                                                                  \
    HALYARD_PAIR_TILE(isa, Tile, 1)                                                                                    \
    HALYARD_PAIR_TILE(isa, Tile, 2)                                                                                    \
    HALYARD_PAIR_TILE(isa, Tile, 3)                                                                                    \
    HALYARD_PAIR_TILE(isa, Tile, 4)                                                                                    \
    HALYARD_PAIR_TILE(isa, Tile, 5)                                                                                    \
    HALYARD_PAIR_TILE(isa, Tile, 6)

#endif
