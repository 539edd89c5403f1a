// Row kernels on GPUs: a block holds one row or several, a row one warp or several. Every pass reads the row anew, by
// 16 bytes a thread: from shared memory where the row is staged there, else, but for the first pass, from a cache.
#include "schedules/gpu.h"

namespace halyard::schedules::gpu {
namespace {

using namespace Halide;

class RowSchedule {
public:
    RowSchedule(const Row &stages, const RowThreadParams &params, const Target &target)
        : stages_(stages), y_(stages.y), target_(target), warps_(params.warps), packed_(params.packed),
          shuffles_(!target.has_feature(Target::OpenCL)) {
        const Var thread("thread"), word("word");
        Var d = stages.d;
        const bool y_packed = packed_ && !params.statistics;
        if (y_packed) {
            y_.split(d, d, word, words_per_vector, TailStrategy::RoundUp);
            by_one_access(y_, word, target);
        }
        // In place, no element may be computed twice: hence the guard.
        y_.split(d, d, thread, params.warps * threads_per_warp, TailStrategy::GuardWithIf)
            .split(thread, warp_, lane_, threads_per_warp, TailStrategy::RoundUp)
            .split(stages.t, block_, row_, params.rows, TailStrategy::RoundUp);
        if (y_packed) {
            y_.reorder(word, d, lane_, warp_, row_, block_);
        } else {
            y_.reorder(d, lane_, warp_, row_, block_);
        }
        y_.gpu_blocks(block_).gpu_threads(warp_, row_);
        over_lanes(y_, lane_);
    }

    void reduction(ThreadReduction r) {
        const Var t = stages_.t;
        r.words.compute_at(r.thread, r.lane);
        r.words.update().reorder(r.word, r.vectors.x, r.lane, r.warp, t);
        if (packed_) {
            by_one_access(r.words, r.word, target_);
            by_one_access(r.words.update(), r.word, target_);
        } else {
            r.words.unroll(r.word);
            r.words.update().unroll(r.word);
        }
        // Every lane stores its copy, so that no shuffle stands where the others do not take part.
        per_block(r.warps).bound(r.lane, 0, threads_per_warp).gpu_threads(r.warp, t);
        over_lanes(r.warps, r.lane);
        per_thread(r.thread, r);
        for (const Func &half : r.halves) {
            per_thread(half, r);
        }
        by_first_thread(per_block(r.result));
        by_first_thread(r.result.update());
    }

    void before_writing(Func f) {
        const Var word("word"), d = f.args()[0];
        f.compute_at(y_, stages_.d).store_in(MemoryType::Stack);
        if (packed_) {
            by_one_access(f.split(d, d, word, words_per_vector), word, target_);
        }
    }

    /** A thread loads its vectors before it stores the first of them: as many accesses to global memory as registers allow are
     *  under way at a time, where a pass that accumulates what it loads waits for each. */
    void stage(Func f) {
        // Staged sums load two tensors, and what is computed of staged rows loads none.
        const bool computed = f.args().size() > 2;
        const int loads = computed ? 1 : stages_.first.defined() ? 2 : 4;
        const Var w = f.args().front(), t = f.args().back(), word("word"), vector("vector"), load("load"),
                  thread("thread");
        f.compute_at(y_, block_).store_in(MemoryType::GPUShared);
        f.bound_extent(w, stages_.y.output_buffers()[0].dim(0).extent());
        f.split(w, vector, word, words_per_vector, TailStrategy::RoundUp)
            .split(vector, vector, thread, warps_ * threads_per_warp, TailStrategy::GuardWithIf)
            .split(thread, warp_, lane_, threads_per_warp, TailStrategy::RoundUp)
            .split(vector, vector, load, loads, TailStrategy::RoundUp)
            .reorder(word, load, vector, lane_, warp_, t)
            .unroll(load)
            .gpu_threads(warp_, t);
        if (computed) {
            f.reorder(word, f.args()[1], load, vector, lane_, warp_, t);
        }
        by_one_access(f, word, target_);
        over_lanes(f, lane_);
    }

    void scalar(Func f) { by_first_thread(per_block(f)); }

private:
    // The 32 threads of a warp hand each other values in registers. OpenCL has no such thing: there they go by way of
    // shared memory.
    void over_lanes(Stage f, const Var &lane) {
        if (shuffles_) {
            f.gpu_lanes(lane);
        } else {
            f.gpu_threads(lane);
        }
    }

    // The first thread of a row computes f: the loops of one iteration keep its place among the threads of the block.
    void by_first_thread(Stage f) {
        const Var only_warp("only_warp");
        f.split(stages_.t, stages_.t, only_warp, 1)
            .split(only_warp, only_warp, only_, 1)
            .gpu_threads(only_warp, stages_.t);
        over_lanes(f, only_);
    }

    void per_thread(Func f, const ThreadReduction &r) {
        if (shuffles_) {
            f.compute_at(r.warps, r.warp).gpu_lanes(r.lane);
        } else {
            per_block(f).gpu_threads(r.lane, r.warp, stages_.t);
        }
    }

    Func per_block(Func f) { return f.compute_at(y_, block_).store_in(MemoryType::GPUShared); }

    const Row &stages_;
    Func y_;
    const Target target_;
    const Expr warps_;  // that share a row
    const bool packed_, shuffles_;
    const Var block_{"block"}, row_{"row"}, warp_{"warp"}, lane_{"lane"}, only_{"only"};
};

}  // namespace

void row(const Row &stages, const RowThreadParams &params, const Target &target) {
    auto rows = Func(stages.y).output_buffers()[0].dim(1);
    rows.set_extent(rows.extent() / params.rows * params.rows);
    RowSchedule schedule(stages, params, target);
    for (const Func &rows : stages.staged) {
        schedule.stage(rows);
    }
    for (const RowReduction &r : stages.reductions) {
        schedule.reduction(r.threads);
    }
    for (const Func &scalar : stages.scalars) {
        schedule.scalar(scalar);
    }
    if (stages.first.defined() && stages.staged.empty()) {
        schedule.before_writing(stages.first);
    }
}

}  // namespace halyard::schedules::gpu
