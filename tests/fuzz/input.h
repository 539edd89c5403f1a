// Choices and numbers taken from a fuzzer's bytes. When they are used up all are 0, which is meant to be the plain case.
#ifndef HALYARD_TESTS_FUZZ_INPUT_H
#define HALYARD_TESTS_FUZZ_INPUT_H

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace halyard::tests {

class Input {
public:
    Input(const std::uint8_t *data, std::size_t size) : at_(data), end_(data + size) {}

    bool done() const { return at_ == end_; }
    unsigned byte() { return done() ? 0 : *at_++; }
    // Neither is said by 0x00 or 0xff, which mutations like.
    bool one_in(unsigned n) { return byte() % n == n / 2; }
    bool rarely() { return byte() == 183; }
    int in(int least, int most) { return least + static_cast<int>(byte() % static_cast<unsigned>(most - least + 1)); }

    template<typename T, std::size_t n>
    T of(const T (&values)[n]) {
        return values[byte() % n];
    }

    /** The next bytes, as many as the first of them says: what changes in them shifts nothing behind them. */
    Input part() {
        const auto size = static_cast<std::ptrdiff_t>(byte());
        const std::uint8_t *begin = at_;
        at_ = size < end_ - at_ ? at_ + size : end_;
        return Input(begin, static_cast<std::size_t>(at_ - begin));
    }

    /** Any bits. */
    template<typename T>
    T any() {
        unsigned char bytes[sizeof(T)];
        for (unsigned char &b : bytes) {
            b = static_cast<unsigned char>(byte());
        }
        T value;
        std::memcpy(&value, bytes, sizeof value);
        return value;
    }

private:
    const std::uint8_t *at_, *end_;
};

}  // namespace halyard::tests

#endif
