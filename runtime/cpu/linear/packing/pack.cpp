// Packing on the processor: from a matrix in memory to a block.
#include <sys/mman.h>

#include <atomic>
#include <cstdlib>
#include <cstring>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "core/calls/pack.h"
#include "core/device.h"
#include "core/handles/packed_weights.h"
#include "core/row_iterator.h"
#include "core/system/huge_pages.h"
#include "cpu/backend.h"
#include "cpu/linear/packing/quantize.h"
#include "cpu/linear/packing/repack.h"
#include "layout/pack.h"

namespace halyard {
namespace {

struct PackKernels {
    KernelCall<arguments::Pack> as_it_is, folded;
    KernelCall<arguments::PackSums> sums, weighted_sums;

    PackKernels(DType dtype, bool transposed, halyard_isa isa)
        : as_it_is(kernel_function(transposed ? kernels::pack_out_in : kernels::pack_in_out, dtype, isa)),
          folded(kernel_function(transposed ? kernels::pack_out_in_folded : kernels::pack_in_out_folded, dtype, isa)),
          sums(kernel_function(kernels::pack_sums, dtype, isa)),
          weighted_sums(kernel_function(kernels::pack_weighted_sums, dtype, isa)) {}
};

/** Packs some panels, a part of their inputs at a time, so that what is summed and hashed is still in cache. */
class Packer {
public:
    Packer(const PackSources &sources, const PackKernels &kernels, char *block)
        : sources_(sources), kernels_(kernels), transposed_(sources.layout == HALYARD_WEIGHT_OUT_IN),
          matrices_(sources.form.gated ? 2 : 1), size_(size_of(sources.weight.dtype)),
          row_inputs_(row_inputs(sources.weight.dtype)), offset_(sources.unit_offset ? 1.0f : 0.0f),
          column_sums_(reinterpret_cast<float *>(block + sizeof(PackedHeader))),
          column_bias_(column_sums_ + sources.form.geometry.panels * panel_width),
          panel_data_(block + sources.form.geometry.panels_offset) {
        panels_.set_dim(0, panel_width, 1);
        panel_.set_dim(0, panel_width, 1);
        no_factor_.set(nullptr, 0);
        total_.set_dim(0, panel_width, 1);
        for (XXH3_state_t &hash : hashes_) {
            XXH3_INITSTATE(&hash);  // a reset trusts what an earlier one may have left
        }
    }

    /** Panels [begin, end) of each matrix. Returns their share of the payload's checksum. */
    uint64_t pack(int64_t begin, int64_t end) {
        uint64_t digest = 0;
        for (int64_t panel = begin; panel < end;) {
            const int count = group(panel, end);
            digest += pack_group(sources_.weight, 0, panel, count);
            if (sources_.form.gated) {
                digest += pack_group(sources_.up, 1, panel, count);
            }
            panel += count;
        }
        return digest;
    }

private:
    // Rows of [in, out] hold all panels side by side: several panels at a time make a read of a row worth its while.
    static constexpr int max_group = 16;
    // Inputs at a time. Of [out, in] enough to be read in stretches; of [in, out] few, for a group of panels is wide.
    static constexpr int chunk_transposed = 512, chunk_in_out = 128;
    static constexpr int max_chunk = chunk_transposed + min_transposed_inputs;

    // A part of the source, in its own order of axes.
    struct Piece {
        const char *data;
        int64_t pitch;  // in elements
    };

    /** How many panels from `first` on to pack together. */
    int group(int64_t first, int64_t end) const {
        // The last panel may not be full, and is copied to a place where it is; so are elements too far apart for the
        // kernels' 32-bit indices.
        const int64_t full = sources_.form.out_features / panel_width;
        if (transposed_ || too_far_apart() || first >= full || sources_.form.in_features % row_inputs_ != 0) {
            return 1;
        }
        const int64_t pitch = panel_pitch();
        const int64_t addressable = std::max<int64_t>(1, (INT_MAX - max_chunk * panel_width) / pitch);
        return static_cast<int>(std::min({std::min(end, full) - first, addressable, int64_t{max_group}}));
    }

