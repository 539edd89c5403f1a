// From checked tensors to launches: which elements each takes, and whether by 16 bytes or one by one.
#include "cuda/ops/operations.h"

#include <algorithm>

#include "core/calls/row_vector.h"
#include "core/cast.h"
#include "core/check_shapes.h"
#include "core/row_iterator.h"
#include "core/view.h"
#include "core/workspace.h"
#include "cuda/kernel_call.h"
#include "cuda/launch.h"

namespace halyard::cuda {
namespace {

// Kernels count elements in 32 bits and round up to whole blocks.
constexpr int64_t max_piece_rows = int64_t{1} << 30;
// The second axis of a grid ends here.
constexpr int64_t max_grid_rows = 65535;

/** Elements that a kernel for this type takes at a time when it takes words. */
int64_t cell(DType dtype) {
    return cell_bytes / size_of(dtype);
}

bool aligned(const char *data) {
    return reinterpret_cast<uintptr_t>(data) % cell_bytes == 0;
}

/** Whether the rows of the first tensors of a piece begin at cells, which are so many elements. */
[[gnu::noinline]] bool rows_in_cells(const Rows::Piece &piece, int tensors, int64_t cell) {
    bool all = true;
    for (int i = 0; i < tensors; i++) {
        all = all && aligned(piece.data[i]) && (piece.rows == 1 || piece.pitch[i] % cell == 0);
    }
    return all;
}

/** The warps that share a row, whatever the number of rows, because the order of the sums follows from it. A thread takes four
 *  cells of 16 bytes, so that one row alone is not long on its way; from four warps on it takes eight. A row has 16 warps at most:
 *  blocks of 512 threads leave room for another, which loads while this one writes. */
int32_t warps_for(int64_t width, DType dtype) {
    constexpr int64_t threads_per_warp = 32, few = 4, most = 16;
    const int64_t cells = (width + cell(dtype) - 1) / cell(dtype);
    int64_t warps = 1;
    while (warps < most && warps * threads_per_warp * (warps < few ? 4 : 8) < cells) {
        warps *= 2;
    }
    return static_cast<int32_t>(warps);
}

/** Bytes of shared memory from which on a row is better staged: below, the passes over a row take less time than what stands
 *  between them. */
constexpr int64_t least_staged_bytes = 2048;

/** Whether the rows of a block are read once, into shared memory. At least two blocks must fit. */
bool stages(const Device &device, int64_t row_bytes, int64_t staged_bytes, int64_t rows, int32_t warps) {
    constexpr int64_t bytes_per_warp = 32 * 16;  // that threads hand each other
    return row_bytes >= least_staged_bytes && 2 * rows * (staged_bytes + warps * bytes_per_warp) <= device.shared_bytes;
}

/** Rows in a block of which all are full: enough for 128 threads. */
int64_t rows_for(int32_t warps, int64_t rows) {
    constexpr int64_t warps_in_block = 4;
    // So few rows leave most multiprocessors idle: one launch of small blocks is better than a second launch.
    constexpr int64_t few_rows = 512;
    const int64_t fitting = std::max<int64_t>(1, warps_in_block / warps);
    return rows < few_rows && rows % fitting != 0 ? 1 : fitting;
}

/** Columns and pitch count elements. */
void set(Buffer<2> &buffer, const void *data, DType dtype, Access access, int64_t columns, int64_t rows,
         int64_t pitch) {
    const int64_t per_word = access == Access::elements ? 1 : 4 / size_of(dtype);
    buffer.set(data, columns / per_word, rows, pitch / per_word);
}

/** What one launch of a row kernel gets. */
struct RowLaunch {
    Buffer<2> tensors[4];
    Buffer<1> parameters[2];
    int32_t warps, rows_per_block;
    DType dtype;  // of the first tensor
    Access access;
};

/** Calls launch(launches, arguments) for pieces of the tensors, all with the rows of the first one, and with vectors of
 *  as many features, which may be empty. `reduced` features of a row enter its reductions. `staged_bytes`: what an
 *  element takes where rows are staged; 0: the tensors after the first hold an f32 for each row (see as_column()), which is
 *  read once anyway. */
template<typename Launch>
void run_rows(Checker &check, const halyard_context &context, int64_t reduced,
              std::initializer_list<const View *> views, std::initializer_list<const View *> parameters,
              int64_t staged_bytes, const Launch &launch) {
    const bool statistics = staged_bytes == 0;
    const View &first = **views.begin();
    Rows rows(false);
    for (const View *view : views) {
        rows.add(*view);
    }
    rows.merge();
    const DType dtype = first.dtype;
    const int64_t width = first.width();
    const int64_t whole = cell(dtype);
    bool parameters_aligned = true;
    for (const View *parameter : parameters) {
        parameters_aligned = parameters_aligned && aligned(parameter->data);
    }
    const int32_t warps = warps_for(width, dtype);

    Launches launches(check, context, first.device_id);
    // Rows [begin, end) of a piece, in blocks of so many.
    const auto launch_part = [&](const Rows::Piece &piece, int64_t begin, int64_t end, int64_t block_rows) {
        if (begin == end) {
            return;
        }
        const bool by_words = parameters_aligned && piece.columns % whole == 0 && reduced % whole == 0 &&
                              rows_in_cells(piece, statistics ? 1 : rows.tensors(), whole);
        RowLaunch l;
        const bool staged =
            !statistics && launches.device() &&
            stages(*launches.device(), piece.columns * size_of(dtype), piece.columns * staged_bytes, block_rows, warps);
        l.access = !by_words ? Access::elements : staged ? Access::staged : Access::words;
        l.dtype = dtype;
        l.warps = warps;
        l.rows_per_block = static_cast<int32_t>(block_rows);
        for (int i = 0; i < rows.tensors(); i++) {
            const bool is_statistic = statistics && i > 0;
            const DType type = is_statistic ? DType::f32 : dtype;
            set(l.tensors[i], piece.data[i] + begin * piece.pitch[i] * size_of(type), type, l.access,
                is_statistic ? 1 : piece.columns, end - begin, piece.pitch[i]);
        }
        const int64_t per_word = by_words ? 4 / size_of(dtype) : 1;
        int n = 0;
        for (const View *parameter : parameters) {
            l.parameters[n++].set(parameter->data, piece.columns / per_word);
        }
        launch(launches, l);
    };
    rows.for_each_piece({0, rows.count(), 0, width}, max_piece_rows, width, [&](const Rows::Piece &piece) {
        const int64_t block_rows = rows_for(warps, piece.rows), whole_blocks = piece.rows / block_rows * block_rows;
        launch_part(piece, 0, whole_blocks, block_rows);
        launch_part(piece, whole_blocks, piece.rows, 1);
    });
}

/** One launch of a norm's kernel; its tensors are x and y, or x, residual, residual_out and y. */
class NormLaunch {
public:
    NormLaunch(Launches &launches, const NormCall &call, const RowLaunch &l)
        : launches_(launches), call_(call), l_(l) {}

