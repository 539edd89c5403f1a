// What is trained: numbers in memory, their gradients and what the optimizer keeps of them.
#ifndef HALYARD_EXPERIMENTS_TRAINING_PARAMETERS_H
#define HALYARD_EXPERIMENTS_TRAINING_PARAMETERS_H

#include <cstdint>
#include <halyard/training.hpp>
#include <vector>

namespace experiments::training {

/** A matrix [rows, columns] or, with one row, a vector. */
struct Parameter {
    Parameter(std::int64_t row_count, std::int64_t column_count)
        : rows(row_count), columns(column_count), value(static_cast<std::size_t>(row_count * column_count)),
          gradient(value.size()), first_moment(value.size()), second_moment(value.size()) {}

    halyard::Tensor view(std::vector<float> &numbers) const {
        return rows == 1 ? halyard::Tensor(numbers, {columns}) : halyard::Tensor(numbers, {rows, columns});
    }
    halyard::Tensor values() { return view(value); }
    halyard::Tensor gradients() { return view(gradient); }

    std::int64_t rows, columns;
    std::vector<float> value, gradient, first_moment, second_moment;
};
using Parameters = std::vector<Parameter *>;

inline double gradient_norm(const Parameters &parameters, const halyard_context *context) {
    std::vector<halyard::ConstTensor> gradients;
    for (Parameter *const parameter : parameters) {
        gradients.push_back(parameter->gradients());
    }
    return halyard::gradient_norm(gradients, context);
}

/** Step number `step`, from 1 on, of Adam (Kingma and Ba 2015). */
inline void adam_step(const Parameters &parameters, std::int64_t step, double learning_rate,
                      const halyard_context *context) {
    halyard::AdamwOptions options;
    options.lr = learning_rate;
    options.weight_decay = 0;
    options.decoupled = false;
    for (Parameter *const each : parameters) {
        halyard::adamw_step(each->values(), each->gradients(), each->view(each->first_moment),
                            each->view(each->second_moment), step, options, context);
    }
}

/** Matrices N(0, deviation^2); vectors, which are norms' weights and biases, stay. `normal` gives numbers of N(0, 1). */
template<class NormalNumbers>
void initialize_normal(const Parameters &parameters, NormalNumbers &normal, double deviation) {
    for (Parameter *const parameter : parameters) {
        for (float &each : parameter->value) {
            each = parameter->rows > 1 ? static_cast<float>(deviation * normal()) : each;
        }
    }
}

/** Memory for what a forward call saves. */
class Saved {
public:
    /** Makes room for so many bytes, aligned as the library asks. */
    void *fit(std::int64_t bytes) {
        constexpr std::size_t alignment = 64;
        memory_.resize(static_cast<std::size_t>(bytes) + alignment);
        const auto address = reinterpret_cast<std::uintptr_t>(memory_.data());
        return data_ = memory_.data() + (alignment - address % alignment) % alignment;
    }
    const void *data() const { return data_; }

private:
    std::vector<char> memory_;
    void *data_ = nullptr;
};

}  // namespace experiments::training

#endif
