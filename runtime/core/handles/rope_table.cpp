// Angles of rotary position embedding. The library needs no libm, so what little is needed of it is here.
//
// An angle is counted in turns: its whole part then drops out without an error, however large it is. Frequencies are
// computed in pairs of doubles, with the same bits on every target, and kept as a float and a double, whose sum has 77
// bits: a position of 24 bits times the float is exact.
#include "core/handles/rope_table.h"

#include "core/handles/packed_weights.h"

namespace halyard {
namespace {

constexpr int max_pairs = 512;

/** A number as the sum of two doubles, the second of them half an ULP of the first at most: some 104 bits. Its operations
 *  need doubles that are rounded to nearest, and no contraction. */
struct DoubleDouble {
    double high, low = 0;
};

constexpr DoubleDouble ln2 = {0x1.62e42fefa39efp-1, 0x1.abc9e3b39803fp-56};
constexpr DoubleDouble two_pi = {0x1.921fb54442d18p+2, 0x1.1a62633145c07p-52};

/** a + b exactly, where |a| >= |b| or a is 0. */
DoubleDouble sum_of_ordered(double a, double b) {
    const double sum = a + b;
    return {sum, b - (sum - a)};
}

/** a + b exactly. */
DoubleDouble sum_of(double a, double b) {
    const double sum = a + b, of_b = sum - a;
    return {sum, (a - (sum - of_b)) + (b - of_b)};
}

/** a * b exactly, where both are below 2^900 and the product is not so small that its last bits are lost. */
DoubleDouble product_of(double a, double b) {
    constexpr double cut = 0x1p27 + 1;  // leaves 26 bits
    const double a_cut = cut * a, a_high = a_cut - (a_cut - a), a_low = a - a_high;
    const double b_cut = cut * b, b_high = b_cut - (b_cut - b), b_low = b - b_high;
    const double product = a * b;
    return {product, ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low};
}

DoubleDouble operator-(DoubleDouble a) {
    return {-a.high, -a.low};
}

DoubleDouble operator+(DoubleDouble a, DoubleDouble b) {
    const DoubleDouble high = sum_of(a.high, b.high), low = sum_of(a.low, b.low);
    const DoubleDouble sum = sum_of_ordered(high.high, high.low + low.high);
    return sum_of_ordered(sum.high, sum.low + low.low);
}

DoubleDouble operator-(DoubleDouble a, DoubleDouble b) {
    return a + -b;
}

DoubleDouble operator*(DoubleDouble a, DoubleDouble b) {
    const DoubleDouble high = product_of(a.high, b.high);
    return sum_of_ordered(high.high, high.low + (a.high * b.low + a.low * b.high));
}

/** Each digit of the quotient is what the one before has left over. */
DoubleDouble operator/(DoubleDouble a, DoubleDouble b) {
    if (b.high > 0x1p800) {
        constexpr double smaller = 0x1p-300;
        a = {a.high * smaller, a.low * smaller};
        b = {b.high * smaller, b.low * smaller};
    }
    const double first = a.high / b.high;
    const DoubleDouble rest = a - b * DoubleDouble{first};
    const double second = rest.high / b.high;
    const DoubleDouble last = rest - b * DoubleDouble{second};
    return sum_of_ordered(first, second) + DoubleDouble{last.high / b.high};
}

/** ln x, x >= 1: of a power of two and of a number round 1, by the series of the inverse hyperbolic tangent. */
DoubleDouble natural_log(double x) {
    int exponent = 0;
    for (; x > 1.5; exponent++) {
        x /= 2;
    }
    const DoubleDouble s = sum_of(x, -1) / sum_of(x, 1), s2 = s * s;  // |s| <= 1/5
    DoubleDouble sum = {0}, power = s;
    for (int k = 1; k < 46; k += 2) {
        sum = sum + power / DoubleDouble{static_cast<double>(k)};
        power = power * s2;
    }
    return DoubleDouble{static_cast<double>(exponent)} * ln2 + DoubleDouble{2} * sum;
}

double nearest_integer(double x) {
    constexpr double shift = 0x1.8p52;  // its ULP is 1
    return (x + shift) - shift;
}

/** e^x, -2000 < x <= 0: of a multiple of ln 2 and of a rest of half of that at most, by Taylor's series. */
DoubleDouble exponential(DoubleDouble x) {
    const double exponent = nearest_integer(-x.high / ln2.high);
    x = x + DoubleDouble{exponent} * ln2;
    DoubleDouble sum = {1}, term = {1};
    for (int k = 1; k < 26; k++) {
        term = term * (x / DoubleDouble{static_cast<double>(k)});
        sum = sum + term;
    }
    for (double halvings = exponent; halvings > 0; halvings--) {
        sum = {sum.high / 2, sum.low / 2};
    }
    return sum;
}

/** What Llama 3 makes of a frequency: those whose wavelength is short against the original context are kept, long ones
 *  divided, and between them the two are mixed. */
DoubleDouble llama3_frequency(const halyard_rope_options &o, DoubleDouble frequency) {
    const int64_t positions = o.original_max_position_embeddings;
    constexpr int64_t lower = int64_t{1} << 32;
    const DoubleDouble exact_positions =
        sum_of_ordered(static_cast<double>(positions / lower * lower), static_cast<double>(positions % lower));
    const DoubleDouble waves = exact_positions * frequency / two_pi, slow = frequency / DoubleDouble{o.factor};
    const DoubleDouble from_low = waves - DoubleDouble{o.low_freq_factor},
                       from_high = waves - DoubleDouble{o.high_freq_factor};
    if (from_high.high > 0) {
        return frequency;
    }
    if (from_low.high < 0) {
        return slow;
    }
    const DoubleDouble kept = from_low / DoubleDouble{o.high_freq_factor - o.low_freq_factor};
    return (DoubleDouble{1} - kept) * slow + kept * frequency;
}

/** Turns per position. */
struct Speed {
    float high;
    double low;
};

Speed speed_of_pair(const halyard_rope_options &o, int64_t pair) {
    const DoubleDouble exponent = DoubleDouble{static_cast<double>(-2 * pair)} * natural_log(o.rope_theta);
    DoubleDouble frequency = exponential(exponent / DoubleDouble{static_cast<double>(o.rotary_dim)});
    if (o.scaling == HALYARD_ROPE_LINEAR) {
        frequency = frequency / DoubleDouble{o.factor};
    } else if (o.scaling == HALYARD_ROPE_LLAMA3) {
        frequency = llama3_frequency(o, frequency);
    }
    const DoubleDouble turns = frequency / two_pi;
    const float high = static_cast<float>(turns.high);
    return {high, (turns.high - high) + turns.low};
}

// Taylor's series about 0 in x^2, of sin(x) / x and of cos(x). For |x| <= pi / 4 the next terms are below 2^-54 and
// 2^-58.
constexpr double sine_series[] = {1.0,          -1.0 / 6,        1.0 / 120,        -1.0 / 5040,
                                  1.0 / 362880, -1.0 / 39916800, 1.0 / 6227020800, -1.0 / 1307674368000};
constexpr double cosine_series[] = {1.0,
                                    -1.0 / 2,
                                    1.0 / 24,
                                    -1.0 / 720,
                                    1.0 / 40320,
                                    -1.0 / 3628800,
                                    1.0 / 479001600,
                                    -1.0 / 87178291200,
                                    1.0 / 20922789888000};

template<int terms>
double sum_of_series(const double (&series)[terms], double z) {
    double sum = series[terms - 1];
    for (int k = terms - 2; k >= 0; k--) {
        sum = sum * z + series[k];
    }
    return sum;
}

/** The cosine and sine of an angle, 0 <= position <= 2^24. */
void turn(int64_t position, Speed speed, float &cosine, float &sine) {
    const double p = static_cast<double>(position), exact = p * speed.high;
    const double turns = (exact - nearest_integer(exact)) + p * speed.low;  // in [-0.6, 0.6]
    const double quarters = nearest_integer(4 * turns);
    const double x = (turns - quarters / 4) * two_pi.high;
    const double s = x * sum_of_series(sine_series, x * x), c = sum_of_series(cosine_series, x * x);
    const int quadrant = static_cast<int>(quarters) & 3;
    const double across = quadrant & 1 ? s : c, along = quadrant & 1 ? c : s;
    cosine = static_cast<float>(quadrant == 1 || quadrant == 2 ? -across : across);
    sine = static_cast<float>(quadrant >= 2 ? -along : along);
}

}  // namespace

void fill_rope_table(const halyard_rope_options &options, float *cosines, float *sines) {
    const int64_t pairs = options.rotary_dim / 2;
    Speed speeds[max_pairs];
    for (int64_t pair = 0; pair < pairs; pair++) {
        speeds[pair] = speed_of_pair(options, pair);
    }
    const int64_t bytes = options.max_positions * pairs * 2 * static_cast<int64_t>(sizeof(float));
    run_ranges(context_or_default(nullptr), options.max_positions, bytes, [&](int64_t begin, int64_t end) {
        for (int64_t position = begin; position < end; position++) {
            for (int64_t pair = 0; pair < pairs; pair++) {
                const int64_t i = position * pairs + pair;
                turn(position, speeds[pair], cosines[i], sines[i]);
            }
        }
    });
}

}  // namespace halyard