    void run() const {
        const bool adds = call_.residual.data != nullptr;
        if (call_.norm == HALYARD_NORM_RMS) {
            adds ? add_rms() : rms();
        } else {
            adds ? add_layer() : layer();
        }
    }

private:
    void rms() const {
        const auto &[x, y, unused, none] = l_.tensors;
        const auto &[weight, bias] = l_.parameters;
        const auto &[eps, outside, offset, width] = call_.scalars;
        if (has_weight()) {
            launch(kernels::rms_norm_weight, {x, eps, outside, offset, width, weight, l_.warps, l_.rows_per_block, y});
        } else {
            launch(kernels::rms_norm, {x, eps, outside, offset, width, l_.warps, l_.rows_per_block, y});
        }
    }

    void add_rms() const {
        const auto &[x, residual, sum, y] = l_.tensors;
        const auto &[weight, bias] = l_.parameters;
        const auto &[eps, outside, offset, width] = call_.scalars;
        if (has_weight()) {
            launch(kernels::add_rms_norm_weight,
                   {x, residual, eps, outside, offset, width, weight, l_.warps, l_.rows_per_block, sum, y});
        } else {
            launch(kernels::add_rms_norm,
                   {x, residual, eps, outside, offset, width, l_.warps, l_.rows_per_block, sum, y});
        }
    }

    void layer() const {
        const auto &[x, y, unused, none] = l_.tensors;
        const auto &[weight, bias] = l_.parameters;
        const float eps = call_.scalars.eps;
        if (has_weight() && has_bias()) {
            launch(kernels::layer_norm_weight_bias, {x, eps, weight, bias, l_.warps, l_.rows_per_block, y});
        } else if (has_weight()) {
            launch(kernels::layer_norm_weight, {x, eps, weight, l_.warps, l_.rows_per_block, y});
        } else if (has_bias()) {
            launch(kernels::layer_norm_bias, {x, eps, bias, l_.warps, l_.rows_per_block, y});
        } else {
            launch(kernels::layer_norm, {x, eps, l_.warps, l_.rows_per_block, y});
        }
    }

