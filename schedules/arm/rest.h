// The rest of a row, read before the row is written.
//
// The last iteration over a row overlaps the one before it and computes some elements a second time (vectors.h). Where
// the result takes the place of an input, that is no longer there by then: so what the last iteration reads is read
// ahead of the loop, a vector or two of each input, and stays in registers.
#ifndef HALYARD_SCHEDULES_ARM_REST_H
#define HALYARD_SCHEDULES_ARM_REST_H

#include <string>
#include <utility>
#include <vector>

#include "Halide.h"

namespace halyard::schedules::arm {

/** Halide makes of one loop over a row the whole iterations and then, if there is one, the rest of the row. What the rest
 *  reads is moved to the front, of all tensors with rows, any of which may be where the result is; the row must have as
 *  many elements. A rest that is masked overlaps nothing and stays as it is.
 *
 *  To LLVM no two tensors overlap. It moves no load past a loop all the same: the tests in place hold that. */
class RestReadFirst : public Halide::Internal::IRMutator {
    using IRMutator::visit;

    static bool has_rows(const Halide::Parameter &tensor) { return tensor.defined() && tensor.dimensions() == 2; }

    /** Whether rows are written. */
    class Writes : public Halide::Internal::IRVisitor {
        using IRVisitor::visit;
        void visit(const Halide::Internal::Store *store) override { rows |= has_rows(store->param); }

    public:
        bool rows = false;
    };

    /** Takes loads out and leaves names of their values. */
    class Loads : public Halide::Internal::IRMutator {
        using IRMutator::visit;
        using Named = std::vector<std::pair<std::string, Halide::Expr>>;

        Halide::Expr visit(const Halide::Internal::Load *load) override {
            using namespace Halide::Internal;
            if (!has_rows(load->param)) {
                return IRMutator::visit(load);
            }
            masked |= !is_const_one(load->predicate);
            Halide::Expr outside = load;
            for (auto let = lets_.rbegin(); let != lets_.rend(); ++let) {
                outside = substitute(let->first, let->second, outside);
            }
            found.emplace_back(unique_name("rest"), outside);
            return Variable::make(load->type, found.back().first);
        }
        Halide::Expr visit(const Halide::Internal::Let *let) override {
            lets_.emplace_back(let->name, let->value);
            return IRMutator::visit(let);
        }
        Halide::Internal::Stmt visit(const Halide::Internal::LetStmt *let) override {
            lets_.emplace_back(let->name, let->value);
            return IRMutator::visit(let);
        }

        Named lets_;  // what is named beside the loads

    public:
        Named found;
        bool masked = false;
    };

    Halide::Internal::Stmt visit(const Halide::Internal::Block *block) override {
        using namespace Halide::Internal;
        const Block *more = block->rest.as<Block>();
        Writes writes;
        if ((more ? more->first : block->rest).as<IfThenElse>()) {
            block->first.accept(&writes);
        }
        Loads loads;
        Stmt result = writes.rows ? Block::make(block->first, loads.mutate(block->rest)) : Stmt();
        if (loads.found.empty() || loads.masked) {
            return IRMutator::visit(block);
        }
        for (const auto &[name, load] : loads.found) {
            result = LetStmt::make(name, load, result);
        }
        return result;
    }
};

}  // namespace halyard::schedules::arm

#endif
