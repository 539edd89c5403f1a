// The loops round the matmul kernels, for a right operand of any form: blocks of rows stay in the second-level cache while
// the panels pass by once.
//
// For each group of panels, and for each of its k blocks, all tiles of rows are done; the sums lie in scratch memory,
// and when the last k block is done the epilogue makes outputs of them. While a block of weights is multiplied, the
// kernels prefetch the one after it, a portion with each tile. Each thread has a share of the groups, and takes of the others'
// when that is done.
#ifndef HALYARD_RUNTIME_CPU_LINEAR_GEMM_LOOP_H
#define HALYARD_RUNTIME_CPU_LINEAR_GEMM_LOOP_H

#include <atomic>
#include <new>

#include "core/parameters.h"
#include "core/workspace.h"
#include "cpu/linear/gemm_epilogue.h"
#include "cpu/linear/right_operands.h"

namespace halyard {

/** The groups of a GEMM that one thread begins with: the same ones in each call, so that their weights stay in the cache of its
 *  core where they fit it. */
struct alignas(64) Share {
    std::atomic<int64_t> next;
    int64_t end;
};

/** One thread's memory: its share, its sums, and what the reader of the right operand and then the epilogue use. */
struct WorkerMemory {
    static int64_t bytes(int64_t rows, int64_t scratch_floats) {
        const int64_t floats = rows * sums_pitch(max_group_panels) + scratch_floats;
        return Workspace::piece_bytes(sizeof(Share) + floats * static_cast<int64_t>(sizeof(float)));
    }

    WorkerMemory(char *memory, const GemmPlan &plan)
        : share(*reinterpret_cast<Share *>(memory)), sums(reinterpret_cast<float *>(&share + 1)),
          scratch(sums + plan.tiling.rows() * plan.sums_pitch()) {}

    Share &share;
    float *sums;  // [row][sums_pitch]
    float *scratch;
};

/** Bytes of weights, of all panels of a tile together, from their prefetch into the first-level cache to their use: those of the next
 *  inputs. The processor's own prefetches are further ahead. */
constexpr int64_t near_prefetch_bytes = 1024;

/** What the sums of a GEMM start from: f32 [rows, columns], so that they become ((start + block 0) + block 1) + ...; or 0. */
struct StartingSums {
    const float *data = nullptr;
    int64_t pitch = 0, columns = 0;
};

/** Memory of outputs in which the sums are made, where they are nothing else: of whole tiles of rows and of panels. What they start
 *  from lies there too. */
struct SumsInPlace {
    float *data = nullptr;
    int64_t pitch = 0;
};

/** One thread's part of a GEMM. */
template<typename Right>
class GemmWorker {
public:
    GemmWorker(const GemmPlan &plan, const Right &right, const BlockedRows &x, const StartingSums &start,
               const SumsInPlace &in_place, const EpilogueCall &epilogue, const WorkerMemory &memory)
        : plan_(plan), right_(right), x_(x), start_(start), in_place_(in_place), sums_(memory.sums),
          sums_pitch_(in_place.data ? in_place.pitch : plan.sums_pitch()), reader_(right, plan, memory.scratch),
          epilogue_(plan, epilogue, memory.sums, memory.scratch) {}

    /** Computes group `group`, and prefetches what group `following` begins with (none if negative). */
    void operator()(int64_t group, int64_t following) {
        const int64_t begin = group * plan_.group_panels, end = std::min(begin + plan_.group_panels, plan_.panels);
        float *const sums = in_place_.data ? in_place_.data + begin * panel_width : sums_;
        if (start_.data && !in_place_.data) {
            load_start(begin, end);
        }
        for (int64_t panel = begin; panel < end; panel += plan_.tile_panels) {
            const int64_t panels = std::min<int64_t>(plan_.tile_panels, end - panel);
            for (int64_t k = 0; k < plan_.inputs; k += plan_.depth) {
                const char *after = right_.address(panel, k);
                if (k + plan_.depth < plan_.inputs) {
                    after = right_.address(panel, k + plan_.depth);
                } else if (panel + panels < end) {
                    after = right_.address(panel + panels, 0);
                } else if (following >= 0) {
                    after = right_.address(following * plan_.group_panels, 0);
                }
                multiply(panel, panels, k, sums + (panel - begin) * panel_width, after);
            }
        }
        if (!in_place_.data) {
            epilogue_(begin, end);
        }
    }

private:
    /** Sets the sums of panels [begin, end), of whole tiles: 0 where the given matrix has nothing. */
    void load_start(int64_t begin, int64_t end) {
        const int64_t first = begin * panel_width, width = (end - begin) * panel_width;
        const int64_t given = std::max<int64_t>(0, std::min(width, start_.columns - first));
        for (int64_t row = 0; row < plan_.tiling.rows(); row++) {
            float *const sums = sums_ + row * plan_.sums_pitch();
            const int64_t count = row < plan_.rows ? given : 0;
            std::copy_n(start_.data + (row < plan_.rows ? row * start_.pitch + first : 0), count, sums);
            std::fill_n(sums + count, width - count, 0.0f);
        }
    }

