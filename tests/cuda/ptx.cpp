#include "ptx.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <sstream>
#include <vector>

#include <cuda_fp16.h>

namespace halyard::tests::ptx {
namespace {

// A register: 1 (a predicate), 16, 32 or 64 bits, the others zero.
using Bits = std::uint64_t;
using Function = Bits (*)(Bits, Bits, Bits);

// Where shared memory begins for the kernel; not 0, as on the real machine.
constexpr Bits shared_base = 1024;
constexpr unsigned warp_size = 32;

[[noreturn]] void stop(const std::string &message) {
    std::fprintf(stderr, "PTX: %s\n", message.c_str());
    std::abort();
}

// ---- what instructions compute ----

template<typename To, typename From>
To as(From from) {
    static_assert(sizeof(To) == sizeof(From), "the same bits");
    To to;
    std::memcpy(&to, &from, sizeof to);
    return to;
}

std::uint32_t low(Bits a) {
    return static_cast<std::uint32_t>(a);
}
std::int32_t integer(Bits a) {
    return as<std::int32_t>(low(a));
}
float real(Bits a) {
    return as<float>(low(a));
}
Bits word(std::int64_t a) {
    return static_cast<std::uint32_t>(a);
}
/** What arithmetic makes: its NaN is one and the same. */
Bits result(float a) {
    return std::isnan(a) ? 0x7fffffffu : as<std::uint32_t>(a);
}
float half(Bits a) {
    return __half2float(__half(__half_raw{static_cast<unsigned short>(a)}));
}
Bits half_result(float a) {
    return std::isnan(a) ? 0x7fffu : static_cast<__half_raw>(__float2half_rn(a)).x;
}
Bits permuted(Bits a, Bits b, Bits selector) {
    const Bits bytes = low(a) | static_cast<Bits>(low(b)) << 32;
    Bits made = 0;
    for (int i = 0; i < 4; i++) {
        const Bits choice = selector >> (4 * i) & 15;
        if (choice > 7) {
            stop("prmt of a sign");
        }
        made |= (bytes >> (8 * choice) & 255) << (8 * i);
    }
    return made;
}

const std::map<std::string, Function> functions = {
    {"fma.rn.f32", [](Bits a, Bits b, Bits c) { return result(std::fma(real(a), real(b), real(c))); }},
    {"add.f32", [](Bits a, Bits b, Bits) { return result(real(a) + real(b)); }},
    {"sub.f32", [](Bits a, Bits b, Bits) { return result(real(a) - real(b)); }},
    {"mul.f32", [](Bits a, Bits b, Bits) { return result(real(a) * real(b)); }},
    {"mul.rn.f32", [](Bits a, Bits b, Bits) { return result(real(a) * real(b)); }},
    {"div.rn.f32", [](Bits a, Bits b, Bits) { return result(real(a) / real(b)); }},
    {"rcp.rn.f32", [](Bits a, Bits, Bits) { return result(1.0f / real(a)); }},
    {"sqrt.rn.f32", [](Bits a, Bits, Bits) { return result(std::sqrt(real(a))); }},
    {"neg.f32", [](Bits a, Bits, Bits) { return a ^ 0x80000000u; }},
    {"abs.f32", [](Bits a, Bits, Bits) { return a & 0x7fffffffu; }},
    // A number rather than NaN, and +0 above -0.
    {"max.f32",
     [](Bits a, Bits b, Bits) {
         return std::isnan(real(a))   ? result(real(b))
                : std::isnan(real(b)) ? a
                : real(a) == real(b)  ? a & b
                : real(a) > real(b)   ? a
                                      : b;
     }},
    {"add.f16", [](Bits a, Bits b, Bits) { return half_result(half(a) + half(b)); }},
    {"abs.f16", [](Bits a, Bits, Bits) { return a & 0x7fffu; }},
    {"cvt.f32.f16", [](Bits a, Bits, Bits) { return result(half(a)); }},
    {"cvt.rn.f16.f32", [](Bits a, Bits, Bits) { return half_result(real(a)); }},
    {"cvt.rn.f16x2.f32", [](Bits a, Bits b, Bits) { return half_result(real(a)) << 16 | half_result(real(b)); }},

    {"setp.eq.f32", [](Bits a, Bits b, Bits) { return Bits{real(a) == real(b)}; }},
    {"setp.ne.f32", [](Bits a, Bits b, Bits) { return Bits{real(a) < real(b) || real(a) > real(b)}; }},
    {"setp.neu.f32", [](Bits a, Bits b, Bits) { return Bits{real(a) != real(b)}; }},
    {"setp.lt.f32", [](Bits a, Bits b, Bits) { return Bits{real(a) < real(b)}; }},
    {"setp.le.f32", [](Bits a, Bits b, Bits) { return Bits{real(a) <= real(b)}; }},
    {"setp.gt.f32", [](Bits a, Bits b, Bits) { return Bits{real(a) > real(b)}; }},
    {"setp.ge.f32", [](Bits a, Bits b, Bits) { return Bits{real(a) >= real(b)}; }},
    {"setp.num.f32", [](Bits a, Bits b, Bits) { return Bits{!std::isnan(real(a)) && !std::isnan(real(b))}; }},
    {"setp.nan.f32", [](Bits a, Bits b, Bits) { return Bits{std::isnan(real(a)) || std::isnan(real(b))}; }},
    {"setp.lt.f16", [](Bits a, Bits b, Bits) { return Bits{half(a) < half(b)}; }},
    {"setp.gt.f16", [](Bits a, Bits b, Bits) { return Bits{half(a) > half(b)}; }},
    {"setp.ge.f16", [](Bits a, Bits b, Bits) { return Bits{half(a) >= half(b)}; }},
    {"setp.nan.f16", [](Bits a, Bits b, Bits) { return Bits{std::isnan(half(a)) || std::isnan(half(b))}; }},

    {"add.s32", [](Bits a, Bits b, Bits) { return word(a + b); }},
    {"sub.s32", [](Bits a, Bits b, Bits) { return word(a - b); }},
    {"mul.lo.s32", [](Bits a, Bits b, Bits) { return word(a * b); }},
    {"mad.lo.s32", [](Bits a, Bits b, Bits c) { return word(a * b + c); }},
    {"div.s32", [](Bits a, Bits b, Bits) { return word(std::int64_t{integer(a)} / integer(b)); }},
    {"rem.s32", [](Bits a, Bits b, Bits) { return word(std::int64_t{integer(a)} % integer(b)); }},
    {"neg.s32", [](Bits a, Bits, Bits) { return word(-a); }},
    {"min.s32", [](Bits a, Bits b, Bits) { return word(std::min(integer(a), integer(b))); }},
    {"max.s32", [](Bits a, Bits b, Bits) { return word(std::max(integer(a), integer(b))); }},
    {"min.u32", [](Bits a, Bits b, Bits) { return Bits{std::min(low(a), low(b))}; }},
    {"max.u32", [](Bits a, Bits b, Bits) { return Bits{std::max(low(a), low(b))}; }},
    {"shl.b32", [](Bits a, Bits b, Bits) { return b > 31 ? 0 : word(a << b); }},
    {"shr.u32", [](Bits a, Bits b, Bits) { return b > 31 ? 0 : Bits{low(a) >> b}; }},
    {"shr.s32", [](Bits a, Bits b, Bits) { return word(integer(a) >> std::min<Bits>(b, 31)); }},
    {"bfe.u32", [](Bits a, Bits b, Bits c) { return low(a) >> b & ((Bits{1} << c) - 1); }},
    {"prmt.b32", permuted},
    {"not.b32", [](Bits a, Bits, Bits) { return word(~a); }},
    {"add.s64", [](Bits a, Bits b, Bits) { return a + b; }},
    {"shl.b64", [](Bits a, Bits b, Bits) { return b > 63 ? 0 : a << b; }},
    {"shr.u64", [](Bits a, Bits b, Bits) { return b > 63 ? 0 : a >> b; }},
    {"mul.wide.s32",
     [](Bits a, Bits b, Bits) { return static_cast<Bits>(std::int64_t{integer(a)} * std::int64_t{integer(b)}); }},
    {"mul.wide.u32", [](Bits a, Bits b, Bits) { return Bits{low(a)} * low(b); }},

    {"setp.lt.s16",
     [](Bits a, Bits b, Bits) { return Bits{static_cast<std::int16_t>(a) < static_cast<std::int16_t>(b)}; }},
    {"setp.lt.s32", [](Bits a, Bits b, Bits) { return Bits{integer(a) < integer(b)}; }},
    {"setp.le.s32", [](Bits a, Bits b, Bits) { return Bits{integer(a) <= integer(b)}; }},
    {"setp.gt.s32", [](Bits a, Bits b, Bits) { return Bits{integer(a) > integer(b)}; }},
    {"setp.ge.s32", [](Bits a, Bits b, Bits) { return Bits{integer(a) >= integer(b)}; }},
    {"setp.lt.u32", [](Bits a, Bits b, Bits) { return Bits{low(a) < low(b)}; }},
    {"setp.gt.u32", [](Bits a, Bits b, Bits) { return Bits{low(a) > low(b)}; }},
    {"setp.ge.u32", [](Bits a, Bits b, Bits) { return Bits{low(a) >= low(b)}; }},
    {"setp.eq.b32", [](Bits a, Bits b, Bits) { return Bits{low(a) == low(b)}; }},
    {"setp.ne.b32", [](Bits a, Bits b, Bits) { return Bits{low(a) != low(b)}; }},
    {"setp.ne.b16", [](Bits a, Bits b, Bits) { return Bits{(a & 0xffffu) != (b & 0xffffu)}; }},
    {"not.pred", [](Bits a, Bits, Bits) { return a ^ 1; }},

    {"cvt.u64.u32", [](Bits a, Bits, Bits) { return Bits{low(a)}; }},
    {"cvt.u32.u64", [](Bits a, Bits, Bits) { return Bits{low(a)}; }},
    {"cvt.u32.u16", [](Bits a, Bits, Bits) { return a & 0xffffu; }},
    {"cvt.u16.u32", [](Bits a, Bits, Bits) { return a & 0xffffu; }},
    {"cvt.u16.u64", [](Bits a, Bits, Bits) { return a & 0xffffu; }},
    {"cvta.to.global.u64", [](Bits a, Bits, Bits) { return a; }},
};

// The same for every type.
const std::map<std::string, Function> untyped = {
    {"and", [](Bits a, Bits b, Bits) { return a & b; }},
    {"or", [](Bits a, Bits b, Bits) { return a | b; }},
    {"xor", [](Bits a, Bits b, Bits) { return a ^ b; }},
    {"selp", [](Bits a, Bits b, Bits c) { return c != 0 ? a : b; }},
};

// ---- programs ----

enum class Kind { compute, move, load_parameter, load, store, branch, barrier, shuffle, end };
enum class Place { threads_x, threads_y, threads_z, block_x, block_y, block_z, none };

struct Operand {
    int index = -1;  // of a register
    Bits value = 0;  // if it is none
};

struct Instruction {
    Kind kind = Kind::end;
    std::string text;
    int guard = -1;  // a predicate
    bool guard_negated = false;
    Function function = nullptr;
    std::vector<Operand> targets, sources;
    int bits = 0;  // of each target or source in memory, or of the whole that a move takes apart or puts together
    bool shared = false;
    std::int64_t offset = 0;  // of an address; of a parameter: its number
    std::size_t label = 0;
    Place place = Place::none;
};

}  // namespace

struct Program {
    std::vector<Instruction> instructions;
    std::vector<std::size_t> parameter_bytes;
    int registers = 0;
};

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
            const auto found = functions.find(code), any_type = untyped.find(code.substr(0, code.find('.')));
            if (found == functions.end() && any_type == untyped.end()) {
                stop("the instruction " + i.text);
            }
            i.function = found != functions.end() ? found->second : any_type->second;
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

// ---- execution ----

/** One block of threads. Those whose instruction comes first go on together, so that all that parted meet again where
 * the branches of a program do. */
class Block {
public:
    Block(const Program &program, const unsigned (&block)[3], std::size_t shared_bytes, void *const *parameters)
        : program_(program), block_(block), threads_(block[0] * block[1] * block[2]), parameters_(parameters),
          registers_(static_cast<std::size_t>(program.registers) * threads_), shared_(shared_bytes), at_(threads_),
          waits_(threads_) {}

