// The loops round the matmul kernels: blocks of rows stay in the second-level cache while the weights pass by once.
//
// For each group of panels, and for each of its k blocks, all tiles of rows are done; the sums lie in scratch memory,
// and when the last k block is done the epilogue makes outputs of them. While a block of weights is multiplied, the
// kernels prefetch the one after it, a portion with each tile. Each thread has a share of the groups, and takes of the others'
// when that is done.
#include "cpu/linear/gemm.h"

#include <unistd.h>

#include <atomic>
#include <cstring>
#include <new>

#include "core/cast.h"
#include "core/parameters.h"
#include "core/system/environment.h"
#include "core/workspace.h"
#include "cpu/linear/codes.h"
#include "cpu/linear/microkernels.h"
#include "cpu/linear/panels.h"

namespace halyard {
namespace {

/** Panels whose sums a thread holds at a time: of one tile, or of two where gate and up would be torn apart. */
constexpr int max_group_panels = 2 * max_tile_panels;
constexpr int max_group_columns = max_group_panels * panel_width;
/** Of a k block of the panels of a tile. */
constexpr int64_t max_widened_floats = int64_t{max_tile_panels} * k_block * panel_width;

/** From one row of sums to the next: a cache line more than they take, so that rows do not share the sets of the cache. */
constexpr int64_t sums_pitch(int group_panels) {
    return (group_panels + 1) * panel_width;
}

// What stands for a scale, a mean, a bias and a residual that are not there. Adding -0 changes no value.
struct Neutral {
    float ones[max_block_rows] = {};
    float zeros[std::max(max_block_rows, max_group_columns)] = {};  // means of rows, or sums of columns
    float negative_zeros[max_group_columns] = {};
    uint16_t negative_zeros_16[max_group_columns] = {};

