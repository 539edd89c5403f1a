// Launches of rotary position embedding.
#include "cuda/attention/rope.h"

#include <algorithm>

#include "cuda/backend.h"
#include "cuda/copies.h"
#include "cuda/kernel_call.h"
#include "cuda/launch.h"

namespace halyard::cuda {
namespace {

// Grids end at 65535 on two axes, and kernels count elements in 32 bits: so far apart may the first and the last of an
// axis be at most.
constexpr int64_t max_rope_batch = 65535, max_rope_heads = 8192;
constexpr int64_t max_rope_reach = int64_t{1} << 28;

/** Steps along an axis that one launch may take. */
int64_t steps_at_once(int64_t count, int64_t stride) {
    return std::max<int64_t>(1, std::min(count, max_rope_reach / std::max<int64_t>(stride, 1)));
}

/** The kernel's operands for all of a call, and a launch for each piece. */
class DeviceRotation {
public:
    DeviceRotation(Launches &launches, const halyard_rope &rope, const float *table, const DevicePositions &positions,
                   const DeviceHeads &x, const DeviceHeads &y)
        : launches_(launches), rope_(rope), positions_(positions), x_(x), y_(y), size_(size_of(x.dtype)),
          interleaved_(rope.options.interleaved != 0), access_(access()), table_(table) {
        const int64_t entries = rope.options.max_positions;
        cosines_.set(table, rope.pairs(), entries, rope.pairs());
        sines_.set(table + entries * rope.pairs(), rope.pairs(), entries, rope.pairs());
    }

    void run() {
        const int64_t token_stride = std::max({x_.token_stride, y_.token_stride, 2 * positions_.token_stride});
        const int64_t batch_stride = std::max({x_.batch_stride, y_.batch_stride, 2 * positions_.batch_stride});
        const int64_t heads_at_once =
            steps_at_once(std::min(x_.heads, max_rope_heads), std::max(x_.head_stride, y_.head_stride));
        const int64_t tokens_at_once = steps_at_once(x_.tokens, token_stride);
        const int64_t batch_at_once = steps_at_once(std::min(x_.batch, max_rope_batch), batch_stride);
        for (int64_t b = 0; b < x_.batch; b += batch_at_once) {
            for (int64_t t = 0; t < x_.tokens; t += tokens_at_once) {
                for (int64_t h = 0; h < x_.heads; h += heads_at_once) {
                    launch({b, std::min(batch_at_once, x_.batch - b)}, {t, std::min(tokens_at_once, x_.tokens - t)},
                           {h, std::min(heads_at_once, x_.heads - h)});
                }
            }
        }
    }

private:
    struct Range {
        int64_t begin, count;
    };

    bool neighbours_in_words() const { return interleaved_ && x_.dtype != DType::f32; }

    /** By words where every pair's place in x, y and the table is a whole cell. */
    Access access() const {
        const int64_t cell = cell_bytes / size_, pairs = rope_.pairs();
        if ((interleaved_ && x_.dtype == DType::f32) || pairs % 4 != 0 || (!interleaved_ && pairs % cell != 0)) {
            return Access::elements;
        }
        for (const DeviceHeads *heads : {&x_, &y_}) {
            if (reinterpret_cast<uintptr_t>(heads->data) % cell_bytes != 0 ||
                (heads->heads > 1 && heads->head_stride % cell != 0) ||
                (heads->tokens > 1 && heads->token_stride % cell != 0) ||
                (heads->batch > 1 && heads->batch_stride % cell != 0)) {
                return Access::elements;
            }
        }
        return Access::words;
    }

