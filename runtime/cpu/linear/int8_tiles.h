// The GEMM kernels of rows in 8 bits on x86: generators/matmul_int8.cpp to the bit, for vectors of any width.
//
// They are written by hand because instructions on bytes multiply unsigned by signed numbers and add neighbours, four to a lane of 32
// bits, which is what a word of codes holds: Halide's schedules would have to turn lanes. The file of an instruction set defines
// before it includes this one:
//
//     HALYARD_INT8_ISA      its name, also a namespace
//     HALYARD_INT8_TARGET   the attribute that functions need
//     halyard::HALYARD_INT8_ISA::Vector:
//         Int, Float, lanes               registers of bytes or 32-bit lanes, and of f32
//         Codes<bits>, Numbers<bits>      a row of codes of some columns, and the numbers of x that it is multiplied with
//         Sums<bits>                      the sum over a unit: begin(correction), add(codes, numbers), total(correction). Of unsigned codes
//                                         it takes the correction for their center at one end; where codes are less that, at none
//         scales<dtype>, factors<kind>    scales of columns, and their factors where they have two levels, in f32
//         broadcast, multiply, ...        instructions
//         tile_vectors(bits, rows)        registers of columns at a time: a part of a panel, or some panels
#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "core/kernel_call.h"
#include "cpu/linear/written_tiles.h"
#include "layout/code_panels.h"

#ifdef __clang__
#define HALYARD_UNROLL _Pragma("clang loop unroll(full)")
#else
#define HALYARD_UNROLL _Pragma("GCC unroll 8")
#endif

#define HALYARD_INT8_INLINE HALYARD_INT8_TARGET __attribute__((always_inline)) inline

namespace halyard::HALYARD_INT8_ISA {
namespace {

/** Vectors of a panel. */
constexpr int of_panel = panel_width / Vector::lanes;

/** Rows of x lie x_int8_pitch apart, with their scales and corrections. */
template<DType scale_dtype>
struct Int8Tile : QuantizedTile<char, scale_dtype> {
    int units, unit_words, group_units, groups, offset_groups, words;
    uint32_t flip;  // makes bytes of 8-bit codes signed

    explicit Int8Tile(const arguments::MatmulInt8 &a)
        : QuantizedTile<char, scale_dtype>(a), units(a.x_scales.extent(0)), unit_words(a.unit_words.value()),
          group_units(a.group_units.value()), groups(a.scales.extent(2)), offset_groups(a.x_sums.extent(0)),
          words(a.words.value()), flip(code_flip(8, a.center.value() == 0)) {
        this->w_panel = a.w.stride(3) / 4;
        this->next_tile = int64_t{units} * unit_words * this->next_step;
    }

    Int8Tile from_column(int64_t column) const {
        Int8Tile from = *this;
        from.w += column;
        from.scales += column * size_of(scale_dtype);
        from.so_far += column;
        from.sum += column;
        return from;
    }
};

/** The scales of a tile as they are stored in a vector for each group, and their offsets where these are f32. */
template<DType scale_dtype, int vectors>
class StoredScales {
public:
    using Tile = Int8Tile<scale_dtype>;
    static constexpr bool has_offsets = Tile::has_offsets;

    HALYARD_INT8_INLINE explicit StoredScales(const Tile &tile) : o_(tile) {}
    HALYARD_INT8_INLINE void enter(int) {}
    HALYARD_INT8_INLINE typename Vector::Float scale(int group, int v) const { return at(group, scale_scale, v); }
    HALYARD_INT8_INLINE typename Vector::Float offset(int group, int v) const { return at(group, scale_offset, v); }

private:
    HALYARD_INT8_INLINE typename Vector::Float at(int group, int vector, int v) const {
        return Vector::template scales<scale_dtype>(o_.scales + v / of_panel * o_.scales_panel +
                                                    group * o_.scales_group + vector * o_.scales_row +
                                                    v % of_panel * Vector::lanes * size_of(scale_dtype));
    }

    const Tile &o_;
};

/** Scales of two levels, made of what is stored: d of a super-block by the group's factor, and offsets as
 *  generators/expand_scales.cpp makes them. */
template<int bits, ScaleKind kind, int vectors>
class TwoLevelScales {
public:
    using Tile = Int8Tile<DType::f16>;
    static constexpr bool has_offsets = kind == ScaleKind::two_levels;

