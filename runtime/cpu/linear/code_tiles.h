// The GEMM kernels of codes of 4 and 8 bits with rows in f32 on x86: generators/matmul_codes.cpp to the bit, for vectors of any width.
//
// They are written by hand because Halide's tiles are one vector of each panel wide, too few sums for multiply-adds to overlap. The file of
// an instruction set defines before it includes this one:
//
//     HALYARD_CODES_ISA      its name, also a namespace
//     HALYARD_CODES_TARGET   the attribute that functions need
//     halyard::HALYARD_CODES_ISA::CodeVector:
//         Int, Float, lanes, words, scales<dtype>, ...   as in vectors.h of the instruction set
//         Numbers<bits>                                  signed_codes(words), and of<input>() of these: an input's numbers in f32
//         tile_panels(rows)                              panels at a time
#include <algorithm>
#include <cstdint>

#include "core/kernel_call.h"
#include "cpu/linear/written_tiles.h"

#ifdef __clang__
#define HALYARD_UNROLL _Pragma("clang loop unroll(full)")
#else
#define HALYARD_UNROLL _Pragma("GCC unroll 8")
#endif

namespace halyard::HALYARD_CODES_ISA {
namespace {

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

/** The sums of a group. */
template<int bits, int rows, int vectors>
struct GroupSums {
    using Numbers = CodeVector::Numbers<bits>;
    CodeVector::Float of[rows][vectors];

    HALYARD_CODES_TARGET __attribute__((always_inline)) inline void clear() {
        HALYARD_UNROLL for (int row = 0; row < rows; row++) {
            HALYARD_UNROLL for (int v = 0; v < vectors; v++) {
                of[row][v] = CodeVector::zero();
            }
        }
    }

    /** Adds the products of inputs `input` and after it of a step. */
    template<int input>
    HALYARD_CODES_TARGET __attribute__((always_inline)) inline void add(const Numbers &numbers, const float *x,
                                                                        const CodeVector::Int *words) {
        if constexpr (input < code_step_inputs(bits)) {
            CodeVector::Float number[vectors];
            HALYARD_UNROLL for (int v = 0; v < vectors; v++) {
                number[v] = numbers.template of<input>(words[v]);
            }
            HALYARD_UNROLL for (int row = 0; row < rows; row++) {
                const auto value = CodeVector::all(x[row * x_pitch + input]);
                HALYARD_UNROLL for (int v = 0; v < vectors; v++) {
                    of[row][v] = CodeVector::fma(value, number[v], of[row][v]);
                }
            }
            add<input + 1>(numbers, x, words);
        }
    }
};

template<int bits, DType scale_dtype, bool has_offsets, int rows, int panels>
HALYARD_CODES_TARGET __attribute__((noinline)) void multiply_code_tile(const CodeTile<scale_dtype> &o) {
    constexpr int of_panel = panel_width / CodeVector::lanes, vectors = panels * of_panel;
    const CodeVector::Numbers<bits> numbers(o.flip);
    const float *x = o.x;
    // Steps leave out as much of a k block with its scales as the scales take.
    const char *next = o.next, *const scales_next = o.next + o.next_tile;
    for (int group = 0; group < o.groups; group++) {
        GroupSums<bits, rows, vectors> sums;
        sums.clear();
        for (int step = group * o.steps; step < (group + 1) * o.steps; step++, x += code_step_inputs(bits)) {
            const uint32_t *const w = o.w + std::min(step, o.words - 1) * panel_width;
            CodeVector::Int words[vectors];
            HALYARD_UNROLL for (int v = 0; v < vectors; v++) {
                words[v] = numbers.signed_codes(
                    CodeVector::words(w + v / of_panel * o.w_panel + v % of_panel * CodeVector::lanes));
            }
            HALYARD_UNROLL for (int panel = 0; panel < panels; panel++) {
                _mm_prefetch(next + panel * o.next_panel, _MM_HINT_T1);
            }
            next += o.next_step;
            sums.template add<0>(numbers, x, words);
        }
        HALYARD_UNROLL for (int panel = 0; panel < panels; panel++) {
            _mm_prefetch(scales_next + panel * o.next_panel + group * 64, _MM_HINT_T1);
        }
        const bool from_zero = group == 0 && o.first;
        const float *const so_far = group == 0 ? o.so_far : o.sum;
        HALYARD_UNROLL for (int row = 0; row < rows; row++) {
            const auto x_sum = CodeVector::all(has_offsets ? o.x_sums[row * o.x_sums_row + group] : 0.0f);
            HALYARD_UNROLL for (int v = 0; v < vectors; v++) {
                const int column = v % of_panel * CodeVector::lanes;
                const int64_t place = row * o.sum_row + v / of_panel * panel_width + column;
                const char *const scale =
                    o.scales + group * o.scales_group + v / of_panel * o.scales_panel + column * size_of(scale_dtype);
                auto sum = from_zero ? CodeVector::zero() : CodeVector::floats(so_far + place);
                sum = CodeVector::fma(CodeVector::scales<scale_dtype>(scale), sums.of[row][v], sum);
                if constexpr (has_offsets) {
                    const char *const offset = scale + scale_offset * o.scales_row;
                    sum = CodeVector::fma(CodeVector::scales<scale_dtype>(offset), x_sum, sum);
                }
                CodeVector::store(o.sum + place, sum);
            }
        }
    }
}

template<int bits, DType scale_dtype, int rows>
int multiply_code_panels(void **pointers) {
    using Tile = CodeTile<scale_dtype>;
    const auto a = arguments::MatmulCodes::of(pointers);
    each_tile<CodeVector::tile_panels(rows)>(Tile(a), a.w.extent(2), a.x.extent(2), [](const Tile &o, auto panels) {
        if (Tile::has_offsets && o.x_sums_row > 0) {
            multiply_code_tile<bits, scale_dtype, Tile::has_offsets, rows, panels>(o);
        } else {
            multiply_code_tile<bits, scale_dtype, false, rows, panels>(o);
        }
    });
    return 0;
}

}  // namespace
}  // namespace halyard::HALYARD_CODES_ISA

#undef HALYARD_UNROLL

#define HALYARD_CODES_SYMBOL(bits, rows, dtype, isa) hk_matmul_codes##bits##_##rows##_##dtype##_##isa##_argv
#define HALYARD_CODES_KERNEL_OF(isa, bits, dtype, rows)                                                                \
    extern "C" int HALYARD_CODES_SYMBOL(bits, rows, dtype, isa)(void **arguments) {                                    \
        return halyard::isa::multiply_code_panels<bits, halyard::DType::dtype, rows>(arguments);                       \
    }
#define HALYARD_CODES_KERNELS(isa, dtype, rows)                                                                        \
    HALYARD_CODES_KERNEL_OF(isa, 4, dtype, rows)                                                                       \
    HALYARD_CODES_KERNEL_OF(isa, 8, dtype, rows)
HALYARD_CODES_KERNELS(HALYARD_CODES_ISA, f16, 1)
HALYARD_CODES_KERNELS(HALYARD_CODES_ISA, bf16, 1)
HALYARD_CODES_KERNELS(HALYARD_CODES_ISA, f32, 1)
HALYARD_CODES_KERNELS(HALYARD_CODES_ISA, f32, 2)
HALYARD_CODES_KERNELS(HALYARD_CODES_ISA, f32, 3)
HALYARD_CODES_KERNELS(HALYARD_CODES_ISA, f32, 4)
HALYARD_CODES_KERNELS(HALYARD_CODES_ISA, f32, 5)
HALYARD_CODES_KERNELS(HALYARD_CODES_ISA, f32, 6)
