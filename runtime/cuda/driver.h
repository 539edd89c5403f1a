// The CUDA driver, opened at run time: nothing of CUDA is linked.
#ifndef HALYARD_RUNTIME_CUDA_DRIVER_H
#define HALYARD_RUNTIME_CUDA_DRIVER_H

#include <cstddef>
#include <cstdint>

#include "core/check.h"

namespace halyard::cuda {

// As the driver declares them; its header is not needed to build the library.
using Result = int;
constexpr Result success = 0;
using Context = struct ContextOfDriver *;
using Module = struct ModuleOfDriver *;
using Function = struct FunctionOfDriver *;
using Stream = struct StreamOfDriver *;
using DevicePointer = uint64_t;

/** A copy of `rows` rows of `width` bytes between memory of the process and of devices. */
struct Copy2D {
    enum Memory : int { host = 1, device = 2 };

    size_t source_x, source_y;
    Memory source_memory;
    const void *source_host;
    DevicePointer source_device;
    void *source_array;
    size_t source_pitch;
    size_t target_x, target_y;
    Memory target_memory;
    void *target_host;
    DevicePointer target_device;
    void *target_array;
    size_t target_pitch;
    size_t width, rows;
};

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
    Result (*function_attribute)(Function function, int attribute, int value);
    Result (*launch)(Function function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                     unsigned block_y, unsigned block_z, unsigned shared_bytes, Stream stream, void **parameters,
                     void **extra);
    Result (*memory_allocate)(DevicePointer *pointer, size_t bytes);
    Result (*memory_free)(DevicePointer pointer);
    Result (*copy_2d)(const Copy2D *copy, Stream stream);
    Result (*fill_32)(DevicePointer pointer, unsigned value, size_t count, Stream stream);
    Result (*stream_synchronize)(Stream stream);
    Result (*stream_is_capturing)(Stream stream, int *status);  // 0: it is not
    Result (*error_string)(Result error, const char **text);

    int devices;           // how many there are
    int version;           // of CUDA that it is for, 13000 for 13.0
    bool loads_assembled;  // kernels as the build assembled them; else it compiles their PTX
};

/** The driver, which the first call opens and initializes; null, with a message in `check`, where that is not possible.
 */
const Driver *driver(Checker &check);

/** The version of CUDA that the driver is for, 13000 for 13.0; 0 where there is none that can be used. */
int driver_version();

/** Whether this process has opened the driver. */
bool driver_in_use();

/** To be called in a forked child: if its parent has opened the driver, it gets none. Neither the driver nor a lock that is
 *  taken to call it may then be touched. */
void leave_driver_to_parent();

/** Fails with the driver's words for an error, if it is one. */
bool succeeded(Checker &check, const Driver &driver, Result result, const char *what);

}  // namespace halyard::cuda

#endif