    HALYARD_INT8_INLINE explicit TwoLevelScales(const Tile &tile)
        : o_(tile), parts_(layout.scale_parts(tile.groups * layout.group)) {}
    /** Before the first group of a super-block is read. */
    HALYARD_INT8_INLINE void enter(int group) {
        if (group % groups_of_super == 0) {
            HALYARD_UNROLL for (int v = 0; v < vectors; v++) {
                const char *const at = panel(v) + group / groups_of_super * o_.scales_row + of_column(v) * 2;
                d_[v] = Vector::template scales<DType::f16>(at);
                if constexpr (has_offsets) {
                    d_minima_[v] = Vector::template scales<DType::f16>(at + parts_.minima);
                }
            }
        }
    }
    HALYARD_INT8_INLINE typename Vector::Float scale(int group, int v) const {
        return Vector::multiply(d_[v], Vector::template factors<kind>(of_group(parts_.factors, group, v)));
    }
    HALYARD_INT8_INLINE typename Vector::Float offset(int group, int v) const {
        const auto minimum =
            Vector::multiply(d_minima_[v], Vector::template factors<kind>(of_group(parts_.zeros, group, v)));
        return Vector::fms(Vector::all(code_center(bits, true)), scale(group, v), minimum);
    }

private:
    static constexpr CodeLayout layout{bits, kind, DType::f16, has_offsets ? 32 : 16};
    static constexpr int groups_of_super = super_group / layout.group;

    HALYARD_INT8_INLINE const char *panel(int v) const { return o_.scales + v / of_panel * o_.scales_panel; }
    HALYARD_INT8_INLINE static int of_column(int v) { return v % of_panel * Vector::lanes; }
    HALYARD_INT8_INLINE const char *of_group(int64_t part, int group, int v) const {
        return panel(v) + part + group * panel_width + of_column(v);
    }

