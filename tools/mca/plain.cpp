// Some of the kernels as one would write them in plain C, to be compiled by another compiler and put through the same
// model (compare.py beside this file): loops over restrict pointers and the functions of libm.
#include <cmath>

#define RESTRICT __restrict__

// Called as if from elsewhere.
#define PLAIN extern "C" __attribute__((noipa))

PLAIN void plain_silu(const float *RESTRICT x, float *RESTRICT y, long n) {
    for (long i = 0; i < n; i++) {
        y[i] = x[i] / (1.0f + expf(-x[i]));
    }
}

PLAIN void plain_gelu(const float *RESTRICT x, float *RESTRICT y, long n) {
    for (long i = 0; i < n; i++) {
        y[i] = 0.5f * x[i] * (1.0f + erff(x[i] * 0.70710678f));
    }
}

PLAIN void plain_gelu_tanh(const float *RESTRICT x, float *RESTRICT y, long n) {
    for (long i = 0; i < n; i++) {
        y[i] = 0.5f * x[i] * (1.0f + tanhf(0.79788456f * (x[i] + 0.044715f * x[i] * x[i] * x[i])));
    }
}

PLAIN void plain_swiglu(const float *RESTRICT gate, const float *RESTRICT up, float *RESTRICT y, long n) {
    for (long i = 0; i < n; i++) {
        y[i] = gate[i] / (1.0f + expf(-gate[i])) * up[i];
    }
}

PLAIN float plain_sum_of_squares(const float *RESTRICT x, long n) {
    float sum = 0;
    for (long i = 0; i < n; i++) {
        sum += x[i] * x[i];
    }
    return sum;
}

PLAIN void plain_moments(const float *RESTRICT x, long n, float pivot, float *RESTRICT result) {
    float sum = 0, squares = 0;
    for (long i = 0; i < n; i++) {
        const float e = x[i] - pivot;
        sum += e;
        squares += e * e;
    }
    result[0] = sum;
    result[1] = squares;
}

/** y = x w, 6 rows x 16 outputs. */
PLAIN void plain_product(const float *RESTRICT x, const float *RESTRICT w, float *RESTRICT y, long k) {
    constexpr int rows = 6, columns = 16, pitch = 528;
    float sums[rows][columns] = {};
    for (long i = 0; i < k; i++) {
        for (int row = 0; row < rows; row++) {
            for (int column = 0; column < columns; column++) {
                sums[row][column] += x[row * pitch + i] * w[i * columns + column];
            }
        }
    }
    for (int row = 0; row < rows; row++) {
        for (int column = 0; column < columns; column++) {
            y[row * columns + column] = sums[row][column];
        }
    }
}

/** Calls each once, for a trace. */
int main() {
    constexpr long n = 256;
    static float x[8 * n * 16], y[8 * n * 16], z[8 * n * 16];
    for (long i = 0; i < n; i++) {
        x[i] = y[i] = static_cast<float>(i % 64) / 16.0f - 2.0f;
    }
    plain_silu(x, z, n);
    plain_gelu(x, z, n);
    plain_gelu_tanh(x, z, n);
    plain_swiglu(x, y, z, n);
    z[0] = plain_sum_of_squares(x, n);
    plain_moments(x, n, x[0], z);
    plain_product(x, y, z, n);
    return z[0] == 1.0f;
}