    constexpr Neutral() {
        for (float &one : ones) {
            one = 1.0f;
        }
        for (float &zero : negative_zeros) {
            zero = -0.0f;
        }
        for (uint16_t &zero : negative_zeros_16) {
            zero = 0x8000;
        }
    }
};

constexpr Neutral neutral;

int64_t half_of_second_level_cache() {
    const long cache = sysconf(_SC_LEVEL2_CACHE_SIZE);
    return (cache > 0 ? cache : 512 * 1024) / 2;
}

struct Caches {
    const int64_t half_of_second = half_of_second_level_cache();
};

HALYARD_AT_LOAD const Caches caches;

int64_t rows_in_cache() {
    const int64_t rows = caches.half_of_second / (x_pitch * static_cast<int64_t>(sizeof(float)));
    return std::max<int64_t>(max_tile_rows, std::min<int64_t>(rows, max_block_rows) / max_tile_rows * max_tile_rows);
}

}  // namespace

int64_t block_rows(int64_t rows) {
    const int64_t chosen = rows <= max_block_rows ? parameters.gemm_block_rows_256 : parameters.gemm_block_rows;
    return chosen > 0 ? chosen : rows_in_cache();
}

int threads_for(const halyard_context &context, int64_t bytes) {
    return static_cast<int>(
        std::max<int64_t>(1, std::min<int64_t>(bytes / parameters.gemm_thread_bytes, thread_bound(context))));
}

void BlockedRows::clear_from(int64_t used, int64_t features) const {
    for (int64_t block = 0; block < blocks(features) && used < rows; block++) {
        memset(at(used, block), 0, static_cast<size_t>((rows - used) * row_bytes()));
    }
}

XForm form_of_x(halyard_isa isa, DType x, DType weights) {
    return x == DType::bf16 && weights == DType::bf16 && tile_kernels().tallest(isa, XForm::pairs) > 0 ? XForm::pairs
                                                                                                       : XForm::f32;
}

namespace {

/** Consecutive values as pairs. */
void to_pairs(const char *values, int64_t count, char *pairs) {
    const auto word = [](uint32_t pair) { return pair << 16 | pair >> 16; };  // the earlier one comes in the lower half
    for (int64_t i = 0; i < count / 2; i++) {
        uint32_t pair;
        memcpy(&pair, values + 4 * i, 4);
        pair = word(pair);
        memcpy(pairs + 4 * i, &pair, 4);
    }
    if (count % 2 != 0) {
        uint16_t last;
        memcpy(&last, values + 2 * (count - 1), 2);
        const uint32_t pair = word(last);
        memcpy(pairs + 2 * (count - 1), &pair, 4);
    }
}

}  // namespace

void BlockedRows::store(halyard_isa isa, int64_t row, int64_t feature, const TypedRows &values, int64_t features,
                        int64_t count) const {
    const int64_t block = feature / k_block, in_block = feature % k_block;
    if (form == XForm::f32 && (!rounded || values.dtype == DType::bf16)) {
        widen(isa, values, floats_at(row, block) + in_block, x_pitch, features, count);
        return;
    }
    alignas(64) uint16_t rounded_row[k_block];
    TypedRows of_row = {reinterpret_cast<char *>(rounded_row), DType::bf16};
    for (int64_t i = 0; i < count; i++) {
        if (values.dtype == DType::bf16) {
            of_row.data = values.row(i);
        } else {
            cast(isa, {values.row(i), values.dtype}, of_row, features, 1);
        }
        if (form == XForm::pairs) {
            to_pairs(of_row.data, features, at(row + i, block) + 2 * in_block);
        } else {
            widen(isa, of_row, floats_at(row + i, block) + in_block, 0, features, 1);
        }
    }
}

void SourceRows::copy(halyard_isa isa, int64_t begin, int64_t end, int64_t features, const BlockedRows &blocked) const {
    for (int64_t k = 0; k < features; k += k_block) {
        int64_t row = begin;
        const Part part = {first + begin, first + end, k, std::min<int64_t>(k + k_block, features)};
        rows.for_each_piece(part, max_block_rows, k_block, [&](const Rows::Piece &piece) {
            blocked.store(isa, row, k, {piece.data[0], dtype, piece.pitch[0]}, piece.columns, piece.rows);
            row += piece.rows;
        });
    }
}

void load_rows(const halyard_context &context, halyard_isa isa, const SourceRows &x, int64_t rows, int64_t features,
               const BlockedRows &blocked) {
    const int threads =
        static_cast<int>(std::min<int64_t>(threads_for(context, rows * features * size_of(x.dtype)), rows));
    run_tasks(context, threads,
              [&](int index) { x.copy(isa, rows * index / threads, rows * (index + 1) / threads, features, blocked); });
    blocked.clear_from(rows, features);
}

Tiling::Tiling(halyard_isa isa, XForm x, int64_t rows) {
    const int tallest = tile_kernels().tallest(isa, x);
    if (rows <= tallest) {
        tile_rows = static_cast<int>(rows);
        tiles = 1;
        return;
    }
    // The tallest tiles do most with each load of a weight; somewhat lower ones may leave fewer rows idle. A load costs
    // about as much as another row.
    tile_rows = tallest;
    tiles = (rows + tallest - 1) / tallest;
    for (int lower = tallest - 1; lower > tallest / 2; lower--) {
        const int64_t needed = (rows + lower - 1) / lower;
        if ((lower + 1) * needed < (tile_rows + 1) * tiles) {
            tile_rows = lower;
            tiles = needed;
        }
    }
}

Layer::Layer(const halyard_weights *weights, halyard_activation activation, float beta)
    : weights(weights), beta(beta), bias(nullptr) {
    if (activation == HALYARD_SWISH && beta == 1.0f) {
        activation = HALYARD_SILU;
    }
    constexpr KernelOf<arguments::Epilogue> epilogues[][2] = {
#define HALYARD_KERNEL(name) {kernels::name, kernels::name##_gated},
#include "kernels/epilogue.inc"
#undef HALYARD_KERNEL
    };
    epilogue = epilogues[activation][weights->gated];
}

void Layer::set_bias(const View &bias_view, const View &bias_up, halyard_isa isa, float *memory) {
    const int stripes = weights->gated ? 2 : 1;
    std::fill_n(memory, bias_floats(), -0.0f);
    const View *const views[] = {&bias_view, &bias_up};
    for (int stripe = 0; stripe < stripes; stripe++) {
        const View &view = *views[stripe];
        if (!view.data) {
            continue;
        }
        // A row of 16 per panel, and what remains.
        const TypedRows matrix = {view.data, view.dtype, panel_width};
        const int64_t whole = view.width() / panel_width, rest = view.width() % panel_width;
        const int64_t pitch = stripes * panel_width;
        for (int64_t panel = 0; panel < whole; panel += max_block_rows) {
            const int64_t rows = std::min<int64_t>(whole - panel, max_block_rows);
            widen(isa, {matrix.row(panel), view.dtype, panel_width}, memory + panel * pitch + stripe * panel_width,
                  pitch, panel_width, rows);
        }
        if (rest > 0) {
            widen(isa, {matrix.row(whole), view.dtype}, memory + whole * pitch + stripe * panel_width, 0, rest, 1);
        }
    }
    bias = memory;
}

namespace {

/** The groups of a GEMM that one thread begins with: the same ones in each call, so that their weights stay in the cache of its
 *  core where they fit it. */
struct alignas(64) Share {
    std::atomic<int64_t> next;
    int64_t end;
};

}  // namespace

/** What the threads of one GEMM share. */
struct Product::Call {
    const Product &product;
    const halyard_weights &weights;
    const BlockedRows &x;
    const SourceRows *source;
    int64_t copy_bytes;
    const Tiling &tiling;
    int64_t rows;
    const float *row_scale, *row_mean;
    const OutputView &y;

