// The storage types of tensors, by name.
#ifndef HALYARD_SCHEDULES_DTYPE_H
#define HALYARD_SCHEDULES_DTYPE_H

#include <map>
#include <string>

namespace halyard {

enum class DType { f32, f16, bf16 };

inline const std::map<std::string, DType> dtype_names = {
    {"f32", DType::f32},
    {"f16", DType::f16},
    {"bf16", DType::bf16},
};

}  // namespace halyard

#endif
