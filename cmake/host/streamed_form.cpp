// See streamed_form.h.
#include "streamed_form.h"

#include <cstdlib>
#include <regex>
#include <set>
#include <sstream>

namespace halyard::host {
namespace {

constexpr int line_bytes = 64;

// An address that is neither of the stack nor of a constant.
#define HALYARD_ADDRESS R"((-?[0-9]*)(\(%r(?!sp|ip)[^)]*\)))"

/** A store: 1 is the v of AVX, 2 the vector, 3 and 4 the address. One under a mask has that behind it. */
const std::regex store(R"(\t(v?)mov(?:[au]p[sd]|dq[au](?:8|16|32|64)?)\t%([xyz]mm[0-9]+), )" HALYARD_ADDRESS
                       R"(\s*(?:#.*)?)");

/** Another instruction that stores a vector or a part of it. */
const std::regex other_store(R"(\t(?!prefetch)[a-z0-9]+\t.*%[xyz]mm[0-9]+, )" HALYARD_ADDRESS R"(\s*(?:#.*)?)");

/** Where a loop begins or ends. */
const std::regex block_end(R"(\.L.*:.*|\tj[a-z]+\t.*)");

/** An instruction on vectors that reads memory: 1 and 2 are the address. */
const std::regex load(R"(\t[a-z0-9]+\t)" HALYARD_ADDRESS R"(, .*%[xyz]mm[0-9]+.*)");

/** With labels of its own, but for those of constants. */
std::string renamed(const std::string &line, const std::string &symbol) {
    static const std::regex label(R"(\.L(?!CPI))");
    std::string text = std::regex_replace(line, label, ".Lstreamed_");
    const std::string name = symbol + "_streamed";
    for (std::size_t at = text.find(symbol); at != std::string::npos; at = text.find(symbol, at + name.size())) {
        text.replace(at, symbol.size(), name);
    }
    return text;
}

}  // namespace

std::string streamed_form(const std::string &assembly, const std::string &symbol, int prefetch_bytes) {
    std::istringstream lines(assembly);
    std::string text, line;
    std::smatch match;
    std::set<char> widths;
    bool constant = false;                                // one of the kernel's, which the streamed form reads too
    bool streams = false, others = false, mixed = false;  // the stores of a block, and whether one has both kinds
    while (std::getline(lines, line)) {
        if (line[0] == '.' || line.rfind("\t.section", 0) == 0 || line.rfind("\t.text", 0) == 0) {
            constant = line.rfind(".LCPI", 0) == 0;
        }
        if (constant) {
            continue;
        }
        if (std::regex_match(line, match, store)) {
            text += "\t" + match.str(1) + "movntps\t%" + match.str(2) + ", " + match.str(3) + match.str(4) + "\n";
            widths.insert(match.str(2)[0]);
            streams = true;
            continue;
        }
        if (std::regex_match(line, block_end)) {
            mixed |= streams && others;
            streams = others = false;
        } else if (std::regex_match(line, match, other_store)) {
            others = true;
        } else if (prefetch_bytes > 0 && std::regex_match(line, match, load)) {
            const int offset = std::atoi(match.str(1).c_str());
            if (offset % line_bytes == 0) {
                text += "\tprefetcht0\t" + std::to_string(offset + prefetch_bytes) + match.str(2) + "\n";
            }
        }
        text += renamed(line, symbol) + "\n";
    }
    // Stores of several widths, one after the other, are not all aligned.
    if (widths.size() != 1 || mixed) {
        const std::string entry = symbol + "_streamed_argv";
        return "\t.globl\t" + entry + "\n\t.set\t" + entry + ", " + symbol + "_argv\n";
    }
    return text;
}

}  // namespace halyard::host