    bool widen;                   // 16-bit weights or codes block by block, before they are multiplied
    bool prefetch4;               // many tiles of rows
    int tile_panels;              // of a kernel call
    int group_panels;             // whose sums are held at a time
    int64_t depth;                // inputs of a kernel call
    int64_t groups, task_groups;  // of all, and of those a thread takes at a time
    int threads;
    char *scratch;  // of each thread a share and the worker's part

    Share &share(int thread) const { return *reinterpret_cast<Share *>(scratch + thread * product.thread_bytes_); }
    void work(int thread) const;

private:
    class Worker;

    /** Groups [begin, end); none if begin is -1. */
    struct Task {
        int64_t begin, end;
    };
    Task claim(int thread) const;
};

/** One thread's part: its buffers and scratch. */
class Product::Call::Worker {
public:
    Worker(const Call &call, int thread, char *scratch)
        : call_(call), weights_(call.weights), rows_(call.x),
          multiply_(kernel_function(TileKernels::kernel(call.prefetch4, call.tiling.tile_rows),
                                    call.widen ? DType::f32 : call.weights.dtype, call.product.isa_)),
          multiply_pairs_(kernel_function(is_amx(call.product.isa_, XForm::pairs)
                                              ? kernels::matmul_tiles
                                              : TileKernels::pairs_kernel(call.prefetch4, call.tiling.tile_rows),
                                          call.weights.dtype, call.product.isa_)),
          multiply_codes_(
              kernel_function(TileKernels::code_kernel(weights_.codes, std::min(call.tiling.tile_rows, max_tile_rows)),
                              DType::f32, call.product.isa_)),
          codes_(weights_.codes, call.product.isa_),
          epilogue_(kernel_function(call.product.layer_.epilogue, call.y.dtype, call.product.isa_)),
          sums_(reinterpret_cast<float *>(scratch)), sums_pitch_(sums_pitch(call.group_panels)),
          widened_(sums_ + call.tiling.rows() * sums_pitch_), expanded_(widened_ + max_widened_floats) {
        if (call.source) {
            rows_.data += thread * call.copy_bytes;
            call.source->copy(call.product.isa_, 0, call.rows, weights_.in_features, rows_);
            rows_.clear_from(call.rows, weights_.in_features);
        }
    }

