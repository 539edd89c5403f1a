// Weights: packing, files, and the checks of packed blocks that come from outside.
#include "weights.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "check.h"
#include "context.h"
#include "pack_layout.h"
#include "rows.h"

namespace halyard {
namespace {

constexpr int64_t max_features = INT_MAX;

// A second thread pays from about this many bytes each.
constexpr int64_t min_packed_bytes_per_thread = 48 * 1024;

// A block that is large enough to span several gets pages of this size.
constexpr int64_t block_huge_page = int64_t{2} << 20;
constexpr int64_t min_huge_block = 2 * block_huge_page;

// ---- Geometry and checksums of a block ----

/** What follows from the sizes of a matrix. */
struct Geometry {
    int64_t panels, panel_bytes, bytes;

    /** False if a number does not fit. Features are 1 to max_features. */
    bool compute(int64_t in_features, int64_t out_features, bool gated, DType dtype) {
        panels = (out_features + panel_width - 1) / panel_width * (gated ? 2 : 1);
        panel_bytes = in_features * panel_width * size_of(dtype);
        return !__builtin_mul_overflow(panels, panel_bytes, &bytes) &&
               !__builtin_add_overflow(bytes, panels_offset(panels), &bytes);
    }
};

uint64_t header_digest(const PackedHeader &header) {
    return XXH3_64bits(&header, offsetof(PackedHeader, header_checksum));
}

/** What lies between header and panels: its share of the payload's checksum. */
uint64_t prefix_digest(const char *block, int64_t panels) {
    return XXH3_64bits_withSeed(block + sizeof(PackedHeader), panels_offset(panels) - sizeof(PackedHeader), 0);
}

uint64_t panel_seed(int64_t panel) {
    return static_cast<uint64_t>(panel) + 1;
}

/** Calls task(begin, end) for ranges that cover [0, items), on the context's threads if they are large enough. */
template<typename Task>
void run_ranges(const halyard_context &context, int64_t items, int64_t bytes, const Task &task) {
    int64_t parts = std::min<int64_t>(thread_bound(context), bytes / min_packed_bytes_per_thread);
    parts = std::max<int64_t>(1, std::min(parts, items));
    struct Closure {
        const Task *task;
        int64_t items, parts;
    } closure = {&task, items, parts};
    run_tasks(
        context, static_cast<int>(parts),
        [](void *opaque, int index) {
            const Closure &c = *static_cast<Closure *>(opaque);
            (*c.task)(c.items * index / c.parts, c.items * (index + 1) / c.parts);
        },
        &closure);
}

uint64_t payload_digest(const halyard_context &context, const char *block, const Geometry &geometry) {
    std::atomic<uint64_t> digest{prefix_digest(block, geometry.panels)};
    const char *first = block + panels_offset(geometry.panels);
    run_ranges(context, geometry.panels, geometry.bytes, [&](int64_t begin, int64_t end) {
        uint64_t sum = 0;
        for (int64_t panel = begin; panel < end; panel++) {
            sum += XXH3_64bits_withSeed(first + panel * geometry.panel_bytes, geometry.panel_bytes, panel_seed(panel));
        }
        digest.fetch_add(sum, std::memory_order_relaxed);
    });
    return digest.load(std::memory_order_relaxed);
}

// ---- Handles ----

/** A handle without a block, or null if there is no memory. */
halyard_weights *new_handle() {
    void *memory = malloc(sizeof(halyard_weights));
    return memory ? new (memory) halyard_weights{} : nullptr;
}

/** Makes a handle of a block whose header is in order. */
void view_block(halyard_weights &weights, const char *block, const Geometry &geometry) {
    const PackedHeader &header = *reinterpret_cast<const PackedHeader *>(block);
    weights.dtype = static_cast<DType>(header.dtype);
    weights.gated = header.gated != 0;
    weights.norm_folded = header.norm_folded != 0;
    weights.in_features = header.in_features;
    weights.out_features = header.out_features;
    weights.panels = geometry.panels;
    weights.column_sums = reinterpret_cast<const float *>(block + sizeof(PackedHeader));
    weights.column_bias = weights.column_sums + geometry.panels * panel_width;
    weights.panel_data = block + panels_offset(geometry.panels);
    weights.block = block;
    weights.bytes = geometry.bytes;
}

/** Memory for a block, on huge pages where it is worth it; null if there is none. */
char *map_block(int64_t bytes) {
    const int64_t extra = bytes >= min_huge_block ? block_huge_page : 0;
    int64_t reserved;
    if (__builtin_add_overflow(bytes, extra, &reserved)) {
        return nullptr;
    }
    void *memory = mmap(nullptr, reserved, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        return nullptr;
    }
    char *first = static_cast<char *>(memory);
    if (extra == 0) {
        return first;
    }
    const int64_t head = -reinterpret_cast<intptr_t>(first) & (block_huge_page - 1);
    const int64_t page = sysconf(_SC_PAGESIZE);
    const int64_t kept = (bytes + page - 1) / page * page;
    if (head > 0) {
        munmap(first, head);
    }
    if (reserved - head > kept) {
        munmap(first + head + kept, reserved - head - kept);
    }
    madvise(first + head, kept, MADV_HUGEPAGE);
    return first + head;
}

// ---- Packing: arguments ----

/** The checked sources of a packed matrix. */
struct PackSources {
    View weight, up, norm_weight, norm_bias;  // `data` is null where there is none
    halyard_weight_layout layout = HALYARD_WEIGHT_OUT_IN;
    bool gated = false, norm_folded = false, unit_offset = false;
    int64_t in_features = 0, out_features = 0;
    Geometry geometry = {};
};

/** Checks tensors of which only shape and dtype matter, or all of them. */
class SourceReader {
public:
    SourceReader(Checker &check, bool with_data) : check_(check), with_data_(with_data) {}