    void run(const unsigned (&place)[3]) {
        place_ = place;
        // What is read before it was written is NaN.
        std::fill(shared_.begin(), shared_.end(), 0xff);
        std::fill(at_.begin(), at_.end(), 0);
        std::fill(waits_.begin(), waits_.end(), false);
        const std::size_t last = program_.instructions.size() - 1;
        while (true) {
            std::size_t next = last;
            bool waiting = false;
            for (unsigned t = 0; t < threads_; t++) {
                if (waits_[t]) {
                    waiting = true;
                } else {
                    next = std::min(next, at_[t]);
                }
            }
            if (next == last) {
                if (!waiting) {
                    return;
                }
                std::fill(waits_.begin(), waits_.end(), false);
                continue;
            }
            const Instruction &instruction = program_.instructions[next];
            active_.clear();
            for (unsigned t = 0; t < threads_; t++) {
                if (!waits_[t] && at_[t] == next) {
                    at_[t]++;
                    if (instruction.guard < 0 || (get(instruction.guard, t) != 0) != instruction.guard_negated) {
                        active_.push_back(t);
                    }
                }
            }
            execute(instruction, last);
        }
    }

private:
    Bits &get(int index, unsigned thread) { return registers_[static_cast<std::size_t>(index) * threads_ + thread]; }
    Bits value(const Operand &operand, unsigned thread) {
        return operand.index < 0 ? operand.value : get(operand.index, thread);
    }