    /** Computes group `group`, and prefetches what group `following` begins with (none if negative). */
    void operator()(int64_t group, int64_t following) {
        const int64_t begin = group * call_.group_panels, end = std::min(begin + call_.group_panels, weights_.panels);
        for (int64_t panel = begin; panel < end; panel += call_.tile_panels) {
            const int64_t panels = std::min<int64_t>(call_.tile_panels, end - panel);
            for (int64_t k = 0; k < weights_.in_features; k += call_.depth) {
                const char *after = address(panel, k);
                if (k + call_.depth < weights_.in_features) {
                    after = address(panel, k + call_.depth);
                } else if (panel + panels < end) {
                    after = address(panel + panels, 0);
                } else if (following >= 0) {
                    after = address(following * call_.group_panels, 0);
                }
                multiply(panel, panels, k, sums_ + (panel - begin) * panel_width, after);
            }
        }
        finish(begin, end);
    }

private:
    Panels weights(int64_t panel, int64_t k) const {
        return Panels{weights_.panel_data, weights_.dtype, weights_.panel_bytes()}.from(panel, k);
    }
    CodePanels codes(int64_t panel, int64_t panels, int64_t k) const {
        return {weights_.codes,
                code_block(weights_.codes, weights_.panel_data, weights_.in_features, panel, k / k_block),
                weights_.panel_bytes(), panels};
    }
    const char *address(int64_t panel, int64_t k) const {
        return weights_.codes ? codes(panel, 1, k).first.scales : weights(panel, k).data;
    }

    /** Describes the weights of a k block to the kernel that multiplies them, in f32 if the call widens them. */
    void take_weights(int64_t panel, int64_t panels, int64_t k, int64_t depth) {
        Panels block = {reinterpret_cast<char *>(widened_), DType::f32, input_bytes(k_block, DType::f32)};
        if (weights_.codes) {
            const CodePanels in_codes = codes(panel, panels, k);
            codes_.expand(in_codes, expanded_, scales_);
            if (!call_.widen) {
                in_codes.describe(w_);
                return;
            }
            codes_.widen(in_codes, scales_, widened_, k_block * panel_width);
        } else if (call_.widen) {
            widen_panels(call_.product.isa_, weights(panel, k), block, depth, panels);
        } else {
            block = weights(panel, k);
        }
        w_.set_data(block.data);
        block.describe(w_, depth, panels);
    }

    /** Inputs from one prefetch of the kernel to the next. */
    int64_t interval() const {
        return !call_.widen && weights_.codes
                   ? code_row_inputs(weights_.codes.bits)
                   : prefetch_interval(call_.prefetch4, call_.widen ? DType::f32 : weights_.dtype);
    }

    /** Prefetches what a kernel, which prefetches as much as it reads, leaves out: scales, so far ahead of their use. */
    static void prefetch_scales(const CodePanels &panels, int64_t ahead) {
        const CodeBlock<const char> &block = panels.first;
        for (int64_t panel = 0; panel < panels.count; panel++) {
            for (const char *line = block.scales; line < block.codes; line += 64) {
                __builtin_prefetch(line + panel * panels.stride + ahead, 0, 2);
            }
        }
    }

