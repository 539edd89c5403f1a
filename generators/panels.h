// What a panel of weights, keys or values holds: rows of 16 columns, each of one input or, in bf16, of two (layout/matmul.h).
#ifndef HALYARD_GENERATORS_PANELS_H
#define HALYARD_GENERATORS_PANELS_H

#include "Halide.h"
#include "runtime/layout/matmul.h"
#include "schedules/storage.h"

namespace halyard {

class Panels {
public:
    Panels(DType dtype, const Storage &storage) : storage_(storage), inputs_(row_inputs(dtype)) {}

    /** Inputs of a row. */
    int inputs() const { return inputs_; }

    /** The type of what a row holds in a column. */
    Halide::Type type() const { return inputs_ == 2 ? Halide::UInt(32) : storage_.type(); }

    /** The row of an input. */
    Halide::Expr row(const Halide::Expr &input) const { return inputs_ == 2 ? input / 2 : input; }

    /** One of the inputs that a row holds, as f32. */
    Halide::Expr widen(const Halide::Expr &held, const Halide::Expr &input) const {
        using namespace Halide;
        if (inputs_ == 1) {
            return storage_.widen(held);
        }
        return reinterpret<float>((held << cast<uint32_t>(input % 2 * 16)) & Expr(0xffff0000u));
    }

    /** What a row holds: stored(input) of its inputs. */
    template<typename Stored>
    Halide::Expr hold(const Halide::Expr &row, const Stored &stored) const {
        using namespace Halide;
        if (inputs_ == 1) {
            return stored(row);
        }
        return cast<uint32_t>(stored(2 * row)) << 16 | cast<uint32_t>(stored(2 * row + 1));
    }

private:
    const Storage storage_;
    const int inputs_;
};

}  // namespace halyard

#endif
