// Operations that an algorithm on a row performs, counted by running it with numbers that count.
#ifndef HALYARD_EXPERIMENTS_OPERATION_COUNTS_H
#define HALYARD_EXPERIMENTS_OPERATION_COUNTS_H

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

namespace experiments {

struct Counts {
    std::int64_t additions = 0;  // and subtractions
    std::int64_t multiplications = 0;
    std::int64_t fused = 0;  // multiply-adds with one rounding
    std::int64_t divisions = 0, roots = 0;
    std::int64_t loads = 0, stores = 0;  // of features, weights and biases
    std::int64_t steps = 0;              // lines of the list of operations that a text gives

    std::int64_t flops() const { return additions + multiplications + 2 * fused + divisions + roots; }
};

/** An f32 number whose arithmetic is counted. Negation, maximum and constants are free. */
class Counted {
public:
    Counted(float number, Counts &operations) : value(number), counts(&operations) {}

    friend Counted operator+(Counted a, Counted b) { return a.result(a.value + b.value, a.counts->additions); }
    friend Counted operator-(Counted a, Counted b) { return a.result(a.value - b.value, a.counts->additions); }
    friend Counted operator*(Counted a, Counted b) { return a.result(a.value * b.value, a.counts->multiplications); }
    friend Counted operator/(Counted a, Counted b) { return a.result(a.value / b.value, a.counts->divisions); }
    Counted operator-() const { return {-value, *counts}; }
    /** a b + c */
    friend Counted fma(Counted a, Counted b, Counted c) {
        return a.result(std::fma(a.value, b.value, c.value), a.counts->fused);
    }
    friend Counted sqrt(Counted a) { return a.result(std::sqrt(a.value), a.counts->roots); }
    friend Counted max(Counted a, Counted b) { return a.value < b.value ? b : a; }

    float number() const { return value; }

private:
    Counted result(float number, std::int64_t &kind) const {
        kind++;
        return {number, *counts};
    }

    float value;
    Counts *counts;
};

/** Values in memory. */
class CountedRow {
public:
    CountedRow(const std::vector<float> &row, Counts &operations)
        : values(row), was_read(row.size()), counts(&operations) {}

    Counted load(std::size_t i) {
        counts->loads++;
        was_read[i] = true;
        return {values[i], *counts};
    }
    void store(std::size_t i, Counted value) {
        counts->stores++;
        values[i] = value.number();
    }
    Counted constant(double value) const { return {static_cast<float>(value), *counts}; }
    std::size_t size() const { return values.size(); }
    const std::vector<float> &numbers() const { return values; }
    std::int64_t elements_read() const { return std::count(was_read.begin(), was_read.end(), true); }

private:
    std::vector<float> values;
    std::vector<bool> was_read;
    Counts *counts;
};

}  // namespace experiments

#endif
