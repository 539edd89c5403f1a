// Prefetches of what a later call reads, in a loop that computes for longer than it reads.
#ifndef HALYARD_SCHEDULES_PREFETCH_AHEAD_H
#define HALYARD_SCHEDULES_PREFETCH_AHEAD_H

#include <string>
#include <utility>

#include "Halide.h"

namespace halyard::schedules {

/** Where vectors of an input become vectors of the output, prefetches the input's lines so many elements further on. Halide's directive
 *  prefetches only what the same call reads. */
class PrefetchAhead : public Halide::Internal::IRMutator {
    using IRMutator::visit;

public:
    PrefetchAhead(std::string input, std::string output, Halide::Expr elements)
        : input_(std::move(input)), output_(std::move(output)), elements_(std::move(elements)) {}

private:
    static constexpr int line_bytes = 64;

    Halide::Internal::Stmt visit(const Halide::Internal::Store *store) override {
        stores_ |= store->name == output_;
        return IRMutator::visit(store);
    }

    Halide::Internal::Stmt visit(const Halide::Internal::LetStmt *let) override {
        using namespace Halide::Internal;
        prefetches_ = {};
        mutate(let->value);
        const Stmt prefetches = prefetches_;
        const bool stored_before = std::exchange(stores_, false);
        const Stmt result = LetStmt::make(let->name, let->value, mutate(let->body));
        const bool stores = std::exchange(stores_, stores_ || stored_before);
        return stores && prefetches.defined() ? Block::make(prefetches, result) : result;
    }

    Halide::Expr visit(const Halide::Internal::Load *load) override {
        using namespace Halide::Internal;
        const auto *ramp = load->index.as<Ramp>();
        if (load->name != input_ || !ramp || !is_const_one(ramp->stride)) {
            return load;
        }
        const Halide::Type element = load->type.element_of();
        const Halide::Expr address = Variable::make(Halide::type_of<void *>(), input_, load->param);
        for (int i = 0; i < ramp->lanes; i += line_bytes / element.bytes()) {
            const Stmt line = Evaluate::make(
                Call::make(element, Call::prefetch, {address, ramp->base + elements_ + i, 1, 1}, Call::Intrinsic));
            prefetches_ = prefetches_.defined() ? Block::make(prefetches_, line) : line;
        }
        return load;
    }

    const std::string input_, output_;
    const Halide::Expr elements_;
    Halide::Internal::Stmt prefetches_;  // of what the last value reads
    bool stores_ = false;                // whether the last statement writes to the output
};

}  // namespace halyard::schedules

#endif
