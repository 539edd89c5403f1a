// Several outputs of which each may take the place of an input.
#ifndef HALYARD_SCHEDULES_VALUES_FIRST_H
#define HALYARD_SCHEDULES_VALUES_FIRST_H

#include <string>
#include <utility>
#include <vector>

#include "Halide.h"

namespace halyard::schedules {

/** Computes the values that follow one another into memory before any of them is stored. What one is made of may lie where
 *  another goes.
 *
 *  To LLVM no two tensors overlap. It moves no load behind a store of the same iteration all the same: the tests in place
 *  hold that. */
class ValuesFirst : public Halide::Internal::IRMutator {
    using IRMutator::visit;

    /** What is named and stored, one after the other. */
    struct Parts {
        std::vector<std::pair<std::string, Halide::Expr>> named;
        std::vector<Halide::Internal::Stmt> stores;  // of names
    };

    /** Whether a statement does nothing but name values and store them into outputs. */
    static bool take_apart(const Halide::Internal::Stmt &stmt, Parts &parts) {
        using namespace Halide::Internal;
        if (const auto *block = stmt.as<Block>()) {
            return take_apart(block->first, parts) && take_apart(block->rest, parts);
        }
        if (const auto *let = stmt.as<LetStmt>()) {
            parts.named.emplace_back(let->name, let->value);
            return take_apart(let->body, parts);
        }
        const auto *store = stmt.as<Store>();
        // What is kept on the way is read by what follows.
        if (store && !store->param.defined()) {
            return false;
        }
        if (store) {
            const Halide::Type type = store->value.type();
            parts.named.emplace_back(unique_name("value"), store->value);
            parts.stores.push_back(Store::make(store->name, Variable::make(type, parts.named.back().first),
                                               store->index, store->param, store->predicate, store->alignment));
        }
        return store;
    }

    Halide::Internal::Stmt visit(const Halide::Internal::Block *block) override {
        using namespace Halide::Internal;
        Parts parts;
        if (!take_apart(block, parts)) {
            return IRMutator::visit(block);
        }
        Stmt result = Block::make(parts.stores);
        for (auto named = parts.named.rbegin(); named != parts.named.rend(); ++named) {
            result = LetStmt::make(named->first, named->second, result);
        }
        return result;
    }
};

}  // namespace halyard::schedules

#endif