    void multiply(int64_t panel, int64_t panels, int64_t k, float *sums, const char *after) {
        const int64_t depth = std::min<int64_t>(call_.depth, weights_.in_features - k);
        const Tiling &tiling = call_.tiling;
        take_weights(panel, panels, k, depth);
        sum_.set_data(sums);
        sum_.set_dim(0, panel_width, 1);
        sum_.set_dim(1, panels, panel_width);
        sum_.set_dim(2, tiling.tile_rows, sums_pitch_);
        sum_.set_dim(3, tiling.tiles, tiling.tile_rows * sums_pitch_);
        const int64_t prefetch_pitch =
            weights_.panel_bytes() <= INT32_MAX / max_group_panels ? weights_.panel_bytes() : 0;
        const int64_t bits = weights_.codes ? weights_.codes.bits : 8 * size_of(weights_.dtype);
        const int64_t interval_bytes = interval() * panel_width * bits / 8;
        int32_t step = static_cast<int32_t>((interval_bytes + tiling.tiles - 1) / tiling.tiles);
        if (tiling.tiles == 1 && !is_amx(call_.product.isa_, rows_.form)) {
            const int64_t ahead = parameters.gemm_prefetch_bytes / panels;
            after = address(panel, k) + ahead;
            if (weights_.codes) {
                const CodePanels in_codes = codes(panel, panels, k);
                prefetch_scales(in_codes, ahead);
                after = in_codes.first.codes + ahead;
            }
            step = static_cast<int32_t>(interval_bytes);
        }
        next_.set_data(after);
        next_.set_dim(1, panels, prefetch_pitch);
        const auto describe = [&](auto &x, int64_t steps) {
            const int64_t pitch = rows_.row_bytes() / 4;
            x.set_dim(0, steps, 1);
            x.set_dim(1, tiling.tile_rows, pitch);
            x.set_dim(2, tiling.tiles, tiling.tile_rows * pitch);
        };
        if (weights_.codes && !call_.widen) {
            x_.set_data(rows_.floats_at(0, k / k_block));
            describe(x_, depth);
            multiply_codes_({.x = x_,
                             .w = w_,
                             .scales = scales_,
                             .group_shift = codes(panel, panels, k).group_shift(),
                             .so_far = sum_,
                             .first = k == 0,
                             .depth = static_cast<int32_t>(depth),
                             .next = next_,
                             .next_step = step,
                             .sum = sum_});
            return;
        }
        const auto call = [&](const auto &multiply, const auto &x, int64_t steps) {
            multiply({.x = x,
                      .w = w_,
                      .so_far = sum_,
                      .first = k == 0,
                      .depth = static_cast<int32_t>(steps),
                      .next = next_,
                      .next_step = step,
                      .sum = sum_});
        };
        if (rows_.form == XForm::pairs) {
            const int64_t pairs = (depth + 1) / 2;
            pairs_.set_data(rows_.at(0, k / k_block));
            describe(pairs_, pairs);
            call(multiply_pairs_, pairs_, pairs);
        } else {
            x_.set_data(rows_.floats_at(0, k / k_block));
            describe(x_, depth);
            call(multiply_, x_, depth);
        }
    }

    /** From the sums of panels [begin, end) to outputs. */
    void finish(int64_t begin, int64_t end) {
        const int stripes = weights_.gated ? 2 : 1;
        const int64_t columns_end = std::min(end / stripes * panel_width, weights_.out_features);
        int64_t column = begin / stripes * panel_width;
        const int64_t first_column = column;
        const OutputView &y = call_.y;
        if (y.rows) {
            const Part part = {y.first_row, y.first_row + call_.rows, column, columns_end};
            int64_t row = 0;
            y.rows->for_each_piece(part, max_block_rows, columns_end - column, [&](const Rows::Piece &piece) {
                store(begin, 0, row, piece.rows, piece.columns, piece.data[0], piece.pitch[0],
                      y.has_residual ? piece.data[1] : nullptr, y.has_residual ? piece.pitch[1] : 0);
                row += piece.rows;
            });
            return;
        }
        while (column < columns_end) {
            const int64_t block_end = std::min(columns_end, (column / k_block + 1) * k_block),
                          columns = block_end - column;
            const int64_t packed = (column - first_column) * stripes;
            if (y.blocked->rounded) {
                // By way of what is for widened panels, which are not in use now.
                const TypedRows rounded = {reinterpret_cast<char *>(widened_), DType::bf16, max_group_columns};
                store(begin, packed, 0, call_.rows, columns, rounded.data, rounded.pitch, nullptr, 0);
                y.blocked->store(call_.product.isa_, 0, column, rounded, columns, call_.rows);
            } else {
                char *data = reinterpret_cast<char *>(y.blocked->floats_at(0, column / k_block) + column % k_block);
                store(begin, packed, 0, call_.rows, columns, data, x_pitch, nullptr, 0);
            }
            column = block_end;
        }
    }

