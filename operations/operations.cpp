// See operations.h.
#include "operations.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iterator>

#include "built.h"
#include "norm_operations.h"

namespace halyard::operations {
namespace {

void add_add_and_cast(std::vector<Operation> &all) {
    Operation add;
    add.label = "add";
    add.function = "halyard_add";
    add.group = "elementwise";
    add.operands = {{"a"}, {"b"}, {"y", Role::output}};
    add.in_place = {{{2, 0}}, {{2, 1}}};
    add.call = [](const halyard_context *context, DLTensor *const *t, const double *) {
        return halyard_add(context, t[0], t[1], t[2]);
    };
    add.flops = flops_per_element(1);
    add.reference = by_row(add.operands, [](const std::vector<Row> &rows, const double *, Dtype) {
        Row sum;
        for (std::size_t i = 0; i < rows[0].size(); i++) {
            sum.push_back(rows[0][i] + rows[1][i]);
        }
        return std::vector<ExpectedRow>{exact(sum)};
    });
    all.push_back(add);

    for (const Dtype to : all_dtypes) {
        Operation cast;
        cast.label = std::string("cast_to_") + name_of(to);
        cast.function = "halyard_cast";
        cast.group = "elementwise";
        cast.operands = {{"x"}, {"y", Role::output, false, {Extent::rows, Extent::d}, to}};
        cast.call = [](const halyard_context *context, DLTensor *const *t, const double *) {
            return halyard_cast(context, t[0], t[1]);
        };
        cast.flops = flops_per_element(1);
        cast.reference = by_row(cast.operands, [](const std::vector<Row> &rows, const double *, Dtype) {
            return std::vector<ExpectedRow>{exact(rows[0])};
        });
        all.push_back(cast);
    }
}

/** Whether the library was built with the types that an operation always has. */
bool has_types(const Operation &operation) {
    return std::all_of(operation.operands.begin(), operation.operands.end(), [](const Operand &operand) {
        return !operand.type || std::count(std::begin(all_dtypes), std::end(all_dtypes), *operand.type) > 0;
    });
}

std::vector<Operation> make_operations() {
    std::vector<Operation> all = norm_operations();
    const std::vector<Operation> activations = activation_operations();
    all.insert(all.end(), activations.begin(), activations.end());
    add_add_and_cast(all);
    const auto left_out = [](const Operation &operation) {
        return !is_built(operation.function.substr(std::string_view("halyard_").size())) || !has_types(operation);
    };
    all.erase(std::remove_if(all.begin(), all.end(), left_out), all.end());
    return all;
}

}  // namespace

const std::vector<Operation> &all_operations() {
    static const std::vector<Operation> all = make_operations();
    return all;
}

const Operation *find_operation(const std::string &label) {
    for (const Operation &candidate : all_operations()) {
        if (candidate.label == label) {
            return &candidate;
        }
    }
    return nullptr;
}

const Operation &operation(const std::string &label) {
    if (const Operation *found = find_operation(label)) {
        return *found;
    }
    std::fprintf(stderr, "no operation is called %s\n", label.c_str());
    std::abort();
}

}  // namespace halyard::operations
