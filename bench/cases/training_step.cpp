// Rows of a whole training step of a language model: see operands.h.
#include <algorithm>

#include "halyard/training.h"
#include "operations/reference_gradients.h"
#include "slope.h"

namespace halyard::bench {
namespace {

using operations::Row;

constexpr unsigned embedding_seed = 600, positions_seed = 601, norm_seed = 602, norm_bias_seed = 603;
constexpr double table_deviation = 0.02;  // as GPT-2 begins
constexpr std::int64_t sampled_rows = 4, sampled_columns = 256;

/** Tokens whose gradients are held against float64: attention has weights from the second one on. */
constexpr std::int64_t judged_tokens = 3;

/** By its name in the case's parameters. */
struct TrainedParameter {
    std::string name;
    bool is_vector;
};

std::vector<TrainedParameter> trained_parameters(const BlockForm &form) {
    std::vector<TrainedParameter> all = {{"embedding", false}};
    if (form.rope_theta == 0) {
        all.push_back({"positions", false});
    }
    all.push_back({"norm", true});
    if (form.norm == HALYARD_NORM_LAYER) {
        all.push_back({"norm_bias", true});
    }
    for (std::int64_t i = 0; i < form.layers; i++) {
        for (const operations::BlockParameter &each : operations::block_parameters(form)) {
            all.push_back({std::to_string(i) + "." + each.operand.name, static_cast<bool>(each.vector)});
        }
    }
    return all;
}

Matrix beginning_of(const Parameters &parameters, const TrainedParameter &parameter) {
    if (!parameter.is_vector) {
        return parameters.matrices.at(parameter.name).whole();
    }
    const Matrix &source = *parameters.vectors.at(parameter.name);
    Matrix copy(Dtype::f32, 1, source.width());
    std::memcpy(copy.data(), source.data(), source.bytes());
    return copy;
}

/** Integers that the library reads. */
DLTensor integers(const std::int64_t *data, std::int64_t *shape) {
    return {const_cast<std::int64_t *>(data), {kDLCPU, 0}, 2, {kDLInt, 64, 1}, shape, nullptr, 0};
}

}  // namespace

/** A model that learns: its parameters, what AdamW keeps of them, and memory for what a step needs. */
class Trainee {
public:
    explicit Trainee(const BenchmarkCase &bench_case)
        : form(*bench_case.id.kernel->block), context(bench_case.context.get()), parameters(trained_parameters(form)),
          logits(Dtype::f32, bench_case.id.rows, form.vocabulary) {
        for (std::vector<Matrix> *const each : {&values, &first_moments, &second_moments}) {
            each->reserve(parameters.size());
        }
        for (const TrainedParameter &each : parameters) {
            const Matrix &value = values.emplace_back(beginning_of(bench_case.parameters, each));
            first_moments.emplace_back(Dtype::f32, value.rows(), value.width());
            second_moments.emplace_back(Dtype::f32, value.rows(), value.width());
        }
        value_views = views_of(values, 0);
        make_stack(bench_case);
        std::int64_t bytes = 0;
        require(halyard_stack_saved_size(stack.get(), bench_case.id.sequences(), bench_case.id.tokens(), &bytes));
        saved = std::make_unique<Buffer>(static_cast<std::size_t>(bytes));
    }

