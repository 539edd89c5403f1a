// The GEMM kernels of AMX for codes of 4 and 8 bits, for any number of panels and tiles of up to 16 rows: generators/matmul_codes.cpp for
// pairs of bf16, but for the order of the sums (tiles.h).
//
// The numbers of a panel's block are written to the first-level cache once, for all tiles of rows. Tiles of sums know no scales: those of a
// group are stored, and vectors scale and add them. That takes as long as three products, however few its rows; so a single row is
// multiplied by vectors, in the order of the tiles.
#include <algorithm>
#include <cstdint>

#include "core/kernel_call.h"
#include "core/system/floating_point.h"
#include "cpu/linear/amx/product_by_vectors.h"
#include "cpu/linear/amx/tiles.h"
#include "cpu/linear/avx512/pair_numbers.h"
#include "cpu/linear/written_tiles.h"

namespace halyard::amx {
namespace {

/** Groups under way, whose products are in as many tiles. */
constexpr int ahead = 4;

/** What a tile reads and writes. A piece is as many inputs of a group as a product takes. */
template<DType scales>
struct CodeTile : QuantizedTile<uint32_t, scales> {
    int rows, groups, words;
    int group_pairs, piece_pairs;  // of a group and of a piece
    int rest_pairs;                // of a group's last piece, if they are fewer, or 0
    int64_t x_row;
    uint32_t flip;

