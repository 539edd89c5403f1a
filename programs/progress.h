// How far a program is, on stderr.
#ifndef HALYARD_PROGRAMS_PROGRESS_H
#define HALYARD_PROGRAMS_PROGRESS_H

#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>

/// One line that is written over on a terminal, or a line for every tenth.
class Progress {
public:
    explicit Progress(std::string doing) : doing_(std::move(doing)) {}

    void operator()(std::int64_t done, std::int64_t total, const std::string &what = "") {
        const auto percent = static_cast<long long>(total > 0 ? 100 * done / total : 100);
        if (isatty(STDERR_FILENO) != 0) {
            std::fprintf(stderr, "\r%s: %3lld %%  %-40s%s", doing_.c_str(), percent, what.c_str(),
                         done == total ? "\n" : "");
        } else if (percent / 10 > shown_) {
            shown_ = percent / 10;
            std::fprintf(stderr, "%s: %lld %%\n", doing_.c_str(), percent);
        }
    }

private:
    std::string doing_;
    long long shown_ = 0;
};

#endif