    void execute(const Instruction &i, std::size_t last) {
        switch (i.kind) {
        case Kind::compute: {
            const Operand *const s = i.sources.data();
            for (const unsigned t : active_) {
                get(i.targets[0].index, t) = i.function(value(s[0], t), value(s[1], t), value(s[2], t));
            }
            break;
        }
        case Kind::move:
            for (const unsigned t : active_) {
                move(i, t);
            }
            break;
        case Kind::load_parameter: {
            Bits loaded = 0;
            std::memcpy(&loaded, parameters_[i.offset], static_cast<std::size_t>(i.bits / 8));
            for (const unsigned t : active_) {
                get(i.targets[0].index, t) = loaded;
            }
            break;
        }
        case Kind::load:
            for (const unsigned t : active_) {
                const char *from = memory(i, t, i.targets.size());
                for (const Operand &target : i.targets) {
                    Bits loaded = 0;
                    std::memcpy(&loaded, from, static_cast<std::size_t>(i.bits / 8));
                    get(target.index, t) = loaded;
                    from += i.bits / 8;
                }
            }
            break;
        case Kind::store:
            for (const unsigned t : active_) {
                char *to = memory(i, t, i.sources.size() - 1);
                for (std::size_t k = 1; k < i.sources.size(); k++) {
                    const Bits stored = value(i.sources[k], t);
                    std::memcpy(to, &stored, static_cast<std::size_t>(i.bits / 8));
                    to += i.bits / 8;
                }
            }
            break;
        case Kind::branch:
            for (const unsigned t : active_) {
                at_[t] = i.label;
            }
            break;
        case Kind::barrier:
            for (const unsigned t : active_) {
                waits_[t] = true;
            }
            break;
        case Kind::shuffle:
            shuffle(i);
            break;
        case Kind::end:
            for (const unsigned t : active_) {
                at_[t] = last;
            }
            break;
        }
    }

