// Copies of tensors of heads.
#include "cuda/heads.h"

#include "core/handles/rope.h"

namespace halyard::cuda {

void convert_heads(Checker &check, const halyard_context &context, int ordinal, const DeviceHeads &from,
                   const DeviceHeads &to) {
    const auto view = [&](const DeviceHeads &heads) {
        // What a launch takes are rows at an even pitch: the longer axis is the last one.
        if (heads.tokens > heads.heads) {
            return view_of(heads.data, heads.dtype, {true, ordinal},
                           {heads.batch, heads.heads, heads.tokens, heads.head_dim},
                           {heads.batch_stride, heads.head_stride, heads.token_stride, 1});
        }
        return view_of(heads.data, heads.dtype, {true, ordinal},
                       {heads.batch, heads.tokens, heads.heads, heads.head_dim},
                       {heads.batch_stride, heads.token_stride, heads.head_stride, 1});
    };
    const View source = view(from), target = view(to);
    if (!check.failed() && target.elements > 0) {
        cast(check, context, source, target);
    }
}

}  // namespace halyard::cuda
