// The GEMM kernel of AMX, for any number of panels and tiles of up to 16 rows: generators/matmul.cpp for pairs of bf16, but
// for the order of the sums (tiles.h). A single row goes by vectors, in the order of the tiles.
#include <xmmintrin.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <type_traits>

#include "core/kernel_call.h"
#include "core/system/floating_point.h"
#include "cpu/linear/amx/product_by_vectors.h"
#include "cpu/linear/amx/tiles.h"

namespace halyard::amx {
namespace {

constexpr int block_steps = k_block / (2 * tile_pairs);  // tiles of inputs in a block of x
constexpr int64_t weight_tile_bytes = tile_pairs * line_bytes;

/** Bytes of so many tiles of a panel. A kernel call may have all inputs of a row, and a panel of 2^26 of them is 2^31 bytes long. */
constexpr int64_t weight_bytes(int tiles) {
    return tiles * weight_tile_bytes;
}
static_assert(weight_bytes(1 << 21) == int64_t{1} << 31 && weight_bytes(1 << 26) == int64_t{1} << 36);

/** Tiles 0 to 3 hold sums, 4 and 5 rows of x, 6 and 7 weights. */
Configuration configuration(int tile_rows, int pairs) {
    Configuration tiles;
    for (int tile = 0; tile < 8; tile++) {
        const bool of_x = tile == 4 || tile == 5;
        tiles.set(tile, tile < 6 ? tile_rows : pairs, of_x ? pairs * 4 : line_bytes);
    }
    return tiles;
}

/** What a product reads and writes. Pitches are in bytes. */
struct Operands {
    const char *x, *w, *so_far;
    char *sum;
    int64_t x_row, x_tile, x_block, w_panel, sum_row, sum_tile;
    const char *next;  // weights that come after those of these panels, to prefetch meanwhile
    int next_step;     // bytes of each panel for each pair of inputs of a tile of rows, of many
    int steps;         // tiles of inputs
    bool first;
};

/** Calls visit(tile, where its sums are from the first ones on) for the tiles of sums of a product. */
template<int tiles, int panels, typename Visit>
void each_sum(const Operands &o, const Visit &visit) {
    visit(std::integral_constant<int, 0>(), int64_t{0});
    if constexpr (panels > 1) {
        visit(std::integral_constant<int, 1>(), int64_t{panel_sum_bytes});
    }
    if constexpr (tiles > 1) {
        visit(std::integral_constant<int, 2>(), o.sum_tile);
    }
    if constexpr (tiles > 1 && panels > 1) {
        visit(std::integral_constant<int, 3>(), o.sum_tile + panel_sum_bytes);
    }
}

/** A tile of weights of each panel, into the first-level cache. */
template<int panels>
void prefetch_near(const char *w, int64_t w_panel) {
    for (int panel = 0; panel < panels; panel++) {
        for (int64_t byte = 0; byte < weight_tile_bytes; byte += line_bytes) {
            _mm_prefetch(w + panel * w_panel + byte, _MM_HINT_T0);
        }
    }
}

/** The product of 1 or 2 tiles of rows and 1 or 2 panels. With `near`, the weights are prefetched a tile ahead of their use. */
template<int tiles, int panels, bool near>
void multiply(const Operands &o) {
    each_sum<tiles, panels>(o, [&o](auto tile, int64_t offset) {
        if (o.first) {
            clear<tile>();
        } else {
            load<tile>(o.so_far + offset, o.sum_row);
        }
    });
    const char *x = o.x, *w = o.w, *next = o.next;
    const int64_t x_block = o.x_block, x_row = o.x_row, x_tile = o.x_tile, w_panel = o.w_panel;
    const int next_lines = (tiles * tile_pairs * o.next_step + line_bytes - 1) / line_bytes;
    for (int step = 0; step < o.steps; step++) {
        // The first-level cache is for the weights, which the next rows need again.
        load_past_cache<4>(x, x_row);
        load<6>(w, line_bytes);
        add_product<0, 4, 6>();
        if constexpr (panels > 1) {
            load<7>(w + w_panel, line_bytes);
            add_product<1, 4, 7>();
        }
        if constexpr (tiles > 1) {
            load_past_cache<5>(x + x_tile, x_row);
            add_product<2, 5, 6>();
        }
        if constexpr (tiles > 1 && panels > 1) {
            add_product<3, 5, 7>();
        }
        if constexpr (near) {
            const char *const ahead = step + 1 < o.steps ? w + weight_tile_bytes : o.next;
            prefetch_near<panels>(ahead, w_panel);
        } else {
            for (int line = 0; line < next_lines; line++, next += line_bytes) {
                for (int panel = 0; panel < panels; panel++) {
                    _mm_prefetch(next + panel * w_panel, _MM_HINT_T1);
                }
            }
        }
        x += (step + 1) % block_steps != 0 ? line_bytes : x_block - (block_steps - 1) * line_bytes;
        w += weight_tile_bytes;
    }
    each_sum<tiles, panels>(o, [&o](auto tile, int64_t offset) { store<tile>(o.sum + offset, o.sum_row); });
}

/** The product of all tiles of rows and 1 or 2 panels. */
template<int panels>
void multiply_rows(Operands o, int tiles) {
    // Weights that are used once are prefetched near: then the processor's own prefetching joins in, and memory is read a tenth
    // faster. Where more rows follow, there is time to prefetch while they are multiplied.
    if (tiles <= 2) {
        (tiles > 1 ? multiply<2, panels, true> : multiply<1, panels, true>)(o);
        return;
    }
    for (; tiles > 0; tiles -= 2) {
        (tiles > 1 ? multiply<2, panels, false> : multiply<1, panels, false>)(o);
        o.x += 2 * o.x_tile;
        o.so_far += 2 * o.sum_tile;
        o.sum += 2 * o.sum_tile;
        o.next += int64_t{2} * o.steps * tile_pairs * o.next_step;
    }
}

void multiply_panels(Operands o, int tiles, int panels) {
    const char *const next_block = o.next;
    for (; panels > 1; panels -= 2) {
        o.next = panels > 2 ? o.w + 2 * o.w_panel : next_block;
        multiply_rows<2>(o, tiles);
        o.w += 2 * o.w_panel;
        o.so_far += 2 * panel_sum_bytes;
        o.sum += 2 * panel_sum_bytes;
    }
    if (panels == 1) {
        o.next = next_block;
        multiply_rows<1>(o, tiles);
    }
}

// ---- One row, by vectors, which wait for memory less ----

constexpr int row_panels = 4;    // at once: as many chains of sums as keep the multipliers busy
constexpr int row_ahead = 1024;  // bytes, of prefetches

/** Pairs of bf16, as ProductByVectors takes them. */
struct Pairs {
    template<int input>
    HALYARD_AVX512_INLINE __m512 of(__m512i words) const {
        return input == 0 ? upper_half(words) : lower_half(words);
    }
};

/** The product of a row and some panels over `pairs` pairs. */
template<int panels>
HALYARD_AVX512 void multiply_row(const Operands &o, int pairs) {
    const char *x = o.x, *w = o.w;
    __m512 sums[panels];
#pragma GCC unroll 8
    for (int panel = 0; panel < panels; panel++) {
        sums[panel] = o.first ? Avx512::zero()
                              : Avx512::floats(reinterpret_cast<const float *>(o.so_far + panel * panel_sum_bytes));
    }
    for (int step = 0; pairs > 0; step++, pairs -= tile_pairs) {
        ProductByVectors<panels> product;
        const uint32_t *x_pairs = reinterpret_cast<const uint32_t *>(x);
        for (int pair = 0; pair < std::min(pairs, tile_pairs); pair++, w += line_bytes) {
            __m512i words[panels];
#pragma GCC unroll 8
            for (int panel = 0; panel < panels; panel++) {
                words[panel] = Avx512::words(reinterpret_cast<const uint32_t *>(w + panel * o.w_panel));
                _mm_prefetch(w + panel * o.w_panel + row_ahead, _MM_HINT_T0);
            }
            product.template add<1>(Pairs(), words, x_pairs + pair);
        }
        product.add_to(sums);
        x += (step + 1) % block_steps != 0 ? line_bytes : o.x_block - (block_steps - 1) * line_bytes;
    }
#pragma GCC unroll 8
    for (int panel = 0; panel < panels; panel++) {
        Avx512::store(reinterpret_cast<float *>(o.sum + panel * panel_sum_bytes), sums[panel]);
    }
}

void multiply_row(Operands o, int pairs, int panels) {
    constexpr void (*multiply_some[])(const Operands &, int) = {multiply_row<1>, multiply_row<2>, multiply_row<3>,
                                                                multiply_row<4>};
    static_assert(std::size(multiply_some) == row_panels);
    // Tiles do not depend on it; vectors are to have their bits.
    FloatingPoint::flushing_denormals().set();
    for (int some; panels > 0; panels -= some) {
        some = std::min(panels, row_panels);
        multiply_some[some - 1](o, pairs);
        o.w += some * o.w_panel;
        o.so_far += some * panel_sum_bytes;
        o.sum += some * panel_sum_bytes;
    }
    FloatingPoint::by_default().set();
}

}  // namespace
}  // namespace halyard::amx

