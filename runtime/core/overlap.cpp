// Whether elements of views share memory.
//
// Two elements share a byte if the distance of their addresses lies within certain bounds. An address is a sum of index
// times stride over the axes, so the question is whether some
//
//     c[0] x[0] + ... + c[n-1] x[n-1],    c[k] > 0,    0 <= x[k] <= m[k],
//
// lies in [low, high]. (Where indices are subtracted, they are counted from the axis's other end.) Steps that keep the
// answer make the sum smaller, see reduce(). Two axes that are left are decided by Euclid's algorithm; of three or more,
// the values of one are tried in turn. Axes of tensors nest in each other or are shared by both views, which leaves few
// values to try; strides that were chosen to be intricate may leave more than the bound allows.
#include "core/overlap.h"

#include <algorithm>

namespace halyard {
namespace {

constexpr int max_sums = 10000;  // some milliseconds

/** Rounded towards negative infinity; b > 0. */
int64_t floor_quotient(int64_t a, int64_t b) {
    return a / b - (a % b < 0);
}

int64_t ceiling_quotient(int64_t a, int64_t b) {
    return -floor_quotient(-a, b);
}

int64_t greatest_common_divisor(int64_t a, int64_t b) {
    while (b != 0) {
        const int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/** The least t >= 0 with low <= a t mod m <= high, or -1 if there is none with a t < 2^63; 0 <= a < m, 0 < low <= high < m. */
int64_t first_multiple_within(int64_t a, int64_t m, int64_t low, int64_t high) {
    if (a == 0) {
        return -1;
    }
    const int64_t t = ceiling_quotient(low, a);
    if (a * t <= high) {
        return t;
    }
    // Not before the first wrap. After w of them the multiples of a must meet [low + m w, high + m w], which is the same
    // question about the multiples of m modulo a.
    const int64_t w = first_multiple_within(m % a, a, a - high % a, a - low % a);
    int64_t wrapped;
    if (w < 0 || __builtin_mul_overflow(m, w, &wrapped) || __builtin_add_overflow(low, wrapped, &wrapped)) {
        return -1;
    }
    return ceiling_quotient(wrapped, a);
}

/** The question about a sum. All values of the sum are below 2^62. */
class Sum {
public:
    Sum(int64_t low, int64_t high) : low_(low), high_(high) {}

    /** An axis; `stride` counts elements of `size` bytes. */
    void add(int64_t stride, int64_t size, int64_t most) {
        if (stride > 0 && most > 0) {
            coefficient_[axes_] = stride * size;
            most_[axes_++] = most;
        }
    }

    /** Whether the sum can lie in [low, high]. Takes one from `sums_left` for each sum that is looked at. */
    Overlap decide(int &sums_left) {
        if (sums_left == 0) {
            return Overlap::undecided;
        }
        sums_left--;
        while (true) {
            const int64_t largest = this->largest();
            if (low_ > high_ || high_ < 0 || low_ > largest) {
                return Overlap::none;
            }
            if (low_ <= 0 || high_ >= largest) {
                return Overlap::some;  // all x[k] 0, or all m[k]
            }
            if (!reduce()) {
                return axes_ == 2 ? decide_two() : try_values(sums_left);
            }
        }
    }

private:
    static constexpr int max_axes = 2 * max_rank;

    int64_t largest() const {
        int64_t sum = 0;
        for (int k = 0; k < axes_; k++) {
            sum += coefficient_[k] * most_[k];
        }
        return sum;
    }

    void remove(int k) {
        axes_--;
        coefficient_[k] = coefficient_[axes_];
        most_[k] = most_[axes_];
    }

    /** Makes the sum smaller and leaves the answer as it is; false if that is not possible. */
    bool reduce() {
        for (int k = 0; k < axes_; k++) {
            // Steps of no more than the width of [low, high] leave no gap: the axis makes the interval wider.
            if (coefficient_[k] <= high_ - low_ + 1) {
                low_ -= coefficient_[k] * most_[k];
                remove(k);
                return true;
            }
            // An axis whose steps go on where another one ends makes that one longer.
            for (int i = 0; i < axes_; i++) {
                if (i == k || coefficient_[k] < coefficient_[i]) {
                    continue;
                }
                const int64_t steps = coefficient_[k] / coefficient_[i];
                if (coefficient_[k] == steps * coefficient_[i] && most_[i] >= steps - 1) {
                    most_[i] += steps * most_[k];
                    remove(k);
                    return true;
                }
            }
        }
        // A common factor leaves the multiples of it in [low, high].
        int64_t factor = 0;
        for (int k = 0; k < axes_; k++) {
            factor = greatest_common_divisor(coefficient_[k], factor);
        }
        if (factor > 1) {
            for (int k = 0; k < axes_; k++) {
                coefficient_[k] /= factor;
            }
            low_ = ceiling_quotient(low_, factor);
            high_ = floor_quotient(high_, factor);
        }
        return factor > 1;
    }

    /** The values of x[k] with which the others can bring the sum into [low, high], if any. */
    struct Values {
        int64_t first, last;
    };
    Values values(int k) const {
        const int64_t c = coefficient_[k], others = largest() - c * most_[k];
        return {std::max<int64_t>(0, ceiling_quotient(low_ - others, c)), std::min(most_[k], high_ / c)};
    }

    /** c[0] x[0] + c[1] x[1], where [low, high] is narrower than c[1]: some x[0] must leave the rest of c[0] x[0] - low,
     *  divided by c[1], in [0, high - low]. */
    Overlap decide_two() const {
        const Values x = values(0);
        const int64_t c = coefficient_[0], m = coefficient_[1], width = high_ - low_ + 1;
        if (x.first > x.last) {
            return Overlap::none;
        }
        const int64_t start = c * x.first - low_, rest = start - floor_quotient(start, m) * m;
        if (rest < width) {
            return Overlap::some;
        }
        const int64_t step = first_multiple_within(c % m, m, m - rest, m - rest + width - 1);
        return step >= 0 && step <= x.last - x.first ? Overlap::some : Overlap::none;
    }

    Overlap try_values(int &sums_left) const {
        int fewest = 0;
        Values tried = values(0);
        for (int k = 1; k < axes_; k++) {
            const Values x = values(k);
            if (x.last - x.first < tried.last - tried.first) {
                fewest = k;
                tried = x;
            }
        }
        Overlap result = Overlap::none;
        for (int64_t x = tried.first; x <= tried.last && result == Overlap::none; x++) {
            Sum rest = *this;
            rest.low_ -= coefficient_[fewest] * x;
            rest.high_ -= coefficient_[fewest] * x;
            rest.remove(fewest);
            result = rest.decide(sums_left);
        }
        return result;
    }

    int64_t low_, high_;
    int axes_ = 0;
    int64_t coefficient_[max_axes], most_[max_axes];
};

}  // namespace

Overlap overlap(const View &a, const View &b) {
    const int64_t a_size = size_of(a.dtype), b_size = size_of(b.dtype);
    // From the last element of b to the first of a.
    const int64_t last_of_b = (b.span - 1) * b_size;
    const int64_t distance =
        static_cast<int64_t>(reinterpret_cast<uintptr_t>(a.data) - reinterpret_cast<uintptr_t>(b.data)) - last_of_b;
    Sum sum(1 - a_size - distance, b_size - 1 - distance);
    for (int i = 0; i < a.rank; i++) {
        sum.add(a.strides[i], a_size, a.shape[i] - 1);
    }
    for (int i = 0; i < b.rank; i++) {
        sum.add(b.strides[i], b_size, b.shape[i] - 1);
    }
    int sums_left = max_sums;
    return sum.decide(sums_left);
}

Overlap self_overlap(const View &view) {
    const int64_t size = size_of(view.dtype);
    int sums_left = max_sums;
    // Let `first` be the first axis in which two elements differ, and one of them lie 1 or more further on it; on the axes
    // behind it they differ by anything.
    for (int first = 0; first < view.rank; first++) {
        if (view.shape[first] == 1) {
            continue;
        }
        const int64_t step = view.strides[first] * size;
        int64_t behind = 0;
        for (int i = first + 1; i < view.rank; i++) {
            behind += view.shape[i] > 1 ? (view.shape[i] - 1) * view.strides[i] * size : 0;
        }
        Sum sum(1 - size - step + behind, size - 1 - step + behind);
        sum.add(view.strides[first], size, view.shape[first] - 2);
        for (int i = first + 1; i < view.rank; i++) {
            sum.add(view.strides[i], size, 2 * (view.shape[i] - 1));
        }
        const Overlap result = sum.decide(sums_left);
        if (result != Overlap::none) {
            return result;
        }
    }
    return Overlap::none;
}

}  // namespace halyard