    void move(const Instruction &i, unsigned t) {
        const unsigned places[] = {
            t % block_[0], t / block_[0] % block_[1], t / block_[0] / block_[1], place_[0], place_[1], place_[2]};
        Bits whole = 0;
        if (i.place != Place::none) {
            whole = places[static_cast<int>(i.place)];
        } else {
            const int part = i.bits / static_cast<int>(i.sources.size());
            for (std::size_t k = i.sources.size(); k-- > 0;) {
                whole = (part < 64 ? whole << part : 0) | (value(i.sources[k], t) & mask(part));
            }
        }
        const int part = i.bits / static_cast<int>(i.targets.size());
        for (const Operand &target : i.targets) {
            get(target.index, t) = whole & mask(part);
            whole = part < 64 ? whole >> part : 0;
        }
    }

    static Bits mask(int bits) { return bits == 64 ? ~Bits{0} : (Bits{1} << bits) - 1; }

    char *memory(const Instruction &i, unsigned t, std::size_t parts) {
        const Bits address = value(i.sources[0], t) + static_cast<Bits>(i.offset);
        const std::size_t bytes = parts * static_cast<std::size_t>(i.bits / 8);
        if (address % bytes != 0) {
            stop("an address that is no multiple of " + std::to_string(bytes) + ": " + i.text);
        }
        if (!i.shared) {
            return reinterpret_cast<char *>(address);
        }
        if (address < shared_base || address - shared_base + bytes > shared_.size()) {
            stop("an address beyond shared memory: " + i.text);
        }
        return shared_.data() + (address - shared_base);
    }

    void shuffle(const Instruction &i) {
        shuffled_.clear();
        for (const unsigned t : active_) {
            const unsigned other = t / warp_size * warp_size + low(value(i.sources[1], t)) % warp_size;
            if (!std::binary_search(active_.begin(), active_.end(), other)) {
                stop("a shuffle with a thread that does not take part: " + i.text);
            }
            shuffled_.push_back(value(i.sources[0], other));
        }
        for (std::size_t k = 0; k < active_.size(); k++) {
            get(i.targets[0].index, active_[k]) = shuffled_[k];
        }
    }

    const Program &program_;
    const unsigned (&block_)[3];
    const unsigned threads_;
    void *const *const parameters_;
    const unsigned *place_ = nullptr;
    std::vector<Bits> registers_;  // [register][thread]
    std::vector<char> shared_;
    std::vector<std::size_t> at_;  // the next instruction of a thread
    std::vector<char> waits_;      // at a barrier
    std::vector<unsigned> active_;
    std::vector<Bits> shuffled_;
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

void run(const Program &program, const unsigned (&grid)[3], const unsigned (&block)[3], std::size_t shared_bytes,
         void *const *parameters) {
    Block threads(program, block, shared_bytes, parameters);
    for (unsigned z = 0; z < grid[2]; z++) {
        for (unsigned y = 0; y < grid[1]; y++) {
            for (unsigned x = 0; x < grid[0]; x++) {
                threads.run({x, y, z});
            }
        }
    }
}

}  // namespace halyard::tests::ptx
