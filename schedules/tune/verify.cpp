// See verify.h.
#include "verify.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <stdexcept>

namespace halyard::tune {

std::string verify(const std::vector<Check> &checks, const std::function<void()> &install,
                   const std::vector<std::string> &right, std::vector<std::string> &hashes, int most_seconds) {
    int channel[2];
    if (pipe(channel) != 0) {
        throw std::runtime_error("no pipe can be made");
    }
    std::fflush(nullptr);
    const pid_t process = fork();
    if (process < 0) {
        throw std::runtime_error("no process can be started");
    }
    if (process == 0) {
        signal(SIGALRM, SIG_DFL);
        signal(SIGINT, SIG_IGN);  // the tuner's business
        alarm(static_cast<unsigned>(most_seconds));
        install();
        for (const Check &check : checks) {
            const Result result = check.call();
            if (write(channel[1], &result, sizeof(result)) != static_cast<ssize_t>(sizeof(result))) {
                _exit(1);
            }
        }
        _exit(0);
    }
    close(channel[1]);
    hashes.clear();
    std::string wrong;
    Result result{};
    while (read(channel[0], &result, sizeof(result)) == static_cast<ssize_t>(sizeof(result))) {
        const std::size_t i = hashes.size();
        hashes.emplace_back(result.hash);
        if (wrong.empty() && !(result.error <= result.tolerance)) {
            wrong = "is wrong at " + checks[i].name;
        } else if (wrong.empty() && !right.empty() && hashes[i] != right[i]) {
            wrong = "gives other bits at " + checks[i].name;
        }
    }
    close(channel[0]);
    int status = 0;
    waitpid(process, &status, 0);
    if (hashes.size() != checks.size()) {
        return WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM ? "did not come to an end"
               : WIFSIGNALED(status) ? std::string("crashed: ") + strsignal(WTERMSIG(status))
                                     : "stopped before its end";
    }
    return wrong;
}

}  // namespace halyard::tune
