// See key_packer.h.
#include "cpu/attention/key_packer.h"

#include <climits>

#include "core/cast.h"
#include "core/parameters.h"
#include "cpu/attention/kv_pack.h"
#include "cpu/attention/rope.h"

namespace halyard {
namespace {

/** Positions that are packed at a time, at most. */
constexpr int64_t max_positions = 128;

// Kernels count elements in 32 bits: tokens that are further apart are copied.
constexpr int64_t max_token_pitch = INT32_MAX / max_positions;

int64_t positions_at_once() {
    return std::min(parameters.attention_pack_positions, max_positions);
}

/** Into the cache: the processor does not foresee rows as short and as far apart as those of one head. */
void prefetch_head(const Heads &tensor, int64_t b, int64_t token, int64_t head, int64_t tokens) {
    constexpr int64_t line = 64;
    const int64_t bytes = tensor.head_dim * size_of(tensor.view.dtype);
    for (int64_t i = 0; i < tokens; i++) {
        const char *const row = tensor.at(b, token + i, head);
        for (int64_t offset = 0; offset < bytes; offset += line) {
            __builtin_prefetch(row + offset, 0, 2);
        }
    }
}

}  // namespace

KeyPacker::KeyPacker(halyard_isa isa, const AttentionCall &call, const KvLayout &layout, const View &norm_weight,
                     float *staged)
    : isa_(isa), call_(call), layout_(layout), staged_keys_(staged),
      staged_values_(staged + staged_positions(call) * layout.value_columns()),
      norm_(isa, DType::f32, HALYARD_NORM_RMS, call.rms, norm_weight, View()) {}

int64_t KeyPacker::staged_positions(const AttentionCall &call) {
    return std::min(call.k.tokens, positions_at_once());
}

/** Tokens of one head in f32: where they are, if that will do, or copied to `memory`. */
KeyPacker::Source KeyPacker::source(const Heads &tensor, int64_t b, int64_t token, int64_t head, int64_t count,
                                    bool in_place, float *memory) const {
    char *const data = tensor.at(b, token, head);
    if (in_place && tensor.view.dtype == DType::f32 && tensor.token_stride <= max_token_pitch) {
        return {reinterpret_cast<const float *>(data), tensor.token_stride};
    }
    const int64_t pitch = layout_.value_columns();
    widen(isa_, {data, tensor.view.dtype, tensor.token_stride}, memory, pitch, tensor.head_dim, count);
    return {memory, pitch};
}

void KeyPacker::operator()(int64_t b, int64_t head, int64_t block, char *packed) {
    const int64_t first = call_.first_key(b), end = std::min(call_.keys(b), (block + 1) * k_block);
    const int64_t at_once = positions_at_once();
    const bool plain = !call_.k_norm_weight.data && !call_.rope;
    for (int64_t position = std::max(first, block * k_block); position < end; position += at_once) {
        const int64_t count = std::min(at_once, end - position), token = position - first;
        const int64_t after = std::min(at_once, end - position - count);
        prefetch_head(call_.k, b, token + count, head, after);
        prefetch_head(call_.v, b, token + count, head, after);
        const Source keys = source(call_.k, b, token, head, count, plain, staged_keys_);
        const Source values = source(call_.v, b, token, head, count, true, staged_values_);
        if (call_.k_norm_weight.data) {
            char *const rows = reinterpret_cast<char *>(staged_keys_);
            norm_(rows, keys.pitch, rows, keys.pitch, call_.k.head_dim, count);
        }
        for (int64_t n = 0; n < count && call_.rope; n++) {
            float *const row = staged_keys_ + n * keys.pitch;
            rotate(isa_, *call_.rope, position + n, row, keys.pitch, 1, row, keys.pitch);
        }
        store_keys_values(isa_, layout_, packed, position, count, keys.rows, keys.pitch, values.rows, values.pitch);
    }
}

}  // namespace halyard
