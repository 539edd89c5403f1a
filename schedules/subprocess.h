// Work in a process of its own: what crashes there, never ends or keeps its memory does no harm here. Halide never
// gives back all the memory that a compilation took, which after a thousand candidates of the tuner makes every fork slow.
#ifndef HALYARD_SCHEDULES_SUBPROCESS_H
#define HALYARD_SCHEDULES_SUBPROCESS_H

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

namespace halyard::schedules {

class Subprocess {
public:
    /** Starts. It gets `most_seconds`, or with 0 as long as it takes. What it prints is kept in memory: a full disk must
     *  not hide the reason of a failure. */
    explicit Subprocess(const std::function<void()> &work, int most_seconds = 0);
    ~Subprocess();
    Subprocess(const Subprocess &) = delete;
    Subprocess &operator=(const Subprocess &) = delete;

    /** Waits for the end. Returns nothing, or why it was no good one: what was thrown, or the last line that was
     *  printed. */
    std::string wait();

private:
    int log, limit;
    pid_t process;
};

/** Runs a program with arguments, without a shell: they may hold any character. Throws std::runtime_error if it fails. */
void run_program(const std::vector<std::string> &words);

}  // namespace halyard::schedules

#endif
