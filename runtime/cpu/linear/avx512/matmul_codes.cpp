// The GEMM kernels of codes of 4 and 8 bits on AVX-512, of 1 to 8 rows: generators/matmul_codes.cpp to the bit.
//
// They are written by hand because a code of 4 bits becomes a number by one instruction that Halide does not make: vpermps looks it
// up in a register of 16 numbers, by the lowest four bits of a lane, whatever lies above them.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // GCC's own header leaves a register undefined on purpose
#endif
#include <immintrin.h>

#include <algorithm>
#include <cstdint>

#include "core/kernel_call.h"
#include "cpu/linear/avx512/load_scales.h"
#include "cpu/linear/written_tiles.h"

#ifdef __clang__
#define HALYARD_UNROLL _Pragma("clang loop unroll(full)")
#else
#define HALYARD_UNROLL _Pragma("GCC unroll 8")
#endif

namespace halyard {
namespace {

/** Panels at a time: the sums of a group take at most 24 of 32 registers. */
constexpr int code_tile_panels(int rows) {
    return rows == 1 ? 8 : rows <= 6 ? 4 : 3;
}

/** x_sums_row is 0 where there are no offsets. */
template<DType scale_dtype>
struct CodeTile : QuantizedTile<float, scale_dtype> {
    int groups, steps, words;
    uint32_t flip;

    explicit CodeTile(const arguments::MatmulCodes &a)
        : QuantizedTile<float, scale_dtype>(a), groups(a.scales.extent(2)), steps(a.steps.value()),
          words(a.words.value()), flip(static_cast<uint32_t>(a.flip.value())) {
        this->w_panel = a.w.stride(2);
        this->next_tile = int64_t{groups} * steps * this->next_step;
    }
};

/** Numbers of the words of 16 columns. */
template<int bits>
struct Numbers;

template<>
struct Numbers<4> {
    HALYARD_AVX512_INLINE explicit Numbers(uint32_t)
        : table(_mm512_setr_ps(-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7)) {}
    template<int input>
    HALYARD_AVX512_INLINE __m512 of(__m512i word) const {
        return _mm512_permutexvar_ps(_mm512_srli_epi32(word, code_shift(4, input)), table);
    }

    const __m512 table;
};

template<>
struct Numbers<8> {
    HALYARD_AVX512_INLINE explicit Numbers(uint32_t flip) : flip(_mm512_set1_epi32(static_cast<int>(flip))) {}
    template<int input>
    HALYARD_AVX512_INLINE __m512 of(__m512i word) const {
        const __m512i flipped = _mm512_xor_si512(word, flip);
        return _mm512_cvtepi32_ps(_mm512_srai_epi32(_mm512_slli_epi32(flipped, 24 - code_shift(8, input)), 24));
    }

    const __m512i flip;
};

/** The sums of a group. */
template<int bits, int rows, int panels>
struct GroupSums {
    __m512 of[rows][panels];

    HALYARD_AVX512_INLINE void clear() {
        HALYARD_UNROLL for (int row = 0; row < rows; row++) {
            HALYARD_UNROLL for (int panel = 0; panel < panels; panel++) {
                of[row][panel] = _mm512_setzero_ps();
            }
        }
    }