    /** From one panel of a matrix to its next, in what a row holds of a column. */
    int64_t panel_pitch() const { return sources_.form.geometry.panel_bytes * matrices_ / (size_ * row_inputs_); }

    bool too_far_apart() const {
        const int64_t steps = transposed_ ? panel_width : chunk_in_out;
        const int64_t pitch = std::max(sources_.weight.strides[0], sources_.form.gated ? sources_.up.strides[0] : 0);
        return pitch > (INT_MAX - max_chunk) / steps;
    }

    int64_t chunk(int64_t inputs_left) const {
        if (!transposed_) {
            return std::min<int64_t>(inputs_left, chunk_in_out);
        }
        // What is left after this chunk must be enough for the kernel.
        return inputs_left < max_chunk ? inputs_left : chunk_transposed;
    }

    uint64_t pack_group(const View &matrix, int which, int64_t first, int count) {
        const int64_t first_packed = first * matrices_ + which;
        const int64_t columns =
            std::min<int64_t>(panel_width, sources_.form.out_features - first * panel_width);  // of a panel
        const bool stage = columns < panel_width || too_far_apart() || sources_.form.in_features % row_inputs_ != 0 ||
                           (transposed_ && sources_.form.in_features < min_transposed_inputs);
        for (int i = 0; i < count; i++) {
            XXH3_64bits_reset_withSeed(&hashes_[i], panel_seed(first_packed + i * matrices_));
            std::fill_n(sums_[i], panel_width, 0.0);
            std::fill_n(bias_sums_[i], panel_width, 0.0);
        }

        int64_t inputs = 0;
        for (int64_t k = 0; k < sources_.form.in_features; k += inputs) {
            inputs = chunk(sources_.form.in_features - k);
            Piece piece = part_of(matrix, k, first * panel_width);
            if (stage) {
                piece = staged(piece, inputs, columns);
            }
            char *target =
                panel_data_ + first_packed * sources_.form.geometry.panel_bytes + input_bytes(k, sources_.weight.dtype);
            move(piece, inputs, sources_.norm_weight.data ? sources_.norm_weight.data + k * size_ : nullptr, target,
                 count);
            if (columns < panel_width) {
                clear_columns(target, inputs, columns);  // 0 times a norm's weight may be -0 or NaN
            }
            for (int i = 0; i < count; i++) {
                const char *packed = target + i * matrices_ * sources_.form.geometry.panel_bytes;
                add(kernels_.sums, packed, no_factor_, inputs, sums_[i]);
                XXH3_64bits_update(&hashes_[i], packed, input_bytes(inputs, sources_.weight.dtype));
            }
            if (sources_.norm_bias.data) {
                factor_.set(sources_.norm_bias.data + k * size_, inputs);
                for (int i = 0; i < count; i++) {
                    move({piece.data + i * panel_width * size_, piece.pitch}, inputs, nullptr, unfolded_, 1);
                    add(kernels_.weighted_sums, unfolded_, factor_, inputs, bias_sums_[i]);
                }
            }
        }

        uint64_t digest = 0;
        for (int i = 0; i < count; i++) {
            const int64_t panel = first_packed + i * matrices_;
            store(sums_[i], columns, column_sums_ + panel * panel_width);
            store(bias_sums_[i], columns, column_bias_ + panel * panel_width);
            digest += XXH3_64bits_digest(&hashes_[i]);
        }
        return digest;
    }

    Piece part_of(const View &matrix, int64_t k, int64_t column) const {
        const int64_t pitch = matrix.strides[0];
        const int64_t offset = transposed_ ? column * pitch + k : k * pitch + column;
        return {matrix.data + offset * size_, pitch};
    }

