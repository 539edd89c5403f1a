// The numbers of a matrix that is quantized already: the public function.
#include "core/backend.h"

using namespace halyard;

halyard_status halyard_dequantize(const halyard_context *context, const halyard_codes *codes, DLTensor *y) {
    Checker check("halyard_dequantize");
    if (!check.not_null("codes", codes)) {
        return check.status();
    }
    const CodeSource source = check_codes(check, codes_names, *codes, true);
    const View ys = check.output("y", y);
    if (!check.failed() && (ys.rank != 2 || ys.shape[0] != codes->out_features || ys.shape[1] != codes->in_features)) {
        check.fail(HALYARD_INVALID_ARGUMENT,
                   "y has rank %d and width %lld, but must have shape [%lld, %lld], the out_features and in_features",
                   ys.rank, static_cast<long long>(ys.width()), static_cast<long long>(codes->out_features),
                   static_cast<long long>(codes->in_features));
    }
    for (const CodeTensor *tensor : {&source.codes, &source.scales, &source.zeros, &source.order}) {
        check.no_overlap(ys, tensor->memory, false);
    }
    return run_call(check, context, &Backend::dequantize, {source, ys});
}
