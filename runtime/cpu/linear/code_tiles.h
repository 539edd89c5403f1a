// The GEMM kernels of quantized weights with rows in f32 or pairs of bf16 on x86: generators/matmul_codes.cpp to the bit, for vectors of
// any width.
//
// They are written by hand because Halide's tiles are one vector of each panel wide, too few sums for multiply-adds to overlap. The file of
// an instruction set defines before it includes this one:
//
//     HALYARD_CODES_ISA      its name, also a namespace
//     HALYARD_CODES_TARGET   the attribute that functions need
//     halyard::HALYARD_CODES_ISA::CodeVector:
//         Int, Float, lanes, words, scales<dtype>, ...   as in vectors.h of the instruction set
//         X, x_inputs, x_row                             elements of x, what inputs one has, and elements from one row to the next
//         all(x), Number, add_product(...)               one in all lanes, what it is multiplied with, and the product
//         Numbers<bits, rows>                            prepared(words), and of<i>() of these: the Number of an element of x
//         tile_panels(rows)                              panels at a time
//         sums_stay(rows)                                whether a tile's sums are in registers beside those of a group
//         tiles_share_numbers(rows)                      whether the first of several tiles of rows keeps its numbers for the others;
//                                                        they are one panel wide then
#include <algorithm>
#include <cstdint>
#include <type_traits>

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
struct CodeTile : QuantizedTile<CodeVector::X, scale_dtype> {
    int groups, steps, words;
    uint32_t flip;

    explicit CodeTile(const arguments::MatmulCodes &a)
        : QuantizedTile<CodeVector::X, scale_dtype>(a), groups(a.scales.extent(2)), steps(a.steps.value()),
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

/** The numbers of a step of a group, some vectors of columns wide. */
template<int bits, int rows, int vectors>
class StepNumbers {
public:
    static constexpr int elements = code_step_inputs(bits) / CodeVector::x_inputs;

    template<typename Tile>
    HALYARD_CODES_INLINE StepNumbers(const Tile &o, int group, int step, float *) : numbers_(o.flip) {
        const uint32_t *const w = o.w + std::min(group * o.steps + step, o.words - 1) * panel_width;
        HALYARD_UNROLL for (int v = 0; v < vectors; v++) {
            words_[v] = numbers_.prepared(CodeVector::words(w + panel_of(v) * o.w_panel + column_of(v)));
        }
    }
    template<int element>
    HALYARD_CODES_INLINE CodeVector::Number number(int v) const {
        return numbers_.template of<element>(words_[v]);
    }

private:
    const CodeVector::Numbers<bits, rows> numbers_;
    CodeVector::Int words_[vectors];
};

/** Numbers of codes, which are written to the group's memory too. */
template<int bits, int rows, int vectors>
class KeptNumbers : public StepNumbers<bits, rows, vectors> {
public:
    template<typename Tile>
    HALYARD_CODES_INLINE KeptNumbers(const Tile &o, int group, int step, float *to)
        : StepNumbers<bits, rows, vectors>(o, group, step, to),
          to_(to + step * code_step_inputs(bits) * vectors * CodeVector::lanes) {}
    template<int element>
    HALYARD_CODES_INLINE CodeVector::Float number(int v) const {
        const CodeVector::Float number = StepNumbers<bits, rows, vectors>::template number<element>(v);
        CodeVector::store(to_ + (element * vectors + v) * CodeVector::lanes, number);
        return number;
    }

private:
    float *const to_;
};

/** Reads them from there. */
template<int bits, int vectors>
class ReadNumbers {
public:
    static constexpr int elements = code_step_inputs(bits), floats = elements * vectors * CodeVector::lanes;

