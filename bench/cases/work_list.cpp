// See work_list.h.
#include "work_list.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <set>

#include "halyard/model.hpp"

namespace halyard::bench {
namespace {

namespace fs = std::filesystem;

/** A word of a file, and where it stands. */
struct Word {
    std::string text;
    std::shared_ptr<const std::string> file;
    int line, column;

    [[noreturn]] void wrong(const std::string &what) const {
        throw UsageError(*file + ":" + std::to_string(line) + ":" + std::to_string(column) + ": " + what);
    }
};

template<typename Strings>
std::string joined(const Strings &strings) {
    std::string text;
    for (const auto &each : strings) {
        text += (text.empty() ? "" : ", ") + std::string(each);
    }
    return text;
}

// ---- Lines ----

struct Statement {
    Word word;
    std::vector<Word> names;  // words without "="
    std::map<std::string, std::vector<Word>> values;
    std::map<std::string, Word> keys;

    bool has(const std::string &key) const { return values.count(key) != 0; }
    const Word &single(const std::string &key) const {
        const std::vector<Word> &words = values.at(key);
        if (words.size() > 1) {
            words[1].wrong("'" + key + "' has one value here");
        }
        return words[0];
    }
    /** What `convert` makes of each value of a key; nothing without it. */
    template<typename Convert>
    auto each(const std::string &key, const Convert &convert) const {
        std::vector<std::decay_t<decltype(convert(word))>> found;
        for (const Word &value : has(key) ? values.at(key) : std::vector<Word>()) {
            found.push_back(convert(value));
        }
        return found;
    }
    /** Refuses words without a value and keys that it does not have, and asks for those it cannot do without. */
    void check(std::size_t most_names, const std::vector<std::string> &required,
               const std::vector<std::string> &optional = {}) const {
        if (names.size() > most_names) {
            names[most_names].wrong("'" + names[most_names].text + "' is not of the form key=value");
        }
        std::vector<std::string> known = required;
        known.insert(known.end(), optional.begin(), optional.end());
        for (const auto &[key, given] : keys) {
            if (std::find(known.begin(), known.end(), key) == known.end()) {
                given.wrong("unknown key '" + key + "'; '" + word.text + "' has: " + joined(known));
            }
        }
        for (const std::string &key : required) {
            if (!has(key)) {
                word.wrong("'" + word.text + "' needs " + key + "=");
            }
        }
    }
};

/** The parts of a word between separators, with their columns. */
std::vector<Word> split(const Word &word, const std::string &separators, bool keep_empty) {
    std::vector<Word> parts;
    for (std::size_t start = 0; start <= word.text.size();) {
        const std::size_t end = std::min(word.text.find_first_of(separators, start), word.text.size());
        if (end > start || keep_empty) {
            parts.push_back(
                {word.text.substr(start, end - start), word.file, word.line, word.column + static_cast<int>(start)});
        }
        start = end + 1;
    }
    return parts;
}

/** The statement that a line's words make, of which there is one at least. */
Statement parse_statement(const std::vector<Word> &words) {
    Statement statement{words[0], {}, {}, {}};
    for (std::size_t i = 1; i < words.size(); i++) {
        const Word &word = words[i];
        const std::size_t equals = word.text.find('=');
        if (equals == std::string::npos) {
            statement.names.push_back(word);
            continue;
        }
        const std::string key = word.text.substr(0, equals);
        if (!statement.keys.emplace(key, word).second) {
            word.wrong("'" + key + "' is given twice");
        }
        const Word list{word.text.substr(equals + 1), word.file, word.line, word.column + static_cast<int>(equals) + 1};
        for (const Word &value : statement.values[key] = split(list, ",", true)) {
            if (value.text.empty()) {
                value.wrong("a value is missing");
            }
        }
    }
    return statement;
}

// ---- Values ----

std::int64_t number_of(const Word &word) {
    constexpr std::int64_t most = std::int64_t{1} << 40;
    std::int64_t number = 0;
    const char *end = word.text.data() + word.text.size();
    const auto [stop, error] = std::from_chars(word.text.data(), end, number);
    if (error != std::errc() || stop != end || number < 1 || number > most) {
        word.wrong("'" + word.text + "' is no whole number from 1 on");
    }
    return number;
}

std::int64_t number_or(const Statement &statement, const std::string &key, std::int64_t otherwise) {
    return statement.has(key) ? number_of(statement.single(key)) : otherwise;
}

/** "64x4096" */
std::pair<std::int64_t, std::int64_t> pair_of(const Word &word, const char *meaning) {
    const std::vector<Word> numbers = split(word, "x", true);
    if (numbers.size() != 2) {
        word.wrong("'" + word.text + "' is not of the form " + meaning);
    }
    return {number_of(numbers[0]), number_of(numbers[1])};
}

template<typename Value>
const Value &choice_of(const Word &word, const char *what, const std::map<std::string, Value> &choices) {
    const auto found = choices.find(word.text);
    if (found == choices.end()) {
        std::vector<std::string> names;
        for (const auto &each : choices) {
            names.push_back(each.first);
        }
        word.wrong("unknown " + std::string(what) + " '" + word.text + "'; there are: " + joined(names));
    }
    return found->second;
}

const std::map<std::string, bool> yes_or_no = {{"yes", true}, {"no", false}}, states = {{"hot", false}, {"cold", true}};
const std::map<std::string, Dtype> dtypes = {{"f32", Dtype::f32}, {"f16", Dtype::f16}, {"bf16", Dtype::bf16}};
const std::map<std::string, halyard_norm> norms = {{"rms", HALYARD_NORM_RMS}, {"layer", HALYARD_NORM_LAYER}};
const std::map<std::string, halyard_activation> activations = {{"silu", HALYARD_SILU},
                                                               {"gelu_tanh", HALYARD_GELU_TANH}};

const std::map<std::string, halyard_quantization> quantizations = {{"q8_0", {8, 32, 0, {}}}, {"q4_0", {4, 32, 0, {}}}};

const std::map<std::string, bool> rounding_of_x = {{"int8", true}, {"storage", false}};

// ---- What a list can ask for ----

struct Part {
    std::string name, kernel;
    std::int64_t d, d_out;
};

/** The layers of a model: its projections without and with what follows them, its FFN, its FFN with norm and residual, and gradients. */
std::vector<Part> parts_of(const BlockForm &model) {
    const std::string activation = model.activation == HALYARD_SILU ? "silu" : "gelu_tanh";
    const std::string unit = !model.gated ? activation : activation == "silu" ? "swiglu" : "geglu_tanh";
    const std::string linear = model.has_bias ? "linear_bias" : "linear";
    const std::string norm_ffn =
        (model.norm == HALYARD_NORM_LAYER ? "layer_norm_ffn_" : "rms_norm_ffn_") + unit + "_residual";
    return {{"up", "linear", model.d, model.d_ff},
            {"up_q8_0", "linear.q8_0", model.d, model.d_ff},
            {"up_q4_0", "linear.q4_0", model.d, model.d_ff},
            {"up_q4_k", "linear.q4_k", model.d, model.d_ff},
            {"up_q8_0_int8", "linear.q8_0.int8", model.d, model.d_ff},
            {"up_q4_0_int8", "linear.q4_0.int8", model.d, model.d_ff},
            {"up_q4_k_int8", "linear.q4_k.int8", model.d, model.d_ff},
            {"up_int4_128", "linear.int4_128", model.d, model.d_ff},
            {"up_uint4_128", "linear.uint4_128", model.d, model.d_ff},
            {"up_uint4_128_int8", "linear.uint4_128.int8", model.d, model.d_ff},
            {"up_backward", "linear_backward", model.d, model.d_ff},
            {"glu_backward", "linear_" + unit + "_backward", model.d, model.d_ff},
            {"down", "linear", model.d_ff, model.d},
            {"projection", "linear", model.d, model.heads.query_width()},
            {"up_fused", linear + "_" + unit, model.d, model.d_ff},
            {"down_fused", model.has_bias ? linear + "_residual" : linear, model.d_ff, model.d},
            {"ffn", "ffn_" + unit, model.d, model.d_ff},
            {"norm_ffn", norm_ffn, model.d, model.d_ff},
            {"norm_ffn_deferred", norm_ffn + ".deferred", model.d, model.d_ff},
            {"ffn_backward", norm_ffn + "_backward", model.d, model.d_ff}};
}

/** Reads lists into rows. */
class Reader {
public:
    Reader(std::string own_lists, int all_threads) : folder(std::move(own_lists)), threads(all_threads) {}