    const Tile &o_;
    const ScaleParts parts_;
    typename Vector::Float d_[vectors], d_minima_[vectors];
};

template<int bits, typename Scales, int rows, int vectors>
HALYARD_INT8_TARGET __attribute__((noinline)) void multiply_int8_tile(const typename Scales::Tile &o) {
    constexpr int panels = std::max(1, vectors / of_panel);
    const auto place = [](int vector) { return vector / of_panel * panel_width + vector % of_panel * Vector::lanes; };
    typename Vector::Float y[rows][vectors];
    HALYARD_UNROLL for (int row = 0; row < rows; row++) {
        HALYARD_UNROLL for (int v = 0; v < vectors; v++) {
            y[row][v] = o.first ? Vector::zero() : Vector::floats(o.so_far + row * o.sum_row + place(v));
        }
    }
    Scales scales(o);
    scales.enter(0);
    // Words leave out as much of a k block with its scales as the scales take.
    const char *next = o.next, *const scales_next = next + o.next_tile;
    const auto flip = Vector::broadcast(&o.flip);
    const uint32_t *next_word = o.w, *const last_word = next_word + (o.words - 1) * panel_width;
    for (int unit = 0, group = 0, left = o.group_units; unit < o.units; unit++, left--) {
        if (left == 0) {
            group++;
            left = o.group_units;
            scales.enter(group);
        }
        const char *const corrections = o.x + x_int8_corrections + 4 * unit;
        typename Vector::template Sums<bits> sums[rows][vectors];
        HALYARD_UNROLL for (int row = 0; row < rows; row++) {
            HALYARD_UNROLL for (int v = 0; v < vectors; v++) {
                sums[row][v].begin(corrections + row * x_int8_pitch);
            }
        }
        for (int word = unit * o.unit_words; word < (unit + 1) * o.unit_words; word += 2) {
            HALYARD_UNROLL for (int of_two = 0; of_two < 2; of_two++) {
                // std::min would take addresses, and GCC then keeps the sums on the stack.
                const uint32_t *const w = next_word < last_word ? next_word : last_word;
                next_word += panel_width;
                typename Vector::template Codes<bits> codes[vectors];
                HALYARD_UNROLL for (int v = 0; v < vectors; v++) {
                    codes[v].load(w + v / of_panel * o.w_panel + v % of_panel * Vector::lanes, flip);
                }
                for (int panel = 0; panel < panels; panel++) {
                    _mm_prefetch(next + panel * o.next_panel, _MM_HINT_T1);
                }
                next += o.next_step;
                HALYARD_UNROLL for (int row = 0; row < rows; row++) {
                    const typename Vector::template Numbers<bits> numbers(o.x + row * x_int8_pitch +
                                                                          (word + of_two) * code_row_inputs(bits));
                    HALYARD_UNROLL for (int v = 0; v < vectors; v++) {
                        sums[row][v].add(codes[v], numbers);
                    }
                }
            }
        }
        for (int panel = 0; panel < panels; panel++) {
            _mm_prefetch(scales_next + panel * o.next_panel + unit * 64, _MM_HINT_T1);
        }
        HALYARD_UNROLL for (int row = 0; row < rows; row++) {
            const auto x_scale = Vector::broadcast_float(o.x + row * x_int8_pitch + x_int8_scales + 4 * unit);
            HALYARD_UNROLL for (int v = 0; v < vectors; v++) {
                const auto scale = Vector::multiply(scales.scale(group, v), x_scale);
                const auto whole = sums[row][v].total(corrections + row * x_int8_pitch);
                y[row][v] = Vector::fma(scale, Vector::to_float(whole), y[row][v]);
            }
        }
    }
    for (int group = 0; scales.has_offsets && group < o.offset_groups; group++) {
        scales.enter(group);
        HALYARD_UNROLL for (int row = 0; row < rows; row++) {
            const auto x_sum = Vector::broadcast_float(o.x_sums + row * o.x_sums_row + group);
            HALYARD_UNROLL for (int v = 0; v < vectors; v++) {
                y[row][v] = Vector::fma(scales.offset(group, v), x_sum, y[row][v]);
            }
        }
    }
    HALYARD_UNROLL for (int row = 0; row < rows; row++) {
        HALYARD_UNROLL for (int v = 0; v < vectors; v++) {
            Vector::store(o.sum + row * o.sum_row + place(v), y[row][v]);
        }
    }
}

template<int bits, ScaleKind kind, DType scale_dtype, int vectors>
using TileScales = std::conditional_t<kind == ScaleKind::plain, StoredScales<scale_dtype, vectors>,
                                      TwoLevelScales<bits, kind, vectors>>;

/** `kind`: of scales that are stored in 16 bits. */
template<int bits, int rows, DType scale_dtype, ScaleKind kind = ScaleKind::plain>
int multiply_int8_panels(void **pointers) {
    using Tile = Int8Tile<scale_dtype>;
    constexpr int wide = Vector::tile_vectors(bits, rows);
    const auto a = arguments::MatmulInt8::of(pointers);
    each_tile<std::max(1, wide / of_panel)>(Tile(a), a.w.extent(3), a.x.extent(2), [](const Tile &o, auto panels) {
        constexpr int all = panels * of_panel, at_once = all < wide ? all : wide;
        for (int v = 0; v < all; v += at_once) {
            multiply_int8_tile<bits, TileScales<bits, kind, scale_dtype, at_once>, rows, at_once>(
                o.from_column(v * Vector::lanes));
        }
    });
    return 0;
}

}  // namespace
}  // namespace halyard::HALYARD_INT8_ISA

#undef HALYARD_INT8_INLINE
#undef HALYARD_UNROLL

/** HALYARD_INT8_KERNEL(name, dtype, template arguments) of all. */
#ifndef HALYARD_INT8_KERNELS
#define HALYARD_INT8_TILE(bits, rows, dtype) HALYARD_INT8_KERNEL(codes##bits##_##rows, dtype, bits, rows, DType::dtype)
#define HALYARD_INT8_TILES(bits)                                                                                       \
    HALYARD_INT8_TILE(bits, 1, f16)                                                                                    \
    HALYARD_INT8_TILE(bits, 1, bf16)                                                                                   \
    HALYARD_INT8_TILE(bits, 1, f32)                                                                                    \
    HALYARD_INT8_TILE(bits, 2, f32)                                                                                    \
    HALYARD_INT8_TILE(bits, 3, f32)                                                                                    \
    HALYARD_INT8_TILE(bits, 4, f32)
#define HALYARD_INT8_ROW(kind, bits)                                                                                   \
    HALYARD_INT8_KERNEL(kind##_codes##bits##_1, f16, bits, 1, DType::f16, ScaleKind::kind)
#define HALYARD_INT8_KERNELS                                                                                           \
    HALYARD_INT8_TILES(4)                                                                                              \
    HALYARD_INT8_TILES(8)                                                                                              \
    HALYARD_INT8_ROW(two_levels, 4)                                                                                    \
    HALYARD_INT8_ROW(two_levels, 8)                                                                                    \
    HALYARD_INT8_ROW(two_levels_signed, 8)
#endif
