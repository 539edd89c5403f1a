// The floating-point environment that calls compute in.
#ifndef HALYARD_RUNTIME_CORE_SYSTEM_FLOATING_POINT_H
#define HALYARD_RUNTIME_CORE_SYSTEM_FLOATING_POINT_H

#include <cstdint>

namespace halyard {

/** While one lives, its thread has the default environment: rounding to nearest, denormals kept, no traps. Threads of
 *  one call would else compute in different ones, and all of them in others than the kernels are made for. */
class DefaultFloatingPoint {
public:
    DefaultFloatingPoint() : before_(control()) {
        if (differs()) {
            set_control(by_default);
        }
    }
    ~DefaultFloatingPoint() {
        if (differs()) {
            set_control(before_);
        }
    }
    DefaultFloatingPoint(const DefaultFloatingPoint &) = delete;
    DefaultFloatingPoint &operator=(const DefaultFloatingPoint &) = delete;

private:
#if defined(__x86_64__)
    using Control = uint32_t;
    static constexpr Control settings = 0xffc0, by_default = 0x1f80;  // the other bits of MXCSR are what has happened

    static Control control() {
        return __builtin_ia32_stmxcsr();
    }
    static void set_control(Control value) {
        __builtin_ia32_ldmxcsr(value);
    }
#elif defined(__aarch64__)
    using Control = uint64_t;
    static constexpr Control settings = UINT64_MAX, by_default = 0;

    static Control control() {
        Control value;
        asm volatile("mrs %0, fpcr" : "=r"(value));
        return value;
    }
    static void set_control(Control value) {
        asm volatile("msr fpcr, %0" : : "r"(value) : "memory");
    }
#endif

    bool differs() const {
        return (before_ & settings) != by_default;
    }

    const Control before_;
};

}  // namespace halyard

#endif