    void read(const fs::path &path) {
        std::ifstream file(path);
        if (!file) {
            throw UsageError("cannot read '" + path.string() + "'");
        }
        files_open.push_back(fs::weakly_canonical(path));
        const auto name = std::make_shared<const std::string>(path.string());
        int number = 1;
        for (std::string line; std::getline(file, line); number++) {
            const std::vector<Word> words = split({line.substr(0, line.find('#')), name, number, 1}, " \t\r", false);
            if (!words.empty()) {
                run(parse_statement(words), path);
            }
        }
        files_open.pop_back();
    }

    std::vector<CaseId> rows;

private:
    void run(const Statement &statement, const fs::path &path) {
        const std::map<std::string, std::function<void()>> statements = {
            {"include", [&] { include(statement, path); }},
            {"model", [&] { define_model(statement); }},
            {"rows", [&] { add_rows(statement); }},
            {"layers", [&] { add_layers(statement); }},
            {"optimizer", [&] { add_optimizers(statement); }},
            {"attention", [&] { add_transformers(statement); }},
            {"attention_backward", [&] { add_transformers(statement); }},
            {"block", [&] { add_transformers(statement); }},
            {"block_backward", [&] { add_transformers(statement); }},
            {"cross_entropy", [&] { add_training(statement, {}); }},
            {"embedding_backward", [&] { add_training(statement, {"vocabulary"}); }},
            {"stack", [&] { add_transformers(statement); }},
            {"training_step", [&] { add_training_steps(statement); }},
        };
        choice_of(statement.word, "statement", statements)();
    }

