// What the kernels of rows and elements share: the storage type of their tensors, and the form in which the target reads and
// writes these.
#ifndef HALYARD_SCHEDULES_KERNEL_TENSORS_H
#define HALYARD_SCHEDULES_KERNEL_TENSORS_H

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "Halide.h"
#include "schedules/element_access.h"
#include "schedules/gpu_vectors.h"
#include "schedules/high_halves.h"
#include "schedules/no_contraction.h"

namespace halyard {

/** An input with a value for every feature, which a kernel has if its parameter has_<name> says so. */
class OptionalVector {
public:
    OptionalVector(const std::string &name, bool by_default) : has("has_" + name, by_default), name(name) {}
    operator Halide::Func() const { return *input; }
    explicit operator bool() const { return input != nullptr; }

    Halide::GeneratorParam<bool> has;
    const std::string name;
    Halide::GeneratorInput<Halide::Buffer<>> *input = nullptr;
};

/** All coordinates of the tensors begin at 0. */
template<typename... Tensors>
void begin_at_zero(const Tensors &...tensors) {
    for (Halide::OutputImageParam tensor : {Halide::OutputImageParam(tensors)...}) {
        for (int dim = 0; dim < tensor.dimensions(); dim++) {
            tensor.dim(dim).set_min(0);
        }
    }
}

class KernelTensors {
    using Form = ElementAccess::Form;

public:
    Halide::GeneratorParam<DType> dtype{"dtype", DType::f32, dtype_names};
    Halide::GeneratorParam<bool> packed{"packed", false};  // on a GPU: aligned rows of packed elements

    /** To be called by configure(), with tensors of the storage type. */
    template<typename... Tensors>
    void configure(Halide::Internal::GeneratorBase &generator, Tensors &...tensors) {
        target_ = static_cast<Halide::Internal::AbstractGenerator &>(generator).context().target();
        packed_ = packed;
        (add(generator, tensors, dtype), ...);
    }

    /** A tensor of another type. */
    template<typename Tensor>
    void add(Halide::Internal::GeneratorBase &, Tensor &tensor, DType stored) {
        tensor.set_type(access({}, stored).type());
        buffers_.emplace_back([&tensor]() -> Halide::OutputImageParam { return tensor; });
    }

    void add(Halide::Internal::GeneratorBase &generator, OptionalVector &vector, DType) {
        if (vector.has) {
            vector.input = add_input(generator, vector.name, 1);
        }
    }

    /** Another input. */
    Halide::GeneratorInput<Halide::Buffer<>> *add_input(Halide::Internal::GeneratorBase &generator,
                                                        const std::string &name, int dimensions) {
        auto *input = generator.add_input<Halide::Buffer<>>(name, type(), dimensions);
        buffers_.emplace_back([input]() -> Halide::OutputImageParam { return *input; });
        return input;
    }

    const Halide::Target &target() const { return target_; }
    bool on_gpu() const { return target_.has_gpu_feature(); }
    bool by_vectors() const { return packed_; }

    /** For kernels that cannot compute packed elements: these are taken one by one then. */
    void take_single() { packed_ = false; }

    /** Words and elements that are read at once. */
    int vector_words() const { return packed_ ? words_per_vector : 1; }
    int vector_elements() const { return vector_words() * (packed_ && dtype != DType::f32 ? 2 : 1); }

    Halide::Type type() const { return access({}).type(); }
    Storage storage() const { return Storage(dtype, target_); }

    /** Access to the elements at a place, of the storage type or another. */
    ElementAccess access(std::vector<Halide::Expr> place, std::optional<DType> stored = {}) const {
        return {stored.value_or(dtype), target_, packed_ ? Form::packed : Form::single, std::move(place)};
    }

    /** Access by pairs to what is stored by elements, where that is faster. */
    std::optional<ElementAccess> pair_access(std::vector<Halide::Expr> place) const {
        if (dtype != DType::bf16 || target_.arch != Halide::Target::X86 || on_gpu()) {
            return {};
        }
        return ElementAccess(dtype, target_, Form::paired, std::move(place));
    }

    /** What holds of tensors of heads in whole vectors. */
    template<typename... Tensors>
    void promise_heads(const Tensors &...heads) const {
        if (packed_) {
            (schedules::gpu::promise_heads(heads), ...);
        }
    }

    /** To be called by schedule() first. */
    void begin_schedule(Halide::Internal::GeneratorBase &generator) {
        forbid_contraction(generator.get_pipeline(), target_);
        if (target_.has_feature(Halide::Target::AVX512_Skylake)) {
            generator.get_pipeline().add_custom_lowering_pass(new schedules::HighHalves);
        }
        if (packed_) {
            for (const auto &buffer : buffers_) {
                schedules::gpu::promise_vectors(buffer());
            }
        }
    }

private:
    Halide::Target target_;
    bool packed_ = false;
    std::vector<std::function<Halide::OutputImageParam()>> buffers_;
};

}  // namespace halyard

#endif
