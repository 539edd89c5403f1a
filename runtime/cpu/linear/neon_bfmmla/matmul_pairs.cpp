// Pairs of bf16 by BFMMLA where there are rows enough, with the bits of BFDOT: of two rows and two columns it adds the products of
// two pairs, one pair after the other.
//
// Two columns' pairs of two rows of a panel become one register by a zip, as do two rows' pairs of x. That pays from four rows on.
#include "cpu/linear/neon_bfdot/dot_products.h"

namespace halyard {
namespace {

/** The sums of a tile of one panel. Of the last of an odd number of rows half of the products are of zeros. */
template<int rows>
struct MatrixSums {
    static constexpr int row_pairs = (rows + 1) / 2, column_pairs = panel_width / 2;
    float32x4_t of[row_pairs * column_pairs];  // two columns of one row, and of the next

    HALYARD_INLINE MatrixSums() {
        unrolled<row_pairs * column_pairs>([&](auto i) HALYARD_INLINE { of[i] = vdupq_n_f32(0); });
    }

    template<typename Body>
    HALYARD_INLINE void each(const Body &body) {
        unrolled<rows * panel_vectors>([&](auto i) HALYARD_INLINE {
            constexpr int row = i / panel_vectors, vector = i % panel_vectors;
            body(of[row / 2 * column_pairs + 2 * vector + row % 2], row, vector * lanes);
        });
    }

    template<typename Prefetch>
    HALYARD_INLINE void add_four(const uint32_t *x, const uint32_t *w, int64_t, const Prefetch &prefetch) {
        unrolled<2>([&](auto half) HALYARD_INLINE {
            uint32x4_t of_rows[row_pairs];
            unrolled<row_pairs>([&](auto i) HALYARD_INLINE {
                const uint64x2_t upper = load<2 * i>(x), lower = load<2 * i + 1>(x);
                of_rows[i] = vreinterpretq_u32_u64(half() == 0 ? vzip1q_u64(upper, lower) : vzip2q_u64(upper, lower));
            });
            prefetch();
            prefetch();
            const uint32_t *const earlier = w + half * 2 * panel_width;
            add(
                of_rows, [&](int column) HALYARD_INLINE { return vld1q_u32(earlier + column); },
                [&](int column) HALYARD_INLINE { return vld1q_u32(earlier + panel_width + column); });
        });
    }
    HALYARD_INLINE void add_one(const uint32_t *x, const uint32_t *w, int64_t) {
        uint32x4_t of_rows[row_pairs];
        unrolled<row_pairs>([&](auto i) HALYARD_INLINE {
            of_rows[i] = vsetq_lane_u32(x[2 * i * x_pair_pitch], vdupq_n_u32(0), 0);
            if constexpr (2 * i + 1 < rows) {
                of_rows[i] = vsetq_lane_u32(x[(2 * i + 1) * x_pair_pitch], of_rows[i], 2);
            }
        });
        add(
            of_rows, [&](int column) HALYARD_INLINE { return vld1q_u32(w + column); },
            [](int) HALYARD_INLINE { return vdupq_n_u32(0); });
    }
    HALYARD_INLINE void finish() {
        unrolled<row_pairs * panel_vectors>([&](auto i) HALYARD_INLINE {
            const float64x2_t left = vreinterpretq_f64_f32(of[2 * i]), right = vreinterpretq_f64_f32(of[2 * i + 1]);
            of[2 * i] = vreinterpretq_f32_f64(vzip1q_f64(left, right));
            of[2 * i + 1] = vreinterpretq_f32_f64(vzip2q_f64(left, right));
        });
    }

private:
    template<int row>
    HALYARD_INLINE static uint64x2_t load(const uint32_t *x) {
        if constexpr (row < rows) {
            return vreinterpretq_u64_u32(vld1q_u32(x + row * x_pair_pitch));
        } else {
            return vdupq_n_u64(0);
        }
    }

    /** Two pairs of every column with those of `x`. */
    template<typename Earlier, typename Later>
    HALYARD_INLINE void add(const uint32x4_t (&x)[row_pairs], const Earlier &earlier, const Later &later) {
        unrolled<panel_vectors>([&](auto vector) HALYARD_INLINE {
            const uint32x4_t first = earlier(vector * lanes), second = later(vector * lanes);
            unrolled<2>([&](auto side) HALYARD_INLINE {
                const uint32x4_t columns = side() == 0 ? vzip1q_u32(first, second) : vzip2q_u32(first, second);
                unrolled<row_pairs>([&](auto i) HALYARD_INLINE {
                    float32x4_t sum = of[i * column_pairs + 2 * vector + side];
                    // volatile: in this order, or compilers zip more than there are registers for.
                    __asm__ volatile("bfmmla %0.4s, %1.8h, %2.8h" : "+w"(sum) : "w"(x[i]), "w"(columns));
                    of[i * column_pairs + 2 * vector + side] = sum;
                });
            });
        });
    }
};

template<int rows, int panels>
using Tile = std::conditional_t < rows<4, Sums<DotProducts, rows, panels>, MatrixSums<rows>>;

}  // namespace
}  // namespace halyard

HALYARD_PAIR_TILES(neon_bfmmla, halyard::Tile)
