// Packing on the processor: from a matrix in memory to a block.
#include <sys/mman.h>

#include <atomic>
#include <cstdlib>
#include <cstring>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "core/calls/pack.h"
#include "core/cast.h"
#include "core/device.h"
#include "core/handles/packed_weights.h"
#include "core/row_iterator.h"
#include "core/system/huge_pages.h"
#include "core/workspace.h"
#include "cpu/backend.h"
#include "cpu/linear/packing/piece_mover.h"
#include "cpu/linear/packing/quantize.h"
#include "cpu/linear/packing/repack.h"

namespace halyard {
namespace {

/** The kernels for a matrix and, where a norm's vectors are f32 beside 16 bits, for its pieces in f32 and for what becomes of these. */
struct AllPackKernels {
    PackKernels plain, in_f32, in_out;

    AllPackKernels(DType dtype, bool transposed, halyard_isa isa)
        : plain(dtype, transposed, isa), in_f32(DType::f32, transposed, isa), in_out(dtype, false, isa), isa(isa) {}

    halyard_isa isa;
};

/** Whether a norm's vectors are f32 beside a matrix of 16 bits. */
bool is_mixed(const PackSources &sources) {
    const auto other = [&](const View &vector) { return vector.data && vector.dtype != sources.weight.dtype; };
    return other(sources.norm_weight) || other(sources.norm_bias);
}

/** Packs some panels, a part of their inputs at a time, so that what is summed and hashed is still in cache. */
class Packer {
public:
    Packer(const PackSources &sources, const AllPackKernels &kernels, char *block)
        : sources_(sources), kernels_(kernels), transposed_(sources.layout == HALYARD_WEIGHT_OUT_IN),
          mixed_(is_mixed(sources)), matrices_(sources.form.gated ? 2 : 1), size_(size_of(sources.weight.dtype)),
          row_inputs_(row_inputs(sources.weight.dtype)),
          move_(kernels.plain, sources.weight.dtype, transposed_, offset(sources)),
          move_in_f32_(kernels.in_f32, DType::f32, transposed_, offset(sources)),
          move_in_out_(kernels.in_out, sources.weight.dtype, false, 0.0f),
          column_sums_(reinterpret_cast<float *>(block + sizeof(PackedHeader))),
          column_bias_(column_sums_ + sources.form.geometry.panels * panel_width),
          panel_data_(block + sources.form.geometry.panels_offset) {
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

    static float offset(const PackSources &sources) { return sources.unit_offset ? 1.0f : 0.0f; }

    /** How many panels from `first` on to pack together. */
    int group(int64_t first, int64_t end) const {
        // The last panel may not be full, and is copied to a place where it is; so are elements too far apart for the
        // kernels' 32-bit indices.
        const int64_t full = sources_.form.out_features / panel_width;
        if (transposed_ || mixed_ || too_far_apart() || first >= full || sources_.form.in_features % row_inputs_ != 0) {
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
            const Piece given = part_of(matrix, k, first * panel_width);
            char *target =
                panel_data_ + first_packed * sources_.form.geometry.panel_bytes + input_bytes(k, sources_.weight.dtype);
            if (mixed_) {
                pack_in_f32(given, k, inputs, columns, target);
            }
            if (!mixed_ || !sources_.norm_weight.data) {
                const Piece piece = stage ? staged(given, inputs, columns) : given;
                move_.move(piece, inputs, part_of(sources_.norm_weight, k), target, count, panel_pitch());
                for (int i = 0; i < count && !mixed_ && sources_.norm_bias.data; i++) {
                    add_bias({piece.data + i * panel_width * size_, piece.pitch}, k, inputs, bias_sums_[i]);
                }
            }
            if (columns < panel_width) {
                clear_columns(target, inputs, columns);  // 0 times a norm's weight may be -0 or NaN
            }
            for (int i = 0; i < count; i++) {
                const char *packed = target + i * matrices_ * sources_.form.geometry.panel_bytes;
                add(kernels_.plain.sums, packed, no_factor_, inputs, row_inputs_, sums_[i]);
                XXH3_64bits_update(&hashes_[i], packed, input_bytes(inputs, sources_.weight.dtype));
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

    /** The entries of a norm's vector from an input on; null where there is none. */
    static const char *part_of(const View &vector, int64_t k) {
        return vector.data ? vector.data + k * size_of(vector.dtype) : nullptr;
    }

    /** Adds the bias of the norm times a piece of one panel. */
    void add_bias(const Piece &piece, int64_t k, int64_t inputs, double *sums) {
        factor_.set(part_of(sources_.norm_bias, k), inputs);
        move_.move(piece, inputs, nullptr, unfolded_, 1, 0);
        add(kernels_.plain.weighted_sums, unfolded_, factor_, inputs, row_inputs_, sums);
    }

    /** What a norm with vectors in f32 makes of a piece with `columns` columns of one panel: its share of the bias and, where there is
     *  a weight, the panel. */
    void pack_in_f32(const Piece &given, int64_t k, int64_t inputs, int64_t columns, char *target) {
        const Piece piece = widened(given, inputs, columns);
        if (sources_.norm_bias.data) {
            factor_.set(part_of(sources_.norm_bias, k), inputs);
            move_in_f32_.move(piece, inputs, nullptr, unfolded_, 1, 0);
            add(kernels_.in_f32.weighted_sums, unfolded_, factor_, inputs, 1, bias_sums_[0]);
        }
        if (sources_.norm_weight.data) {
            // A panel in f32 is a piece of [in, out], which is rounded and moved as it is.
            move_in_f32_.move(piece, inputs, part_of(sources_.norm_weight, k), unfolded_, 1, 0);
            memset(staged_, 0, sizeof(staged_));
            cast(kernels_.isa, {unfolded_, DType::f32}, {staged_, sources_.weight.dtype}, inputs * panel_width, 1);
            move_in_out_.move({staged_, panel_width}, inputs, nullptr, target, 1, 0);
        }
    }

    /** Copies a piece as staged() does, in f32. */
    Piece widened(const Piece &piece, int64_t inputs, int64_t columns) {
        const int64_t pitch = transposed_ ? max_chunk : panel_width;
        memset(staged_, 0, sizeof(staged_));
        cast(kernels_.isa, {const_cast<char *>(piece.data), sources_.weight.dtype, piece.pitch},
             {staged_, DType::f32, pitch}, transposed_ ? inputs : columns, transposed_ ? columns : inputs);
        return {staged_, pitch};
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

    /** Adds the inputs of a packed piece to the sums of its columns. */
    void add(const KernelCall<arguments::PackSums> &kernel, const char *packed, const Buffer<1> &factor, int64_t inputs,
             int64_t of_row, double *sums) {
        panel_.set_data(packed);
        panel_.set_dim(1, (inputs + of_row - 1) / of_row, panel_width);
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
    const AllPackKernels &kernels_;
    const bool transposed_, mixed_;
    const int64_t matrices_, size_, row_inputs_;
    PieceMover move_, move_in_f32_, move_in_out_;
    float *const column_sums_, *const column_bias_;
    char *const panel_data_;

    Buffer<2> panel_;
    Buffer<1> factor_, no_factor_;
    Buffer<1, double> total_;
    XXH3_state_t hashes_[max_group];
    double sums_[max_group][panel_width], bias_sums_[max_group][panel_width];
    alignas(64) char staged_[panel_width * max_chunk * sizeof(float)];
    alignas(64) char unfolded_[panel_width * max_chunk * sizeof(float)];
};

/** Fills a block from sources that are in order, a norm's vectors of one dtype. */
void pack_block(const halyard_context &context, const PackSources &sources, char *block) {
    const Geometry &geometry = sources.form.geometry;
    memset(block, 0, static_cast<size_t>(geometry.panels_offset));
    const AllPackKernels kernels(sources.weight.dtype, sources.layout == HALYARD_WEIGHT_OUT_IN,
                                 best_isa(context.max_isa));
    std::atomic<uint64_t> digest{0};
    run_ranges(context, geometry.panels / (sources.form.gated ? 2 : 1), geometry.bytes,
               [&](int64_t begin, int64_t end) {
                   digest.fetch_add(Packer(sources, kernels, block).pack(begin, end), std::memory_order_relaxed);
               });

    write_header(block, sources.form, digest.load(std::memory_order_relaxed));
}

/** A norm's vectors of one dtype: in f32 if one of them is. */
class NormVectors {
public:
    NormVectors(Checker &check, const halyard_context &context, const PackSources &sources)
        : workspace_(context, Device()), sources_(sources) {
        if (!is_mixed(sources)) {
            return;
        }
        const auto weight = workspace_.book<float>(widened_floats(sources.norm_weight));
        const auto bias = workspace_.book<float>(widened_floats(sources.norm_bias));
        if (workspace_.allocate(check)) {
            const halyard_isa isa = best_isa(context.max_isa);
            sources_.norm_weight = widened(isa, sources.norm_weight, workspace_[weight]);
            sources_.norm_bias = widened(isa, sources.norm_bias, workspace_[bias]);
        }
    }

    /** The sources with these. */
    const PackSources &sources() const { return sources_; }

private:
    Workspace workspace_;
    PackSources sources_;
};

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
    const NormVectors vectors(check, context, sources);
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
        pack_block(context, vectors.sources(), block);
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
    const NormVectors vectors(check, context, sources);
    if (!check.failed()) {
        pack_block(context, vectors.sources(), const_cast<char *>(weights.block));
    }
}

void cpu::free_weights(const halyard_weights &weights) {
    if (weights.owner == halyard_weights::Owner::mapping) {
        munmap(weights.mapped, weights.mapped_bytes);
    }
}

}  // namespace halyard
