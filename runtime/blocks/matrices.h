// The matrices of blocks and stacks, which come as tensors, as codes or packed: their checks and their packing.
#ifndef HALYARD_RUNTIME_BLOCKS_MATRICES_H
#define HALYARD_RUNTIME_BLOCKS_MATRICES_H

#include "core/backend.h"

namespace halyard {

/** What messages call a matrix in each of its ways; `packed` is null where it cannot come so. */
struct MatrixNames {
    const char *tensor;
    CodesNames codes;
    const char *packed;
};
#define HALYARD_MATRIX_NAMES(tensor, codes, packed)                                                                    \
    { tensor, {codes, codes ".matrix", codes ".scales", codes ".zeros", codes ".g_idx"}, packed }

/** A matrix as a caller gives it; null in each way in which it does not come. */
struct MatrixSource {
    const MatrixNames *names = nullptr;
    const DLTensor *tensor = nullptr;
    const halyard_codes *codes = nullptr;
    const halyard_weights *packed = nullptr;
    View view;  // of the tensor, once it is checked

    bool given() const { return tensor || codes || packed; }
    /** In the way in which it comes. */
    const char *name() const { return packed ? names->packed : codes ? names->codes.all : names->tensor; }
};

/** Checks the matrices of a call. Tensors are of one dtype. */
class MatrixChecks {
public:
    MatrixChecks(Checker &check, halyard_weight_layout layout) : check_(check), layout_(layout) {}

    /** Refuses a matrix that is not there, comes in two ways or has other features. `unless`: what is said besides of one
     *  that is not there. `gated`: packed it holds gate and up. */
    void require(MatrixSource &matrix, int64_t out, int64_t in, const char *unless = "", bool gated = false);
    /** Refuses a matrix that is there, in any way. */
    void absent(const MatrixSource &matrix, const char *reason);
    void absent(const char *name, const void *given, const char *reason);

private:
    void check_tensor(MatrixSource &matrix, int64_t out, int64_t in);
    void check_features(const char *name, int64_t got_out, int64_t got_in, int64_t out, int64_t in);

    Checker &check_;
    const halyard_weight_layout layout_;
    View first_;  // of the tensors, whose dtype all have
};

/** Refuses codes for a device, and packed weights that are not where `owner` is. */
void check_matrix_device(Checker &check, const MatrixSource &matrix, const char *owner, Device device);

/** A packed matrix of a block or a stack, which owns it unless it came packed. */
struct PackedMatrix {
    const halyard_weights *weights = nullptr;
    halyard_weights *owned = nullptr;  // the same, or null

    int64_t owned_bytes() const { return owned ? owned->bytes : 0; }
};

/** Packs matrices that have been checked: each into the memory of the packed matrix that is there, which keeps its form then, or into its
 *  own where there is none. After a failure it gives none. */
class MatrixPacker {
public:
    MatrixPacker(Checker &check, const halyard_context *context, halyard_weight_layout layout, Device device,
                 const CodeLayout &quantization)
        : check_(check), context_(context), layout_(layout), device_(device), quantization_(quantization) {}

    /** `there`: the packed matrix, if it is made already. `up`: null, or what goes beside the matrix. */
    PackedMatrix pack(const PackedMatrix &there, const MatrixSource &matrix, const MatrixSource *up = nullptr);
    /** q, k and v: into one matrix, `packed[0]`, where they have one form. */
    void pack_qkv(const MatrixSource (&qkv)[3], PackedMatrix (&packed)[3]);

private:
    PackSources sources_of_codes(const MatrixSource &matrix, const MatrixSource *up);
    PackedMatrix pack(const PackedMatrix &there, const PackSources &sources);
    PackedMatrix pack_joined_tensors(const PackedMatrix &there, const MatrixSource (&qkv)[3]);
    PackedMatrix pack_joined_codes(const MatrixSource (&qkv)[3]);

    Checker &check_;
    const halyard_context *const context_;
    const halyard_weight_layout layout_;
    const Device device_;
    const CodeLayout quantization_;  // of tensors
};

}  // namespace halyard

#endif
