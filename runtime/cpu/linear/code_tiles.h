// The GEMM kernels of quantized weights with rows in f32 on x86: generators/matmul_codes.cpp to the bit, for vectors of any width.
//
// They are written by hand because Halide's tiles are one vector of each panel wide, too few sums for multiply-adds to overlap. The file of
// an instruction set defines before it includes this one:
//
//     HALYARD_CODES_ISA      its name, also a namespace
//     HALYARD_CODES_TARGET   the attribute that functions need
//     halyard::HALYARD_CODES_ISA::CodeVector:
//         Int, Float, lanes, words, scales<dtype>, ...   as in vectors.h of the instruction set
//         Numbers<bits>                                  prepared(words), and of<input>() of these: an input's numbers in f32
//         tile_panels(rows)                              panels at a time
//         tiles_share_numbers(rows)                      whether the first of several tiles of rows keeps its numbers for the others;
//                                                        they are one panel wide then
#include <algorithm>
#include <cstdint>

#include "core/kernel_call.h"
#include "cpu/linear/written_tiles.h"

#ifdef __clang__
#define HALYARD_UNROLL _Pragma("clang loop unroll(full)")
#else
#define HALYARD_UNROLL _Pragma("GCC unroll 8")
#endif

#define HALYARD_CODES_INLINE HALYARD_CODES_TARGET __attribute__((always_inline)) inline

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

constexpr float nothing_so_far[max_tile_panels * panel_width] = {};

/** Where vector `v` begins: its panel, and its columns in there. */
constexpr int panel_of(int v) {
    return v * CodeVector::lanes / panel_width;
}
constexpr int column_of(int v) {
    return v * CodeVector::lanes % panel_width;
}

/** The numbers of a step of a group, some vectors of columns wide. */
template<int bits, int vectors>
class StepNumbers {
public:
    static constexpr int inputs = code_step_inputs(bits), floats = inputs * vectors * CodeVector::lanes;

    template<typename Tile>
    HALYARD_CODES_INLINE StepNumbers(const Tile &o, int group, int step, float *) : numbers_(o.flip) {
        const uint32_t *const w = o.w + std::min(group * o.steps + step, o.words - 1) * panel_width;
        HALYARD_UNROLL for (int v = 0; v < vectors; v++) {
            words_[v] = numbers_.prepared(CodeVector::words(w + panel_of(v) * o.w_panel + column_of(v)));
        }
    }
    template<int input>
    HALYARD_CODES_INLINE CodeVector::Float number(int v) const {
        return numbers_.template of<input>(words_[v]);
    }

private:
    const CodeVector::Numbers<bits> numbers_;
    CodeVector::Int words_[vectors];
};

/** And writes them to the group's memory. */
template<int bits, int vectors>
class KeptNumbers : public StepNumbers<bits, vectors> {
public:
    template<typename Tile>
    HALYARD_CODES_INLINE KeptNumbers(const Tile &o, int group, int step, float *to)
        : StepNumbers<bits, vectors>(o, group, step, to), to_(to + step * StepNumbers<bits, vectors>::floats) {}
    template<int input>
    HALYARD_CODES_INLINE CodeVector::Float number(int v) const {
        const CodeVector::Float number = StepNumbers<bits, vectors>::template number<input>(v);
        CodeVector::store(to_ + (input * vectors + v) * CodeVector::lanes, number);
        return number;
    }

private:
    float *const to_;
};

/** Reads them from there. */
template<int bits, int vectors>
class ReadNumbers {
public:
    static constexpr int inputs = code_step_inputs(bits), floats = inputs * vectors * CodeVector::lanes;

    template<typename Tile>
    HALYARD_CODES_INLINE ReadNumbers(const Tile &, int, int step, const float *from) : from_(from + step * floats) {}
    template<int input>
    HALYARD_CODES_INLINE CodeVector::Float number(int v) const {
        return CodeVector::floats(from_ + (input * vectors + v) * CodeVector::lanes);
    }

private:
    const float *const from_;
};

/** The sums of a group. */
template<int rows, int vectors>
struct GroupSums {
    CodeVector::Float of[rows][vectors];

    HALYARD_CODES_INLINE void clear() {
        HALYARD_UNROLL for (int row = 0; row < rows; row++) {
            HALYARD_UNROLL for (int v = 0; v < vectors; v++) {
                of[row][v] = CodeVector::zero();
            }
        }
    }

