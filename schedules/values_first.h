// Several outputs of which each may take the place of an input.
#ifndef HALYARD_SCHEDULES_VALUES_FIRST_H
#define HALYARD_SCHEDULES_VALUES_FIRST_H

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "Halide.h"

namespace halyard::schedules {

/** Computes the values of an element of all outputs before any of them is stored. What one is made of may lie where another goes.
 *
 *  To LLVM no two tensors overlap. It moves no load behind a store of the same iteration all the same: the tests in place
 *  hold that. */
class ValuesFirst : public Halide::Internal::IRMutator {
    using IRMutator::visit;

    using Named = std::vector<std::pair<std::string, Halide::Expr>>;

    /** What is named and stored, one after the other, until an output comes again. */
    struct Part {
        Named named;
        std::vector<Halide::Internal::Stmt> stores;  // of names
    };

    struct Parts {
        std::vector<Part> stored;
        Named named;  // since the last store
    };

    static bool stores_to(const Part &part, const std::string &output) {
        const auto is_to_it = [&](const Halide::Internal::Stmt &stmt) {
            return stmt.as<Halide::Internal::Store>()->name == output;
        };
        return std::any_of(part.stores.begin(), part.stores.end(), is_to_it);
    }

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
            if (parts.stored.empty() || stores_to(parts.stored.back(), store->name)) {
                parts.stored.emplace_back();
            }
            Part &part = parts.stored.back();
            part.named.insert(part.named.end(), parts.named.begin(), parts.named.end());
            parts.named.clear();
            const Halide::Type type = store->value.type();
            part.named.emplace_back(unique_name("value"), store->value);
            part.stores.push_back(Store::make(store->name, Variable::make(type, part.named.back().first), store->index,
                                              store->param, store->predicate, store->alignment));
        }
        return store;
    }

    Halide::Internal::Stmt visit(const Halide::Internal::Block *block) override {
        using namespace Halide::Internal;
        Parts parts;
        if (!take_apart(block, parts)) {
            return IRMutator::visit(block);
        }
        Stmt result;
        for (auto part = parts.stored.rbegin(); part != parts.stored.rend(); ++part) {
            result = result.defined() ? Block::make(Block::make(part->stores), result) : Block::make(part->stores);
            for (auto named = part->named.rbegin(); named != part->named.rend(); ++named) {
                result = LetStmt::make(named->first, named->second, result);
            }
        }
        return result;
    }
};

}  // namespace halyard::schedules

#endif