    template<typename Tile>
    HALYARD_CODES_INLINE ReadNumbers(const Tile &, int, int step, const float *from) : from_(from + step * floats) {}
    template<int element>
    HALYARD_CODES_INLINE CodeVector::Float number(int v) const {
        return CodeVector::floats(from_ + (element * vectors + v) * CodeVector::lanes);
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

    /** Adds the products of a step's elements from `element` on. */
    template<int element, typename Numbers>
    HALYARD_CODES_INLINE void add(const Numbers &numbers, const CodeVector::X *x) {
        if constexpr (element < Numbers::elements) {
            CodeVector::Number number[vectors];
            HALYARD_UNROLL for (int v = 0; v < vectors; v++) {
                number[v] = numbers.template number<element>(v);
            }
            HALYARD_UNROLL for (int row = 0; row < rows; row++) {
                const auto value = CodeVector::all(x[row * CodeVector::x_row + element]);
                HALYARD_UNROLL for (int v = 0; v < vectors; v++) {
                    CodeVector::add_product(value, number[v], of[row][v]);
                }
            }
            add<element + 1>(numbers, x);
        }
    }
};

/** Where a tile has a vector of its sums. */
template<typename Tile>
HALYARD_CODES_INLINE int64_t place_of(const Tile &o, int row, int v) {
    return row * o.sum_row + panel_of(v) * panel_width + column_of(v);
}

/** A tile's sums while some groups are added, in registers. `begins`: whether these are the first of the block of inputs. */
template<int rows, int vectors, typename Tile>
class SumsInRegisters {
public:
    HALYARD_CODES_INLINE SumsInRegisters(const Tile &o, bool begins) {
        HALYARD_UNROLL for (int row = 0; row < rows; row++) {
            HALYARD_UNROLL for (int v = 0; v < vectors; v++) {
                const float *const so_far = begins ? o.so_far : o.sum;
                sums_[row][v] =
                    begins && o.first ? CodeVector::zero() : CodeVector::floats(so_far + place_of(o, row, v));
            }
        }
    }
    HALYARD_CODES_INLINE CodeVector::Float at(const Tile &, int row, int v) const { return sums_[row][v]; }
    HALYARD_CODES_INLINE void set(const Tile &, int row, int v, CodeVector::Float sum) { sums_[row][v] = sum; }
    HALYARD_CODES_INLINE void end(const Tile &o) const {
        HALYARD_UNROLL for (int row = 0; row < rows; row++) {
            HALYARD_UNROLL for (int v = 0; v < vectors; v++) {
                CodeVector::store(o.sum + place_of(o, row, v), sums_[row][v]);
            }
        }
    }

private:
    CodeVector::Float sums_[rows][vectors];
};

/** A tile's sums in memory, where there are too few registers. */
template<int rows, int vectors, typename Tile>
class SumsInMemory {
public:
    HALYARD_CODES_INLINE SumsInMemory(const Tile &o, bool begins) {
        if (begins) {
            SumsInRegisters<rows, vectors, Tile>(o, true).end(o);
        }
    }
    HALYARD_CODES_INLINE CodeVector::Float at(const Tile &o, int row, int v) const {
        return CodeVector::floats(o.sum + place_of(o, row, v));
    }
    HALYARD_CODES_INLINE void set(const Tile &o, int row, int v, CodeVector::Float sum) const {
        CodeVector::store(o.sum + place_of(o, row, v), sum);
    }
    HALYARD_CODES_INLINE void end(const Tile &) const {}
};

template<int rows, int vectors, typename Tile>
using TileSums = std::conditional_t<CodeVector::sums_stay(rows), SumsInRegisters<rows, vectors, Tile>,
                                    SumsInMemory<rows, vectors, Tile>>;

/** Adds a group to the sums of a tile. `memory`: what its Numbers write or read. */
template<typename Numbers, bool has_offsets, int rows, int panels, typename Tile, typename Sums>
HALYARD_CODES_INLINE void multiply_group(const Tile &o, int group, float *memory, Sums &sums) {
    constexpr int vectors = panels * (panel_width / CodeVector::lanes);
    const CodeVector::X *x = o.x + group * o.steps * Numbers::elements;
    // Steps leave out as much of a k block with its scales as the scales take.
    const char *next = o.next + group * o.steps * o.next_step, *const next_scales = o.next + o.next_tile + group * 64;
    GroupSums<rows, vectors> of_group;
    of_group.clear();
    for (int step = 0; step < o.steps; step++, x += Numbers::elements) {
        HALYARD_UNROLL for (int panel = 0; panel < panels; panel++) {
            _mm_prefetch(next + panel * o.next_panel, _MM_HINT_T1);
        }
        next += o.next_step;
        of_group.template add<0>(Numbers(o, group, step, memory), x);
    }
    HALYARD_UNROLL for (int panel = 0; panel < panels; panel++) {
        _mm_prefetch(next_scales + panel * o.next_panel, _MM_HINT_T1);
    }
    HALYARD_UNROLL for (int v = 0; v < vectors; v++) {
        const char *const scales = o.scales + group * o.scales_group + panel_of(v) * o.scales_panel +
                                   column_of(v) * size_of(Tile::dtype_of_scales);
        const auto scale = CodeVector::scales<Tile::dtype_of_scales>(scales);
        HALYARD_UNROLL for (int row = 0; row < rows; row++) {
            auto sum = CodeVector::fma(scale, of_group.of[row][v], sums.at(o, row, v));
            if constexpr (has_offsets) {
                const auto offset = CodeVector::scales<Tile::dtype_of_scales>(scales + scale_offset * o.scales_row);
                sum = CodeVector::fma(offset, CodeVector::all(o.x_sums[row * o.x_sums_row + group]), sum);
            }
            sums.set(o, row, v, sum);
        }
    }
}

/** Adds some groups to the sums of a tile. `o` comes by value here and below: vectors may alias all, so that what a reference refers to
 *  would be read again after each store. */
template<typename Numbers, bool has_offsets, int rows, int panels, typename Tile, typename Memory>
HALYARD_CODES_INLINE void multiply_groups(const Tile o, int begin, int end, const Memory &memory_of) {
    TileSums<rows, panels *(panel_width / CodeVector::lanes), Tile> sums(o, begin == 0);
    for (int group = begin; group < end; group++) {
        multiply_group<Numbers, has_offsets, rows, panels>(o, group, memory_of(group), sums);
    }
    sums.end(o);
}

template<int bits, bool has_offsets, int rows, int panels, typename Tile>
HALYARD_CODES_TARGET __attribute__((noinline)) void multiply_code_tile(const Tile o) {
    using Numbers = StepNumbers<bits, rows, panels *(panel_width / CodeVector::lanes)>;
    multiply_groups<Numbers, has_offsets, rows, panels>(o, 0, o.groups, [](int) -> float * { return nullptr; });
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
        multiply_groups<KeptNumbers<bits, rows, vectors>, has_offsets, rows, 1>(o, begin, end, numbers_of);
        Tile other = o;
        for (int i = 1; i < tiles; i++) {
            other.skip_tile();
            multiply_groups<ReadNumbers<bits, vectors>, has_offsets, rows, 1>(other, begin, end, numbers_of);
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

#define HALYARD_CODES_SYMBOL(family, bits, rows, dtype, isa) hk_##family##bits##_##rows##_##dtype##_##isa##_argv
#define HALYARD_CODES_KERNEL(family, bits, rows, dtype, isa)                                                           \
    extern "C" int HALYARD_CODES_SYMBOL(family, bits, rows, dtype, isa)(void **arguments) {                            \
        return halyard::isa::multiply_code_panels<bits, halyard::DType::dtype, rows>(arguments);                       \
    }
/** The kernels of 1 to 6 rows. */
#define HALYARD_CODES_KERNELS(family, bits, isa)                                                                       \
    HALYARD_CODES_KERNEL(family, bits, 1, f16, isa)                                                                    \
    HALYARD_CODES_KERNEL(family, bits, 1, bf16, isa)                                                                   \
    HALYARD_CODES_KERNEL(family, bits, 1, f32, isa)                                                                    \
    HALYARD_CODES_KERNEL(family, bits, 2, f32, isa)                                                                    \
    HALYARD_CODES_KERNEL(family, bits, 3, f32, isa)                                                                    \
    HALYARD_CODES_KERNEL(family, bits, 4, f32, isa)                                                                    \
    HALYARD_CODES_KERNEL(family, bits, 5, f32, isa)                                                                    \
    HALYARD_CODES_KERNEL(family, bits, 6, f32, isa)
/** And of 7 and 8. */
#define HALYARD_CODES_KERNELS_TO_8(family, bits, isa)                                                                  \
    HALYARD_CODES_KERNELS(family, bits, isa)                                                                           \
    HALYARD_CODES_KERNEL(family, bits, 7, f32, isa)                                                                    \
    HALYARD_CODES_KERNEL(family, bits, 8, f32, isa)
