// The floating-point environment that calls compute in.
#ifndef HALYARD_RUNTIME_CORE_SYSTEM_FLOATING_POINT_H
#define HALYARD_RUNTIME_CORE_SYSTEM_FLOATING_POINT_H

#include <cstdint>

namespace halyard {

/** The calling thread's: rounding, denormals, traps. */
class FloatingPoint {
public:
#if defined(__x86_64__)
    static FloatingPoint now() {
        return FloatingPoint(__builtin_ia32_stmxcsr());
    }
    void set() const {
        __builtin_ia32_ldmxcsr(control_);
    }
    /** As by default, but what is less than the least normal number is 0, as an operand and as a result. */
    static FloatingPoint flushing_denormals() {
        return FloatingPoint(default_control | 0x8040);
    }
#elif defined(__aarch64__)
    static FloatingPoint now() {
        Control value;
        asm volatile("mrs %0, fpcr" : "=r"(value));
        return FloatingPoint(value);
    }
    void set() const {
        asm volatile("msr fpcr, %0" : : "r"(control_) : "memory");
    }
#endif

    /** Rounding to nearest, denormals kept, no traps. */
    static FloatingPoint by_default() {
        return FloatingPoint(default_control);
    }
    bool is_default() const {
        return (control_ & settings) == default_control;
    }

private:
#if defined(__x86_64__)
    using Control = uint32_t;
    static constexpr Control settings = 0xffc0, default_control = 0x1f80;  // the other bits of MXCSR are what happened
#elif defined(__aarch64__)
    using Control = uint64_t;
    static constexpr Control settings = UINT64_MAX, default_control = 0;
#endif

    explicit FloatingPoint(Control control) : control_(control) {}

    Control control_;
};

/** While one lives, its thread has the default environment. Threads of one call would else compute in different ones, and
 *  all of them in others than the kernels are made for. */
class DefaultFloatingPoint {
public:
    DefaultFloatingPoint() : before_(FloatingPoint::now()) {
        if (!before_.is_default()) {
            FloatingPoint::by_default().set();
        }
    }
    ~DefaultFloatingPoint() {
        if (!before_.is_default()) {
            before_.set();
        }
    }
    DefaultFloatingPoint(const DefaultFloatingPoint &) = delete;
    DefaultFloatingPoint &operator=(const DefaultFloatingPoint &) = delete;

private:
    const FloatingPoint before_;
};

}  // namespace halyard

#endif
