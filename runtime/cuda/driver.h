// The CUDA driver, opened at run time: nothing of CUDA is linked.
#ifndef HALYARD_RUNTIME_CUDA_DRIVER_H
#define HALYARD_RUNTIME_CUDA_DRIVER_H

#include <cstddef>

#include "check.h"

namespace halyard::cuda {

// As the driver declares them; its header is not needed to build the library.
using Result = int;
constexpr Result success = 0;
using Context = struct ContextOfDriver *;
using Module = struct ModuleOfDriver *;
using Function = struct FunctionOfDriver *;
using Stream = struct StreamOfDriver *;

struct Driver {
    Result (*init)(unsigned flags);
    Result (*driver_version)(int *version);
    Result (*device_count)(int *count);
    Result (*device_get)(int *device, int ordinal);
    Result (*device_attribute)(int *value, int attribute, int device);
    Result (*primary_context_retain)(Context *context, int device);
    Result (*context_current)(Context *context);
    Result (*context_push)(Context context);
    Result (*context_pop)(Context *context);
    Result (*module_load)(Module *module, const void *image);
    Result (*module_function)(Function *function, Module module, const char *name);
    Result (*launch)(Function function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                     unsigned block_y, unsigned block_z, unsigned shared_bytes, Stream stream, void **parameters,
                     void **extra);
    Result (*error_string)(Result error, const char **text);

    int devices;  // how many there are
};

/** The driver, which the first call opens and initializes; null, with a message in `check`, where that is not possible. */
const Driver *driver(Checker &check);

/** Fails with the driver's words for an error, if it is one. */
bool succeeded(Checker &check, const Driver &driver, Result result, const char *what);

}  // namespace halyard::cuda

#endif
