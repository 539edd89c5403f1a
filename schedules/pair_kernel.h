// What a kernel over pairs of features of heads owns, on a GPU: its tensors, and the form in which pairs are read and written.
//
// The features of a pair lie a half apart, or beside each other (interleaved). Halves are two buffers each for x and y; so are
// neighbours, at every other element, unless they share a word of 32 bits.
#ifndef HALYARD_SCHEDULES_PAIR_KERNEL_H
#define HALYARD_SCHEDULES_PAIR_KERNEL_H

#include <functional>
#include <vector>

#include "Halide.h"
#include "schedules/gpu_heads.h"
#include "schedules/kernel_tensors.h"

namespace halyard {

/** One of both results, y0 or y1, of the pair x0, x1 with the number `pair`. */
using PairResult =
    std::function<Halide::Expr(const Halide::Expr &pair, const Halide::Expr &x0, const Halide::Expr &x1)>;

class PairKernel {
    using Expr = Halide::Expr;
    using Func = Halide::Func;

public:
    KernelTensors tensors;
    Halide::GeneratorParam<bool> interleaved{"interleaved", false};
    Halide::Var d{"d"}, head{"head"}, token{"token"}, batch{"batch"}, pair{"pair"};

    /** To be called by configure(). */
    void configure(Halide::Internal::GeneratorBase &generator) {
        tensors.configure(generator);
        if (interleaved && tensors.dtype == DType::f32) {
            tensors.take_single();  // neighbours would be in two words of a vector
        }
        const Halide::Type stored = tensors.type();
        if (pairs_in_words()) {
            x_ = {
                generator.add_input<Halide::Buffer<>>("x", stored, 4)};  // (feature, head, token, batch), as all others
        } else {
            x_ = {generator.add_input<Halide::Buffer<>>("x0", stored, 4),
                  generator.add_input<Halide::Buffer<>>("x1", stored, 4)};
        }
        outputs_ = generator.add_output<Func>("y", std::vector<Halide::Type>(x_.size(), stored), 4);
    }

    /** y0 and y1 of each pair; in place is fine. */
    void write(const PairResult &first, const PairResult &second) {
        using namespace Halide;
        const std::vector<Var> at = {d, head, token, batch};
        const ElementAccess access = tensors.access({head, token, batch});
        for (size_t k = 0; k < x_.size(); k++) {
            read_.emplace_back("cell" + std::to_string(k));
            read_[k](at) = (*x_[k])(at);
        }
        if (pairs_in_words()) {
            const Element element = [&](const ElementAccess &, const Expr &i) {
                const Expr p = Internal::simplify(i / 2);
                const PairResult &result = is_const_zero(Internal::simplify(i % 2)) ? first : second;
                return result(p, access(read_[0], 2 * p), access(read_[0], 2 * p + 1));
            };
            results_(at) = access.store(element, d);
            y_(at) = results_(at);
        } else {
            const auto part = [&](const PairResult &result) {
                const Element element = [&](const ElementAccess &, const Expr &i) {
                    return result(i, access(read_[0], i), access(read_[1], i));
                };
                return access.store(element, d);
            };
            results_(at) = Tuple(part(first), part(second));
            y_(at) = Tuple(results_(at)[0], results_(at)[1]);
        }
        *outputs_ = y_;
    }

    /** To be called by schedule(). `table`: what the heads of a token share, by pair, token and batch. */
    void schedule(Halide::Internal::GeneratorBase &generator, const std::vector<Func> &table) {
        const bool packed = tensors.by_vectors();
        std::vector<Halide::OutputImageParam> y = y_.output_buffers();
        if (!packed && interleaved) {
            for (size_t k = 0; k < y.size(); k++) {
                x_[k]->dim(0).set_stride(2);
                y[k].dim(0).set_stride(2);
            }
        }
        if (packed) {
            y[0].dim(0).set_extent(y[0].dim(0).extent() / words_per_vector * words_per_vector);
            y[0].dim(0).set_min(0);
            for (size_t k = 0; k < y.size(); k++) {
                schedules::gpu::promise_heads(*x_[k]);
                schedules::gpu::promise_pitches(y[k]);
            }
        }
        tensors.begin_schedule(generator);
        schedules::gpu::heads({y_, results_, read_, table, d, head, token, batch, pair}, packed, tensors.target());
    }

private:
    bool pairs_in_words() const { return interleaved && tensors.by_vectors(); }

    std::vector<Halide::GeneratorInput<Halide::Buffer<>> *> x_;
    Halide::GeneratorOutput<Func> *outputs_ = nullptr;
    std::vector<Func> read_;
    Func results_{"results"}, y_{"y"};
};

}  // namespace halyard

#endif
