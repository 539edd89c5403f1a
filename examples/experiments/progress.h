// How far a long experiment is, and whether it is to end: Ctrl-C ends it with what it has.
#ifndef HALYARD_EXPERIMENTS_PROGRESS_H
#define HALYARD_EXPERIMENTS_PROGRESS_H

#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <mutex>
#include <string>

namespace experiments {

class Progress {
public:
    /** Takes all the work there is, in any unit. */
    explicit Progress(double work) : total(work) {
        std::signal(SIGINT, [](int) { interrupted() = 1; });
    }
    ~Progress() {
        say("");
        std::signal(SIGINT, SIG_DFL);
    }
    Progress(const Progress &) = delete;
    Progress &operator=(const Progress &) = delete;

    /** Says what is done and how long the rest takes: in a terminal in one line, else now and then. */
    void done(double work, const std::string &what) {
        const std::lock_guard<std::mutex> lock(mutex);
        so_far += work;
        const double now = seconds_since(begin), left = so_far > 0 ? now * (total - so_far) / so_far : 0;
        if (seconds_since(last) >= (to_terminal ? 0.5 : 20) && so_far < total) {
            char text[160];
            std::snprintf(text, sizeof(text), "%s: %.0f %%, %d:%02d left", what.c_str(), 100 * so_far / total,
                          static_cast<int>(left) / 60, static_cast<int>(left) % 60);
            say(text);
            last = Clock::now();
        }
    }

    static bool is_interrupted() { return interrupted() != 0; }

private:
    using Clock = std::chrono::steady_clock;

    static volatile std::sig_atomic_t &interrupted() {
        static volatile std::sig_atomic_t flag = 0;
        return flag;
    }
    static double seconds_since(Clock::time_point then) {
        return std::chrono::duration<double>(Clock::now() - then).count();
    }
    void say(const std::string &text) const {
        if (to_terminal) {
            std::fprintf(stderr, "\r\033[K%s", text.c_str());
        } else if (!text.empty()) {
            std::fprintf(stderr, "%s\n", text.c_str());
        }
    }

    const bool to_terminal = isatty(STDERR_FILENO) != 0;
    const double total;
    std::mutex mutex;  // of several threads that say what they have done
    double so_far = 0;
    const Clock::time_point begin = Clock::now();
    Clock::time_point last = begin;
};

}  // namespace experiments

#endif