    void launch(Range batch, Range tokens, Range heads) {
        const int64_t pairs = rope_.pairs();
        const bool in_words = access_ == Access::words, whole = in_words && neighbours_in_words();
        const int64_t per_word = in_words ? 4 / size_ : 1;
        Buffer<4> buffers[4];  // of x and y, both parts of each
        const DeviceHeads *const tensors[] = {&x_, &y_};
        for (int i = 0; i < 4; i++) {
            const DeviceHeads &tensor = *tensors[i / 2];
            const int64_t offset = batch.begin * tensor.batch_stride + tokens.begin * tensor.token_stride +
                                   heads.begin * tensor.head_stride + (i % 2) * (interleaved_ ? 1 : pairs);
            buffers[i].set_data(tensor.data + offset * size_);
            buffers[i].set_dim(0, (whole ? 2 * pairs : pairs) / per_word, interleaved_ && !whole ? 2 : 1);
            buffers[i].set_dim(1, heads.count, heads.count > 1 ? tensor.head_stride / per_word : 0);
            buffers[i].set_dim(2, tokens.count, tokens.count > 1 ? tensor.token_stride / per_word : 0);
            buffers[i].set_dim(3, batch.count, batch.count > 1 ? tensor.batch_stride / per_word : 0);
        }
        // Without positions any memory that can be read will do.
        const int64_t halves = positions_.wide ? 2 : 1;
        const int64_t offset = batch.begin * positions_.batch_stride + tokens.begin * positions_.token_stride;
        Buffer<3, int32_t> positions;
        positions.set_data(positions_.data ? positions_.data + offset * halves * 4
                                           : reinterpret_cast<const char *>(table_));
        positions.set_dim(0, 2, halves - 1);
        positions.set_dim(1, tokens.count, tokens.count > 1 ? positions_.token_stride * halves : 0);
        positions.set_dim(2, batch.count, batch.count > 1 ? positions_.batch_stride * halves : 0);
        const bool given = positions_.data != nullptr, wide = positions_.wide;
        const auto first = static_cast<int32_t>(positions_.first + tokens.begin);
        if (whole) {
            launches_.run(kernels::rope_tokens_interleaved_words, x_.dtype, access_,
                          {.cosines = cosines_,
                           .sines = sines_,
                           .positions = positions,
                           .given = given,
                           .wide = wide,
                           .first = first,
                           .x = buffers[0],
                           .y = buffers[2]});
        } else {
            launches_.run(interleaved_ ? kernels::rope_tokens_interleaved : kernels::rope_tokens, x_.dtype, access_,
                          {.cosines = cosines_,
                           .sines = sines_,
                           .positions = positions,
                           .given = given,
                           .wide = wide,
                           .first = first,
                           .x0 = buffers[0],
                           .x1 = buffers[1],
                           .y0 = buffers[2],
                           .y1 = buffers[3]});
        }
    }

    Launches &launches_;
    const halyard_rope &rope_;
    const DevicePositions &positions_;
    const DeviceHeads &x_, &y_;
    const int64_t size_;
    const bool interleaved_;
    const Access access_;
    const float *const table_;
    Buffer<2, float> cosines_, sines_;
};

}  // namespace

void rotate(Checker &check, const halyard_context &context, int ordinal, const halyard_rope &rope,
            const DevicePositions &positions, const DeviceHeads &x, const DeviceHeads &y) {
    if (rope.options.max_positions > INT32_MAX / rope.pairs()) {
        check.fail(HALYARD_UNSUPPORTED,
                   "rope has a table of %lld angles, but on a CUDA device at most %d are supported",
                   static_cast<long long>(rope.options.max_positions * rope.pairs()), INT32_MAX);
        return;
    }
    Launches launches(check, context, ordinal);
    const char *const table = copy_on_device(launches, rope.on_devices, rope.mapped, rope.mapped_bytes);
    if (!table) {
        return;
    }
    DeviceRotation(launches, rope, reinterpret_cast<const float *>(table), positions, x, y).run();
    const int64_t rotated = 2 * rope.pairs(), rest = rope.options.head_dim - rotated;
    if (rest > 0 && x.data != y.data) {
        convert_heads(check, context, ordinal, x.features(rotated, rest), y.features(rotated, rest));
    }
}

void rope(Checker &check, const halyard_context &context, const RopeCall &call) {
    const Integers &p = call.positions;
    rotate(check, context, call.y.device_id, *call.rope, {p.data, p.is_int64, p.batch_stride, p.token_stride, 0},
           device_heads(call.x), device_heads(Heads(call.y)));
}

}  // namespace halyard::cuda
