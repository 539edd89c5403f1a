// The launches of one call: kernels on the device of its tensors and the stream of its context.
#ifndef HALYARD_RUNTIME_CUDA_LAUNCH_H
#define HALYARD_RUNTIME_CUDA_LAUNCH_H

#include <iterator>

#include "core/context.h"
#include "core/system/verbose.h"
#include "cuda/device.h"

namespace halyard::cuda {

class Launches {
public:
    /** Makes the device's primary context current. Fails `check` where there is none. */
    Launches(Checker &check, const halyard_context &context, int ordinal);
    ~Launches();
    Launches(const Launches &) = delete;
    Launches &operator=(const Launches &) = delete;

    /** Loads a kernel if that has not been done. */
    Function load(Kernel kernel, DType dtype, Access access);

    /** Launches a kernel. Does nothing after a failure. */
    template<typename Arguments>
    void run(KernelOf<Arguments> kernel, DType dtype, Access access, Arguments arguments) {
        Launches *self = this;  // every kernel's first argument
        struct {
            void *launches;
            decltype(arguments.pointers()) others;
        } pointers = {&self, arguments.pointers()};
        const bool verbose = verbose_level > 1;
        const int64_t start = verbose ? now_in_ns() : 0;
        run(kernel.kernel, dtype, access, &pointers.launches);
        if (verbose && !check_.failed()) {
            write_kernel(kernel_name(kernel.kernel), dtype, access_names[static_cast<int>(access)], pointers.others.of,
                         Arguments::parameters(), std::size(Arguments::parameters()), now_in_ns() - start);
        }
    }

    Checker &check() { return check_; }
    // Null after a failure.
    const Driver *driver() const { return driver_; }
    Device *device() const { return device_; }
    int ordinal() const { return ordinal_; }
    Stream stream() const { return stream_; }

    /** What a kernel's host code calls. */
    int launch(const unsigned (&grid)[3], const unsigned (&block)[3], unsigned shared_bytes, const size_t *sizes,
               void **arguments, const int8_t *is_buffer);

private:
    void run(Kernel kernel, DType dtype, Access access, void **arguments);

    Checker &check_;
    const int ordinal_;
    const Driver *driver_;
    Device *device_ = nullptr;
    Stream stream_ = nullptr;
    bool pushed_ = false;
    Kernel kernel_{};
    DType dtype_{};
    Access access_{};
};

/** Loads every kernel on a device. */
void prepare(Checker &check, int ordinal);

}  // namespace halyard::cuda

#endif