    CodeTile(const arguments::MatmulCodes &a, int bits)
        : QuantizedTile<uint32_t, scales>(a), rows(a.x.extent(1)), groups(a.scales.extent(2)), words(a.words.value()),
          group_pairs(a.steps.value() * code_step_inputs(bits) / 2), piece_pairs(std::min(group_pairs, tile_pairs)),
          rest_pairs(group_pairs % piece_pairs), x_row(a.x.stride(1)), flip(static_cast<uint32_t>(a.flip.value())) {
        this->w_panel = a.w.stride(2);
    }
};

/** A row of words of a panel. The last one stands for those that are missing. */
template<DType dtype>
HALYARD_AVX512_INLINE __m512i words_of(const CodeTile<dtype> &o, int panel, int row) {
    return Avx512::words(o.w + panel * o.w_panel + std::min(row, o.words - 1) * panel_width);
}

/** Prefetches a line of what comes next: the words of a panel in order, and behind them a line for each group's scales. */
template<DType dtype>
HALYARD_AVX512_INLINE void prefetch(const CodeTile<dtype> &o, int panel, int line) {
    _mm_prefetch(o.next + panel * o.next_panel + line * line_bytes, _MM_HINT_T1);
}

// ---- Several rows, by tiles ----

using Tile = CodeTile<DType::f32>;

/** Tiles 0 to 3 hold sums. Rows of x and numbers: 4 and 6 of a piece, 5 and 7 of one that has fewer pairs. */
Configuration configuration(const Tile &o) {
    Configuration tiles;
    for (int tile = 0; tile < ahead; tile++) {
        tiles.set(tile, o.rows, line_bytes);
    }
    const int rest = std::max(1, o.rest_pairs);
    tiles.set(4, o.rows, o.piece_pairs * 4);
    tiles.set(6, o.piece_pairs, line_bytes);
    tiles.set(5, o.rows, rest * 4);
    tiles.set(7, rest, line_bytes);
    return tiles;
}

/** Writes the numbers of a panel as pairs, [pair][16 columns]. */
template<int bits>
HALYARD_AVX512 void write_panel(const Tile &o, uint32_t *to) {
    constexpr int pairs = code_row_inputs(bits) / 2;
    const PairNumbers<bits, true> numbers(o.flip);
    const int rows = o.groups * o.group_pairs / pairs;
    for (int row = 0; row < rows; row++, to += pairs * panel_width) {
        const __m512i word = numbers.prepared(words_of(o, 0, row));
        _mm512_store_si512(to, numbers.template of<0>(word));
        _mm512_store_si512(to + panel_width, numbers.template of<1>(word));
        if constexpr (pairs > 2) {
            _mm512_store_si512(to + 2 * panel_width, numbers.template of<2>(word));
            _mm512_store_si512(to + 3 * panel_width, numbers.template of<3>(word));
        }
        prefetch(o, 0, row);
    }
    for (int group = 0; group < o.groups; group++) {
        prefetch(o, 0, o.words + group);
    }
}

/** The products of a group, in a tile. */
template<int tile>
__attribute__((always_inline)) inline void multiply_group(const Tile &o, const uint32_t *x, const uint32_t *numbers) {
    const int64_t x_row_bytes = o.x_row * int64_t{sizeof(*x)};
    const auto bytes = [](const uint32_t *words) { return reinterpret_cast<const char *>(words); };
    clear<tile>();
    int pair = 0;
    for (; pair + o.piece_pairs <= o.group_pairs; pair += o.piece_pairs) {
        load_past_cache<4>(bytes(x + pair), x_row_bytes);
        load<6>(bytes(numbers + pair * panel_width), line_bytes);
        add_product<tile, 4, 6>();
    }
    if (pair < o.group_pairs) {
        load_past_cache<5>(bytes(x + pair), x_row_bytes);
        load<7>(bytes(numbers + pair * panel_width), line_bytes);
        add_product<tile, 5, 7>();
    }
}

/** Adds the products of a group to the sums of a tile. */
template<int height, bool has_offsets>
HALYARD_AVX512_INLINE void add_group(const Tile &o, int group, const float *products, __m512 *sums) {
    const char *const scales = o.scales + group * o.scales_group;
    const __m512 scale = Avx512::floats(reinterpret_cast<const float *>(scales));
    const __m512 offset = Avx512::floats(reinterpret_cast<const float *>(scales + scale_offset * o.scales_row));
#pragma GCC unroll 16
    for (int row = 0; row < height; row++) {
        sums[row] = Avx512::fma(scale, Avx512::floats(products + row * panel_width), sums[row]);
        if constexpr (has_offsets) {
            const float x_sum = o.x_sums[std::min(row, o.rows - 1) * o.x_sums_row + group];
            sums[row] = Avx512::fma(offset, Avx512::all(x_sum), sums[row]);
        }
    }
}

template<int height>
HALYARD_AVX512_INLINE void load_sums(const Tile &o, __m512 *sums) {
#pragma GCC unroll 16
    for (int row = 0; row < height; row++) {
        const bool starts = o.first || row >= o.rows;
        sums[row] = starts ? Avx512::zero() : Avx512::floats(o.so_far + row * o.sum_row);
    }
}
template<int height>
HALYARD_AVX512_INLINE void store_sums(const Tile &o, const __m512 *sums) {
#pragma GCC unroll 16
    for (int row = 0; row < height; row++) {
        if (row < o.rows) {
            Avx512::store(o.sum + row * o.sum_row, sums[row]);
        }
    }
}

/** A software pipeline over all groups of a panel's tiles of rows. A turn multiplies one group, stores the products of an earlier one and
 *  adds those of one still earlier. */
struct Turns {
    const int groups, count;  // of a tile, and of all tiles
    const uint32_t *x;        // of the tile that is multiplied
    int multiplied = 0;       // groups of this tile
    Tile adding;
    int added = 0;  // groups of that one
};
constexpr int stored_after = 2, added_after = 3;  // turns
static_assert(stored_after < added_after && added_after < ahead);

template<int turn, int height, bool has_offsets>
HALYARD_AVX512_INLINE void take_turn(Turns &turns, int number, const uint32_t *numbers,
                                     float (*products)[height * panel_width], __m512 *sums) {
    constexpr int stored = (turn + ahead - stored_after) % ahead, added = (turn + ahead - added_after) % ahead;
    const Tile &o = turns.adding;
    if (number < turns.count) {
        const int pairs = turns.multiplied * o.group_pairs;
        multiply_group<turn>(o, turns.x + pairs, numbers + pairs * panel_width);
        if (++turns.multiplied == turns.groups) {
            turns.multiplied = 0;
            turns.x += o.x_tile;
        }
    }
    if (number >= stored_after && number < turns.count + stored_after) {
        store<stored>(reinterpret_cast<char *>(products[stored]), line_bytes);
    }
    if (number >= added_after && number < turns.count + added_after) {
        add_group<height, has_offsets>(o, turns.added, products[added], sums);
        if (++turns.added == turns.groups) {
            store_sums<height>(o, sums);
            turns.added = 0;
            turns.adding.skip_tile();
            if (number + 1 < turns.count + added_after) {
                load_sums<height>(o, sums);
            }
        }
    }
}

/** The products of a panel and tiles of at most `height` rows. */
template<int height, bool has_offsets>
HALYARD_AVX512 void multiply_panel(const Tile &o, int tiles, const uint32_t *numbers) {
    static_assert(ahead == 4);
    alignas(64) float products[ahead][height * panel_width];
    __m512 sums[height];
    load_sums<height>(o, sums);
    Turns turns = {.groups = o.groups, .count = tiles * o.groups, .x = o.x, .adding = o};
    for (int number = 0; number < turns.count + added_after; number += ahead) {
        take_turn<0, height, has_offsets>(turns, number, numbers, products, sums);
        take_turn<1, height, has_offsets>(turns, number + 1, numbers, products, sums);
        take_turn<2, height, has_offsets>(turns, number + 2, numbers, products, sums);
        take_turn<3, height, has_offsets>(turns, number + 3, numbers, products, sums);
    }
}

template<int bits, bool has_offsets>
void multiply_tiles(const Tile &first, int panels, int tiles) {
    alignas(64) uint32_t numbers[k_block / 2 * panel_width];
    const auto multiply = first.rows <= 8 ? multiply_panel<8, has_offsets> : multiply_panel<amx_tile_rows, has_offsets>;
    configuration(first).load();
    each_panels<1>(first, panels, [&](const Tile &tile, auto) {
        write_panel<bits>(tile, numbers);
        multiply(tile, tiles, numbers);
    });
    release();
}

// ---- One row, by vectors ----

template<int bits, bool has_offsets, int panels, DType dtype>
HALYARD_AVX512 void multiply_row(const CodeTile<dtype> o) {
    constexpr int pairs = code_row_inputs(bits) / 2;
    const CodeNumbers<bits, true> numbers(o.flip);
    const uint32_t *x = o.x;
    __m512 sums[panels];
#pragma GCC unroll 8
    for (int panel = 0; panel < panels; panel++) {
        sums[panel] = o.first ? Avx512::zero() : Avx512::floats(o.so_far + panel * panel_width);
    }
    for (int group = 0, row = 0; group < o.groups; group++) {
        __m512 of_group[panels];
#pragma GCC unroll 8
        for (int panel = 0; panel < panels; panel++) {
            of_group[panel] = Avx512::zero();
        }
        for (int left = o.group_pairs; left > 0; left -= o.piece_pairs) {
            ProductByVectors<panels> piece;
            const int end = row + std::min(left, o.piece_pairs) / pairs;
            for (; row < end; row++, x += pairs) {
                __m512i words[panels];
#pragma GCC unroll 8
                for (int panel = 0; panel < panels; panel++) {
                    words[panel] = numbers.prepared(words_of(o, panel, row));
                    prefetch(o, panel, row);
                }
                piece.template add<pairs>(numbers, words, x);
            }
            piece.add_to(of_group);
        }
#pragma GCC unroll 8
        for (int panel = 0; panel < panels; panel++) {
            prefetch(o, panel, o.words + group);
            const char *const scales = o.scales + panel * o.scales_panel + group * o.scales_group;
            sums[panel] = Avx512::fma(Avx512::scales<dtype>(scales), of_group[panel], sums[panel]);
            if constexpr (has_offsets) {
                const __m512 offset = Avx512::scales<dtype>(scales + scale_offset * o.scales_row);
                sums[panel] = Avx512::fma(offset, Avx512::all(o.x_sums[group]), sums[panel]);
            }
        }
    }
#pragma GCC unroll 8
    for (int panel = 0; panel < panels; panel++) {
        Avx512::store(o.sum + panel * panel_width, sums[panel]);
    }
}

template<int bits, bool has_offsets, DType dtype>
void multiply_row_by(const CodeTile<dtype> &first, int panels) {
    each_panels<max_tile_panels>(first, panels,
                                 [](const CodeTile<dtype> &o, auto some) { multiply_row<bits, has_offsets, some>(o); });
}

template<int bits, bool has_offsets>
void multiply_rows(const Tile &first, int panels, int tiles) {
    if (first.rows == 1) {
        multiply_row_by<bits, has_offsets>(first, panels);
    } else {
        multiply_tiles<bits, has_offsets>(first, panels, tiles);
    }
}

/** Scales of 16 bits are those of one row. */
template<int bits, DType dtype>
int multiply_codes(void **pointers) {
    // Tiles do not depend on it; vectors are to have their bits.
    FloatingPoint::flushing_denormals().set();
    const auto a = arguments::MatmulCodes::of(pointers);
    const CodeTile<dtype> first(a, bits);
    const int panels = a.w.extent(2);
    if constexpr (dtype == DType::f32) {
        const auto multiply = first.x_sums_row > 0 ? multiply_rows<bits, true> : multiply_rows<bits, false>;
        multiply(first, panels, a.x.extent(2));
    } else {
        multiply_row_by<bits, false>(first, panels);
    }
    FloatingPoint::by_default().set();
    return 0;
}

}  // namespace
}  // namespace halyard::amx

#define HALYARD_AMX_CODES(bits, dtype)                                                                                 \
    extern "C" int hk_matmul_tiles_codes##bits##_##dtype##_amx_argv(void **arguments) {                                \
        return halyard::amx::multiply_codes<bits, halyard::DType::dtype>(arguments);                                   \
    }
HALYARD_AMX_CODES(4, f16)
HALYARD_AMX_CODES(4, bf16)
HALYARD_AMX_CODES(4, f32)
HALYARD_AMX_CODES(8, f16)
HALYARD_AMX_CODES(8, bf16)
HALYARD_AMX_CODES(8, f32)