    /** Writes the losses of the text's first tokens, as so many sequences, and the gradients of their mean. */
    void differentiate(const BenchmarkCase &bench_case, std::int64_t sequences, std::int64_t tokens, OperandSet &set) {
        std::int64_t shape[3] = {sequences, tokens, form.vocabulary};
        const DLTensor ids = integers(bench_case.tokens.data(), shape);
        const DLTensor targets = integers(bench_case.tokens.data() + 1, shape);
        DLTensor all_logits = logits.view, losses = set.outputs[0].view;
        all_logits.ndim = 3;
        all_logits.shape = losses.shape = shape;
        const auto bytes = static_cast<std::int64_t>(saved->size());
        require(halyard_stack_forward_saving(context, stack.get(), &ids, nullptr, saved->data(), bytes, &all_logits));
        halyard_cross_entropy_options options{};
        options.gradient_scale = 1.0f / static_cast<float>(sequences * tokens);
        require(halyard_cross_entropy(context, &all_logits, &targets, &options, &losses, &all_logits));
        std::vector<DLTensor> views = views_of(set.outputs, 1);
        std::vector<halyard_block_gradients> of_blocks;
        for (std::int64_t i = 0; i < form.layers; i++) {
            of_blocks.push_back(block_gradients(form, &views[first_of_block(i)]));
        }
        const halyard_stack_gradients gradients = stack_gradients(views.data(), of_blocks.data());
        require(
            halyard_stack_backward(context, stack.get(), &ids, nullptr, saved->data(), bytes, &all_logits, &gradients));
    }

    /** A step of all tokens, with the gradients clipped by their norm. */
    void step(const BenchmarkCase &bench_case, OperandSet &set) {
        differentiate(bench_case, bench_case.id.sequences(), bench_case.id.tokens(), set);
        std::vector<DLTensor> gradients = views_of(set.outputs, 1), first = views_of(first_moments, 0),
                              second = views_of(second_moments, 0);
        std::vector<const DLTensor *> pointers;
        for (const DLTensor &each : gradients) {
            pointers.push_back(&each);
        }
        double norm = 0;
        require(halyard_gradient_norm(context, pointers.data(), static_cast<std::int64_t>(pointers.size()), &norm));
        const std::vector<double> &numbers = bench_case.id.kernel->scalars;
        const halyard_adamw_options options = {
            numbers[0], numbers[1], numbers[2], numbers[3], numbers[4], std::min(1.0, numbers[5] / (norm + 1e-6)), 1};
        steps++;
        for (std::size_t i = 0; i < parameters.size(); i++) {
            require(
                halyard_adamw_step(context, &value_views[i], &gradients[i], &first[i], &second[i], steps, &options));
        }
        pack();
    }

private:
    /** Views of the parameters' tensors among `matrices`, from number `first` on. */
    std::vector<DLTensor> views_of(const std::vector<Matrix> &matrices, std::size_t first) const {
        std::vector<DLTensor> views;
        for (std::size_t i = 0; i < parameters.size(); i++) {
            const Matrix &matrix = matrices[first + i];
            views.push_back(parameters[i].is_vector ? vector_view(matrix) : matrix.view);
        }
        return views;
    }

    std::size_t first_of_block(std::int64_t block) const {
        const std::size_t of_blocks = operations::block_parameters(form).size();
        return parameters.size() - static_cast<std::size_t>(form.layers - block) * of_blocks;
    }
    std::vector<const DLTensor *> tensors_of_block(std::int64_t block) const {
        std::vector<const DLTensor *> tensors;
        for (std::size_t i = first_of_block(block); i < first_of_block(block + 1); i++) {
            tensors.push_back(&value_views[i]);
        }
        return tensors;
    }

    /** Gives each tensor before those of the blocks to the field of its name. */
    template<typename Tensors, typename View>
    void assign(Tensors &tensors, View *views) const {
        for (std::size_t i = 0; i < first_of_block(0); i++) {
            const std::string &name = parameters[i].name;
            (name == "embedding"   ? tensors.embed_tokens
             : name == "positions" ? tensors.embed_positions
             : name == "norm"      ? tensors.norm
                                   : tensors.norm_bias) = &views[i];
        }
    }
    halyard_stack_weights stack_weights() const {
        halyard_stack_weights weights{};
        assign(weights, value_views.data());
        return weights;
    }
    halyard_stack_gradients stack_gradients(DLTensor *views, const halyard_block_gradients *of_blocks) const {
        halyard_stack_gradients gradients{};
        assign(gradients, views);
        gradients.blocks = of_blocks;
        return gradients;
    }

