// Dual numbers: a value and its slope along one direction. A formula on them gives its derivative by the rules of calculus, without a
// formula of the derivative (Clifford 1873; forward-mode differentiation).
#ifndef HALYARD_OPERATIONS_DUAL_H
#define HALYARD_OPERATIONS_DUAL_H

#include <cmath>

namespace halyard::operations {

struct Dual {
    double value = 0, slope = 0;

    Dual() = default;
    /** A constant, or with a slope of 1 the variable itself. */
    Dual(double at, double moves = 0) : value(at), slope(moves) {}
};

inline Dual operator-(const Dual &a) {
    return {-a.value, -a.slope};
}
inline Dual operator+(const Dual &a, const Dual &b) {
    return {a.value + b.value, a.slope + b.slope};
}
inline Dual operator-(const Dual &a, const Dual &b) {
    return {a.value - b.value, a.slope - b.slope};
}
inline Dual operator*(const Dual &a, const Dual &b) {
    return {a.value * b.value, a.slope * b.value + a.value * b.slope};
}
inline Dual operator/(const Dual &a, const Dual &b) {
    const double quotient = a.value / b.value;
    return {quotient, (a.slope - quotient * b.slope) / b.value};
}
inline bool operator<(const Dual &a, const Dual &b) {
    return a.value < b.value;
}
inline bool operator==(const Dual &a, const Dual &b) {
    return a.value == b.value;
}

inline Dual exp(const Dual &x) {
    const double value = std::exp(x.value);
    return {value, value * x.slope};
}
inline Dual log1p(const Dual &x) {
    return {std::log1p(x.value), x.slope / (1 + x.value)};
}
inline Dual sqrt(const Dual &x) {
    const double value = std::sqrt(x.value);
    return {value, x.slope / (2 * value)};
}
inline Dual tanh(const Dual &x) {
    const double cosine = std::cosh(x.value);
    return {std::tanh(x.value), x.slope / cosine / cosine};
}
inline Dual erfc(const Dual &x) {
    constexpr double two_over_root_pi = 1.12837916709551257389615890312155;  // 2 / sqrt(pi)
    return {std::erfc(x.value), -two_over_root_pi * std::exp(-x.value * x.value) * x.slope};
}

}  // namespace halyard::operations

#endif