extern "C" int hk_matmul_tiles_bf16_amx_argv(void **arguments) {
    using namespace halyard::amx;
    const auto a = halyard::arguments::MatmulPairs::of(arguments);
    const int pairs = a.depth.value(), tile_rows = a.x.extent(1), tiles = a.x.extent(2), panels = a.w.extent(2);
    constexpr int64_t element = 4;  // bytes of a pair and of a sum

    Operands o;
    o.x = a.x.data<const char>();
    o.x_row = a.x.stride(1) * element;
    o.x_tile = a.x.stride(2) * element;
    o.x_block = tiles * o.x_tile;
    o.w = a.w.data<const char>();
    o.w_panel = a.w.stride(2) * element;
    o.so_far = a.so_far.data<const char>();
    o.sum = a.sum.data<char>();
    o.sum_row = a.sum.stride(2) * element;
    o.sum_tile = a.sum.stride(3) * element;
    o.next = a.next.data<const char>();
    o.next_step = a.next_step.value();
    o.steps = pairs / tile_pairs;
    o.first = a.first.value();
    if (tile_rows == 1 && tiles == 1) {
        multiply_row(o, pairs, panels);
        return 0;
    }
    if (o.steps > 0) {
        configuration(tile_rows, tile_pairs).load();
        multiply_panels(o, tiles, panels);
    }
    if (const int rest = pairs % tile_pairs; rest > 0) {
        if (o.steps > 0) {
            o.x += o.steps / block_steps * o.x_block + o.steps % block_steps * line_bytes;
            o.w += weight_bytes(o.steps);
            o.so_far = o.sum;
            o.first = false;
        }
        o.next_step = 0;
        o.steps = 1;
        configuration(tile_rows, rest).load();
        multiply_panels(o, tiles, panels);
    }
    release();
    return 0;
}
