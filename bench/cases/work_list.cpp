// See work_list.h.
#include "work_list.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <set>

namespace halyard::bench {
namespace {

namespace fs = std::filesystem;

/** A word of a file, and where it stands. */
struct Word {
    std::string text;
    const std::string *file;
    int line, column;

    [[noreturn]] void wrong(const std::string &what) const {
        throw WorkListError(*file + ":" + std::to_string(line) + ":" + std::to_string(column) + ": " + what);
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
};

std::vector<Word> words_of(const std::string &line, const std::string &file, int number, char separator) {
    std::vector<Word> words;
    std::size_t place = 0;
    while (place < line.size()) {
        const auto is_space = [&](std::size_t i) { return line[i] == separator || line[i] == '\t' || line[i] == '\r'; };
        const std::size_t start = place;
        while (place < line.size() && !is_space(place)) {
            place++;
        }
        if (place > start) {
            words.push_back({line.substr(start, place - start), &file, number, static_cast<int>(start) + 1});
        }
        place++;
    }
    return words;
}

/** The values of "key=a,b" with their columns. */
std::vector<Word> values_of(const Word &word, std::size_t equals) {
    std::vector<Word> values;
    std::size_t start = equals + 1;
    while (true) {
        const std::size_t comma = std::min(word.text.find(',', start), word.text.size());
        Word value{word.text.substr(start, comma - start), word.file, word.line, word.column + static_cast<int>(start)};
        if (value.text.empty()) {
            value.wrong("a value is missing");
        }
        values.push_back(std::move(value));
        if (comma == word.text.size()) {
            return values;
        }
        start = comma + 1;
    }
}

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
        statement.values[key] = values_of(word, equals);
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

/** "64x4096" */
std::pair<std::int64_t, std::int64_t> pair_of(const Word &word, const char *meaning) {
    const std::size_t x = word.text.find('x');
    if (x == std::string::npos) {
        word.wrong("'" + word.text + "' is not of the form " + meaning);
    }
    const Word first{word.text.substr(0, x), word.file, word.line, word.column};
    const Word second{word.text.substr(x + 1), word.file, word.line, word.column + static_cast<int>(x) + 1};
    return {number_of(first), number_of(second)};
}

template<typename Value>
Value choice_of(const Word &word, const char *what, const std::map<std::string, Value> &choices) {
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

const std::map<std::string, bool> yes_or_no = {{"yes", true}, {"no", false}};

// ---- What a list can ask for ----

/** A model as a `model` line gives it. */
struct ModelShape {
    std::int64_t d, ff;
    HeadShape heads;
    halyard_norm norm;
    halyard_activation activation;
    bool gated, has_bias;
    std::int64_t rope_theta, layers, vocabulary;
};

const Kernel *find(const std::vector<Kernel> &kernels, const std::string &name) {
    const auto found =
        std::find_if(kernels.begin(), kernels.end(), [&](const Kernel &each) { return each.name == name; });
    return found != kernels.end() ? &*found : nullptr;
}

struct Part {
    const Kernel *kernel;  // null: the library has no such layer
    std::int64_t d, d_out;
};

/** The layers of a model: its projections without and with what follows them, its FFN, its FFN with norm and residual.
 */
Part part_of(const std::string &name, const ModelShape &model) {
    const std::string activation = model.activation == HALYARD_SILU ? "silu" : "gelu_tanh";
    const std::string unit = !model.gated ? activation : activation == "silu" ? "swiglu" : "geglu_tanh";
    const std::string norm = model.norm == HALYARD_NORM_LAYER ? "layer_norm" : "rms_norm";
    const auto layer = [](const std::string &kernel, std::int64_t d, std::int64_t d_out) {
        return Part{find(layer_catalogue(), kernel), d, d_out};
    };
    if (name == "up") {
        return layer("linear", model.d, model.ff);
    }
    if (name == "down") {
        return layer("linear", model.ff, model.d);
    }
    if (name == "projection") {
        return layer("linear", model.d, model.heads.query_width());
    }
    if (name == "up_fused") {
        return layer((model.has_bias ? "linear_bias_" : "linear_") + unit, model.d, model.ff);
    }
    if (name == "down_fused") {
        return layer(model.has_bias ? "linear_bias_residual" : "linear", model.ff, model.d);
    }
    if (name == "ffn") {
        return layer("ffn_" + unit, model.d, model.ff);
    }
    return layer(norm + "_ffn_" + unit + "_residual" + (name == "norm_ffn" ? "" : ".deferred"), model.d, model.ff);
}

const std::vector<std::string> part_names = {"up",         "down", "projection", "up_fused",
                                             "down_fused", "ffn",  "norm_ffn",   "norm_ffn_deferred"};

/** Reads lists into rows. */
class Reader {
public:
    Reader(std::string own_lists, int all_threads) : folder(std::move(own_lists)), threads(all_threads) {}

    void read(const fs::path &path) {
        std::ifstream file(path);
        if (!file) {
            throw WorkListError("cannot read '" + path.string() + "'");
        }
        files_open.push_back(fs::weakly_canonical(path));
        // Words keep a pointer to the name.
        names.push_back(std::make_unique<std::string>(path.string()));
        const std::string &name = *names.back();
        int number = 0;
        for (std::string line; std::getline(file, line);) {
            number++;
            const std::vector<Word> words = words_of(line.substr(0, line.find('#')), name, number, ' ');
            if (!words.empty()) {
                run(parse_statement(words), path);
            }
        }
        files_open.pop_back();
    }

    std::vector<CaseId> rows;

private:
    using Shapes = std::vector<std::pair<std::int64_t, std::int64_t>>;

    void run(const Statement &statement, const fs::path &path) {
        const std::map<std::string, std::function<void()>> statements = {
            {"include", [&] { include(statement, path); }},
            {"model", [&] { define_model(statement); }},
            {"rows", [&] { add_rows(statement); }},
            {"layers", [&] { add_layers(statement); }},
            {"attention", [&] { add_transformers(statement); }},
            {"block", [&] { add_transformers(statement); }},
            {"stack", [&] { add_transformers(statement); }},
        };
        choice_of(statement.word, "statement", statements)();
    }

    /** Refuses words without a value and keys that the statement does not have, and asks for those it cannot do
     * without. */
    static void check(const Statement &statement, std::size_t names, const std::vector<std::string> &required,
                      const std::vector<std::string> &optional = {}) {
        if (statement.names.size() > names) {
            const Word &extra = statement.names[names];
            extra.wrong("'" + extra.text + "' is not of the form key=value");
        }
        std::vector<std::string> known = required;
        known.insert(known.end(), optional.begin(), optional.end());
        for (const auto &[key, word] : statement.keys) {
            if (std::find(known.begin(), known.end(), key) == known.end()) {
                word.wrong("unknown key '" + key + "'; '" + statement.word.text + "' has: " + joined(known));
            }
        }
        for (const std::string &key : required) {
            if (statement.values.count(key) == 0) {
                statement.word.wrong("'" + statement.word.text + "' needs " + key + "=");
            }
        }
    }

    static const Word &single(const Statement &statement, const std::string &key) {
        const std::vector<Word> &words = statement.values.at(key);
        if (words.size() > 1) {
            words[1].wrong("'" + key + "' has one value here");
        }
        return words[0];
    }
    static std::int64_t number_or(const Statement &statement, const std::string &key, std::int64_t otherwise) {
        return statement.values.count(key) != 0 ? number_of(single(statement, key)) : otherwise;
    }

    void include(const Statement &statement, const fs::path &path) {
        check(statement, 1, {});
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
        check(statement, 1, {"d", "ff", "heads", "kv_heads", "head_dim", "norm", "activation", "gated", "bias"},
              {"rope_theta", "layers", "vocabulary"});
        if (statement.names.empty()) {
            statement.word.wrong("'model' needs a name");
        }
        const auto number = [&](const char *key) { return number_of(single(statement, key)); };
        ModelShape model{};
        model.d = number("d");
        model.ff = number("ff");
        model.heads = {number("heads"), number("kv_heads"), number("head_dim")};
        if (model.heads.heads % model.heads.kv_heads != 0) {
            single(statement, "kv_heads").wrong("'kv_heads' must divide 'heads'");
        }
        model.norm = choice_of<halyard_norm>(single(statement, "norm"), "norm",
                                             {{"rms", HALYARD_NORM_RMS}, {"layer", HALYARD_NORM_LAYER}});
        model.activation = choice_of<halyard_activation>(single(statement, "activation"), "activation",
                                                         {{"silu", HALYARD_SILU}, {"gelu_tanh", HALYARD_GELU_TANH}});
        model.gated = choice_of(single(statement, "gated"), "answer", yes_or_no);
        model.has_bias = choice_of(single(statement, "bias"), "answer", yes_or_no);
        model.rope_theta = number_or(statement, "rope_theta", 0);
        model.layers = number_or(statement, "layers", 1);
        model.vocabulary = number_or(statement, "vocabulary", 0);
        models[statement.names[0].text] = model;
    }

    // ---- Rows ----

    std::vector<Dtype> types(const Statement &statement) const {
        std::vector<Dtype> found;
        for (const Word &word : statement.values.at("type")) {
            found.push_back(
                choice_of<Dtype>(word, "type", {{"f32", Dtype::f32}, {"f16", Dtype::f16}, {"bf16", Dtype::bf16}}));
        }
        return found;
    }
    std::vector<bool> states(const Statement &statement) const {
        std::vector<bool> found;
        for (const Word &word : statement.values.at("state")) {
            found.push_back(choice_of<bool>(word, "state", {{"hot", false}, {"cold", true}}));
        }
        return found;
    }
    std::vector<int> thread_counts(const Statement &statement) const {
        std::vector<int> found;
        for (const Word &word : statement.values.at("threads")) {
            if (word.text != "all" && (word.text.size() > 3 || number_of(word) > 256)) {
                word.wrong("'" + word.text + "' is no number of threads: 1 to 256, or all");
            }
            found.push_back(word.text == "all" ? threads : static_cast<int>(number_of(word)));
        }
        return found;
    }
    std::vector<std::int64_t> numbers(const Statement &statement, const std::string &key) const {
        std::vector<std::int64_t> found;
        for (const Word &word : statement.values.at(key)) {
            found.push_back(number_of(word));
        }
        return found;
    }
    std::vector<std::pair<std::string, const ModelShape *>> chosen_models(const Statement &statement) const {
        std::vector<std::pair<std::string, const ModelShape *>> found;
        for (const Word &word : statement.values.at("model")) {
            const auto model = models.find(word.text);
            if (model == models.end()) {
                std::vector<std::string> known;
                for (const auto &each : models) {
                    known.push_back(each.first);
                }
                word.wrong("unknown model '" + word.text + "'; there are: " + joined(known));
            }
            found.emplace_back(model->first, &model->second);
        }
        return found;
    }

    void add(const CaseId &row) {
        if (present.insert(row.name()).second) {
            rows.push_back(row);
        }
    }

    /** Kernels of tensors of rows, by name or by group; a group leaves out what a type does not have. */
    void add_rows(const Statement &statement) {
        check(statement, 0, {"kernel", "type", "state", "threads"},
              {"shape", "rows", "d", "parallel_from", "cold_from"});
        Shapes shapes;
        if (statement.values.count("shape") != 0) {
            for (const Word &word : statement.values.at("shape")) {
                shapes.push_back(pair_of(word, "ROWSxD"));
            }
        } else if (statement.values.count("rows") == 0 || statement.values.count("d") == 0) {
            statement.word.wrong("'rows' needs shape=, or rows= and d=");
        } else {
            for (const std::int64_t count : numbers(statement, "rows")) {
                for (const std::int64_t d : numbers(statement, "d")) {
                    shapes.emplace_back(count, d);
                }
            }
        }
        const std::int64_t parallel_from = number_or(statement, "parallel_from", 0);
        const std::int64_t cold_from = number_or(statement, "cold_from", 0);
        for (const Word &word : statement.values.at("kernel")) {
            for (const Kernel *kernel : kernels_named(word)) {
                for (const Dtype dtype : types(statement)) {
                    if (kernel->cast_to == dtype) {
                        if (word.text == kernel->name) {
                            word.wrong("'" + word.text + "' has no rows of the type it casts to");
                        }
                        continue;
                    }
                    for (const auto &[count, d] : shapes) {
                        for (const bool cold : states(statement)) {
                            for (const int thread_count : thread_counts(statement)) {
                                const CaseId row{kernel, dtype, count, d, cold, thread_count};
                                if ((thread_count == 1 || count * d >= parallel_from) &&
                                    (!cold || row.bytes_moved() >= static_cast<std::size_t>(cold_from))) {
                                    add(row);
                                }
                            }
                        }
                    }
                }
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

    void add_layers(const Statement &statement) {
        check(statement, 0, {"model", "part", "rows", "type", "state", "threads"});
        for (const auto &[name, model] : chosen_models(statement)) {
            for (const Word &word : statement.values.at("part")) {
                const bool all = word.text == "all";
                if (!all && std::find(part_names.begin(), part_names.end(), word.text) == part_names.end()) {
                    word.wrong("unknown part '" + word.text + "'; there are: all, " + joined(part_names));
                }
                for (const std::string &part_name : all ? part_names : std::vector<std::string>{word.text}) {
                    const Part part = part_of(part_name, *model);
                    if (part.kernel == nullptr) {
                        if (!all) {
                            word.wrong("the library has no '" + part_name + "' of the form of '" + name + "'");
                        }
                        continue;
                    }
                    for (const Dtype dtype : types(statement)) {
                        for (const int thread_count : thread_counts(statement)) {
                            for (const bool cold : states(statement)) {
                                for (const std::int64_t count : numbers(statement, "rows")) {
                                    add({part.kernel, dtype, count, part.d, cold, thread_count, part.d_out});
                                }
                            }
                        }
                    }
                }
            }
        }
    }

    /** Attention, blocks and stacks of blocks with a vocabulary. */
    void add_transformers(const Statement &statement) {
        check(statement, 0, {"model", "type", "state", "threads"}, {"prompt", "decode"});
        Shapes shapes;  // tokens or sequences, cached positions
        if (statement.values.count("prompt") != 0) {
            for (const std::int64_t tokens : numbers(statement, "prompt")) {
                shapes.emplace_back(tokens, 0);
            }
        }
        if (statement.values.count("decode") != 0) {
            for (const Word &word : statement.values.at("decode")) {
                shapes.push_back(pair_of(word, "SEQUENCESxCACHED"));
            }
        }
        if (shapes.empty()) {
            statement.word.wrong("'" + statement.word.text + "' needs prompt= or decode=");
        }
        for (const Word &word : statement.values.at("model")) {
            const Kernel &kernel = transformer_kernel(statement, word);
            const std::int64_t d = kernel.attention ? kernel.attention->query_width() : kernel.block->d;
            for (const Dtype dtype : types(statement)) {
                for (const bool cold : states(statement)) {
                    for (const int thread_count : thread_counts(statement)) {
                        for (const auto &[count, cached] : shapes) {
                            add({&kernel, dtype, count, d, cold, thread_count, 0, cached});
                        }
                    }
                }
            }
        }
    }

    const Kernel &transformer_kernel(const Statement &statement, const Word &word) const {
        const ModelShape &model = *chosen_models({statement.word, {}, {{"model", {word}}}, {}}).front().second;
        if (statement.word.text == "attention") {
            return attention_kernel(model.heads);
        }
        const bool is_gpt2 = model.norm == HALYARD_NORM_LAYER && model.activation == HALYARD_GELU_TANH &&
                             !model.gated && model.has_bias && model.rope_theta == 0;
        const bool is_llama = model.norm == HALYARD_NORM_RMS && model.activation == HALYARD_SILU && model.gated &&
                              !model.has_bias && model.rope_theta != 0;
        if (!is_gpt2 && !is_llama) {
            word.wrong(
                "blocks are measured in the forms of GPT-2 (norm=layer activation=gelu_tanh gated=no bias=yes, no "
                "rope_theta) and of Llama (norm=rms activation=silu gated=yes bias=no rope_theta=)");
        }
        BlockForm form{is_gpt2 ? "gpt2" : "llama",
                       model.d,
                       model.ff,
                       model.heads,
                       model.norm,
                       model.activation,
                       model.gated,
                       model.has_bias,
                       static_cast<double>(model.rope_theta)};
        if (statement.word.text == "block") {
            return block_kernel(word.text, form);
        }
        if (model.vocabulary == 0) {
            word.wrong("'" + word.text + "' has no vocabulary=, which a whole model needs");
        }
        form.layers = model.layers;
        form.vocabulary = model.vocabulary;
        return block_kernel(word.text, form);
    }

    std::string folder;  // of the suite's own lists
    int threads;
    std::map<std::string, ModelShape> models;
    std::set<std::string> present;
    std::vector<fs::path> files_open;
    std::vector<std::unique_ptr<std::string>> names;
};

}  // namespace

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
        throw WorkListError("there is no work list '" + list + "'; there are: " + work_lists_in(folder));
    }
    Reader reader(folder, threads);
    reader.read(path);
    if (reader.rows.empty()) {
        throw WorkListError("'" + path.string() + "' names no rows");
    }
    return reader.rows;
}

}  // namespace halyard::bench