    /** A copy of a piece with one panel's columns, of which `columns` are there, as the kernels take it. */
    Piece staged(const Piece &piece, int64_t inputs, int64_t columns) {
        const int64_t pitch = transposed_ ? max_chunk : panel_width;
        const int64_t rows = transposed_ ? columns : inputs;
        const int64_t bytes = (transposed_ ? inputs : columns) * size_;
        memset(staged_, 0, sizeof(staged_));
        for (int64_t row = 0; row < rows; row++) {
            memcpy(staged_ + row * pitch * size_, piece.data + row * piece.pitch * size_, bytes);
        }
        return {staged_, pitch};
    }

    /** Packs a piece into `count` panels, the norm's weight of its inputs folded in if it is not null. */
    void move(const Piece &piece, int64_t inputs, const char *norm_weight, char *target, int count) {
        // Too few inputs to transpose, or half a row: the piece is a staged one, whose other inputs are 0, and the target and
        // the norm's weight must have room for them too.
        const bool few = transposed_ && inputs < min_transposed_inputs;
        const bool widen = few || inputs % row_inputs_ != 0;
        const int64_t moved = few ? min_transposed_inputs : inputs + inputs % row_inputs_;
        source_.set_data(piece.data);
        source_.set_dim(0, transposed_ ? moved : count * panel_width, 1);
        source_.set_dim(1, transposed_ ? count * panel_width : moved, piece.pitch);
        norm_weight_.set_data(norm_weight);
        norm_weight_.set_dim(0, moved, 1);
        panels_.set_data(few ? few_ : target);
        panels_.set_dim(1, moved / row_inputs_, panel_width);
        panels_.set_dim(2, count, count == 1 ? 0 : panel_pitch());
        if (widen && norm_weight) {
            memcpy(staged_weights_, norm_weight, inputs * size_);
            norm_weight_.set_data(staged_weights_);
        }
        (norm_weight ? kernels_.folded : kernels_.as_it_is)(
            {.w = source_, .norm_weight = norm_weight_, .offset = offset_, .panels = panels_});
        if (few) {
            memcpy(target, few_, input_bytes(inputs, sources_.weight.dtype));
        }
    }

    /** Adds the inputs of a packed piece to the sums of its columns. */
    void add(const KernelCall<arguments::PackSums> &kernel, const char *packed, const Buffer<1> &factor, int64_t inputs,
             double *sums) {
        panel_.set_data(packed);
        panel_.set_dim(1, (inputs + row_inputs_ - 1) / row_inputs_, panel_width);
        total_.set_data(sums);
        kernel({.panel = panel_,
                .factor = factor,
                .inputs = static_cast<int32_t>(inputs),
                .so_far = total_,
                .sums = total_});
    }

    void clear_columns(char *packed, int64_t inputs, int64_t columns) const {
        const int64_t held = size_ * row_inputs_;
        for (int64_t row = 0; row * row_inputs_ < inputs; row++) {
            memset(packed + (row * panel_width + columns) * held, 0, (panel_width - columns) * held);
        }
    }

    /** Writes the sums of the columns that are there, and 0 for the others. */
    static void store(const double *sums, int64_t columns, float *target) {
        for (int64_t column = 0; column < panel_width; column++) {
            const float sum = static_cast<float>(sums[column]);
            target[column] = column >= columns ? 0.0f
                             : sum == sum      ? sum
                                               : __builtin_nanf("");  // one NaN, whatever its origin
        }
    }

    const PackSources &sources_;
    const PackKernels &kernels_;
    const bool transposed_;
    const int64_t matrices_, size_, row_inputs_;
    float offset_;
    float *const column_sums_, *const column_bias_;
    char *const panel_data_;

