// What other libraries of arrays hand over, as their specifications have it: the parts of DLPack that came with version 1, which
// the header of the build may lack, and NumPy's __array_struct__.
#ifndef HALYARD_PYTHON_CORE_EXCHANGE_H
#define HALYARD_PYTHON_CORE_EXCHANGE_H

#include <cstdint>

#include "dlpack/dlpack.h"

namespace halyard::python {

struct DlpackVersion {
    uint32_t major, minor;
};

/** DLManagedTensorVersioned of DLPack 1, in a capsule "dltensor_versioned". */
struct VersionedTensor {
    DlpackVersion version;
    void *manager;
    void (*deleter)(VersionedTensor *self);
    uint64_t flags;  // 1: read-only
    DLTensor tensor;
};

/** DLPackExchangeAPI of DLPack 1.3, in the capsule __dlpack_c_exchange_api__ of a type. */
struct ExchangeApi {
    DlpackVersion version;
    ExchangeApi *previous;
    void *allocate, *export_managed, *import_managed;
    int (*borrow)(void *object, DLTensor *tensor);  // null if the library has none; valid while the object is
    void *current_work_stream;
};

/** PyArrayInterface of NumPy's array interface, version 3, in the capsule __array_struct__. */
struct ArrayInterface {
    int two;
    int rank;
    char kind;
    int item_bytes;
    int flags;
    intptr_t *shape;
    intptr_t *strides;  // in bytes
    void *data;
    void *description;
};
inline constexpr int array_not_swapped = 0x200, array_writeable = 0x400;

}  // namespace halyard::python

#endif