    void include(const Statement &statement, const fs::path &path) {
        statement.check(1, {});
        if (statement.names.empty()) {
            statement.word.wrong("'include' needs the name of a file");
        }
        const Word &name = statement.names[0];
        const fs::path beside = path.parent_path() / name.text;
        const fs::path file = fs::is_regular_file(beside) ? beside : fs::path(folder) / name.text;
        if (!fs::is_regular_file(file)) {
            name.wrong("there is no '" + name.text + "' beside this file or among the suite's lists; there are: " +
                       work_lists_in(path.parent_path().string()) + "; " + work_lists_in(folder));
        }
        if (std::find(files_open.begin(), files_open.end(), fs::weakly_canonical(file)) != files_open.end()) {
            name.wrong("'" + name.text + "' includes itself");
        }
        read(file);
    }

    void define_model(const Statement &statement) {
        statement.check(1, {"d", "ff", "heads", "kv_heads", "head_dim", "norm", "activation", "gated", "bias"},
                        {"rope_theta", "layers", "vocabulary", "quantization", "products"});
        if (statement.names.empty()) {
            statement.word.wrong("'model' needs a name");
        }
        const auto number = [&](const char *key) { return number_of(statement.single(key)); };
        const HeadShape heads = {number("heads"), number("kv_heads"), number("head_dim")};
        if (heads.heads % heads.kv_heads != 0) {
            statement.single("kv_heads").wrong("'kv_heads' must divide 'heads'");
        }
        const auto answer = [&](const char *key) { return choice_of(statement.single(key), "answer", yes_or_no); };
        BlockForm &form = models[statement.names[0].text];
        form = {nullptr,
                number("d"),
                number("ff"),
                heads,
                choice_of(statement.single("norm"), "norm", norms),
                choice_of(statement.single("activation"), "activation", activations),
                answer("gated"),
                answer("bias"),
                static_cast<double>(number_or(statement, "rope_theta", 0)),
                number_or(statement, "layers", 1),
                number_or(statement, "vocabulary", 0),
                statement.has("quantization")
                    ? choice_of(statement.single("quantization"), "quantization", quantizations)
                    : halyard_quantization{}};
        form.int8_products =
            statement.has("products") && choice_of(statement.single("products"), "products", rounding_of_x);
        if (form.int8_products && !form.is_quantized()) {
            statement.single("products").wrong("'products=int8' needs quantization=");
        }
    }

    // ---- Rows ----

