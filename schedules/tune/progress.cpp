// See progress.h.
#include "progress.h"

#include <cstdio>

#include "text.h"

namespace halyard::tune {

void Progress::show(const std::string &text) {
    if (is_terminal) {
        std::fprintf(stderr, "\r\x1b[K%s", text.c_str());
        std::fflush(stderr);
    }
}

void Progress::say(const std::string &text) {
    std::fprintf(stderr, "%s%s\n", is_terminal ? "\r\x1b[K" : "", text.c_str());
}

std::string summary_of(const Variant &variant, const Verdict &verdict) {
    std::string text = variant.name() + ": ";
    if (verdict.is_better) {
        text += text_of(verdict.best) + " is " + number("%.3f", verdict.gain.ratio) + "x as fast as " +
                text_of(verdict.usual);
    } else {
        text += text_of(verdict.usual) + " stays";
        if (verdict.runner_up != verdict.usual) {
            text += "; " + text_of(verdict.runner_up) + " is " + number("%.3f", verdict.gain.ratio) + "x";
        }
    }
    return text + " (noise " + number("%.1f %%", 100 * verdict.noise) + ", " + std::to_string(verdict.tried) +
           " tried)" + (verdict.is_remembered ? ", known" : "");
}

}  // namespace halyard::tune