    /** Adds the products of inputs `input` and after it of a step. */
    template<int input, typename Numbers>
    HALYARD_CODES_INLINE void add(const Numbers &numbers, const float *x) {
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

/** Adds a group to the sums of a tile. `memory`: what its Numbers write or read. */
template<typename Numbers, bool has_offsets, int rows, int panels, typename Tile>
HALYARD_CODES_INLINE void multiply_group(const Tile &o, int group, float *memory) {
    constexpr int vectors = panels * (panel_width / CodeVector::lanes);
    const float *x = o.x + group * o.steps * Numbers::inputs;
    // Steps leave out as much of a k block with its scales as the scales take.
    const char *next = o.next + group * o.steps * o.next_step, *const next_scales = o.next + o.next_tile + group * 64;
    GroupSums<rows, vectors> sums;
    sums.clear();
    for (int step = 0; step < o.steps; step++, x += Numbers::inputs) {
        HALYARD_UNROLL for (int panel = 0; panel < panels; panel++) {
            _mm_prefetch(next + panel * o.next_panel, _MM_HINT_T1);
        }
        next += o.next_step;
        sums.template add<0>(Numbers(o, group, step, memory), x);
    }
    HALYARD_UNROLL for (int panel = 0; panel < panels; panel++) {
        _mm_prefetch(next_scales + panel * o.next_panel, _MM_HINT_T1);
    }
    const bool from_nothing = group == 0 && o.first;
    const float *const so_far = from_nothing ? nothing_so_far : group == 0 ? o.so_far : o.sum;
    const int64_t so_far_row = from_nothing ? 0 : o.sum_row;
    HALYARD_UNROLL for (int row = 0; row < rows; row++) {
        const auto x_sum = CodeVector::all(has_offsets ? o.x_sums[row * o.x_sums_row + group] : 0.0f);
        HALYARD_UNROLL for (int v = 0; v < vectors; v++) {
            const int column = column_of(v), place = panel_of(v) * panel_width + column;
            const char *const scale = o.scales + group * o.scales_group + panel_of(v) * o.scales_panel +
                                      column * size_of(Tile::dtype_of_scales);
            auto sum = CodeVector::fma(CodeVector::scales<Tile::dtype_of_scales>(scale), sums.of[row][v],
                                       CodeVector::floats(so_far + row * so_far_row + place));
            if constexpr (has_offsets) {
                const char *const offset = scale + scale_offset * o.scales_row;
                sum = CodeVector::fma(CodeVector::scales<Tile::dtype_of_scales>(offset), x_sum, sum);
            }
            CodeVector::store(o.sum + row * o.sum_row + place, sum);
        }
    }
}

/** `o` comes by value here and below: vectors may alias all, so that what a reference refers to would be read again after each store. */
template<int bits, bool has_offsets, int rows, int panels, typename Tile>
HALYARD_CODES_TARGET __attribute__((noinline)) void multiply_code_tile(const Tile o) {
    using Numbers = StepNumbers<bits, panels *(panel_width / CodeVector::lanes)>;
    for (int group = 0; group < o.groups; group++) {
        multiply_group<Numbers, has_offsets, rows, panels>(o, group, nullptr);
    }
}

/** Several tiles of a panel, some groups at a time: the first keeps the numbers for the others, in the first-level cache. Of fewer inputs
 *  pieces of rows of x would be too short to be fetched ahead. */
template<int bits, bool has_offsets, int rows, typename Tile>
HALYARD_CODES_TARGET __attribute__((noinline)) void multiply_code_tiles(const Tile o, int tiles) {
    constexpr int vectors = panel_width / CodeVector::lanes, kept_inputs = 256;
    alignas(64) float numbers[k_block * panel_width];  // a group is a whole block at most
    const int group_inputs = o.steps * code_step_inputs(bits), kept_groups = std::max(1, kept_inputs / group_inputs);
    for (int begin = 0; begin < o.groups; begin += kept_groups) {
        const int end = std::min(begin + kept_groups, o.groups);
        const auto numbers_of = [&](int group) { return numbers + (group - begin) * group_inputs * panel_width; };
        for (int group = begin; group < end; group++) {
            multiply_group<KeptNumbers<bits, vectors>, has_offsets, rows, 1>(o, group, numbers_of(group));
        }
        Tile other = o;
        for (int i = 1; i < tiles; i++) {
            other.skip_tile();
            for (int group = begin; group < end; group++) {
                multiply_group<ReadNumbers<bits, vectors>, has_offsets, rows, 1>(other, group, numbers_of(group));
            }
        }
    }
}

/** All tiles of rows of some panels. */
template<int bits, bool has_offsets, int rows, int panels, typename Tile>
void multiply_tiles(Tile tile, int tiles) {
    if constexpr (CodeVector::tiles_share_numbers(rows)) {
        static_assert(panels == 1);
        if (tiles > 1) {
            multiply_code_tiles<bits, has_offsets, rows>(tile, tiles);
            return;
        }
    }
    for (int i = 0; i < tiles; i++) {
        multiply_code_tile<bits, has_offsets, rows, panels>(tile);
        tile.skip_tile();
    }
}

template<int bits, DType scale_dtype, int rows>
int multiply_code_panels(void **pointers) {
    using Tile = CodeTile<scale_dtype>;
    const auto a = arguments::MatmulCodes::of(pointers);
    const int tiles = a.x.extent(2);
    each_panels<CodeVector::tile_panels(rows)>(Tile(a), a.w.extent(2), [tiles](const Tile &o, auto panels) {
        if (Tile::has_offsets && o.x_sums_row > 0) {
            multiply_tiles<bits, Tile::has_offsets, rows, panels>(o, tiles);
        } else {
            multiply_tiles<bits, false, rows, panels>(o, tiles);
        }
    });
    return 0;
}

}  // namespace
}  // namespace halyard::HALYARD_CODES_ISA

#undef HALYARD_CODES_INLINE
#undef HALYARD_UNROLL

#define HALYARD_CODES_SYMBOL(bits, rows, dtype, isa) hk_matmul_codes##bits##_##rows##_##dtype##_##isa##_argv
#define HALYARD_CODES_KERNEL(isa, bits, dtype, rows)                                                                   \
    extern "C" int HALYARD_CODES_SYMBOL(bits, rows, dtype, isa)(void **arguments) {                                    \
        return halyard::isa::multiply_code_panels<bits, halyard::DType::dtype, rows>(arguments);                       \
    }
