// See python_process.h.
#include "peers/python_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>

extern char **environ;

namespace halyard::bench {

using nlohmann::json;
namespace fs = std::filesystem;

namespace {

/** Where files are in memory, if there is such a place. */
fs::path new_folder() {
    static int count = 0;
    const fs::path parent = fs::is_directory("/dev/shm") ? fs::path("/dev/shm") : fs::temp_directory_path();
    const fs::path folder = parent / ("halyard-bench-" + std::to_string(getpid()) + "-" + std::to_string(count++));
    fs::create_directories(folder);
    return folder;
}

/** What the process finds in its environment before what this one has. */
std::vector<std::string> variables_for(const PeerOptions &options) {
    // PyTorch allocates most of its outputs. Left alone, malloc now and then gives memory back to the system after each
    // call and pays for new pages in the next; these keep it, which is PyTorch at its best and the same in every run.
    std::vector<std::string> variables = {"MALLOC_TRIM_THRESHOLD_=4294967296", "MALLOC_MMAP_THRESHOLD_=33554432",
                                          // Large tensors on huge pages, as the library's packed weights are.
                                          "THP_MEM_ALLOC_ENABLE=1"};
    if (options.caps_isa()) {
        const bool avx2 = options.isa == HALYARD_ISA_AVX2;
        variables.push_back(std::string("ATEN_CPU_CAPABILITY=") + (avx2 ? "avx2" : "default"));
        variables.push_back(std::string("MKL_ENABLE_INSTRUCTIONS=") + (avx2 ? "AVX2" : "SSE4_2"));
        variables.push_back(std::string("ONEDNN_MAX_CPU_ISA=") + (avx2 ? "AVX2" : "SSE41"));
    }
    return variables;
}

}  // namespace

// ---- PythonProcess ----

PythonProcess::PythonProcess(const PeerOptions &options, const std::string &script,
                             const std::vector<std::string> &more_variables)
    : files(new_folder()) {
    const std::string &python = options.python, path = HALYARD_BENCH_PEERS_DIR "/" + script;
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
    std::vector<std::string> variables = variables_for(options);
    variables.insert(variables.end(), more_variables.begin(), more_variables.end());
    for (char **variable = environ; *variable != nullptr; variable++) {
        variables.push_back(*variable);
    }
    std::vector<char *> environment;
    for (std::string &variable : variables) {
        environment.push_back(variable.data());
    }
    environment.push_back(nullptr);
    const char *arguments[] = {python.c_str(), "-u", path.c_str(), nullptr};
    if (posix_spawnp(&process, python.c_str(), &actions, &attributes, const_cast<char **>(arguments),
                     environment.data()) != 0) {
        process = -1;
    }
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    close(input[0]);
    close(output[1]);
    to = input[1];
    from = output[0];
    signal(SIGPIPE, SIG_IGN);
}

PythonProcess::~PythonProcess() {
    stop();
    std::error_code ignored;
    fs::remove_all(files, ignored);
}

json PythonProcess::ask(const json &request, double limit) {
    if (process <= 0) {
        return {{"error", "its process is gone"}};
    }
    const std::string line = request.dump() + "\n";
    if (write(to, line.data(), line.size()) != static_cast<ssize_t>(line.size())) {
        stop();
        return {{"error", "its process died"}};
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
        char buffer[4096];
        const ssize_t count = ready > 0 ? read(from, buffer, sizeof(buffer)) : 0;
        if (ready < 0 && errno == EINTR) {
            continue;
        }
        if (count <= 0) {
            stop();
            return {{"error", ready > 0 ? "its process died" : "gave no answer in time"}};
        }
        received.append(buffer, static_cast<std::size_t>(count));
    }
}

void PythonProcess::stop() {
    if (process > 0) {
        kill(process, SIGKILL);
        waitpid(process, nullptr, 0);
        close(to);
        close(from);
        process = -1;
    }
}

std::string PythonProcess::send(const std::string &name, const Matrix &matrix) const {
    const fs::path path = files / name;
    std::ofstream(path, std::ios::binary).write(matrix.data(), static_cast<std::streamsize>(matrix.bytes()));
    return path.string();
}

void PythonProcess::receive(const std::string &name, const Matrix &matrix) const {
    std::memset(matrix.data(), 0xff, matrix.bytes());
    std::ifstream(files / name, std::ios::binary).read(matrix.data(), static_cast<std::streamsize>(matrix.bytes()));
}

// ---- PythonContender ----

PythonContender::PythonContender(Work &owner, PythonProcess &with) : work(owner), process(with) {
    static int next_id = 0;
    id = next_id++;
}

PythonContender::~PythonContender() {
    process.ask({{"do", "release"}, {"id", id}}, sample_limit);
}

std::string PythonContender::prepare(json request) {
    request["do"] = "prepare";
    request["id"] = id;
    request["threads"] = work.id.threads;
    for (std::size_t i = 0; i < work.sets[0].outputs.size(); i++) {
        request["output_paths"].push_back((process.folder() / output_name(i)).string());
    }
    const json reply = process.ask(request, prepare_limit);
    if (reply.contains("error")) {
        return reply["error"];
    }
    note = reply.value("note", "");
    resident = reply.value("resident", std::size_t{0});
    return {};
}

double PythonContender::error() {
    for (std::size_t i = 0; i < work.sets[0].outputs.size(); i++) {
        process.receive(output_name(i), work.sets[0].outputs[i]);
    }
    return work.worst_error();
}

void PythonContender::run(benchmark::State &state) {
    while (state.KeepRunningBatch(state.max_iterations)) {
        const json reply =
            process.ask({{"do", "time"}, {"id", id}, {"iterations", state.max_iterations}}, sample_limit);
        if (reply.contains("error")) {
            failure = reply["error"];
            state.SkipWithError(failure.c_str());
            return;
        }
        state.SetIterationTime(reply["seconds"]);
    }
}

}  // namespace halyard::bench
