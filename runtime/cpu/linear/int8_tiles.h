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
//         Sums<bits>                      the sum over a unit: clear(), add(codes, numbers), total(); whether it is of_unsigned codes,
//                                         to which the correction is added, or of codes less their center
//         scales<dtype>, broadcast, ...   instructions
//         tile_vectors(bits, rows)        registers of columns at a time: a part of a panel, or some panels
#include <algorithm>
#include <cstdint>
#include <cstring>

#include "core/kernel_call.h"
#include "cpu/linear/written_tiles.h"
#include "layout/codes.h"

#ifdef __clang__
#define HALYARD_UNROLL _Pragma("clang loop unroll(full)")
#else
#define HALYARD_UNROLL _Pragma("GCC unroll 8")
#endif

namespace halyard::HALYARD_INT8_ISA {
namespace {

/** Rows of x lie x_int8_pitch apart, with their scales and corrections. */
template<DType scale_dtype>
struct Int8Tile : QuantizedTile<char, scale_dtype> {
    int units, unit_words, group_units, offset_groups, words;
    uint32_t flip;  // makes bytes of 8-bit codes signed

    explicit Int8Tile(const arguments::MatmulInt8 &a)
        : QuantizedTile<char, scale_dtype>(a), units(a.x_scales.extent(0)), unit_words(a.unit_words.value()),
          group_units(a.group_units.value()), offset_groups(a.x_sums.extent(0)), words(a.words.value()),
          flip(code_flip(8, a.center.value() == 0)) {
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

template<int bits, DType scale_dtype, int rows, int vectors>
HALYARD_INT8_TARGET __attribute__((noinline)) void multiply_int8_tile(const Int8Tile<scale_dtype> &o) {
    constexpr int of_panel = panel_width / Vector::lanes, panels = std::max(1, vectors / of_panel);
    const auto place = [](int vector) { return vector / of_panel * panel_width + vector % of_panel * Vector::lanes; };
    typename Vector::Float y[rows][vectors];
    HALYARD_UNROLL for (int row = 0; row < rows; row++) {
        HALYARD_UNROLL for (int v = 0; v < vectors; v++) {
            y[row][v] = o.first ? Vector::zero() : Vector::floats(o.so_far + row * o.sum_row + place(v));
        }
    }
    const auto scales_at = [&](int group, int vector, int v) {
        return o.scales + v / of_panel * o.scales_panel + group * o.scales_group + vector * o.scales_row +
               v % of_panel * Vector::lanes * size_of(scale_dtype);
    };
    // Words leave out as much of a k block with its scales as the scales take.
    const char *next = o.next, *const scales_next = next + o.next_tile;
    const auto flip = Vector::broadcast(&o.flip);
    const uint32_t *next_word = o.w, *const last_word = next_word + (o.words - 1) * panel_width;
    for (int unit = 0, group = 0, left = o.group_units; unit < o.units; unit++, left--) {
        if (left == 0) {
            group++;
            left = o.group_units;
        }
        typename Vector::template Sums<bits> sums[rows][vectors];
        HALYARD_UNROLL for (int row = 0; row < rows; row++) {
            HALYARD_UNROLL for (int v = 0; v < vectors; v++) {
                sums[row][v].clear();
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
            const char *const x = o.x + row * x_int8_pitch;
            const auto x_scale = Vector::broadcast_float(x + x_int8_scales + 4 * unit);
            [[maybe_unused]] const auto correction = Vector::broadcast(x + x_int8_corrections + 4 * unit);
            HALYARD_UNROLL for (int v = 0; v < vectors; v++) {
                const auto scale =
                    Vector::multiply(Vector::template scales<scale_dtype>(scales_at(group, scale_scale, v)), x_scale);
                auto whole = sums[row][v].total();
                if constexpr (Vector::template Sums<bits>::of_unsigned) {
                    whole = Vector::add(whole, correction);
                }
                y[row][v] = Vector::fma(scale, Vector::to_float(whole), y[row][v]);
            }
        }
    }
    for (int group = 0; o.has_offsets && group < o.offset_groups; group++) {
        HALYARD_UNROLL for (int row = 0; row < rows; row++) {
            const auto x_sum = Vector::broadcast_float(o.x_sums + row * o.x_sums_row + group);
            HALYARD_UNROLL for (int v = 0; v < vectors; v++) {
                y[row][v] = Vector::fma(Vector::template scales<scale_dtype>(scales_at(group, scale_offset, v)), x_sum,
                                        y[row][v]);
            }
        }
    }
    HALYARD_UNROLL for (int row = 0; row < rows; row++) {
        HALYARD_UNROLL for (int v = 0; v < vectors; v++) {
            Vector::store(o.sum + row * o.sum_row + place(v), y[row][v]);
        }
    }
}

template<int bits, int rows, DType scale_dtype>
int multiply_int8_panels(void **pointers) {
    using Tile = Int8Tile<scale_dtype>;
    constexpr int of_panel = panel_width / Vector::lanes, wide = Vector::tile_vectors(bits, rows);
    const auto a = arguments::MatmulInt8::of(pointers);
    each_tile<std::max(1, wide / of_panel)>(Tile(a), a.w.extent(3), a.x.extent(2), [](const Tile &o, auto panels) {
        constexpr int all = panels * of_panel, at_once = all < wide ? all : wide;
        for (int v = 0; v < all; v += at_once) {
            multiply_int8_tile<bits, scale_dtype, rows, at_once>(o.from_column(v * Vector::lanes));
        }
    });
    return 0;
}

}  // namespace
}  // namespace halyard::HALYARD_INT8_ISA

#undef HALYARD_UNROLL

/** HALYARD_INT8_KERNEL(bits, rows, dtype) of all. */
#ifndef HALYARD_INT8_KERNELS
#define HALYARD_INT8_KERNELS_OF(bits)                                                                                  \
    HALYARD_INT8_KERNEL(bits, 1, f16)                                                                                  \
    HALYARD_INT8_KERNEL(bits, 1, bf16)                                                                                 \
    HALYARD_INT8_KERNEL(bits, 1, f32)                                                                                  \
    HALYARD_INT8_KERNEL(bits, 2, f32)                                                                                  \
    HALYARD_INT8_KERNEL(bits, 3, f32)                                                                                  \
    HALYARD_INT8_KERNEL(bits, 4, f32)
#define HALYARD_INT8_KERNELS HALYARD_INT8_KERNELS_OF(4) HALYARD_INT8_KERNELS_OF(8)
#endif
