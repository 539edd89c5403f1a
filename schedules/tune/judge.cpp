// See judge.h.
#include "judge.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <stdexcept>

#include "hash.h"

namespace halyard::tune {
namespace {

/** Bytes of all outputs of the first operand set. */
std::string output_bytes(const bench::Work &work) {
    std::string bytes;
    for (const bench::Matrix &output : work.sets[0].outputs) {
        bytes.append(output.data(), output.bytes());
    }
    return bytes;
}

}  // namespace

std::string judge_apart(const std::vector<Check> &checks, const std::function<void()> &install_usual,
                        const std::function<void()> &install_tested, std::vector<Judged> &results) {
    constexpr unsigned most_seconds = 30;
    constexpr std::size_t hash_length = 16;
    struct Message {
        char hash[hash_length];
        double error, tolerance;
    };
    int channel[2];
    if (pipe(channel) != 0) {
        throw std::runtime_error("no pipe can be made");
    }
    // What the library needs besides is resolved here, once for all processes.
    install_usual();
    for (const Check &check : checks) {
        check.work->call(0);
        if (check.workload->kind->finish) {
            check.workload->kind->finish(*check.work);
        }
    }
    std::fflush(nullptr);
    const pid_t process = fork();
    if (process < 0) {
        throw std::runtime_error("no process can be started");
    }
    if (process == 0) {
        signal(SIGALRM, SIG_DFL);
        alarm(most_seconds);
        install_tested();
        for (const Check &check : checks) {
            bench::Work &work = *check.work;
            const WorkKind &kind = *check.workload->kind;
            work.spoil_outputs();
            work.call(0);
            if (kind.finish) {
                kind.finish(work);
            }
            Message message{};
            hash_of(output_bytes(work)).copy(message.hash, hash_length);
            message.error = kind.error ? kind.error(work) : work.accuracy().error;
            message.tolerance = work.tolerance();
            if (write(channel[1], &message, sizeof(message)) != static_cast<ssize_t>(sizeof(message))) {
                _exit(1);
            }
        }
        _exit(0);
    }
    close(channel[1]);
    results.clear();
    Message message{};
    while (read(channel[0], &message, sizeof(message)) == static_cast<ssize_t>(sizeof(message))) {
        results.push_back({std::string(message.hash, hash_length), message.error, message.tolerance});
    }
    close(channel[0]);
    int status = 0;
    waitpid(process, &status, 0);
    if (results.size() != checks.size()) {
        return WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM ? "did not come to an end"
               : WIFSIGNALED(status) ? std::string("crashed: ") + strsignal(WTERMSIG(status))
                                     : "stopped before its end";
    }
    for (std::size_t i = 0; i < results.size(); i++) {
        if (!(results[i].error <= results[i].tolerance)) {
            return "is wrong at " + checks[i].workload->name();
        }
    }
    return {};
}

}  // namespace halyard::tune
