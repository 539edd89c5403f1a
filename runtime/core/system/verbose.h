// HALYARD_VERBOSE: a line for every public call, or for every kernel too, on stderr or in a file (docs/verbose.md).
//
// Lines are written whole, by one call of the system: those of several threads and processes do not mix.
#ifndef HALYARD_RUNTIME_CORE_SYSTEM_VERBOSE_H
#define HALYARD_RUNTIME_CORE_SYSTEM_VERBOSE_H

#include "core/dispatch.h"
#include "halyard/halyard.h"

struct halyard_context;

namespace halyard {

struct CodeLayout;
struct Parameter;

/** 0: nothing, 1: public calls, 2: kernels too. */
extern int verbose_level;

/** Nanoseconds from some time on. */
int64_t now_in_ns();

/** What a call's line will say: filled in while the call is checked, and written when it ends. A call that another one
 *  makes has no line. */
class CallRecord {
public:
    void begin();
    void add(const char *name, const DLTensor &tensor);
    /** Adds a quantized matrix; `prefix` is put before its name. */
    void add_quantized(const char *prefix, const char *name, const CodeLayout &codes);
    void add_all_of(const CallRecord &other);
    void end(const char *function, const halyard_context *context, halyard_status status);

private:
    int64_t start_;
    int length_;
    bool on_device_;
    char tensors_[512];
};

/** A kernel's call as a line. `place`: its instruction set, or what stands for a device. */
void write_kernel(const char *kernel, DType dtype, const char *place, void *const *arguments,
                  const Parameter *parameters, int count, int64_t ns);

/** Calls a kernel and writes its line. */
[[gnu::cold, gnu::noinline]] void run_verbosely(KernelFunction function, void **arguments, const Parameter *parameters,
                                                int count);

}  // namespace halyard

#endif
