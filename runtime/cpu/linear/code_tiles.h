// The GEMM kernels of quantized weights with rows in f32 on x86: generators/matmul_codes.cpp to the bit, for vectors of any width.
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

/** Where vector `v` begins: its panel, and its columns in there. */
constexpr int panel_of(int v) {
    return v * CodeVector::lanes / panel_width;
}
constexpr int column_of(int v) {
    return v * CodeVector::lanes % panel_width;
}

/** The numbers of a step's inputs, some vectors of columns wide: of codes, or in f32 where bits is 32. */
template<int bits, int vectors>
class StepNumbers {
public:
    static constexpr int inputs = code_step_inputs(bits);

    template<typename Tile>
    HALYARD_CODES_TARGET __attribute__((always_inline)) inline StepNumbers(const Tile &o, int step) : numbers_(o.flip) {
        const uint32_t *const w = o.w + std::min(step, o.words - 1) * panel_width;
        HALYARD_UNROLL for (int v = 0; v < vectors; v++) {
            words_[v] = numbers_.signed_codes(CodeVector::words(w + panel_of(v) * o.w_panel + column_of(v)));
        }
    }
    template<int input>
    HALYARD_CODES_TARGET __attribute__((always_inline)) inline CodeVector::Float number(int v) const {
        return numbers_.template of<input>(words_[v]);
    }

private:
    const CodeVector::Numbers<bits> numbers_;
    CodeVector::Int words_[vectors];
};

template<int vectors>
class StepNumbers<32, vectors> {
public:
    static constexpr int inputs = code_step_inputs(32);

    template<typename Tile>
    HALYARD_CODES_TARGET __attribute__((always_inline)) inline StepNumbers(const Tile &o, int step)
        : w_(reinterpret_cast<const float *>(o.w) + step * inputs * panel_width), w_panel_(o.w_panel) {}
    template<int input>
    HALYARD_CODES_TARGET __attribute__((always_inline)) inline CodeVector::Float number(int v) const {
        return CodeVector::floats(w_ + panel_of(v) * w_panel_ + input * panel_width + column_of(v));
    }

private:
    const float *const w_;
    const int64_t w_panel_;
};

/** The sums of a group. */
template<int rows, int vectors>
struct GroupSums {
    CodeVector::Float of[rows][vectors];

    HALYARD_CODES_TARGET __attribute__((always_inline)) inline void clear() {
        HALYARD_UNROLL for (int row = 0; row < rows; row++) {
            HALYARD_UNROLL for (int v = 0; v < vectors; v++) {
                of[row][v] = CodeVector::zero();
            }
        }
    }

    /** Adds the products of inputs `input` and after it of a step. */
    template<int input, typename Numbers>
    HALYARD_CODES_TARGET __attribute__((always_inline)) inline void add(const Numbers &numbers, const float *x) {
        if constexpr (input < Numbers::inputs) {
            CodeVector::Float number[vectors];
            HALYARD_UNROLL for (int v = 0; v < vectors; v++) {
                number[v] = numbers.template number<input>(v);
            }
            HALYARD_UNROLL for (int row = 0; row < rows; row++) {
                const auto value = CodeVector::all(x[row * x_pitch + input]);
                HALYARD_UNROLL for (int v = 0; v < vectors; v++) {
                    CodeVector::add_product(value, number[v], of[row][v]);
                }
            }
            add<input + 1>(numbers, x);
        }
    }
};

/** `o` comes by value: vectors may alias all, so that what a reference refers to would be read again after each store. */
template<int bits, DType scale_dtype, bool has_offsets, int rows, int panels>
HALYARD_CODES_TARGET __attribute__((noinline)) void multiply_code_tile(const CodeTile<scale_dtype> o) {
    constexpr int vectors = panels * (panel_width / CodeVector::lanes);
    static constexpr float nothing[panels * panel_width] = {};
    const float *x = o.x;
    // Steps leave out as much of a k block with its scales as the scales take.
    const char *next = o.next, *const scales_next = o.next + o.next_tile;
    for (int group = 0; group < o.groups; group++) {
        GroupSums<rows, vectors> sums;
        sums.clear();
        for (int step = group * o.steps; step < (group + 1) * o.steps; step++, x += code_step_inputs(bits)) {
            HALYARD_UNROLL for (int panel = 0; panel < panels; panel++) {
                _mm_prefetch(next + panel * o.next_panel, _MM_HINT_T1);
            }
            next += o.next_step;
            sums.template add<0>(StepNumbers<bits, vectors>(o, step), x);
        }
        HALYARD_UNROLL for (int panel = 0; panel < panels; panel++) {
            _mm_prefetch(scales_next + panel * o.next_panel + group * 64, _MM_HINT_T1);
        }
        const bool from_nothing = group == 0 && o.first;
        const float *const so_far = from_nothing ? nothing : group == 0 ? o.so_far : o.sum;
        const int64_t so_far_row = from_nothing ? 0 : o.sum_row;
        HALYARD_UNROLL for (int row = 0; row < rows; row++) {
            const auto x_sum = CodeVector::all(has_offsets ? o.x_sums[row * o.x_sums_row + group] : 0.0f);
            HALYARD_UNROLL for (int v = 0; v < vectors; v++) {
                const int column = column_of(v), place = panel_of(v) * panel_width + column;
                const char *const scale =
                    o.scales + group * o.scales_group + panel_of(v) * o.scales_panel + column * size_of(scale_dtype);
                auto sum = CodeVector::fma(CodeVector::scales<scale_dtype>(scale), sums.of[row][v],
                                           CodeVector::floats(so_far + row * so_far_row + place));
                if constexpr (has_offsets) {
                    const char *const offset = scale + scale_offset * o.scales_row;
                    sum = CodeVector::fma(CodeVector::scales<scale_dtype>(offset), x_sum, sum);
                }
                CodeVector::store(o.sum + row * o.sum_row + place, sum);
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
#define HALYARD_CODES_KERNEL(isa, bits, dtype, rows)                                                                   \
    extern "C" int HALYARD_CODES_SYMBOL(bits, rows, dtype, isa)(void **arguments) {                                    \
        return halyard::isa::multiply_code_panels<bits, halyard::DType::dtype, rows>(arguments);                       \
    }