    View read(const char *name, const DLTensor *tensor) const {
        if (with_data_ || !tensor) {
            return check_.tensor(name, tensor);
        }
        DLTensor shape_only = *tensor;
        shape_only.data = &shape_only;  // aligned, and never read
        shape_only.byte_offset = 0;
        shape_only.strides = nullptr;
        shape_only.device = {kDLCPU, 0};
        return check_.tensor(name, &shape_only);
    }

    View matrix(const char *name, const DLTensor *tensor) const {
        const View view = read(name, tensor);
        if (check_.failed()) {
            return view;
        }
        if (view.rank != 2) {
            check_.fail(HALYARD_INVALID_ARGUMENT, "%s has rank %d, but must be a matrix (rank 2)", name, view.rank);
        }
        for (int axis = 0; axis < view.rank; axis++) {
            if (view.shape[axis] < 1 || view.shape[axis] > max_features) {
                check_.fail(HALYARD_INVALID_ARGUMENT, "%s has extent %lld on axis %d, but must have 1 to 2^31 - 1 features", name,
                            static_cast<long long>(view.shape[axis]), axis);
            }
        }
        return view;
    }

    /** [in_features] in the dtype of the weight, or nothing if `tensor` is null. */
    View vector(const char *name, const DLTensor *tensor, const PackSources &sources) const {
        if (!tensor || check_.failed()) {
            return View();
        }
        const View view = read(name, tensor);
        if (!check_.failed() && (view.rank != 1 || view.width() != sources.in_features)) {
            check_.fail(HALYARD_INVALID_ARGUMENT,
                        "%s must have shape [%lld], the in_features of weight, but has rank %d and width %lld", name,
                        static_cast<long long>(sources.in_features), view.rank, static_cast<long long>(view.width()));
        }
        check_.same_dtype(sources.weight, view);
        return view;
    }

private:
    Checker &check_;
    bool with_data_;
};

PackSources check_sources(Checker &check, const DLTensor *weight, const halyard_pack_options *options, bool with_data) {
    const halyard_pack_options none = {};
    const halyard_pack_options &o = options ? *options : none;
    const SourceReader reader(check, with_data);
    PackSources s;
    s.weight = reader.matrix("weight", weight);
    int layout;  // whatever number the caller put there
    static_assert(sizeof(layout) == sizeof(o.layout), "an enumeration of C is an int");
    memcpy(&layout, &o.layout, sizeof(layout));
    if (layout != HALYARD_WEIGHT_OUT_IN && layout != HALYARD_WEIGHT_IN_OUT) {
        check.fail(HALYARD_INVALID_ARGUMENT, "layout is %d, which is no value of halyard_weight_layout", layout);
        return s;
    }
    s.layout = static_cast<halyard_weight_layout>(layout);
    if (o.up) {
        s.up = reader.matrix("up", o.up);
        check.same_shape(s.weight, s.up);
        check.same_dtype(s.weight, s.up);
        s.gated = true;
    }
    if (check.failed()) {
        return s;
    }
    s.in_features = s.weight.shape[s.layout == HALYARD_WEIGHT_OUT_IN ? 1 : 0];
    s.out_features = s.weight.shape[s.layout == HALYARD_WEIGHT_OUT_IN ? 0 : 1];
    s.norm_weight = reader.vector("norm_weight", o.norm_weight, s);
    s.norm_bias = reader.vector("norm_bias", o.norm_bias, s);
    s.unit_offset = o.norm_unit_offset != 0;
    s.norm_folded = o.norm_weight || o.norm_bias || s.unit_offset;
    if (!check.failed() && !s.geometry.compute(s.in_features, s.out_features, s.gated, s.weight.dtype)) {
        check.fail(HALYARD_INVALID_ARGUMENT, "weight has %lld x %lld features, which are more than 2^63 bytes when packed",
                   static_cast<long long>(s.out_features), static_cast<long long>(s.in_features));
    }
    return s;
}

// ---- Packing: work ----

struct PackKernels {
    KernelFunction pack, pack_as_it_is, sums, weighted_sums;

