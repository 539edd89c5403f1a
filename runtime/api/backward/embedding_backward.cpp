// The gradient of a token embedding: the public function.
#include "api/norm.h"
#include "core/check_shapes.h"
#include "halyard/training.h"

using namespace halyard;

halyard_status halyard_embedding_backward(const halyard_context *context, const DLTensor *input_ids, const DLTensor *dy,
                                          int accumulate, DLTensor *dtable) {
    Checker check("halyard_embedding_backward");
    const View dys = check.tensor("dy", dy), table = check.output("dtable", dtable);
    check_f32(check, dys);
    check_f32(check, table);
    const Integers ids = check_integers_of_rows(check, "input_ids", input_ids, dys);
    if (!check.failed() && table.rank != 2) {
        check.fail(HALYARD_INVALID_ARGUMENT, "dtable has rank %d, but must be [vocabulary, d]", table.rank);
    }
    check_rows(check, dys, {});
    check_width(check, table, dys.width(), "as dy has");
    check.no_overlap(table, dys, false);
    check.no_overlap(table, ids.memory, false);
    check_in_range(check, "input_ids", ids, "the number of rows of dtable", table.shape[0]);
    return run_call(check, context, &Backend::embed_backward, {ids, dys, accumulate != 0, table});
}