    /** Adds the products of inputs `input` and after it of a step. */
    template<int input>
    HALYARD_AVX512_INLINE void add(const Numbers<bits> &numbers, const float *x, const __m512i *words) {
        if constexpr (input < code_step_inputs(bits)) {
            __m512 number[panels];
            HALYARD_UNROLL for (int panel = 0; panel < panels; panel++) {
                number[panel] = numbers.template of<input>(words[panel]);
            }
            HALYARD_UNROLL for (int row = 0; row < rows; row++) {
                const __m512 value = _mm512_set1_ps(x[row * x_pitch + input]);
                HALYARD_UNROLL for (int panel = 0; panel < panels; panel++) {
                    of[row][panel] = _mm512_fmadd_ps(value, number[panel], of[row][panel]);
                }
            }
            add<input + 1>(numbers, x, words);
        }
    }
};

template<int bits, DType scale_dtype, bool has_offsets, int rows, int panels>
HALYARD_AVX512 __attribute__((noinline)) void multiply_code_tile(const CodeTile<scale_dtype> &o) {
    const Numbers<bits> numbers(o.flip);
    const float *x = o.x;
    // Steps leave out as much of a k block with its scales as the scales take.
    const char *next = o.next, *const scales_next = o.next + o.next_tile;
    for (int group = 0; group < o.groups; group++) {
        GroupSums<bits, rows, panels> sums;
        sums.clear();
        for (int step = group * o.steps; step < (group + 1) * o.steps; step++, x += code_step_inputs(bits)) {
            const uint32_t *const w = o.w + std::min(step, o.words - 1) * panel_width;
            __m512i words[panels];
            HALYARD_UNROLL for (int panel = 0; panel < panels; panel++) {
                words[panel] = _mm512_loadu_si512(w + panel * o.w_panel);
                _mm_prefetch(next + panel * o.next_panel, _MM_HINT_T1);
            }
            next += o.next_step;
            sums.template add<0>(numbers, x, words);
        }
        HALYARD_UNROLL for (int panel = 0; panel < panels; panel++) {
            _mm_prefetch(scales_next + panel * o.next_panel + group * 64, _MM_HINT_T1);
        }
        const char *const scales = o.scales + group * o.scales_group;
        const bool from_zero = group == 0 && o.first;
        const float *const so_far = group == 0 ? o.so_far : o.sum;
        HALYARD_UNROLL for (int row = 0; row < rows; row++) {
            const __m512 x_sum = _mm512_set1_ps(has_offsets ? o.x_sums[row * o.x_sums_row + group] : 0.0f);
            HALYARD_UNROLL for (int panel = 0; panel < panels; panel++) {
                const int64_t place = row * o.sum_row + panel * panel_width;
                const char *const scale = scales + panel * o.scales_panel;
                __m512 sum = from_zero ? _mm512_setzero_ps() : _mm512_loadu_ps(so_far + place);
                sum = _mm512_fmadd_ps(load_scales<scale_dtype>(scale), sums.of[row][panel], sum);
                if (has_offsets) {
                    sum = _mm512_fmadd_ps(load_scales<scale_dtype>(scale + scale_offset * o.scales_row), x_sum, sum);
                }
                _mm512_storeu_ps(o.sum + place, sum);
            }
        }
    }
}

template<int bits, DType scale_dtype, int rows>
int multiply_code_panels(void **pointers) {
    using Tile = CodeTile<scale_dtype>;
    const auto a = arguments::MatmulCodes::of(pointers);
    each_tile<code_tile_panels(rows)>(Tile(a), a.w.extent(2), a.x.extent(2), [](const Tile &o, auto panels) {
        if (Tile::has_offsets && o.x_sums_row > 0) {
            multiply_code_tile<bits, scale_dtype, Tile::has_offsets, rows, panels>(o);
        } else {
            multiply_code_tile<bits, scale_dtype, false, rows, panels>(o);
        }
    });
    return 0;
}

}  // namespace
}  // namespace halyard

#define HALYARD_CODE_TILE(bits, dtype, rows)                                                                           \
    extern "C" int hk_matmul_codes##bits##_##rows##_##dtype##_avx512_argv(void **arguments) {                          \
        return halyard::multiply_code_panels<bits, halyard::DType::dtype, rows>(arguments);                            \
    }
#define HALYARD_CODE_TILES(dtype, rows) HALYARD_CODE_TILE(4, dtype, rows) HALYARD_CODE_TILE(8, dtype, rows)
HALYARD_CODE_TILES(f16, 1)
HALYARD_CODE_TILES(bf16, 1)
HALYARD_CODE_TILES(f32, 1)
HALYARD_CODE_TILES(f32, 2)
HALYARD_CODE_TILES(f32, 3)
HALYARD_CODE_TILES(f32, 4)
HALYARD_CODE_TILES(f32, 5)
HALYARD_CODE_TILES(f32, 6)
HALYARD_CODE_TILES(f32, 7)
HALYARD_CODE_TILES(f32, 8)
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif
