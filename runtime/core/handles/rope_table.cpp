// Angles of rotary position embedding. The library needs no libm, so what little is needed of it is here.
//
// An angle is counted in turns: its whole part then drops out without an error, however large it is. Frequencies are
// computed in long double, and kept as a float and a double, whose sum has 77 bits: a position of 24 bits times the
// float is exact.
#include "core/handles/rope_table.h"

#include "core/handles/packed_weights.h"

namespace halyard {
namespace {

constexpr int max_pairs = 512;
constexpr long double ln2 = 0.693147180559945309417232121458176568L;
constexpr long double two_pi = 6.283185307179586476925286766559005768L;

/** ln x, x >= 1: of a power of two and of a number round 1, by the series of the inverse hyperbolic tangent. */
long double natural_log(long double x) {
    int exponent = 0;
    for (; x > 1.5L; exponent++) {
        x /= 2;
    }
    const long double s = (x - 1) / (x + 1), s2 = s * s;  // |s| <= 1/5
    long double sum = 0, power = s;
    for (int k = 1; k < 40; k += 2) {
        sum += power / k;
        power *= s2;
    }
    return exponent * ln2 + 2 * sum;
}

/** e^x, x <= 0: of a multiple of ln 2 and of a rest in [-ln 2, 0], by Taylor's series. */
long double exponential(long double x) {
    int exponent = 0;
    for (; x + (exponent + 1) * ln2 <= 0; exponent++) {
    }
    x += exponent * ln2;
    long double sum = 1, term = 1;
    for (int k = 1; k < 30; k++) {
        term *= x / k;
        sum += term;
    }
    for (; exponent > 0; exponent--) {
        sum /= 2;
    }
    return sum;
}

/** What Llama 3 makes of a frequency: those whose wavelength is short against the original context are kept, long ones
 *  divided, and between them the two are mixed. */
long double llama3_frequency(const halyard_rope_options &o, long double frequency) {
    const long double waves = static_cast<long double>(o.original_max_position_embeddings) * frequency / two_pi;
    if (waves > o.high_freq_factor) {
        return frequency;
    }
    if (waves < o.low_freq_factor) {
        return frequency / o.factor;
    }
    const long double kept = (waves - o.low_freq_factor) / (o.high_freq_factor - o.low_freq_factor);
    return (1 - kept) * (frequency / o.factor) + kept * frequency;
}

/** Turns per position. */
struct Speed {
    float high;
    double low;
};

Speed speed_of_pair(const halyard_rope_options &o, int64_t pair) {
    long double frequency = exponential(-2 * pair * natural_log(o.rope_theta) / o.rotary_dim);
    if (o.scaling == HALYARD_ROPE_LINEAR) {
        frequency /= o.factor;
    } else if (o.scaling == HALYARD_ROPE_LLAMA3) {
        frequency = llama3_frequency(o, frequency);
    }
    const long double turns = frequency / two_pi;
    const float high = static_cast<float>(turns);
    return {high, static_cast<double>(turns - high)};
}

double nearest_integer(double x) {
    constexpr double shift = 0x1.8p52;  // its ULP is 1
    return (x + shift) - shift;
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
    const double x = (turns - quarters / 4) * static_cast<double>(two_pi);
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
