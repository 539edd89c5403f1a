// Codes whose groups are not in the order of their inputs (desc_act of GPTQ, actorder of compressed-tensors): sorted by group.
#ifndef HALYARD_RUNTIME_CPU_LINEAR_PACKING_ORDERED_CODES_H
#define HALYARD_RUNTIME_CPU_LINEAR_PACKING_ORDERED_CODES_H

#include "core/code_formats.h"
#include "core/context.h"

namespace halyard {

/** A matrix of codes with inputs in the order of their groups: as it comes, or a copy. */
class OrderedCodes {
public:
    /** Fails where a group has more inputs or fewer than it must, and where memory lacks. */
    OrderedCodes(Checker &check, const halyard_context &context, const CodeSource &source, int64_t inputs,
                 int64_t outputs);
    ~OrderedCodes();
    OrderedCodes(const OrderedCodes &) = delete;
    OrderedCodes &operator=(const OrderedCodes &) = delete;

    const CodeSource &source() const { return source_; }
    /** Where input i of source() is in a row of x; null: at i. */
    const int32_t *order() const { return order_; }
    /** Writes the order of all inputs, also where they are in order. */
    void write_order(int32_t *order) const;

private:
    void sort(Checker &check);
    void copy_codes(const halyard_context &context, const CodeTensor &from, char *to);

    CodeSource source_;
    const int64_t inputs_, outputs_;
    int32_t *order_ = nullptr;
    char *copy_ = nullptr;
};

}  // namespace halyard

#endif
