// Normal random numbers that are the same with every C++ standard library, whose own distributions differ.
#ifndef HALYARD_EXPERIMENTS_NORMAL_H
#define HALYARD_EXPERIMENTS_NORMAL_H

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

namespace experiments {

class Normal {
public:
    explicit Normal(std::uint64_t seed) : bits(seed) {}

    /** Mean 0, deviation 1 (Box and Muller 1958; the sine, a second number, is not used). */
    double operator()() {
        const double two_pi = 6.283185307179586;
        const double radius = std::sqrt(-2 * std::log(1 - uniform()));
        return radius * std::cos(two_pi * uniform());
    }

    std::vector<float> values(std::int64_t count, double deviation) {
        std::vector<float> result(static_cast<std::size_t>(count));
        for (float &value : result) {
            value = static_cast<float>(deviation * (*this)());
        }
        return result;
    }

    /** In [0, 1). */
    double uniform() { return static_cast<double>(bits() >> 11) * 0x1p-53; }

private:
    std::mt19937_64 bits;
};

}  // namespace experiments

#endif
