// Positions of one head of the cache, from f32 rows into its panels and back.
//
// Kernels move whole rows of panels. Of bf16, whose rows are pairs, a single position of the values or the last feature of an
// odd number goes by halves of words.
#include <climits>
#include <cstring>

#include "core/cast.h"
#include "core/handles/kv_cache.h"
#include "core/kernel_call.h"
#include "core/row_iterator.h"

namespace halyard {
namespace {

/** Moves rows of one head by the kernels, as many positions with a call as lie side by side. */
class HeadMove {
public:
    HeadMove(halyard_isa isa, const KvLayout &layout, bool unpack)
        : isa_(isa), layout_(layout), size_(size_of(layout.dtype)), inputs_(row_inputs(layout.dtype)), unpack_(unpack) {
    }

    /** The keys of positions [first, end), whose rows are `pitch` floats apart. */
    void keys(char *head, int64_t first, int64_t end, float *rows, int64_t pitch) {
        for (int64_t position = first; position < end;) {
            const int64_t block = position / k_block, in_block = position % k_block, column = position % panel_width;
            int64_t columns = std::min(panel_width - column, end - position), panels = 1;
            if (columns == panel_width) {
                const int64_t block_end = std::min(end, (block + 1) * k_block);
                panels = std::min((block_end - position) / panel_width, addressable(pitch) / panel_width);
            }
            if (columns > addressable(pitch) || panels == 0) {
                columns = panels = 1;
            }
            const int64_t offset =
                layout_.block_offset(block) + in_block / panel_width * layout_.key_panel_stride() + column * inputs_;
            float *const row = rows + (position - first) * pitch;
            char *const panel = head + offset * size_;
            const int64_t whole = layout_.head_dim / inputs_ * inputs_;
            if (unpack_ || whole > 0) {
                rows_.set_dim(0, layout_.head_dim, 1);
                rows_.set_dim(1, columns, columns > 1 ? pitch : 0);
                rows_.set_dim(2, panels, panels > 1 ? panel_width * pitch : 0);
                panels_.set_dim(0, columns, 1);
                panels_.set_dim(1, whole / inputs_, panel_width);
                panels_.set_dim(2, panels, layout_.key_panel_stride() / inputs_);
                run(kernels::kv_pack_keys, kernels::kv_unpack_keys, row, panel);
            }
            if (!unpack_ && whole < layout_.head_dim) {
                for (int64_t i = 0; i < columns * panels; i++) {
                    const int64_t word =
                        i / panel_width * layout_.key_panel_stride() / 2 + whole / 2 * panel_width + i % panel_width;
                    uint16_t *const halves = reinterpret_cast<uint16_t *>(panel) + 2 * word;
                    cast(isa_, {reinterpret_cast<char *>(row + i * pitch + whole), DType::f32},
                         {reinterpret_cast<char *>(halves + 1), DType::bf16}, 1, 1);
                    halves[0] = 0;
                }
            }
            position += columns * panels;
        }
    }

