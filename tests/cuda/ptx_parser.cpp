// From the text of a kernel to its program.
#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <cstring>
#include <map>
#include <sstream>

#include "ptx.h"
#include "ptx_program.h"

namespace halyard::tests::ptx {
namespace {

int bits_of(const std::string &type) {
    if (type == "pred") {
        return 1;
    }
    const int bits = std::atoi(type.c_str() + 1);
    if (bits != 8 && bits != 16 && bits != 32 && bits != 64) {
        stop("the type " + type);
    }
    return bits;
}

class Parser {
public:
    explicit Parser(Program &program) : program_(program) {}

    void parse(const std::string &entry) {
        std::istringstream lines(entry);
        std::string line;
        while (std::getline(lines, line)) {
            line = line.substr(0, line.find("//"));
            parameter(line);
            // One that needs a register of its own stands in braces.
            const std::size_t own = line.find("{ .reg");
            if (own != std::string::npos) {
                const std::size_t begin = line.find(';', own) + 1;
                line = line.substr(begin, line.rfind('}') - begin);
            }
            statement(line);
        }
        for (const auto &[instruction, label] : jumps_) {
            if (labels_.count(label) == 0) {
                stop("there is no label " + label);
            }
            program_.instructions[instruction].label = labels_[label];
        }
        program_.instructions.emplace_back();
        program_.registers = static_cast<int>(names_.size());
    }

private:
    void parameter(const std::string &line) {
        const std::string declaration = ".param .";
        const std::size_t at = line.find(declaration);
        if (at == std::string::npos) {
            return;
        }
        const std::size_t type = at + declaration.size();
        const std::size_t name = line.find_last_of(' ') + 1;
        parameters_[line.substr(name, line.find(',') - name)] = program_.parameter_bytes.size();
        program_.parameter_bytes.push_back(
            static_cast<std::size_t>(bits_of(line.substr(type, line.find(' ', type) - type)) / 8));
    }

    void statement(std::string line) {
        const auto trimmed = [](const std::string &text) {
            const std::size_t begin = text.find_first_not_of(" \t");
            return begin == std::string::npos ? "" : text.substr(begin, text.find_last_not_of(" \t;") + 1 - begin);
        };
        line = trimmed(line);
        if (!line.empty() && line.back() == ':') {
            labels_[line.substr(0, line.size() - 1)] = program_.instructions.size();
            return;
        }
        if (line.empty() || (line[0] != '@' && std::islower(static_cast<unsigned char>(line[0])) == 0)) {
            return;
        }
        Instruction instruction;
        instruction.text = line;
        if (line[0] == '@') {
            instruction.guard_negated = line[1] == '!';
            const std::size_t end = line.find_first_of(" \t");
            const std::size_t begin = instruction.guard_negated ? 2 : 1;
            instruction.guard = number_of(line.substr(begin, end - begin));
            line = trimmed(line.substr(end));
        }
        const std::size_t end = line.find_first_of(" \t");
        const std::string code = line.substr(0, end);
        std::vector<std::string> operands;
        if (end != std::string::npos) {
            std::string operand;
            int depth = 0;
            for (const char c : line.substr(end)) {
                depth += c == '{' || c == '[' ? 1 : c == '}' || c == ']' ? -1 : 0;
                if (c == ',' && depth == 0) {
                    operands.push_back(trimmed(operand));
                    operand.clear();
                } else {
                    operand += c;
                }
            }
            operands.push_back(trimmed(operand));
        }
        decode(instruction, code, operands);
        program_.instructions.push_back(std::move(instruction));
    }

    int number_of(const std::string &name) {
        return names_.emplace(name, static_cast<int>(names_.size())).first->second;
    }

    Operand operand(const std::string &text) {
        Operand made;
        if (text[0] == '%') {
            made.index = number_of(text);
        } else if (text == "tmp") {
            made.index = number_of("%tmp");
        } else if (text.compare(0, 2, "0f") == 0) {
            made.value = std::stoull(text.substr(2), nullptr, 16);
        } else if (text == "halyard_shared") {
            made.value = shared_base;
        } else if (text[0] == '-') {
            made.value = static_cast<Bits>(std::stoll(text, nullptr, 0));
        } else {
            made.value = std::stoull(text, nullptr, 0);
        }
        return made;
    }

