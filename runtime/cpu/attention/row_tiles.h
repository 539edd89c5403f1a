// How the rows of a query block are cut into tiles, and what each tile sees of a block of keys.
#ifndef HALYARD_RUNTIME_CPU_ATTENTION_ROW_TILES_H
#define HALYARD_RUNTIME_CPU_ATTENTION_ROW_TILES_H

#include "cpu/attention/query_block.h"
#include "cpu/linear/microkernels.h"
#include "layout/kv.h"

namespace halyard {

/** What the products read of queries and weights, rounded to bf16 or not. Instruction sets on ARM whose pairs have other bits do not
 *  multiply them here. */
XForm form_of_products(halyard_isa isa, bool rounded, DType cache);

/** The height of the tiles that make the products of `rows` rows cheapest. */
int best_tile_rows(halyard_isa isa, XForm form, int64_t head_dim, int64_t rows);

/** Rows of those query blocks that fill their tiles best. */
int64_t best_attention_rows(halyard_isa isa, XForm form, int64_t head_dim);

/** The positions of a block of keys that some rows of a tile see. */
struct TileKeys {
    int64_t first, end;
    int64_t column, columns;  // whose softmax is taken: those and up to whole blocks of lanes
    bool masked;              // not all of the columns are seen by all rows
};

/** The tiles of one query block. */
class RowTiles {
public:
    RowTiles(halyard_isa isa, XForm form, const KvLayout &layout) : isa(isa), form(form), layout(layout) {}

    /** Cuts the rows of a query block into tiles. */
    void begin(const QueryBlock &block, const Visibility &visibility);
    /** Finds what each tile sees of a block of keys. */
    void look_at(int64_t key_block);

    /** The blocks of keys in which rows see some: [first_block, end_block). */
    int64_t first_block() const { return visibility_.first(block_.position) / k_block; }
    int64_t end_block() const {
        return (visibility_.end(block_.position + block_.queries - 1) + k_block - 1) / k_block;
    }

    int64_t rows() const { return block_.rows(); }
    int tile_rows() const { return tile_rows_; }
    int64_t count() const { return count_; }
    int64_t row(int64_t tile) const { return tile * tile_rows_; }
    int64_t end_row(int64_t tile) const { return std::min((tile + 1) * tile_rows_, rows()); }
    /** 16-bit keys and values are widened to f32 before they are multiplied. */
    bool widens() const { return widens_; }
    /** Keys and values as they are multiplied. */
    DType multiplied() const { return widens_ ? DType::f32 : layout.dtype; }
    /** The kernels are those that prefetch once in four inputs. */
    bool prefetch4() const { return prefetch4_; }

    const TileKeys &operator[](int64_t tile) const { return keys_[tile]; }
    /** What a row of a masked tile sees, first and end, counted from the tile's column. */
    const int32_t *visible(int64_t row) const { return visible_[row]; }

    const halyard_isa isa;
    const XForm form;
    const KvLayout &layout;

private:
    QueryBlock block_;
    Visibility visibility_;
    int tile_rows_ = 0;
    int64_t count_ = 0;
    bool prefetch4_ = false, widens_ = false;
    TileKeys keys_[max_attention_rows];
    int32_t visible_[max_attention_rows][2];
};

}  // namespace halyard

#endif