    Buffer<2> source_, panel_;
    Buffer<1> norm_weight_, factor_, no_factor_;
    Buffer<1, double> total_;
    Buffer<3> panels_;
    XXH3_state_t hashes_[max_group];
    double sums_[max_group][panel_width], bias_sums_[max_group][panel_width];
    alignas(64) char staged_[panel_width * max_chunk * sizeof(float)];
    alignas(64) char unfolded_[panel_width * max_chunk * sizeof(float)];
    alignas(64) char few_[panel_width * min_transposed_inputs * sizeof(float)];
    alignas(64) char staged_weights_[max_chunk * sizeof(float)] = {};
};

/** Fills a block from sources that are in order. */
void pack_block(const halyard_context &context, const PackSources &sources, char *block) {
    const Geometry &geometry = sources.form.geometry;
    memset(block, 0, static_cast<size_t>(geometry.panels_offset));
    const PackKernels kernels(sources.weight.dtype, sources.layout == HALYARD_WEIGHT_OUT_IN, best_isa(context.max_isa));
    std::atomic<uint64_t> digest{0};
    run_ranges(context, geometry.panels / (sources.form.gated ? 2 : 1), geometry.bytes,
               [&](int64_t begin, int64_t end) {
                   digest.fetch_add(Packer(sources, kernels, block).pack(begin, end), std::memory_order_relaxed);
               });

    write_header(block, sources.form, digest.load(std::memory_order_relaxed));
}

/** Refuses memory that a source is in. */
void check_target(Checker &check, const View &target, const PackSources &sources) {
    for (const View *source : {&sources.weight, &sources.up, &sources.norm_weight, &sources.norm_bias}) {
        check.no_overlap(target, *source, false);
    }
    for (const CodeSource *source : {&sources.codes, &sources.up_codes}) {
        for (const CodeTensor *tensor : {&source->codes, &source->scales, &source->zeros, &source->order}) {
            check.no_overlap(target, tensor->memory, false);
        }
    }
}

}  // namespace

int64_t cpu::packed_bytes(const PackSources &sources) {
    return sources.form.geometry.bytes;
}

void cpu::pack(Checker &check, const halyard_context &context, const PackSources &sources, void *memory, int64_t bytes,
               halyard_weights **weights) {
    const int64_t needed = sources.form.geometry.bytes;
    if (memory) {
        if (reinterpret_cast<uintptr_t>(memory) % block_alignment != 0) {
            check.fail(HALYARD_INVALID_ARGUMENT, "memory is misaligned: the address must be a multiple of %d",
                       static_cast<int>(block_alignment));
        }
        if (bytes < needed) {
            check.fail(HALYARD_INVALID_ARGUMENT, "bytes is %lld, but the packed weights need %lld",
                       static_cast<long long>(bytes), static_cast<long long>(needed));
        }
        check_target(check, memory_view("memory", memory, needed), sources);
    }
    if (check.failed()) {
        return;
    }

    halyard_weights *handle = new_handle();
    char *block = !handle ? nullptr : memory ? static_cast<char *>(memory) : map_pages(needed, true);
    if (!block) {
        free(handle);
        check.fail(HALYARD_OUT_OF_MEMORY, "no memory for %lld bytes of packed weights", static_cast<long long>(needed));
        return;
    }
    if (sources.codes.format) {
        repack(check, context, sources, block);
    } else if (sources.form.codes) {
        quantize(check, context, sources, block);
    } else {
        pack_block(context, sources, block);
    }
    if (check.failed()) {
        if (!memory) {
            munmap(block, needed);
        }
        free(handle);
        return;
    }
    view_block(*handle, block, sources.form);
    handle->owner = memory ? halyard_weights::Owner::caller : halyard_weights::Owner::mapping;
    handle->mapped = memory ? nullptr : block;
    handle->mapped_bytes = memory ? 0 : needed;
    handle->writable = true;
    *weights = handle;
}

void cpu::update(Checker &check, const halyard_context &context, const PackSources &sources,
                 const halyard_weights &weights) {
    check_target(check, memory_view("weights", weights.block, weights.bytes), sources);
    if (!check.failed()) {
        pack_block(context, sources, const_cast<char *>(weights.block));
    }
}

void cpu::free_weights(const halyard_weights &weights) {
    if (weights.owner == halyard_weights::Owner::mapping) {
        munmap(weights.mapped, weights.mapped_bytes);
    }
}

}  // namespace halyard