    /** Every combination of a statement's types, states and threads with the shapes, which say nothing else; each row once. */
    template<typename Wanted>
    void add(const Statement &statement, const Kernel &kernel, const std::vector<CaseId> &shapes,
             const Wanted &wanted) {
        const auto count_of = [this](const Word &word) {
            if (word.text != "all" && (word.text.size() > 3 || number_of(word) > 256)) {
                word.wrong("'" + word.text + "' is no number of threads: 1 to 256, or all");
            }
            return word.text == "all" ? threads : static_cast<int>(number_of(word));
        };
        const auto colds = statement.each("state", [](const Word &word) { return choice_of(word, "state", states); });
        const auto counts = statement.each("threads", count_of);
        for (const Dtype dtype :
             statement.each("type", [](const Word &word) { return choice_of(word, "type", dtypes); })) {
            for (CaseId row : shapes) {
                for (const bool cold : colds) {
                    for (const int count : counts) {
                        row.kernel = &kernel;
                        row.dtype = dtype;
                        row.cold = cold;
                        row.threads = count;
                        if (wanted(row) && present.insert(row.name()).second) {
                            rows.push_back(row);
                        }
                    }
                }
            }
        }
    }

    static CaseId shape(std::int64_t rows, std::int64_t d, std::int64_t d_out = 0, std::int64_t cached = 0) {
        return {nullptr, Dtype::f32, rows, d, false, 0, d_out, cached};
    }

    /** Kernels of tensors of rows, by name or by group; a group leaves out what a type does not have. */
    void add_rows(const Statement &statement) {
        statement.check(0, {"kernel", "type", "state", "threads"},
                        {"shape", "rows", "d", "parallel_from", "cold_from"});
        std::vector<CaseId> shapes;
        if (!statement.has("shape") && !(statement.has("rows") && statement.has("d"))) {
            statement.word.wrong("'rows' needs shape=, or rows= and d=");
        }
        for (const auto &[count, d] :
             statement.each("shape", [](const Word &word) { return pair_of(word, "ROWSxD"); })) {
            shapes.push_back(shape(count, d));
        }
        for (const std::int64_t count : statement.each("rows", number_of)) {
            for (const std::int64_t d : statement.each("d", number_of)) {
                shapes.push_back(shape(count, d));
            }
        }
        const std::int64_t parallel_from = number_or(statement, "parallel_from", 0);
        const auto cold_from = static_cast<std::size_t>(number_or(statement, "cold_from", 0));
        for (const Word &word : statement.values.at("kernel")) {
            for (const Kernel *kernel : kernels_named(word)) {
                add(statement, *kernel, shapes, [&](const CaseId &row) {
                    if (kernel->cast_to == row.dtype && word.text == kernel->name) {
                        word.wrong("'" + word.text + "' has no rows of the type it casts to");
                    }
                    return kernel->cast_to != row.dtype && (row.threads == 1 || row.rows * row.d >= parallel_from) &&
                           (!row.cold || row.bytes_moved() >= cold_from);
                });
            }
        }
    }

    static std::vector<const Kernel *> kernels_named(const Word &word) {
        std::vector<const Kernel *> found;
        std::vector<std::string> known{"common", "all"};
        for (const Kernel &kernel : catalogue()) {
            known.push_back(kernel.name);
            if (word.text == kernel.name || word.text == "all" || (word.text == "common" && kernel.common)) {
                found.push_back(&kernel);
            }
        }
        if (found.empty()) {
            word.wrong("unknown kernel '" + word.text + "'; there are: " + joined(known));
        }
        return found;
    }

    static bool any(const CaseId &) { return true; }

    void add_layers(const Statement &statement) {
        statement.check(0, {"model", "part", "rows", "type", "state", "threads"});
        for (const Word &name : statement.values.at("model")) {
            const std::vector<Part> parts = parts_of(choice_of(name, "model", models));
            for (const Word &word : statement.values.at("part")) {
                std::vector<std::string> known{"all"};
                for (const Part &part : parts) {
                    known.push_back(part.name);
                    if (word.text == "all" || word.text == part.name) {
                        add_part(statement, part, word, name.text);
                    }
                }
                if (std::find(known.begin(), known.end(), word.text) == known.end()) {
                    word.wrong("unknown part '" + word.text + "'; there are: " + joined(known));
                }
            }
        }
    }

