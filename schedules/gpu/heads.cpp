// Heads of tokens on GPUs: a thread for every 16 bytes of a head, a block for several heads of a token, whose entries
// of the table are in the multiprocessor's cache then.
#include "schedules/gpu_heads.h"

#include "schedules/gpu_vectors.h"

namespace halyard::schedules::gpu {

using namespace Halide;

void heads(const Heads &stages, bool packed, const Target &target) {
    // Half a head of 128 features has 8 vectors of 16-bit elements.
    const int lanes = packed ? 8 : 32, rows = 128 / lanes;
    const Var word("word"), lane("lane"), row("row"), piece("piece");
    Func y = stages.y, results = stages.results;
    Var d = stages.d;
    if (packed) {
        y.split(d, d, word, words_per_vector, TailStrategy::RoundUp);
        by_one_access(y, word, target);
    }
    y.split(d, d, lane, lanes, TailStrategy::GuardWithIf)
        .split(stages.head, stages.head, row, rows, TailStrategy::GuardWithIf)
        .fuse(d, stages.head, piece);
    if (packed) {
        y.reorder(word, lane, row, stages.token, piece, stages.batch);
    } else {
        y.reorder(lane, row, stages.token, piece, stages.batch);
    }
    y.gpu_blocks(stages.token, piece, stages.batch).gpu_threads(lane, row);

    // In registers: read by 16 bytes, and taken from there element by element.
    const auto in_thread = [&](Func f, Var v, bool at_once) {
        f.compute_at(y, lane).store_in(MemoryType::Stack);
        if (packed) {
            const Var part("part");
            f.split(v, v, part, words_per_vector, TailStrategy::RoundUp).unroll(v);
            if (at_once) {
                by_one_access(f, part, target);
            } else {
                f.unroll(part);
            }
        }
    };
    for (const Func &f : stages.inputs) {
        in_thread(f, stages.d, true);
    }
    for (const Func &f : stages.table) {
        in_thread(f, stages.pair, true);
    }
    in_thread(results, stages.d, false);
}

}  // namespace halyard::schedules::gpu
