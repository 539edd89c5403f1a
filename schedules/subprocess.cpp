// See subprocess.h.
#include "schedules/subprocess.h"

#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <exception>
#include <sstream>
#include <stdexcept>

extern char **environ;

namespace halyard::schedules {
namespace {

/** The line of a log that says why a program stopped: the last one that is neither empty nor a warning. */
std::string reason_in(int log) {
    constexpr std::size_t most_characters = 120;
    std::string text, reason;
    char buffer[4096];
    lseek(log, 0, SEEK_SET);
    for (ssize_t count = 0; (count = read(log, buffer, sizeof(buffer))) > 0;) {
        text.append(buffer, static_cast<std::size_t>(count));
    }
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
        if (!line.empty() && line.rfind("Warning", 0) != 0) {
            reason = line.substr(0, most_characters);
        }
    }
    return reason;
}

}  // namespace

Subprocess::Subprocess(const std::function<void()> &work, int most_seconds)
    : log(memfd_create("log", MFD_CLOEXEC)), limit(most_seconds) {
    std::fflush(nullptr);
    process = log < 0 ? -1 : fork();
    if (process != 0) {
        return;
    }
    signal(SIGALRM, SIG_DFL);
    alarm(static_cast<unsigned>(limit));
    if (dup2(log, STDOUT_FILENO) < 0 || dup2(log, STDERR_FILENO) < 0) {
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

Subprocess::~Subprocess() {
    wait();
}

std::string Subprocess::wait() {
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
        reason = reason_in(log);
        if (reason.empty()) {
            reason = WIFSIGNALED(status) ? std::string("it ended by a signal: ") + strsignal(WTERMSIG(status))
                                         : "it ended with status " + std::to_string(WEXITSTATUS(status));
        }
    }
    if (log >= 0) {
        close(log);
    }
    process = 0;
    return reason;
}

void run_program(const std::vector<std::string> &words) {
    std::vector<char *> arguments;
    for (const std::string &word : words) {
        arguments.push_back(const_cast<char *>(word.c_str()));
    }
    arguments.push_back(nullptr);
    pid_t process = 0;
    int status = 0;
    if (posix_spawnp(&process, arguments[0], nullptr, nullptr, arguments.data(), environ) != 0 ||
        waitpid(process, &status, 0) != process || status != 0) {
        throw std::runtime_error("'" + words.front() + "' failed");
    }
}

}  // namespace halyard::schedules