    void values(char *head, int64_t first, int64_t end, float *rows, int64_t pitch) {
        const int64_t whole = layout_.head_dim / panel_width, rest = layout_.head_dim % panel_width;
        for (int64_t position = first, count; position < end; position += count) {
            const int64_t block = position / k_block, panel_stride = layout_.value_panel_stride(block);
            count = std::min({end - position, (block + 1) * k_block - position, addressable(pitch)});
            float *row = rows + (position - first) * pitch;
            if (position % inputs_ != 0 || count < inputs_) {
                count = 1;
                value_halves(head + layout_.values_offset(block) * size_, position % k_block, panel_stride, row);
                continue;
            }
            count = count / inputs_ * inputs_;
            char *panel = head + (layout_.values_offset(block) + position % k_block * panel_width) * size_;
            rows_.set_dim(1, count, count > 1 ? pitch : 0);
            panels_.set_dim(1, count / inputs_, panel_width);
            if (whole > 0) {
                rows_.set_dim(0, panel_width, 1);
                rows_.set_dim(2, whole, panel_width);
                panels_.set_dim(0, panel_width, 1);
                panels_.set_dim(2, whole, panel_stride / inputs_);
                run(kernels::kv_pack_values, kernels::kv_unpack_values, row, panel);
            }
            if (rest > 0) {
                panel += whole * panel_stride * size_;
                rows_.set_dim(0, rest, 1);
                rows_.set_dim(2, 1, 0);
                panels_.set_dim(0, rest, 1);
                panels_.set_dim(2, 1, 0);
                run(kernels::kv_pack_values, kernels::kv_unpack_values, row + whole * panel_width, panel);
                const int64_t word = inputs_ * size_;
                for (int64_t i = 0; i < count / inputs_ && !unpack_; i++) {
                    memset(panel + (i * panel_width + rest) * word, 0, (panel_width - rest) * word);
                }
            }
        }
    }

private:
    /** How many rows the kernels, which count elements in 32 bits, can tell apart. */
    static int64_t addressable(int64_t pitch) {
        return std::max<int64_t>(1, (INT_MAX - k_block) / std::max<int64_t>(1, pitch));
    }

    /** One position of the bf16 values of a block. */
    void value_halves(char *values, int64_t position, int64_t panel_stride, float *row) {
        uint16_t row_bf16[KvLayout::round_up(max_cache_head_dim)] = {};
        const auto half = [&](int64_t feature) -> uint16_t & {
            const int64_t word =
                feature / panel_width * panel_stride / 2 + position / 2 * panel_width + feature % panel_width;
            return reinterpret_cast<uint16_t *>(values)[2 * word + 1 - position % 2];
        };
        const TypedRows in_f32 = {reinterpret_cast<char *>(row), DType::f32},
                        in_bf16 = {reinterpret_cast<char *>(row_bf16), DType::bf16};
        if (unpack_) {
            for (int64_t feature = 0; feature < layout_.head_dim; feature++) {
                row_bf16[feature] = half(feature);
            }
            cast(isa_, in_bf16, in_f32, layout_.head_dim, 1);
            return;
        }
        cast(isa_, in_f32, in_bf16, layout_.head_dim, 1);
        for (int64_t feature = 0; feature < layout_.value_columns(); feature++) {
            half(feature) = row_bf16[feature];
        }
    }

    void run(KernelOf<arguments::KvPackKeys> pack, KernelOf<arguments::KvUnpackKeys> unpack, float *rows,
             char *panels) {
        rows_.set_data(rows);
        panels_.set_data(panels);
        if (unpack_) {
            kernel_function(unpack, layout_.dtype, isa_)({panels_, rows_});
        } else {
            kernel_function(pack, layout_.dtype, isa_)({rows_, panels_});
        }
    }

    const halyard_isa isa_;
    const KvLayout &layout_;
    const int64_t size_, inputs_;
    const bool unpack_;
    Buffer<3, float> rows_;
    Buffer<3> panels_;
};

}  // namespace

void store_keys_values(halyard_isa isa, const KvLayout &layout, char *head, int64_t first_position, int64_t count,
                       const float *k, int64_t k_pitch, const float *v, int64_t v_pitch) {
    HeadMove move(isa, layout, false);
    if (k) {
        move.keys(head, first_position, first_position + count, const_cast<float *>(k), k_pitch);
    }
    if (v) {
        move.values(head, first_position, first_position + count, const_cast<float *>(v), v_pitch);
    }
}

void load_keys_values(halyard_isa isa, const KvLayout &layout, const char *head, int64_t first_position, int64_t count,
                      float *k, int64_t k_pitch, float *v, int64_t v_pitch) {
    HeadMove move(isa, layout, true);
    if (k) {
        move.keys(const_cast<char *>(head), first_position, first_position + count, k, k_pitch);
    }
    if (v) {
        move.values(const_cast<char *>(head), first_position, first_position + count, v, v_pitch);
    }
}

}  // namespace halyard