    void add_part(const Statement &statement, const Part &part, const Word &word, const std::string &model) {
        const std::vector<Kernel> &layers = layer_catalogue();
        const auto kernel =
            std::find_if(layers.begin(), layers.end(), [&](const Kernel &each) { return each.name == part.kernel; });
        if (kernel != layers.end() && part.d % kernel->layer->d_step() != 0) {
            if (word.text != "all") {
                word.wrong("'" + part.name + "' needs a multiple of " + std::to_string(kernel->layer->d_step()) +
                           " inputs, and '" + model + "' has d=" + std::to_string(part.d));
            }
        } else if (kernel != layers.end()) {
            const auto shapes =
                statement.each("rows", [&](const Word &count) { return shape(number_of(count), part.d, part.d_out); });
            add(statement, *kernel, shapes,
                [&](const CaseId &row) { return !kernel->is_gradient || row.dtype == Dtype::f32; });
        } else if (word.text != "all") {
            word.wrong("the library has no '" + part.name + "' of the form of '" + model + "'");
        }
    }

    /** Steps of optimizers, in f32 alone. */
    void add_optimizers(const Statement &statement) {
        statement.check(0, {"kernel", "shape", "type", "state", "threads"});
        std::map<std::string, const Kernel *> kernels;
        for (const Kernel &kernel : optimizer_catalogue()) {
            kernels[kernel.name] = &kernel;
        }
        std::vector<CaseId> shapes;
        for (const auto &[count, d] :
             statement.each("shape", [](const Word &word) { return pair_of(word, "ROWSxD"); })) {
            shapes.push_back(shape(count, d));
        }
        for (const Word &word : statement.values.at("kernel")) {
            add(statement, *choice_of(word, "optimizer", kernels), shapes,
                [](const CaseId &row) { return row.dtype == Dtype::f32; });
        }
    }

    /** Attention, blocks and stacks of blocks with a vocabulary. */
    void add_transformers(const Statement &statement) {
        statement.check(0, {"model", "type", "state", "threads"}, {"prompt", "decode"});
        if (!statement.has("prompt") && !statement.has("decode")) {
            statement.word.wrong("'" + statement.word.text + "' needs prompt= or decode=");
        }
        for (const Word &word : statement.values.at("model")) {
            const Kernel &kernel = transformer_kernel(statement.word.text, word);
            const std::int64_t d = kernel.attention ? kernel.attention->query_width() : kernel.block->d;
            std::vector<CaseId> shapes =
                statement.each("prompt", [&](const Word &tokens) { return shape(number_of(tokens), d); });
            for (const Word &decode : statement.has("decode") ? statement.values.at("decode") : std::vector<Word>()) {
                const auto [sequences, cached] = pair_of(decode, "SEQUENCESxCACHED");
                shapes.push_back(shape(sequences, d, 0, cached));
            }
            add(statement, kernel, shapes,
                [&](const CaseId &row) { return !kernel.is_gradient || (row.dtype == Dtype::f32 && !row.decodes()); });
        }
    }

    /** Losses, and gradients of embeddings, which have a vocabulary besides. */
    void add_training(const Statement &statement, const std::vector<std::string> &others) {
        std::vector<std::string> keys = {"shape", "type", "state", "threads"};
        keys.insert(keys.end(), others.begin(), others.end());
        statement.check(0, keys);
        const Kernel &kernel = others.empty() ? cross_entropy_kernel()
                                              : embedding_gradient_kernel(number_of(statement.single("vocabulary")));
        std::vector<CaseId> shapes;
        for (const auto &[count, d] :
             statement.each("shape", [](const Word &word) { return pair_of(word, "ROWSxD"); })) {
            shapes.push_back(shape(count, d));
        }
        add(statement, kernel, shapes, [](const CaseId &row) { return row.dtype == Dtype::f32; });
    }

    /** Steps of whole models, in f32 alone. */
    void add_training_steps(const Statement &statement) {
        statement.check(0, {"model", "batch", "type", "state", "threads"});
        for (const Word &word : statement.values.at("model")) {
            const Kernel &kernel = transformer_kernel(statement.word.text, word);
            const auto shapes = statement.each("batch", [&](const Word &batch) {
                const auto [sequences, tokens] = pair_of(batch, "SEQUENCESxTOKENS");
                CaseId step = shape(sequences * tokens, kernel.block->d);
                step.length = tokens;
                return step;
            });
            add(statement, kernel, shapes, [](const CaseId &row) { return row.dtype == Dtype::f32; });
        }
    }