    /** `packed`: the first of the columns of sums, counted from panel `begin`. */
    void store(int64_t begin, int64_t packed, int64_t row, int64_t rows, int64_t columns, char *y, int64_t y_pitch,
               const char *residual, int64_t residual_pitch) {
        const int64_t sum_columns = call_.group_panels * panel_width - packed, column = begin * panel_width + packed;
        const Layer &layer = call_.product.layer_;
        sum2_.set(sums_ + row * sums_pitch_ + packed, sum_columns, rows, sums_pitch_);
        scale_.set(call_.row_scale + row, rows);
        mean_.set(call_.row_mean + row, rows);
        // Without means their factors are 0 as well: 0 times the sum of a column that holds Inf is no 0.
        column_sums_.set(call_.row_mean == neutral.zeros ? neutral.zeros : weights_.column_sums + column, sum_columns);
        column_bias_.set(weights_.column_bias + column, sum_columns);
        bias_.set(layer.bias ? layer.bias + column : neutral.negative_zeros, sum_columns);
        if (residual) {
            residual_.set(residual, columns, rows, residual_pitch);
        } else {
            const void *zeros = neutral.negative_zeros;
            residual_.set(call_.y.dtype == DType::f32 ? zeros : neutral.negative_zeros_16, columns, rows, 0);
        }
        y_.set(y, columns, rows, y_pitch);
        epilogue_({.sum = sum2_,
                   .row_scale = scale_,
                   .row_mean = mean_,
                   .column_sums = column_sums_,
                   .column_bias = column_bias_,
                   .bias = bias_,
                   .residual = residual_,
                   .beta = layer.beta,
                   .y = y_});
    }

