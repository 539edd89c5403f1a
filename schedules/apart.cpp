// See apart.h.
#include "schedules/apart.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <fstream>

namespace halyard::schedules {
namespace {

/** The line of a log that says why a program stopped: the last one that is neither empty nor a warning. */
std::string reason_in(const std::string &log) {
    constexpr std::size_t most_characters = 120;
    std::ifstream lines(log);
    std::string reason = "it stopped without a word";
    for (std::string line; std::getline(lines, line);) {
        if (!line.empty() && line.rfind("Warning", 0) != 0) {
            reason = line.substr(0, most_characters);
        }
    }
    return reason;
}

}  // namespace

Apart::Apart(const std::function<void()> &work, std::string log, int most_seconds)
    : log_file(std::move(log)), limit(most_seconds) {
    std::fflush(nullptr);
    process = fork();
    if (process != 0) {
        return;
    }
    signal(SIGALRM, SIG_DFL);
    alarm(static_cast<unsigned>(limit));
    const int file = open(log_file.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (file < 0 || dup2(file, STDOUT_FILENO) < 0 || dup2(file, STDERR_FILENO) < 0) {
        _exit(1);
    }
    int status = 1;
    try {
        work();
        status = 0;
    } catch (const std::exception &error) {
        std::fprintf(stderr, "%s\n", error.what());
    }
    std::fflush(nullptr);
    _exit(status);
}

Apart::~Apart() {
    wait();
}

std::string Apart::wait() {
    if (process == 0) {
        return {};
    }
    int status = 0;
    std::string reason;
    if (process < 0 || waitpid(process, &status, 0) != process) {
        reason = "no process could be started for it";
    } else if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM) {
        reason = "it did not come to an end within " + std::to_string(limit) + " s";
    } else if (status != 0) {
        reason = reason_in(log_file);
    }
    std::remove(log_file.c_str());
    process = 0;
    return reason;
}

}  // namespace halyard::schedules