    void add_layer() const {
        const auto &[x, residual, sum, y] = l_.tensors;
        const auto &[weight, bias] = l_.parameters;
        const float eps = call_.scalars.eps;
        if (has_weight() && has_bias()) {
            launch(kernels::add_layer_norm_weight_bias,
                   {x, residual, eps, weight, bias, l_.warps, l_.rows_per_block, sum, y});
        } else if (has_weight()) {
            launch(kernels::add_layer_norm_weight, {x, residual, eps, weight, l_.warps, l_.rows_per_block, sum, y});
        } else if (has_bias()) {
            launch(kernels::add_layer_norm_bias, {x, residual, eps, bias, l_.warps, l_.rows_per_block, sum, y});
        } else {
            launch(kernels::add_layer_norm, {x, residual, eps, l_.warps, l_.rows_per_block, sum, y});
        }
    }

    bool has_weight() const { return call_.weight.data != nullptr; }
    bool has_bias() const { return call_.bias.data != nullptr; }

    template<typename Arguments>
    void launch(KernelOf<Arguments> kernel, std::common_type_t<Arguments> arguments) const {
        launches_.run(kernel, l_.dtype, l_.access, arguments);
    }

    Launches &launches_;
    const NormCall &call_;
    const RowLaunch &l_;
};

void launch_elementwise(Launches &launches, const ElementwiseCall &call, Access access, const Buffer<2> &first,
                        const Buffer<2> &second, const Buffer<2> &y) {
    const Kernel kernel = call.kernel;
    const DType dtype = call.input(0).dtype;
    switch (call.form) {
    case ElementwiseCall::Form::activation:
        return launches.run(KernelOf<arguments::Activation>{kernel}, dtype, access, {first, call.beta, y});
    case ElementwiseCall::Form::gated_unit:
        return launches.run(KernelOf<arguments::Glu>{kernel}, dtype, access,
                            {.gate = first, .up = second, .beta = call.beta, .y = y});
    case ElementwiseCall::Form::interleaved_unit:
        return launches.run(KernelOf<arguments::GluInterleaved>{kernel}, dtype, access, {first, call.beta, y});
    case ElementwiseCall::Form::add:
        return launches.run(kernels::add, dtype, access, {first, second, y});
    case ElementwiseCall::Form::cast:
        return call.y.dtype == DType::f32
                   ? launches.run(kernels::cast_to_f32, dtype, access, {first, y.of<float>()})
                   : launches.run(KernelOf<arguments::CastToF16>{kernel}, dtype, access, {first, y});
    case ElementwiseCall::Form::on_processors_alone:
        return;  // their functions refuse tensors of devices
    }
}

}  // namespace

void elementwise(Checker &check, const halyard_context &context, const ElementwiseCall &call) {
    const int count = call.count();
    const View &y = call.y;
    Rows rows(true);
    for (int i = 0; i < count; i++) {
        rows.add(*call.operands[i].view, call.operands[i].per_column);
    }
    rows.merge();
    const DType dtype = call.input(0).dtype;
    const int64_t whole = std::max(cell(dtype), cell(y.dtype));

    Launches launches(check, context, y.device_id);
    // Columns [begin, end) of a piece.
    const auto launch = [&](const Rows::Piece &piece, int64_t begin, int64_t end, Access access) {
        if (begin == end) {
            return;
        }
        Buffer<2> buffers[max_tensors];
        for (int i = 0; i < count; i++) {
            const auto &[view, per_column] = call.operands[i];
            const DType type = view->dtype;
            set(buffers[i], piece.data[i] + begin * per_column * size_of(type), type, access,
                (end - begin) * per_column, piece.rows, piece.pitch[i]);
        }
        launch_elementwise(launches, call, access, buffers[0], buffers[1], buffers[call.input_count]);
    };
    rows.for_each_piece({0, rows.count(), 0, rows.width()}, max_grid_rows, max_columns, [&](const Rows::Piece &piece) {
        const bool by_words = (piece.rows == 1 || piece.columns % whole == 0) && rows_in_cells(piece, count, whole);
        const int64_t in_words = by_words ? piece.columns / whole * whole : 0;
        launch(piece, 0, in_words, Access::words);
        launch(piece, in_words, piece.columns, Access::elements);
    });
}

namespace {

/** Computes a mixed call in f32, in scratch memory, and rounds its result once. */
void norm_in_f32(Checker &check, const halyard_context &context, const NormCall &call) {
    const bool adds = call.residual.data != nullptr;
    const View &x = adds ? call.residual_out : call.x;
    Workspace workspace(context, device_of(x));
    const auto rows = workspace.book<float>(row_count(x), x.width());
    const auto weight_floats = workspace.book<float>(widened_floats(call.weight));
    const auto bias_floats = workspace.book<float>(widened_floats(call.bias));
    if (!workspace.allocate(check)) {
        return;
    }
    const auto in_f32 = [&](const View &given, float *memory) {
        const View result = view_like(given, memory, DType::f32, given.width());
        cast(check, context, given, result);
        return result;
    };
    const auto vector = [&](const View &given, float *memory) { return memory ? in_f32(given, memory) : given; };
    const View weight = vector(call.weight, workspace[weight_floats]), bias = vector(call.bias, workspace[bias_floats]);
    if (adds) {
        elementwise(check, context, {halyard::kernels::add, call.x, call.residual, call.residual_out});
    }
    const View wide = in_f32(x, workspace[rows]);
    norm(check, context, {call.norm, wide, weight, bias, wide, call.scalars});
    cast(check, context, wide, call.y);
}

}  // namespace

void norm(Checker &check, const halyard_context &context, const NormCall &call) {
    if (call.is_mixed()) {
        norm_in_f32(check, context, call);
        return;
    }
    const auto launch = [&](Launches &launches, const RowLaunch &l) { NormLaunch(launches, call, l).run(); };
    const int64_t reduced = call.scalars.moment_width;
    if (call.residual.data) {
        run_rows(check, context, reduced, {&call.x, &call.residual, &call.residual_out, &call.y},
                 {&call.weight, &call.bias}, size_of(call.x.dtype), launch);
    } else {
        run_rows(check, context, reduced, {&call.x, &call.y}, {&call.weight, &call.bias}, size_of(call.x.dtype),
                 launch);
    }
}

void softmax(Checker &check, const halyard_context &context, const SoftmaxCall &call) {
    const int64_t exponential_bytes = size_of(DType::f32);
    run_rows(check, context, call.x.width(), {&call.x, &call.y}, {}, size_of(call.x.dtype) + exponential_bytes,
             [&](Launches &launches, const RowLaunch &l) {
                 launches.run(kernels::softmax, l.dtype, l.access,
                              {l.tensors[0], call.scale, l.warps, l.rows_per_block, l.tensors[1]});
             });
}

void norm_statistics(Checker &check, const halyard_context &context, const NormStatisticsCall &call) {
    const RmsNormScalars &scalars = call.scalars;
    const View scales = as_column(call.y, call.x), means = as_column(call.mean, call.x);
    if (call.norm == HALYARD_NORM_LAYER) {
        run_rows(check, context, call.x.width(), {&call.x, &scales, &means}, {}, 0,
                 [&](Launches &launches, const RowLaunch &l) {
                     launches.run(kernels::layer_norm_scale, l.dtype, l.access,
                                  {.x = l.tensors[0],
                                   .eps = scalars.eps,
                                   .warps = l.warps,
                                   .rows_per_block = l.rows_per_block,
                                   .y0 = l.tensors[1].of<float>(),
                                   .y1 = l.tensors[2].of<float>()});
                 });
    } else {
        run_rows(check, context, call.x.width(), {&call.x, &scales}, {}, 0,
                 [&](Launches &launches, const RowLaunch &l) {
                     launches.run(kernels::rms_norm_scale, l.dtype, l.access,
                                  {.x = l.tensors[0],
                                   .eps = scalars.eps,
                                   .eps_outside_root = scalars.eps_outside_root,
                                   .warps = l.warps,
                                   .rows_per_block = l.rows_per_block,
                                   .y = l.tensors[1].of<float>()});
                 });
    }
}

void attention_block_sums(Checker &check, const halyard_context &context, DType dtype, float score_scale,
                          const View &scores, const View &top, const View &sum) {
    const View tops = as_column(top, scores), sums = as_column(sum, scores);
    run_rows(check, context, scores.width(), {&scores, &tops, &sums}, {}, 0,
             [&](Launches &launches, const RowLaunch &l) {
                 launches.run(kernels::attention_block_sums, dtype, l.access,
                              {.scores = l.tensors[0].of<float>(),
                               .score_scale = score_scale,
                               .warps = l.warps,
                               .rows_per_block = l.rows_per_block,
                               .y0 = l.tensors[1].of<float>(),
                               .y1 = l.tensors[2].of<float>()});
             });
}

}  // namespace halyard::cuda
