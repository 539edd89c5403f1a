// Rotary position embedding of all tokens of a call in one launch, for GPUs: each thread looks up its token's position.
//
// Features that turn together lie a half apart, or beside each other (`interleaved`). Halves are two buffers each for x
// and y; so are neighbours, at every other element, unless they share a word of 32 bits. In place is fine: a thread
// reads the pairs that it writes before it writes them.
#include "Halide.h"

#include "rotation.h"
#include "roundings.h"
#include "row_storage.h"
#include "schedules/gpu.h"
#include "schedules/gpu_heads.h"

namespace halyard {
namespace {

using namespace Halide;

class RopeTokens : public Generator<RopeTokens> {
public:
    GeneratorParam<DType> dtype{"dtype", DType::f32, dtype_names};
    GeneratorParam<bool> interleaved{"interleaved", false};
    GeneratorParam<bool> words{"words", false};  // see row_storage.h

    Input<Buffer<float, 2>> cosines{"cosines"}, sines{"sines"};  // (pair, position)
    // Of tokens, where they are given: (0 or 1, token, batch), the halves of 64 bits where they are `wide`. Else token
    // t has the position first + t. A position that is not in the table makes NaN of its token.
    Input<Buffer<int32_t, 3>> positions{"positions"};
    Input<bool> given{"given"};
    Input<bool> wide{"wide"};
    Input<int> first{"first"};

    void configure() {
        const Type stored = storage().type();
        if (pairs_in_words()) {
            x0 = add_input<Buffer<>>("x", stored, 4);  // (feature, head, token, batch), as all others
            outputs = add_output<Func>("y", stored, 4);
        } else {
            x0 = add_input<Buffer<>>("x0", stored, 4);
            x1 = add_input<Buffer<>>("x1", stored, 4);
            outputs = add_output<Func>("y", std::vector<Type>{stored, stored}, 4);
        }
    }

    void generate() {
        const Math math(get_target());
        const Expr low = positions(0, token, batch), high = positions(1, token, batch);
        const Expr position = select(given, select(wide && high != 0, -1, low), first + token);
        const Expr entry = clamp(position, 0, cosines.dim(1).extent() - 1);
        const Expr nan = reinterpret<float>(cast<uint32_t>(0x7fc00000));
        cosine(pair, token, batch) = select(position == entry, cosines(pair, entry), nan);
        sine(pair, token, batch) = select(position == entry, sines(pair, entry), nan);

        const auto rotate = [&](decltype(&rotated_first) part, const Expr &pair_index, const Expr &a, const Expr &b) {
            return strict_float(part(math, a, b, cosine(pair_index, token, batch), sine(pair_index, token, batch)));
        };
        // What a thread reads of x.
        cell0(d, head, token, batch) = (*x0)(d, head, token, batch);
        if (x1) {
            cell1(d, head, token, batch) = (*x1)(d, head, token, batch);
        }
        const auto element_of = [&](const Func &cell, const Expr &i) {
            return storage().load([&](Expr index) { return cell(index, head, token, batch); }, i);
        };
        if (pairs_in_words()) {
            const auto element = [&](Expr i) {
                const Expr p = Internal::simplify(i / 2), a = element_of(cell0, 2 * p),
                           b = element_of(cell0, 2 * p + 1);
                return rotate(is_const_zero(Internal::simplify(i % 2)) ? rotated_first : rotated_second, p, a, b);
            };
            results(d, head, token, batch) = storage().store_result(element, d);
            y(d, head, token, batch) = results(d, head, token, batch);
        } else {
            const auto part = [&](decltype(&rotated_first) which) {
                return [=](Expr i) { return rotate(which, i, element_of(cell0, i), element_of(cell1, i)); };
            };
            results(d, head, token, batch) =
                Tuple(storage().store_result(part(rotated_first), d), storage().store_result(part(rotated_second), d));
            y(d, head, token, batch) = Tuple(results(d, head, token, batch)[0], results(d, head, token, batch)[1]);
        }
        *outputs = y;
    }

    void schedule() {
        keep_roundings(get_pipeline(), get_target());
        cosines.dim(0).set_min(0);
        cosines.dim(1).set_min(0);
        sines.dim(0).set_min(0);
        sines.dim(1).set_min(0);
        positions.dim(0).set_bounds(0, 2).set_stride(Expr());
        std::vector<OutputImageParam> buffers = y.output_buffers();
        if (!by_words() && interleaved) {
            x0->dim(0).set_stride(2);
            x1->dim(0).set_stride(2);
            for (OutputImageParam &buffer : buffers) {
                buffer.dim(0).set_stride(2);
            }
        }
        if (using_autoscheduler()) {
            return;
        }
        if (by_words()) {
            schedules::gpu::promise_cells(cosines, sines);
            buffers[0].dim(0).set_extent(buffers[0].dim(0).extent() / words_per_cell * words_per_cell);
            schedules::gpu::promise_cells_of_heads(buffers[0]);
            schedules::gpu::promise_cells_of_heads(*x0);
            if (x1) {
                schedules::gpu::promise_cells_of_heads(*x1);
                schedules::gpu::promise_pitches_of_cells(buffers[1]);
            }
        }
        std::vector<Func> cells = {cell0};
        if (x1) {
            cells.push_back(cell1);
        }
        schedules::gpu::heads({y, results, cells, {cosine, sine}, d, head, token, batch, pair}, by_words(),
                              get_target());
    }

private:
    bool pairs_in_words() const { return interleaved && words && dtype != DType::f32; }
    // Neighbours in f32 would be in two words of a cell.
    bool by_words() const { return words && !(interleaved && dtype == DType::f32); }
    RowStorage storage() const { return RowStorage(dtype, get_target(), by_words()); }

    GeneratorInput<Buffer<>> *x0 = nullptr, *x1 = nullptr;
    GeneratorOutput<Func> *outputs = nullptr;
    Func cell0{"cell0"}, cell1{"cell1"}, cosine{"cosine"}, sine{"sine"}, results{"results"}, y{"y"};
    Var d{"d"}, head{"head"}, token{"token"}, batch{"batch"}, pair{"pair"};
};

}  // namespace
}  // namespace halyard

HALIDE_REGISTER_GENERATOR(halyard::RopeTokens, rope_tokens)