    void make_stack(const BenchmarkCase &bench_case) {
        std::vector<const halyard_block *> pointers;
        for (std::int64_t i = 0; i < form.layers; i++) {
            blocks.push_back(make_block(bench_case, tensors_of_block(i).data()));
            pointers.push_back(blocks.back().get());
        }
        halyard_stack_config config{};
        config.vocab_size = form.vocabulary;
        config.hidden_size = form.d;
        config.norm = form.norm;
        config.rms_norm_eps = form.eps();
        const halyard_stack_weights weights = stack_weights();
        halyard_stack *made = nullptr;
        require(halyard_stack_create(context, &config, &weights, pointers.data(), form.layers, &made));
        stack.reset(made, halyard_stack_destroy);
    }

    void pack() {
        for (std::int64_t i = 0; i < form.layers; i++) {
            const halyard_block_weights weights = operations::block_weights(form, tensors_of_block(i).data());
            require(halyard_block_update(context, blocks[static_cast<std::size_t>(i)].get(), &weights));
        }
        const halyard_stack_weights weights = stack_weights();
        require(halyard_stack_update(context, stack.get(), &weights));
    }

    const BlockForm form;
    const halyard_context *const context;
    const std::vector<TrainedParameter> parameters;
    std::vector<Matrix> values, first_moments, second_moments;
    std::vector<DLTensor> value_views;
    std::vector<std::shared_ptr<halyard_block>> blocks;
    std::shared_ptr<halyard_stack> stack;
    Matrix logits;  // and their gradients
    std::unique_ptr<Buffer> saved;
    std::int64_t steps = 0;
};

namespace {

/** The mean loss of the first tokens where each parameter has grown by `offset` times its way. */
double mean_loss(const BenchmarkCase &bench_case, std::int64_t tokens, double offset) {
    const BlockForm &form = *bench_case.id.kernel->block;
    const Parameters &parameters = bench_case.parameters;
    const std::vector<std::int64_t> ids(bench_case.tokens.begin(), bench_case.tokens.begin() + tokens);
    operations::StackValues values;
    values.config.norm = form.norm;
    values.config.rms_norm_eps = form.eps();
    std::size_t number = 0;
    const auto moved_row = [&](const PeriodicMatrix &matrix, std::int64_t index) {
        Row row = matrix.row(index);
        for (double &value : row) {
            value *= 1 + offset * way_of(number);
        }
        return row;
    };
    const PeriodicMatrix &embedding = parameters.matrices.at("embedding");
    values.embed_tokens.resize(static_cast<std::size_t>(form.vocabulary));
    for (const std::int64_t id : ids) {
        values.embed_tokens[static_cast<std::size_t>(id)] = moved_row(embedding, id);
    }
    values.lm_head = moved(embedding.weights(), offset * way_of(number++));
    if (form.rope_theta == 0) {
        for (std::int64_t position = 0; position < tokens; position++) {
            values.embed_positions.push_back(moved_row(parameters.matrices.at("positions"), position));
        }
        number++;
    }
    values.norm.weight = moved(parameters.values("norm"), offset * way_of(number++));
    if (form.norm == HALYARD_NORM_LAYER) {
        values.norm.bias = moved(parameters.values("norm_bias"), offset * way_of(number++));
    }
    number--;  // moved_block() begins behind it
    std::vector<operations::BlockValues> blocks;
    for (std::int64_t i = 0; i < form.layers; i++) {
        blocks.push_back(moved_block(bench_case, std::to_string(i) + ".", offset, number));
    }
    for (const operations::BlockValues &block : blocks) {
        values.blocks.push_back(&block);
    }
    const operations::Matrix logits = operations::stack(values, ids).logits;
    double sum = 0;
    for (std::size_t token = 0; token < logits.size(); token++) {
        const auto target = static_cast<std::size_t>(bench_case.tokens[token + 1]);
        sum += operations::cross_entropy(operations::values_of(logits[token]), target, 1).loss.value;
    }
    return sum / static_cast<double>(tokens);
}

/** How far the library's gradients of some tokens are from the slope of the reference, in units of all that they add to it. */
double error_of_few_tokens(const BenchmarkCase &bench_case, OperandSet &set) {
    const Parameters &parameters = bench_case.parameters;
    const std::int64_t tokens = std::min(judged_tokens, bench_case.id.tokens());
    bench_case.trainee->differentiate(bench_case, 1, tokens, set);
    Growth growth;
    std::size_t number = 0;
    for (const auto &[name, is_vector] : trained_parameters(*bench_case.id.kernel->block)) {
        const Matrix &gradient = set.outputs[1 + number];
        growth.add(gradient, way_of(number++), is_vector, [&, &name = name, vector = is_vector](std::int64_t row) {
            return vector ? parameters.values(name) : parameters.matrices.at(name).row(row);
        });
    }
    return growth.error(mean_loss(bench_case, tokens, -slope_step), mean_loss(bench_case, tokens, slope_step));
}

void add_parameters(BenchmarkCase &bench_case) {
    const BlockForm &form = *bench_case.id.kernel->block;
    Parameters &parameters = bench_case.parameters;
    parameters.add_matrix("embedding", Dtype::f32, form.vocabulary, form.d, embedding_seed, table_deviation);
    if (form.rope_theta == 0) {
        const std::int64_t positions = bench_case.id.tokens();
        parameters.add_matrix("positions", Dtype::f32, positions, form.d, positions_seed, table_deviation);
    }
    parameters.add_vector("norm", Dtype::f32, form.d, norm_seed, 1.0);
    if (form.norm == HALYARD_NORM_LAYER) {
        parameters.add_vector("norm_bias", Dtype::f32, form.d, norm_bias_seed, 0.0);
    }
    for (std::int64_t i = 0; i < form.layers; i++) {
        add_block(parameters, std::to_string(i) + ".", form, Dtype::f32, static_cast<unsigned>(i));
    }
}

/** What the library computes, which peers must compute too. */
Sample sample_of(const Matrix &output, const std::string &name, double known_error) {
    Sample sample(output.rows(), sampled_rows, output.width(), sampled_columns);
    sample.known_error = known_error;
    // A bias of all keys moves the scores of a query alike: its gradient is 0 but for roundings, which nobody shares.
    if (name.find("k_proj_bias") != name.npos) {
        sample.rows.clear();
    }
    for (const std::int64_t row : sample.rows) {
        sample.expect(output.row(row));
    }
    return sample;
}

}  // namespace

void prepare_training_step(BenchmarkCase &bench_case) {
    const CaseId &id = bench_case.id;
    add_parameters(bench_case);
    for (std::int64_t i = 0; i <= id.rows; i++) {
        bench_case.tokens.push_back((i * 7919 + 17) % id.kernel->block->vocabulary);
    }
    const std::size_t before = resident_bytes();
    OperandSet &set = bench_case.sets.emplace_back();
    set.outputs.emplace_back(Dtype::f32, id.rows, 1);
    const std::vector<TrainedParameter> trained = trained_parameters(*id.kernel->block);
    for (const TrainedParameter &each : trained) {
        const Matrix value = beginning_of(bench_case.parameters, each);
        set.outputs.emplace_back(Dtype::f32, value.rows(), value.width());
    }
    bench_case.trainee = std::make_shared<Trainee>(bench_case);
    const double error = error_of_few_tokens(bench_case, set);
    bench_case.trainee->differentiate(bench_case, id.sequences(), id.tokens(), set);
    bench_case.resident = resident_bytes() - before;
    bench_case.samples.push_back(sample_of(set.outputs[0], "", error));
    for (std::size_t i = 0; i < trained.size(); i++) {
        bench_case.samples.push_back(sample_of(set.outputs[1 + i], trained[i].name, error));
    }
}

halyard_status call_training_step(BenchmarkCase &bench_case, OperandSet &set) {
    bench_case.trainee->step(bench_case, set);
    return HALYARD_OK;
}

}  // namespace halyard::bench
