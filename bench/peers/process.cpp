// See process.h.
#include "peers/process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>

#include "operations/isas.h"

extern char **environ;

namespace halyard::bench {

using nlohmann::json;
namespace fs = std::filesystem;

namespace {

/** How often one process is started in a run: who crashes in every row is done with. */
constexpr int most_starts = 4;

/** Where TMPDIR says; else where files are in memory, if there is such a place. */
fs::path place_of_files() {
    return !getenv("TMPDIR") && fs::is_directory("/dev/shm") ? fs::path("/dev/shm") : fs::temp_directory_path();
}

/** What the process finds in its environment before what this one has. */
std::vector<std::string> variables_for(const PeerOptions &options, const fs::path &temporary) {
    // PyTorch allocates most of its outputs. Left alone, malloc now and then gives memory back to the system after each
    // call and pays for new pages in the next; these keep it, which is PyTorch at its best and the same in every run.
    std::vector<std::string> variables = {"MALLOC_TRIM_THRESHOLD_=4294967296", "MALLOC_MMAP_THRESHOLD_=33554432",
                                          // Large tensors on huge pages, as the library's packed weights are.
                                          "THP_MEM_ALLOC_ENABLE=1", "GLIBC_TUNABLES=glibc.malloc.hugetlb=1",
                                          "TMPDIR=" + temporary.string(), "PYTHONDONTWRITEBYTECODE=1"};
#if defined(__x86_64__)
    if (options.caps_isa()) {
        const bool avx512 = options.isa >= HALYARD_ISA_AVX512, avx2 = options.isa == HALYARD_ISA_AVX2;
        variables.push_back(std::string("ATEN_CPU_CAPABILITY=") + (avx512 ? "avx512" : avx2 ? "avx2" : "default"));
        variables.push_back(std::string("MKL_ENABLE_INSTRUCTIONS=") + (avx512 ? "AVX512" : avx2 ? "AVX2" : "SSE4_2"));
        variables.push_back(std::string("ONEDNN_MAX_CPU_ISA=") + (options.isa == HALYARD_ISA_AVX512_BF16
                                                                      ? "AVX512_CORE_BF16"
                                                                  : avx512 ? "AVX512_CORE"
                                                                  : avx2   ? "AVX2"
                                                                           : "SSE41"));
    }
#else
    static_cast<void>(options);  // these know no lesser instruction set of this processor
#endif
    for (char **variable = environ; *variable != nullptr; variable++) {
        variables.emplace_back(*variable);
    }
    return variables;
}

std::string seconds_text(double seconds) {
    char text[32];
    std::snprintf(text, sizeof(text), "%.3g s", seconds);
    return text;
}

}  // namespace

bool PeerOptions::caps_isa() const {
    return std::any_of(std::begin(operations::built_isas), std::end(operations::built_isas),
                       [&](halyard_isa each) { return each > isa && halyard_isa_preferred(each) != 0; });
}

Process::Process(const PeerOptions &options, std::vector<std::string> program)
    : command(std::move(program)), limit_per_row(options.row_limit), files(place_of_files(), "halyard-bench"),
      temporary(fs::temp_directory_path(), "halyard-bench"), variables(variables_for(options, temporary.path())) {
    signal(SIGPIPE, SIG_IGN);
    start();
}

void Process::start() {
    starts++;
    received.clear();
    int input[2], output[2];
    if (pipe2(input, O_CLOEXEC) != 0 || pipe2(output, O_CLOEXEC) != 0) {
        return;
    }
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, input[0], 0);
    posix_spawn_file_actions_adddup2(&actions, output[1], 1);
    posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
    // A group of its own keeps Ctrl-C from it: the rows measured so far still need an orderly end.
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
    std::vector<char *> arguments, environment;
    for (std::string &argument : command) {
        arguments.push_back(argument.data());
    }
    for (std::string &variable : variables) {
        environment.push_back(variable.data());
    }
    arguments.push_back(nullptr);
    environment.push_back(nullptr);
    if (posix_spawnp(&process, arguments[0], &actions, &attributes, arguments.data(), environment.data()) != 0) {
        process = -1;
    }
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    close(input[0]);
    close(output[1]);
    to = input[1];
    from = output[0];
}

void Process::revive() {
    if (process <= 0 && starts < most_starts) {
        start();
    }
}

Process::~Process() {
    stop();
}

json Process::ask(const json &request, double limit) {
    tell(request);
    return hear(limit);
}

void Process::tell(const json &request) {
    const std::string line = request.dump() + "\n";
    is_told = process > 0 && write(to, line.data(), line.size()) == static_cast<ssize_t>(line.size());
}

json Process::hear(double limit) {
    if (process <= 0) {
        return {{"error", starts < most_starts ? "its process is gone" : "its process ended too often in this run"}};
    }
    if (!is_told) {
        return died();
    }
    const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(limit);
    while (true) {
        const std::size_t newline = received.find('\n');
        if (newline != std::string::npos) {
            const json reply = json::parse(received.substr(0, newline), nullptr, false);
            received.erase(0, newline + 1);
            return reply.is_object() ? reply : json{{"error", "its process answered in an unknown form"}};
        }
        const auto left =
            std::chrono::duration_cast<std::chrono::milliseconds>(end - std::chrono::steady_clock::now()).count();
        pollfd readable{from, POLLIN, 0};
        const int ready = left > 0 ? poll(&readable, 1, static_cast<int>(left)) : 0;
        if (ready < 0 && errno == EINTR) {
            continue;
        }
        if (ready <= 0) {
            stop();
            return {{"error", "gave no answer within the row's time (" + seconds_text(limit_per_row) + ")"}};
        }
        char buffer[4096];
        const ssize_t count = read(from, buffer, sizeof(buffer));
        if (count <= 0) {
            return died();
        }
        received.append(buffer, static_cast<std::size_t>(count));
    }
}

json Process::died() {
    int status = 0;
    // It may be about to end by itself, which says more than the kill below.
    for (int i = 0; i < 100 && process > 0; i++) {
        if (waitpid(process, &status, WNOHANG) == process) {
            kill(-process, SIGKILL);  // what it started
            process = -1;
            break;
        }
        usleep(1000);
    }
    const bool was_alive = process > 0;
    stop();
    if (!was_alive && WIFSIGNALED(status)) {
        return {{"error", std::string("its process crashed (") + strsignal(WTERMSIG(status)) + ")"}};
    }
    return {{"error", "its process ended (status " + std::to_string(WEXITSTATUS(status)) + ")"}};
}

void Process::stop() {
    if (process > 0) {
        kill(-process, SIGKILL);  // with what it started, which is in its group
        waitpid(process, nullptr, 0);
        process = -1;
    }
    for (int *end : {&to, &from}) {
        if (*end >= 0) {
            close(*end);
            *end = -1;
        }
    }
}

std::string Process::send(const std::string &name, const void *data, std::size_t bytes) const {
    const fs::path path = files.path() / name;
    std::ofstream(path, std::ios::binary).write(static_cast<const char *>(data), static_cast<std::streamsize>(bytes));
    return path.string();
}

void Process::receive(const std::string &name, const Matrix &matrix) const {
    std::memset(matrix.data(), 0xff, matrix.bytes());
    std::ifstream(files.path() / name, std::ios::binary)
        .read(matrix.data(), static_cast<std::streamsize>(matrix.bytes()));
}

}  // namespace halyard::bench