    void multiply(int64_t panel, int64_t panels, int64_t k, float *sums, const char *after) {
        const Tiling &tiling = plan_.tiling;
        const int64_t interval_bytes = right_.interval_bytes(plan_.kind);
        const auto step = static_cast<int32_t>((interval_bytes + tiling.tiles - 1) / tiling.tiles);
        if (!Right::ahead_by_blocks && tiling.tiles == 1 && !is_amx(plan_.isa, x_.form)) {
            after = right_.address(panel, k) +
                    (is_near(plan_.kind) ? near_prefetch_bytes : parameters.gemm_prefetch_bytes) / panels;
        }
        const int64_t next_panel = right_.panel_bytes() <= INT32_MAX / max_group_panels ? right_.panel_bytes() : 0;
        reader_.multiply(panel, k,
                         {.x = x_.at(0, k / k_block),
                          .x_row_bytes = x_.row_bytes(),
                          .tile_rows = tiling.tile_rows,
                          .tiles = tiling.tiles,
                          .panels = panels,
                          .depth = std::min(plan_.depth, plan_.inputs - k),
                          .next = {after, next_panel, step},
                          .first = k == 0 && !start_.data,
                          .sums = sums,
                          .sums_pitch = sums_pitch_,
                          .x_sums = x_.sums_at(0, k / k_block, plan_.inputs),
                          .x_sums_pitch = x_.sums_pitch()});
    }

    const GemmPlan &plan_;
    const Right &right_;
    const BlockedRows x_;
    const StartingSums start_;
    const SumsInPlace in_place_;
    float *const sums_;
    const int64_t sums_pitch_;
    typename Right::Reader reader_;
    EpilogueWriter epilogue_;
};

/** Groups [begin, end); none if begin is -1. */
struct GroupTask {
    int64_t begin, end;
};

/** The next task of a thread: of its own share, else of another's. `memory`: of all threads, `thread_bytes` each. */
inline GroupTask claim_groups(const GemmPlan &plan, int thread, char *memory, int64_t thread_bytes) {
    for (int i = 0; i < plan.threads; i++) {
        Share &from = *reinterpret_cast<Share *>(memory + (thread + i) % plan.threads * thread_bytes);
        if (from.next.load(std::memory_order_relaxed) < from.end) {
            const int64_t begin = from.next.fetch_add(plan.task_groups, std::memory_order_relaxed);
            if (begin < from.end) {
                return {begin, std::min(begin + plan.task_groups, from.end)};
            }
        }
    }
    return {-1, -1};
}

/** outputs = epilogue(start + x right), by plan.threads threads; or the sums in place. */
template<typename Right>
void run_gemm(const halyard_context &context, const GemmPlan &plan, const Right &right, const LeftOperand &x,
              const StartingSums &start, const EpilogueCall &epilogue, char *memory, int64_t thread_bytes,
              const SumsInPlace &in_place = {}) {
    for (int thread = 0; thread < plan.threads; thread++) {
        new (memory + thread * thread_bytes)
            Share{plan.groups * thread / plan.threads, plan.groups * (thread + 1) / plan.threads};
    }
    run_tasks(context, plan.threads, [&](int thread) {
        GemmWorker<Right> work(plan, right, x.of(thread, plan.isa, plan.rows, plan.inputs), start, in_place, epilogue,
                               WorkerMemory(memory + thread * thread_bytes, plan));
        // The next task is claimed before this one is begun, so that its weights can be prefetched.
        GroupTask task = claim_groups(plan, thread, memory, thread_bytes);
        while (task.begin >= 0) {
            const GroupTask following = claim_groups(plan, thread, memory, thread_bytes);
            for (int64_t group = task.begin; group < task.end; group++) {
                work(group, group + 1 < task.end ? group + 1 : following.begin);
            }
            task = following;
        }
    });
}

}  // namespace halyard

#endif