    /** One, or those in braces. */
    std::vector<Operand> several(const std::string &text) {
        std::vector<Operand> made;
        if (text[0] != '{') {
            return {operand(text)};
        }
        std::istringstream parts(text.substr(1, text.size() - 2));
        for (std::string part; std::getline(parts, part, ',');) {
            made.push_back(operand(part.substr(part.find_first_not_of(' '))));
        }
        return made;
    }

    /** [register + offset] */
    void address(Instruction &instruction, const std::string &text) {
        const std::string inside = text.substr(1, text.size() - 2);
        const std::size_t plus = inside.find('+');
        instruction.sources.push_back(operand(inside.substr(0, plus)));
        instruction.offset = plus == std::string::npos ? 0 : std::stoll(inside.substr(plus + 1), nullptr, 0);
    }

    void decode(Instruction &i, const std::string &code, const std::vector<std::string> &operands) {
        const auto starts = [&](const char *text) { return code.compare(0, std::strlen(text), text) == 0; };
        const std::string type = code.substr(code.rfind('.') + 1);
        if (code == "ret") {
            i.kind = Kind::end;
        } else if (starts("bra")) {
            i.kind = Kind::branch;
            jumps_.emplace_back(program_.instructions.size(), operands[0]);
        } else if (code == "bar.sync") {
            i.kind = Kind::barrier;
        } else if (code == "shfl.sync.idx.b32") {
            i.kind = Kind::shuffle;
            if (operands.size() != 5 || operands[3] != "31" || operands[4] != "-1") {
                stop(i.text);
            }
            i.targets = {operand(operands[0])};
            i.sources = {operand(operands[1]), operand(operands[2])};
        } else if (starts("ld.param.")) {
            i.kind = Kind::load_parameter;
            i.bits = bits_of(type);
            i.targets = {operand(operands[0])};
            const auto found = parameters_.find(operands[1].substr(1, operands[1].size() - 2));
            if (found == parameters_.end()) {
                stop(i.text);
            }
            i.offset = static_cast<std::int64_t>(found->second);
        } else if (starts("ld.global.") || starts("ld.shared.")) {
            i.kind = Kind::load;
            i.shared = starts("ld.shared.");
            i.bits = bits_of(type);
            i.targets = several(operands[0]);
            address(i, operands[1]);
        } else if (starts("st.global.") || starts("st.shared.")) {
            i.kind = Kind::store;
            i.shared = starts("st.shared.");
            i.bits = bits_of(type);
            address(i, operands[0]);
            for (const Operand &stored : several(operands[1])) {
                i.sources.push_back(stored);
            }
        } else if (starts("mov.")) {
            i.kind = Kind::move;
            i.bits = bits_of(type);
            i.targets = several(operands[0]);
            static const char *const places[] = {"%tid.x", "%tid.y", "%tid.z", "%ctaid.x", "%ctaid.y", "%ctaid.z"};
            const auto *const found = std::find(std::begin(places), std::end(places), operands[1]);
            i.place = static_cast<Place>(found - std::begin(places));
            if (i.place == Place::none) {
                i.sources = several(operands[1]);
            }
        } else {
            i.kind = Kind::compute;
            i.function = function_of(code);
            if (i.function == nullptr) {
                stop("the instruction " + i.text);
            }
            i.targets = {operand(operands[0])};
            for (std::size_t k = 1; k < operands.size(); k++) {
                i.sources.push_back(operand(operands[k]));
            }
            i.sources.resize(3);
        }
    }

    Program &program_;
    std::map<std::string, int> names_;
    std::map<std::string, std::size_t> labels_, parameters_;
    std::vector<std::pair<std::size_t, std::string>> jumps_;
};

}  // namespace

std::shared_ptr<const Program> parse(const std::string &text, const std::string &kernel) {
    const std::string entry = ".visible .entry ";
    const std::size_t begin = text.find(entry + kernel + "(");
    if (begin == std::string::npos) {
        return nullptr;
    }
    const std::size_t end = text.find(entry, begin + 1);
    auto program = std::make_shared<Program>();
    const std::size_t head = text.find('\n', begin);
    Parser(*program).parse(text.substr(head, end == std::string::npos ? end : end - head));
    return program;
}

}  // namespace halyard::tests::ptx