    const Kernel &transformer_kernel(const std::string &statement, const Word &word) const {
        BlockForm form = choice_of(word, "model", models);
        if (statement == "attention") {
            return attention_kernel(form.heads);
        }
        if (statement == "attention_backward") {
            return attention_gradient_kernel(form.heads);
        }
        const bool is_gpt2 = form.norm == HALYARD_NORM_LAYER && form.activation == HALYARD_GELU_TANH && !form.gated &&
                             form.has_bias && form.rope_theta == 0;
        const bool is_llama = form.norm == HALYARD_NORM_RMS && form.activation == HALYARD_SILU && form.gated &&
                              !form.has_bias && form.rope_theta != 0;
        if (!is_gpt2 && !is_llama) {
            word.wrong(
                "blocks are measured in the forms of GPT-2 (norm=layer activation=gelu_tanh gated=no bias=yes, no "
                "rope_theta) and of Llama (norm=rms activation=silu gated=yes bias=no rope_theta=)");
        }
        form.preset = is_gpt2 ? "gpt2" : "llama";
        const bool is_step = statement == "training_step";
        if (statement != "stack" && !is_step) {
            form.layers = 1;
            form.vocabulary = 0;
        } else if (form.vocabulary == 0) {
            word.wrong("'" + word.text + "' has no vocabulary=, which a whole model needs");
        }
        if ((statement == "block_backward" || is_step) && form.quantization.bits != 0) {
            word.wrong("'" + word.text + "' has quantized matrices, which have no gradients");
        }
        return is_step                         ? training_step_kernel(word.text, form)
               : statement == "block_backward" ? block_gradient_kernel(word.text, form)
                                               : block_kernel(word.text, form);
    }

    std::string folder;  // of the suite's own lists
    int threads;
    std::map<std::string, BlockForm> models;
    std::set<std::string> present;
    std::vector<fs::path> files_open;
};

}  // namespace

std::vector<CaseId> rows_of_model_file(const std::string &path, int threads) {
    std::string magic(4, '\0');
    if (!std::ifstream(path, std::ios::binary).read(magic.data(), 4) || magic != "GGUF") {
        throw UsageError(path + " is no GGUF file; halyard-quantize makes one of a folder");
    }
    try {
        const Kernel &kernel = file_kernel(path, false);
        const std::int64_t positions = ModelConfig::load(path).max_position_embeddings;
        std::vector<CaseId> rows;
        const auto add = [&](const Kernel &model, Dtype dtype) {
            for (const auto &[tokens, cached] : {std::pair(128, 0), {512, 0}, {1, 128}}) {
                if (tokens + cached <= positions) {
                    rows.push_back({&model, dtype, tokens, kernel.block->d, true, threads, 0, cached});
                }
            }
        };
        add(kernel, Dtype::f32);
        add(kernel, Dtype::bf16);
        if (kernel.block->element_bytes < 2) {  // it has codes
            add(file_kernel(path, true), Dtype::f32);
        }
        if (rows.empty()) {
            throw UsageError(path + " has " + std::to_string(positions) + " positions; its rows take 128 or more");
        }
        return rows;
    } catch (const Error &error) {
        throw UsageError(error.what());
    }
}

std::string work_lists_in(const std::string &folder) {
    std::set<std::string> names;
    std::error_code ignored;
    for (const auto &entry : fs::directory_iterator(folder.empty() ? "." : folder, ignored)) {
        if (entry.path().extension() == ".txt") {
            names.insert(entry.path().stem().string());
        }
    }
    return joined(names);
}

std::vector<CaseId> read_work_list(const std::string &list, const std::string &folder, int threads) {
    const fs::path named = fs::path(folder) / (list + ".txt"),
                   path = fs::is_regular_file(named) ? named : fs::path(list);
    if (!fs::is_regular_file(path)) {
        throw UsageError("there is no work list '" + list + "'; there are: " + work_lists_in(folder));
    }
    Reader reader(folder, threads);
    reader.read(path);
    if (reader.rows.empty()) {
        throw UsageError("'" + path.string() + "' names no rows");
    }
    return reader.rows;
}

}  // namespace halyard::bench
