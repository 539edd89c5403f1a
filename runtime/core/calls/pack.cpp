// What may be asked of a matrix that is packed.
#include "core/calls/pack.h"

namespace halyard {

CodeLayout check_quantization(Checker &check, const halyard_quantization &q, const Device &device) {
    if (q.bits == 0) {
        return {};
    }
    if (q.bits != 4 && q.bits != 8) {
        check.fail(HALYARD_INVALID_ARGUMENT, "quantization.bits is %d, but must be 4 or 8, or 0 for none", q.bits);
    }
    const DLDataType f16 = {kDLFloat, 16, 1};
    DType scales = DType::f16;
    check.known_type("quantization.scale_dtype", q.scale_dtype.bits == 0 ? f16 : q.scale_dtype, &scales);
    const CodeLayout codes = {q.bits, q.asymmetric != 0 ? ScaleKind::zero : ScaleKind::plain, scales, q.group};
    if (!check.failed() && !codes.valid()) {
        check.fail(HALYARD_INVALID_ARGUMENT,
                   "quantization.group is %d, but must be 16, 32, 64, 128 or 256, or 0 for all inputs", q.group);
    }
    if (!check.failed() && device.on_cuda) {
        check.fail(HALYARD_UNSUPPORTED, "quantization is asked for, but weights on CUDA devices have no codes");
    }
    return codes;
}

}  // namespace halyard
