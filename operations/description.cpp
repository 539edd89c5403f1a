// See description.h.
#include "description.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

namespace halyard::operations {

std::int64_t Sizes::of(Extent extent) const {
    switch (extent) {
    case Extent::d:
        return d;
    case Extent::d_out:
        return d_out;
    case Extent::batch:
        return batch;
    case Extent::queries:
        return queries;
    case Extent::keys:
        return keys;
    case Extent::heads:
        return heads;
    case Extent::kv_heads:
        return kv_heads;
    case Extent::head_dim:
        return head_dim;
    case Extent::rows:
        break;
    }
    std::abort();  // it is no single extent
}

Sizes::Shape Operand::shape(const Sizes &sizes) const {
    Sizes::Shape shape;
    for (const Axis &axis : axes) {
        if (axis.extent == Extent::rows) {
            shape.insert(shape.end(), sizes.rows.begin(), sizes.rows.end());
        } else {
            shape.push_back(axis.times * sizes.of(axis.extent));
        }
    }
    return shape;
}

std::vector<std::size_t> Operation::with_role(Role role) const {
    std::vector<std::size_t> found;
    for (std::size_t i = 0; i < operands.size(); i++) {
        if (operands[i].role == role) {
            found.push_back(i);
        }
    }
    return found;
}

bool Operation::sums_rows() const {
    const std::vector<std::size_t> outputs = with_role(Role::output);
    return std::any_of(outputs.begin(), outputs.end(),
                       [&](std::size_t output) { return !operands[output].is_by_row(); });
}

bool Operation::one_type() const {
    for (const Operand &operand : operands) {
        if (operand.type.has_value()) {
            return false;
        }
    }
    return true;
}

std::vector<double> Operation::scalar_values() const {
    std::vector<double> values;
    for (const Scalar &scalar : scalars) {
        values.push_back(scalar.value);
    }
    return values;
}

Cost Operation::cost(Dtype type, const Sizes &sizes) const {
    Cost cost;
    cost.flops = flops ? flops(sizes) : 0;
    for (std::size_t i = 0; i < operands.size(); i++) {
        const Operand &operand = operands[i];
        if (operand.role == Role::parameter && !operand.is_matrix()) {
            continue;
        }
        double of_all =
            operand.element_bytes ? operand.element_bytes(sizes) : static_cast<double>(size_of(type_of(i, type)));
        for (const std::int64_t extent : operand.shape(sizes)) {
            of_all *= static_cast<double>(extent);
        }
        const auto bytes = static_cast<std::size_t>(of_all);
        cost.bytes += bytes;
        cost.weight_bytes += operand.is_matrix() ? bytes : 0;
    }
    return cost;
}

Operation::Reference by_row(const std::vector<Operand> &operands, const RowReference &reference) {
    std::vector<Role> roles;
    for (const Operand &operand : operands) {
        roles.push_back(operand.role);
    }
    return [roles, reference](const std::vector<Rows> &values, const Sizes &, const double *scalars, Dtype type) {
        std::vector<Matrix> results(static_cast<std::size_t>(std::count(roles.begin(), roles.end(), Role::output)));
        std::vector<Row> rows(values.size());
        for (std::size_t row = 0; row < values[0].size(); row++) {
            for (std::size_t i = 0; i < values.size(); i++) {
                if (roles[i] != Role::output) {
                    rows[i] = values[i][roles[i] == Role::input ? row : 0];
                }
            }
            std::vector<ExpectedRow> of_row = reference(rows, scalars, type);
            for (std::size_t i = 0; i < results.size(); i++) {
                results[i].push_back(std::move(of_row[i]));
            }
        }
        return results;
    };
}

ExpectedRow exact(const Row &values) {
    ExpectedRow expected;
    for (const double value : values) {
        expected.push_back({value, 0.0});
    }
    return expected;
}

std::function<double(const Sizes &)> flops_per_element(double count) {
    return [count](const Sizes &sizes) {
        double elements = static_cast<double>(sizes.d);
        for (const std::int64_t extent : sizes.rows) {
            elements *= static_cast<double>(extent);
        }
        return count * elements;
    };
}

std::string with_number(const std::string &label, double number) {
    char text[32];
    std::snprintf(text, sizeof text, "%g", number);
    return label + text;
}

}  // namespace halyard::operations