    const Call &call_;
    const halyard_weights &weights_;
    BlockedRows rows_;
    const KernelCall<arguments::Matmul> multiply_;
    const KernelCall<arguments::MatmulPairs> multiply_pairs_;
    const KernelCall<arguments::MatmulCodes> multiply_codes_;
    const CodeKernels codes_;
    const KernelCall<arguments::Epilogue> epilogue_;
    float *const sums_;  // [row][sums_pitch_]
    const int64_t sums_pitch_;
    float *const widened_;   // [tile_panels][k_block][16]
    float *const expanded_;  // what expanded scales take
    Buffer<3, float> x_;
    Buffer<4, float> scales_;
    Buffer<3> pairs_, w_;
    Buffer<4, float> sum_;
    Buffer<2> next_, residual_, y_;
    Buffer<2, float> sum2_;
    Buffer<1, float> scale_, mean_, column_sums_, column_bias_, bias_;
};

Product::Call::Task Product::Call::claim(int thread) const {
    for (int i = 0; i < threads; i++) {
        Share &from = share((thread + i) % threads);
        if (from.next.load(std::memory_order_relaxed) < from.end) {
            const int64_t begin = from.next.fetch_add(task_groups, std::memory_order_relaxed);
            if (begin < from.end) {
                return {begin, std::min(begin + task_groups, from.end)};
            }
        }
    }
    return {-1, -1};
}

void Product::Call::work(int thread) const {
    Worker worker(*this, thread, reinterpret_cast<char *>(&share(thread) + 1));
    // The next task is claimed before this one is begun, so that its weights can be prefetched.
    Task task = claim(thread);
    while (task.begin >= 0) {
        const Task following = claim(thread);
        for (int64_t group = task.begin; group < task.end; group++) {
            worker(group, group + 1 < task.end ? group + 1 : following.begin);
        }
        task = following;
    }
}

Product::Product(const halyard_context &context, halyard_isa isa, int64_t max_rows, const Layer &layer)
    : context_(context), layer_(layer), isa_(isa) {
    const int64_t rows = Tiling::max_rows(std::min(max_rows, block_rows(max_rows)));
    // Codes take as long as bf16.
    const halyard_weights &weights = *layer.weights;
    const int64_t panel_bytes = weights.codes ? input_bytes(weights.in_features, DType::bf16) : weights.panel_bytes();
    const int64_t bytes = weights.panels * panel_bytes;
    threads_ = threads_for(context, bytes * ((rows + max_tile_rows - 1) / max_tile_rows));
    const int64_t sums = rows * sums_pitch(max_group_panels);
    const int64_t rounded = rows * max_group_columns / 2;
    const int64_t widened = weights.codes                 ? max_widened_floats + expanded_floats(max_tile_panels)
                            : weights.dtype == DType::f32 ? 0
                                                          : std::max(max_widened_floats, rounded);
    thread_bytes_ = Workspace::piece_bytes(sizeof(Share) + (sums + widened) * static_cast<int64_t>(sizeof(float)));
}

void Product::run(const BlockedRows &x, const SourceRows *source, int64_t copy_bytes, const Tiling &tiling,
                  int64_t rows, const float *row_scale, const float *row_mean, const OutputView &y,
                  char *scratch) const {
    const halyard_weights &weights = *layer_.weights;
    Call call{*this,
              weights,
              x,
              source,
              copy_bytes,
              tiling,
              rows,
              row_scale ? row_scale : neutral.ones,
              row_mean ? row_mean : neutral.zeros,
              y,
              x.form == XForm::f32 && (weights.codes || weights.dtype != DType::f32) &&
                  tiling.tiles >= parameters.gemm_widen_tiles,
              false,
              0,
              0,
              k_block,
              0,
              0,
              0,
              scratch};
    const auto width = [&](bool prefetch4) {
        return tile_kernels().width(isa_, tile_kind(x.form, prefetch4), call.widen ? DType::f32 : weights.dtype,
                                    tiling.tile_rows);
    };
    if (is_amx(isa_, x.form)) {
        // Where x does not stay in the second-level cache, it is read less often where more panels take it; where it does,
        // fewer read memory a tenth faster. Every thread is to get some groups. With a single tile of rows, weights that
        // come from beyond that cache are read another tenth faster without k blocks.
        const bool x_in_cache = BlockedRows::bytes(x.form, x.rows, weights.in_features) <= caches.half_of_second;
        const bool weights_in_cache = weights.panels * weights.panel_bytes() <= threads_ * caches.half_of_second;
        call.depth = tiling.tiles == 1 && !weights_in_cache ? weights.in_features : k_block;
        call.tile_panels = x_in_cache ? max_tile_panels : max_group_panels;
        while (call.tile_panels > 4 && weights.panels < int64_t{2} * threads_ * call.tile_panels) {
            call.tile_panels /= 2;
        }
    } else if (weights.codes && !call.widen) {
        call.tile_panels = tile_kernels().width(isa_, tile_kind(weights.codes), DType::f32, tiling.tile_rows);
    } else {
        call.prefetch4 = tiling.tiles >= prefetch4_interval && width(true) > 0;
        call.tile_panels = width(call.prefetch4);
    }
    // Kernels count elements in 32 bits: of panels that are longer than that allows, they get one at a time.
    if (weights.in_features * panel_width > INT32_MAX / max_group_panels) {
        call.tile_panels = 1;
    }
    call.group_panels = weights.gated && call.tile_panels % 2 != 0 ? 2 * call.tile_panels : call.tile_panels;
    call.groups = (weights.panels + call.group_panels - 1) / call.group_panels;
    call.task_groups = tiling.tiles == 1 ? parameters.gemm_task_groups_decode
                       : rows <= 64      ? parameters.gemm_task_groups_64
                                         : parameters.gemm_task_groups;

    call.threads = static_cast<int>(std::min<int64_t>(threads_, call.groups));
    for (int thread = 0; thread < call.threads; thread++) {
        new (&call.share(thread)) Share{call.groups * thread / call.threads, call.groups * (thread + 1) / call.threads};
    }
    run_tasks(context_, call.threads, [&](int thread) { call.work(thread); });
}

}  // namespace halyard