    PackKernels(const PackSources &sources, halyard_isa isa) {
        const bool transposed = sources.layout == HALYARD_WEIGHT_OUT_IN;
        const auto kernel = [&](Kernel name) { return kernel_function(name, sources.weight.dtype, isa); };
        pack_as_it_is = kernel(transposed ? Kernel::pack_out_in : Kernel::pack_in_out);
        pack = pack_as_it_is;
        if (sources.norm_weight.data) {
            pack = kernel(transposed ? Kernel::pack_out_in_folded : Kernel::pack_in_out_folded);
        }
        sums = kernel(Kernel::pack_sums);
        weighted_sums = kernel(Kernel::pack_weighted_sums);
    }
};

/** Packs some panels, a part of their inputs at a time, so that what is summed and hashed is still in cache. */
class Packer {
public:
    Packer(const PackSources &sources, const PackKernels &kernels, char *block)
        : sources_(sources), kernels_(kernels), transposed_(sources.layout == HALYARD_WEIGHT_OUT_IN),
          matrices_(sources.gated ? 2 : 1), size_(size_of(sources.weight.dtype)), offset_(sources.unit_offset ? 1.0f : 0.0f),
          column_sums_(reinterpret_cast<float *>(block + sizeof(PackedHeader))),
          column_bias_(column_sums_ + sources.geometry.panels * panel_width),
          panel_data_(block + panels_offset(sources.geometry.panels)) {
        panels_.set_dim(0, panel_width, 1);
        panel_.set_dim(0, panel_width, 1);
        panel_.set_dim(1, 0, panel_width);
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
            if (sources_.gated) {
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
        const int64_t full = sources_.out_features / panel_width;
        if (transposed_ || too_far_apart() || first >= full) {
            return 1;
        }
        const int64_t pitch = panel_pitch();
        const int64_t addressable = std::max<int64_t>(1, (INT_MAX - max_chunk * panel_width) / pitch);
        return static_cast<int>(std::min({std::min(end, full) - first, addressable, int64_t{max_group}}));
    }

    /** Elements from one panel of a matrix to its next. */
    int64_t panel_pitch() const { return sources_.in_features * panel_width * matrices_; }

    bool too_far_apart() const {
        const int64_t steps = transposed_ ? panel_width : chunk_in_out;
        const int64_t pitch = std::max(sources_.weight.strides[0], sources_.gated ? sources_.up.strides[0] : 0);
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
        const int64_t columns = std::min<int64_t>(panel_width, sources_.out_features - first * panel_width);  // of a panel
        const bool stage = columns < panel_width || too_far_apart() ||
                           (transposed_ && sources_.in_features < min_transposed_inputs);
        for (int i = 0; i < count; i++) {
            XXH3_64bits_reset_withSeed(&hashes_[i], panel_seed(first_packed + i * matrices_));
            std::fill_n(sums_[i], panel_width, 0.0);
            std::fill_n(bias_sums_[i], panel_width, 0.0);
        }

        int64_t inputs = 0;
        for (int64_t k = 0; k < sources_.in_features; k += inputs) {
            inputs = chunk(sources_.in_features - k);
            Piece piece = part_of(matrix, k, first * panel_width);
            if (stage) {
                piece = staged(piece, inputs, columns);
            }
            char *target = panel_data_ + first_packed * sources_.geometry.panel_bytes + k * panel_width * size_;
            if (sources_.norm_weight.data) {
                norm_weight_.set_data(sources_.norm_weight.data + k * size_);
            }
            move(kernels_.pack, piece, inputs, target, count);
            if (columns < panel_width) {
                clear_columns(target, inputs, columns);  // 0 times a norm's weight may be -0 or NaN
            }
            for (int i = 0; i < count; i++) {
                const char *packed = target + i * matrices_ * sources_.geometry.panel_bytes;
                add(kernels_.sums, packed, inputs, sums_[i]);
                XXH3_64bits_update(&hashes_[i], packed, inputs * panel_width * size_);
            }
            if (sources_.norm_bias.data) {
                factor_.set_data(sources_.norm_bias.data + k * size_);
                for (int i = 0; i < count; i++) {
                    move(kernels_.pack_as_it_is, {piece.data + i * panel_width * size_, piece.pitch}, inputs, unfolded_, 1);
                    add(kernels_.weighted_sums, unfolded_, inputs, bias_sums_[i]);
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

    /** Packs a piece into `count` panels. */
    void move(KernelFunction kernel, const Piece &piece, int64_t inputs, char *target, int count) {
        // Too few inputs to transpose: the piece is a staged one, which has room for more, and so must the target.
        const bool widen = transposed_ && inputs < min_transposed_inputs;
        const int64_t moved = widen ? min_transposed_inputs : inputs;
        source_.set_data(piece.data);
        source_.set_dim(0, transposed_ ? moved : count * panel_width, 1);
        source_.set_dim(1, transposed_ ? count * panel_width : moved, piece.pitch);
        norm_weight_.set_dim(0, moved, 1);
        panels_.set_data(widen ? few_ : target);
        panels_.set_dim(1, moved, panel_width);
        panels_.set_dim(2, count, count == 1 ? 0 : panel_pitch());
        if (widen && kernel == kernels_.pack && sources_.norm_weight.data) {
            memcpy(few_weights_, sources_.norm_weight.data, inputs * size_);
            norm_weight_.set_data(few_weights_);
        }
        void *arguments[] = {source_.argument(), norm_weight_.argument(), &offset_, panels_.argument()};
        kernel(arguments);
        if (widen) {
            memcpy(target, few_, inputs * panel_width * size_);
        }
    }

    /** Adds the inputs of a packed piece to the sums of its columns. */
    void add(KernelFunction kernel, const char *packed, int64_t inputs, double *sums) {
        int32_t count = static_cast<int32_t>(inputs);
        panel_.set_data(packed);
        total_.set_data(sums);
        void *arguments[] = {panel_.argument(), factor_.argument(), &count, total_.argument(), total_.argument()};
        kernel(arguments);
    }

    void clear_columns(char *packed, int64_t inputs, int64_t columns) const {
        for (int64_t input = 0; input < inputs; input++) {
            memset(packed + (input * panel_width + columns) * size_, 0, (panel_width - columns) * size_);
        }
    }

    /** Writes the sums of the columns that are there, and 0 for the others. */
    static void store(const double *sums, int64_t columns, float *target) {
        for (int64_t column = 0; column < panel_width; column++) {
            const float sum = static_cast<float>(sums[column]);
            target[column] = column >= columns ? 0.0f : sum == sum ? sum : __builtin_nanf("");  // one NaN, whatever its origin
        }
    }

    const PackSources &sources_;
    const PackKernels &kernels_;
    const bool transposed_;
    const int64_t matrices_, size_;
    float offset_;
    float *const column_sums_, *const column_bias_;
    char *const panel_data_;

    BufferOf<2> source_, panel_;
    BufferOf<1> norm_weight_, factor_, total_;
    BufferOf<3> panels_;
    XXH3_state_t hashes_[max_group];
    double sums_[max_group][panel_width], bias_sums_[max_group][panel_width];
    alignas(64) char staged_[panel_width * max_chunk * sizeof(float)];
    alignas(64) char unfolded_[panel_width * max_chunk * sizeof(float)];
    alignas(64) char few_[panel_width * min_transposed_inputs * sizeof(float)];
    alignas(64) char few_weights_[min_transposed_inputs * sizeof(float)] = {};
};

/** Fills a block from sources that are in order. */
void pack_block(const halyard_context &context, const PackSources &sources, char *block) {
    const Geometry &geometry = sources.geometry;
    memset(block, 0, panels_offset(geometry.panels));
    const PackKernels kernels(sources, best_isa(context.max_isa));
    std::atomic<uint64_t> digest{0};
    run_ranges(context, geometry.panels / (sources.gated ? 2 : 1), geometry.bytes, [&](int64_t begin, int64_t end) {
        digest.fetch_add(Packer(sources, kernels, block).pack(begin, end), std::memory_order_relaxed);
    });

    PackedHeader header = {};
    memcpy(header.magic, packed_magic, sizeof(packed_magic));
    header.version = packed_version;
    header.dtype = static_cast<uint32_t>(sources.weight.dtype);
    header.gated = sources.gated;
    header.norm_folded = sources.norm_folded;
    header.in_features = sources.in_features;
    header.out_features = sources.out_features;
    header.bytes = geometry.bytes;
    header.payload_checksum = digest.load(std::memory_order_relaxed) + prefix_digest(block, geometry.panels);
    header.header_checksum = header_digest(header);
    memcpy(block, &header, sizeof(header));
}

// ---- Blocks from outside ----

/** Checks everything about a block of `bytes` bytes, which `name` says what it is. */
void check_block(Checker &check, const char *name, const char *block, int64_t bytes, Geometry &geometry) {
    const auto damaged = [&](const char *what) { check.fail(HALYARD_INVALID_ARGUMENT, "%s %s", name, what); };
    const int64_t magic_bytes = std::min<int64_t>(bytes, sizeof(packed_magic));
    if (bytes == 0) {
        return damaged("is empty: it was truncated, or is none of packed weights");
    }
    if (memcmp(block, packed_magic, magic_bytes) != 0) {
        return damaged("holds something other than packed weights: it does not begin with HALYARDW");
    }
    if (bytes < static_cast<int64_t>(sizeof(PackedHeader))) {
        return damaged("is truncated: it ends within the header of the packed weights");
    }
    PackedHeader header;
    memcpy(&header, block, sizeof(header));
    if (header.version != packed_version) {
        check.fail(HALYARD_UNSUPPORTED, "%s holds packed weights of version %u, but this library reads version %u", name,
                   header.version, packed_version);
        return;
    }
    if (header.header_checksum != header_digest(header)) {
        return damaged("was altered: the checksum of its header is wrong");
    }
    bool valid = header.dtype < dtype_count && header.gated <= 1 && header.norm_folded <= 1 && header.in_features >= 1 &&
                 header.in_features <= max_features && header.out_features >= 1 && header.out_features <= max_features;
    for (const char byte : header.reserved) {
        valid = valid && byte == 0;
    }
    valid = valid &&
            geometry.compute(header.in_features, header.out_features, header.gated != 0, static_cast<DType>(header.dtype)) &&
            header.bytes == geometry.bytes;
    if (!valid) {
        return damaged("has a header that no version of this library writes");
    }
    if (bytes != header.bytes) {
        check.fail(HALYARD_INVALID_ARGUMENT, "%s has %lld bytes, but its header says %lld: it %s", name,
                   static_cast<long long>(bytes), static_cast<long long>(header.bytes),
                   bytes < header.bytes ? "is truncated" : "was altered");
        return;
    }
    if (header.payload_checksum != payload_digest(context_or_default(nullptr), block, geometry)) {
        return damaged("was altered: the checksum of its weights is wrong");
    }
}

/** A file's contents, mapped as long as this lives. */
class MappedFile {
public:
    MappedFile(Checker &check, const char *path) {
        // Opening a pipe must not wait for a writer.
        const int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        if (file < 0) {
            check.fail(HALYARD_INVALID_ARGUMENT, "path cannot be opened for reading (%s): %s", strerror(errno), path);
            return;
        }
        struct stat status;
        if (fstat(file, &status) != 0 || !S_ISREG(status.st_mode)) {
            check.fail(HALYARD_INVALID_ARGUMENT, "path is not the name of a regular file: %s", path);
        } else if (status.st_size > 0) {
            void *memory = mmap(nullptr, status.st_size, PROT_READ, MAP_PRIVATE, file, 0);
            if (memory == MAP_FAILED) {
                check.fail(errno == ENOMEM ? HALYARD_OUT_OF_MEMORY : HALYARD_INVALID_ARGUMENT, "path cannot be mapped (%s): %s",
                           strerror(errno), path);
            } else {
                data_ = memory;
                bytes_ = status.st_size;
                madvise(data_, bytes_, MADV_WILLNEED);
            }
        }
        close(file);
    }
    ~MappedFile() {
        if (data_) {
            munmap(data_, bytes_);
        }
    }
    MappedFile(const MappedFile &) = delete;
    MappedFile &operator=(const MappedFile &) = delete;

    const char *data() const { return static_cast<const char *>(data_); }
    int64_t bytes() const { return bytes_; }

    /** Leaves the mapping to the handle. */
    void give_to(halyard_weights &weights) {
        weights.owner = halyard_weights::Owner::mapping;
        weights.mapped = data_;
        weights.mapped_bytes = bytes_;
        data_ = nullptr;
    }

private:
    void *data_ = nullptr;
    int64_t bytes_ = 0;
};

// ---- Writing files ----

/** Writes everything, and to the disk; an errno, or 0. */
int write_all(int file, const char *data, int64_t bytes) {
    constexpr int64_t most = 1 << 30;  // Linux writes 2 GiB at a time at most
    while (bytes > 0) {
        const ssize_t written = write(file, data, std::min(bytes, most));
        if (written < 0 && errno != EINTR) {
            return errno;
        }
        if (written > 0) {
            data += written;
            bytes -= written;
        }
    }
    return fsync(file) == 0 ? 0 : errno;
}

/** Makes a rename in the directory of `path` outlast a crash of the system, where the file system can. */
void sync_directory(char *path) {
    char *slash = strrchr(path, '/');
    if (slash) {
        slash[slash == path ? 1 : 0] = '\0';
    }
    const int directory = open(slash ? path : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (directory >= 0) {
        fsync(directory);
        close(directory);
    }
}

/** Replaces the file `path` by one with these bytes; an errno, or 0. `temporary` has room for `room` characters. */
int replace_file(const char *path, char *temporary, size_t room, const char *data, int64_t bytes) {
    static std::atomic<unsigned> counter{0};
    constexpr int attempts = 100;  // names left behind by processes that were killed may be in the way
    int file = -1;
    for (int i = 0; i < attempts && file < 0; i++) {
        snprintf(temporary, room, "%s.%ld.%u.tmp", path, static_cast<long>(getpid()), counter.fetch_add(1));
        file = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (file < 0 && errno != EEXIST) {
            return errno;
        }
    }
    if (file < 0) {
        return EEXIST;
    }
    int error = write_all(file, data, bytes);
    if (close(file) != 0 && error == 0) {
        error = errno;
    }
    if (error == 0 && rename(temporary, path) != 0) {
        error = errno;
    }
    if (error != 0) {
        unlink(temporary);
    }
    return error;
}

}  // namespace
}  // namespace halyard

using halyard::Checker;

halyard_status halyard_weights_size(const DLTensor *weight, const halyard_pack_options *options, int64_t *bytes) {
    Checker check("halyard_weights_size");
    const halyard::PackSources sources = halyard::check_sources(check, weight, options, false);
    if (check.not_null("bytes", bytes)) {
        *bytes = sources.geometry.bytes;
    }
    return check.status();
}

halyard_status halyard_weights_pack(const halyard_context *context, const DLTensor *weight,
                                    const halyard_pack_options *options, void *memory, int64_t bytes,
                                    halyard_weights **weights) {
    using namespace halyard;
    Checker check("halyard_weights_pack");
    const PackSources sources = check_sources(check, weight, options, true);
    check.not_null("weights", weights);
    const int64_t needed = sources.geometry.bytes;
    if (!check.failed() && memory) {
        if (reinterpret_cast<uintptr_t>(memory) % block_alignment != 0) {
            check.fail(HALYARD_INVALID_ARGUMENT, "memory is misaligned: the address must be a multiple of %d",
                       static_cast<int>(block_alignment));
        }
        if (bytes < needed) {
            check.fail(HALYARD_INVALID_ARGUMENT, "bytes is %lld, but the packed weights need %lld", static_cast<long long>(bytes),
                       static_cast<long long>(needed));
        }
        View target;
        target.name = "memory";
        target.data = static_cast<char *>(memory);
        target.dtype = sources.weight.dtype;
        target.shape[0] = target.elements = target.span = needed / size_of(target.dtype);
        target.strides[0] = 1;
        for (const View *source : {&sources.weight, &sources.up, &sources.norm_weight, &sources.norm_bias}) {
            check.no_overlap(target, *source, false);
        }
    }
    if (check.failed()) {
        return check.status();
    }

    halyard_weights *handle = new_handle();
    char *block = !handle ? nullptr : memory ? static_cast<char *>(memory) : map_block(needed);
    if (!block) {
        free(handle);
        return check.fail(HALYARD_OUT_OF_MEMORY, "no memory for %lld bytes of packed weights", static_cast<long long>(needed));
    }
    pack_block(context_or_default(context), sources, block);
    view_block(*handle, block, sources.geometry);
    handle->owner = memory ? halyard_weights::Owner::caller : halyard_weights::Owner::mapping;
    handle->mapped = memory ? nullptr : block;
    handle->mapped_bytes = memory ? 0 : needed;
    *weights = handle;
    return HALYARD_OK;
}

halyard_status halyard_weights_save(const halyard_weights *weights, const char *path) {
    Checker check("halyard_weights_save");
    check.not_null("weights", weights);
    if (!check.not_null("path", path)) {
        return check.status();
    }
    const size_t room = strlen(path) + 64;
    char *temporary = static_cast<char *>(malloc(room));
    if (!temporary) {
        return check.fail(HALYARD_OUT_OF_MEMORY, "no memory for the name of a temporary file");
    }
    const int error = halyard::replace_file(path, temporary, room, weights->block, weights->bytes);
    if (error != 0) {
        check.fail(HALYARD_INVALID_ARGUMENT, "path cannot be written (%s): %s", strerror(error), path);
    } else {
        halyard::sync_directory(temporary);
    }
    free(temporary);
    return check.status();
}

halyard_status halyard_weights_load(const char *path, halyard_weights **weights) {
    using namespace halyard;
    Checker check("halyard_weights_load");
    check.not_null("path", path);
    if (!check.not_null("weights", weights)) {
        return check.status();
    }
    MappedFile file(check, path);
    Geometry geometry = {};
    if (!check.failed()) {
        check_block(check, "the file at path", file.data(), file.bytes(), geometry);
    }
    if (check.failed()) {
        return check.status();
    }
    halyard_weights *handle = new_handle();
    if (!handle) {
        return check.fail(HALYARD_OUT_OF_MEMORY, "no memory for a handle");
    }
    view_block(*handle, file.data(), geometry);
    file.give_to(*handle);
    *weights = handle;
    return HALYARD_OK;
}

halyard_status halyard_weights_from_memory(const void *memory, int64_t bytes, halyard_weights **weights) {
    using namespace halyard;
    Checker check("halyard_weights_from_memory");
    check.not_null("memory", memory);
    if (!check.not_null("weights", weights)) {
        return check.status();
    }
    if (bytes < 0) {
        return check.fail(HALYARD_INVALID_ARGUMENT, "bytes is %lld, but must not be negative", static_cast<long long>(bytes));
    }
    if (reinterpret_cast<uintptr_t>(memory) % block_alignment != 0) {
        return check.fail(HALYARD_INVALID_ARGUMENT, "memory is misaligned: the address must be a multiple of %d",
                          static_cast<int>(block_alignment));
    }
    Geometry geometry = {};
    check_block(check, "memory", static_cast<const char *>(memory), bytes, geometry);
    if (check.failed()) {
        return check.status();
    }
    halyard_weights *handle = new_handle();
    if (!handle) {
        return check.fail(HALYARD_OUT_OF_MEMORY, "no memory for a handle");
    }
    view_block(*handle, static_cast<const char *>(memory), geometry);
    handle->owner = halyard_weights::Owner::caller;
    *weights = handle;
    return HALYARD_OK;
}

const void *halyard_weights_data(const halyard_weights *weights) {
    return weights ? weights->block : nullptr;
}

halyard_status halyard_weights_get_info(const halyard_weights *weights, halyard_weights_info *info) {
    Checker check("halyard_weights_get_info");
    check.not_null("weights", weights);
    if (!check.not_null("info", info)) {
        return check.status();
    }
    const uint8_t code = weights->dtype == halyard::DType::bf16 ? kDLBfloat : kDLFloat;
    const uint8_t bits = static_cast<uint8_t>(8 * halyard::size_of(weights->dtype));
    *info = {weights->in_features, weights->out_features, {code, bits, 1}, weights->gated, weights->norm_folded, weights->bytes};
    return HALYARD_OK;
}

void halyard_weights_destroy(halyard_weights *weights) {
    if (weights) {
        if (weights->owner == halyard_weights::Owner::mapping) {
            munmap(weights->mapped, weights->mapped_bytes);
        }
        free(weights);
    }
}
