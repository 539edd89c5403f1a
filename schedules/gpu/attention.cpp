// Attention on GPUs. A block of 128 threads takes the scores with a thread for each position, which reads its key by 16
// bytes for all rows at once, and the values with a thread for 16 bytes of a position, so that keys and values are read
// once. What the threads hand each other goes through shared memory.
#include "schedules/gpu_attention.h"

#include "schedules/gpu_vectors.h"

namespace halyard::schedules::gpu {

using namespace Halide;

void attention_split(const AttentionSplit &s, Func out, int words, int elements, const Target &target) {
    const Var inner("inner"), outer("outer");
    out.split(s.i, outer, inner, attention_lanes, TailStrategy::GuardWithIf)
        .reorder(outer, inner, s.r, s.tile, s.split, s.hb)
        .gpu_blocks(s.tile, s.split, s.hb)
        .gpu_threads(inner, s.r);

    const auto per_block = [&](Func f) { f.compute_at(out, s.tile).store_in(MemoryType::GPUShared); };
    const auto by_position = [&](Func f) {
        per_block(f);
        f.split(s.j, outer, inner, attention_lanes, TailStrategy::RoundUp)
            .reorder(s.r, inner, outer)
            .unroll(s.r)
            .gpu_threads(inner, outer);
    };
    const auto by_lanes = [&](Func f) {
        per_block(f);
        f.gpu_threads(s.lane, s.r);
        f.update().reorder(s.parts.x, s.lane, s.r).gpu_threads(s.lane, s.r);
    };
    const auto by_rows = [&](Func f) {
        per_block(f);
        f.gpu_threads(s.r);
        f.update().reorder(s.each_lane.x, s.r).gpu_threads(s.r);
    };
    // In registers, 16 bytes by one access.
    const auto load_at = [&](Func f, const Func &at, const RVar &loop, const Var &element, int extent) {
        f.compute_at(at, loop).store_in(MemoryType::Stack).bound(element, 0, extent);
        if (words > 1) {
            const Var part("part");
            by_one_access(f.split(element, element, part, words, TailStrategy::RoundUp), part, target);
            f.unroll(element);
        }
    };

    by_position(s.score);
    Func dot = s.dot;
    dot.compute_at(s.score, inner).store_in(MemoryType::Stack).unroll(s.r);
    dot.update().reorder(s.r, s.key_vectors.x, s.j).unroll(s.r);
    load_at(s.key_vector, dot, s.key_vectors.x, s.w, words);
    load_at(s.q_vector, dot, s.key_vectors.x, s.e, elements);
    Func(s.q_vector).unroll(s.r);

    by_lanes(s.lane_max);
    by_rows(s.row_max);
    by_position(s.probability);
    by_lanes(s.lane_sum);
    by_rows(s.total);

    Func of_slice = s.of_slice, weighted = s.weighted;
    per_block(of_slice);
    of_slice.bound(s.e, 0, elements)
        .split(s.vector, outer, inner, attention_lanes, TailStrategy::GuardWithIf)
        .reorder(s.e, s.r, outer, inner, s.slice)
        .unroll(s.e)
        .unroll(s.r)
        .gpu_threads(inner, s.slice);
    weighted.compute_at(of_slice, outer).store_in(MemoryType::Stack).unroll(s.e).unroll(s.r);
    weighted.update().reorder(s.e, s.r, s.steps.x, s.vector, s.slice).unroll(s.e).unroll(s.r);
    load_at(s.value_vector, weighted, s.steps.x, s.w, words);
}

void attention_join(const AttentionJoin &s, const Target &) {
    constexpr int lanes = 32, members = 4;
    const Var lane("lane"), beside("beside"), piece("piece"), sequence("sequence");
    Func y = s.y;
    y.split(s.d, s.d, lane, lanes, TailStrategy::GuardWithIf)
        .split(s.member, s.member, beside, members, TailStrategy::GuardWithIf)
        .fuse(s.d, s.member, piece)
        .fuse(s.head, s.batch, sequence)
        .reorder(lane, beside, s.token, piece, sequence)
        .gpu_blocks(s.token, piece, sequence)
        .gpu_threads(lane, beside);
    for (Func f : s.reductions) {
        f.compute_at(y, lane).store_in(MemoryType::Stack);
    }
}

void attention_block_weights(const AttentionBlockWeights &s, const Target &target) {
    constexpr int threads = 256;
    const Var thread("thread"), word("word"), part("part");
    Func y = s.y;
    y.split(s.d, s.d, word, words_per_vector, TailStrategy::RoundUp);
    by_one_access(y, word, target);
    y.split(s.d, s.d, thread, threads, TailStrategy::GuardWithIf).gpu_blocks(s.d, s.t).gpu_threads(thread);
    // In registers, read by 16 bytes, and taken from there element by element.
    const auto in_thread = [&](Func f) {
        f.compute_at(y, thread).store_in(MemoryType::Stack).split(s.d, s.d, part, words_per_vector).unroll(s.d);
        return f;
    };
    by_one_access(in_thread(s.loaded), part, target);
    in_thread(s.results).unroll(part);
}

}  // namespace halyard::schedules::gpu
