// See ordered_codes.h.
#include "cpu/linear/packing/ordered_codes.h"

#include <cstring>

#include "core/device.h"
#include "core/handles/packed_weights.h"

namespace halyard {

OrderedCodes::OrderedCodes(Checker &check, const halyard_context &context, const CodeSource &source, int64_t inputs,
                           int64_t outputs)
    : source_(source), inputs_(inputs), outputs_(outputs) {
    if (check.failed() || source.is_in_order) {
        return;
    }
    sort(check);
    if (check.failed()) {
        return;
    }
    // Elements of the copy lie as those of the source, one after another.
    const CodeFormat &format = *source.format;
    const int64_t size = format.element.bits / 8, joined = format.joined(source.layout.bits),
                  elements = (inputs + joined - 1) / joined;
    copy_ = allocate_at(check, Device(), elements * outputs * size, "codes with their inputs in order");
    if (copy_) {
        source_.codes.data = copy_;
        source_.codes.output_pitch = format.transposed ? size : elements * size;
        source_.codes.input_pitch = format.transposed ? outputs * size : size;
        memset(copy_, 0, static_cast<size_t>(elements * outputs * size));
        copy_codes(context, source.codes, copy_);
    }
}

OrderedCodes::~OrderedCodes() {
    free_at(Device(), order_);
    free_at(Device(), copy_);
}

void OrderedCodes::write_order(int32_t *order) const {
    for (int64_t i = 0; i < inputs_; i++) {
        order[i] = order_ ? order_[i] : static_cast<int32_t>(i);
    }
}

/** By counting: inputs of a group keep their order. */
void OrderedCodes::sort(Checker &check) {
    const int64_t group = source_.group, groups = (inputs_ + group - 1) / group;
    const auto *const of_input = reinterpret_cast<const int32_t *>(source_.order.data);
    constexpr const char *what = "an order of inputs";
    order_ = reinterpret_cast<int32_t *>(allocate_at(check, Device(), inputs_ * sizeof(int32_t), what));
    auto *const used = reinterpret_cast<int64_t *>(allocate_at(check, Device(), groups * sizeof(int64_t), what));
    if (order_ && used) {
        memset(used, 0, static_cast<size_t>(groups) * sizeof(int64_t));
        for (int64_t i = 0; i < inputs_; i++) {
            const int64_t place = of_input[i] * group + used[of_input[i]]++;
            // A group that is too large has run into the next one, or out of the inputs.
            if (used[of_input[i]] <= group && place < inputs_) {
                order_[place] = static_cast<int32_t>(i);
            }
        }
        for (int64_t g = 0; g < groups && !check.failed(); g++) {
            const int64_t wanted = std::min(group, inputs_ - g * group);
            if (used[g] != wanted) {
                check.fail(HALYARD_INVALID_ARGUMENT, "%s has %lld inputs of group %lld, but must have %lld",
                           source_.order.memory.name, static_cast<long long>(used[g]), static_cast<long long>(g),
                           static_cast<long long>(wanted));
            }
        }
    }
    free_at(Device(), used);
}

void OrderedCodes::copy_codes(const halyard_context &context, const CodeTensor &from, char *to) {
    const CodeFormat &format = *source_.format;
    const int bits = source_.layout.bits;
    const auto size = static_cast<size_t>(format.element.bits / 8);
    const int64_t joined = format.joined(bits);
    const uint32_t mask = (1u << bits) - 1;
    CodeTensor target = source_.codes;
    target.data = to;
    // A cache line of outputs at a time, which [in, out] has side by side.
    run_ranges(context, (outputs_ + panel_width - 1) / panel_width, inputs_ * outputs_,
               [&](int64_t begin, int64_t end) {
                   for (int64_t first = begin * panel_width; first < std::min(end * panel_width, outputs_);
                        first += panel_width) {
                       const int64_t last = std::min<int64_t>(first + panel_width, outputs_);
                       for (int64_t i = 0; i < inputs_; i++) {
                           const int64_t source = order_[i];
                           const int64_t right = source % joined * bits, left = i % joined * bits;
                           for (int64_t output = first; output < last; output++) {
                               uint32_t word = 0, sum = 0;
                               char *const place = const_cast<char *>(target.at(output, i / joined));
                               memcpy(&word, from.at(output, source / joined), size);
                               memcpy(&sum, place, size);
                               sum |= (word >> right & mask) << left;
                               memcpy(place, &sum, size);
                           }
                       }
                   }
               });
}

}  // namespace halyard
