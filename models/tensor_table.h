// The tensors of a file as a table, by name.
#ifndef HALYARD_MODELS_TENSOR_TABLE_H
#define HALYARD_MODELS_TENSOR_TABLE_H

#include <algorithm>
#include <string_view>
#include <vector>

#include "halyard/model.hpp"

namespace halyard::models {

/// The first of two of one name; the end if there are none.
inline std::vector<TensorInfo>::const_iterator sort_by_name(std::vector<TensorInfo> &tensors) {
    std::sort(tensors.begin(), tensors.end(), [](const TensorInfo &a, const TensorInfo &b) { return a.name < b.name; });
    return std::adjacent_find(tensors.begin(), tensors.end(),
                              [](const TensorInfo &a, const TensorInfo &b) { return a.name == b.name; });
}

/// The tensor of that name in a sorted table; null if there is none.
inline const TensorInfo *find_by_name(const std::vector<TensorInfo> &tensors, std::string_view name) noexcept {
    const auto at =
        std::lower_bound(tensors.begin(), tensors.end(), name,
                         [](const TensorInfo &info, std::string_view wanted) { return info.name < wanted; });
    return at != tensors.end() && at->name == name ? &*at : nullptr;
}

}  // namespace halyard::models

#endif
