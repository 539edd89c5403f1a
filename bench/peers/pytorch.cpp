// The peers "pytorch" and "pytorch-compile": PyTorch, eager and through torch.compile, in a Python process of their own
// that pytorch.py describes. Samples are asked for one at a time, so that they stand in the rounds like everyone's.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "layer.h"
#include "peers/peer.h"

extern char **environ;

namespace halyard::bench {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

/** The Python process: one request, one reply, each a line of JSON. A process that dies or stays silent is done with.
 */
class PythonProcess {
public:
    PythonProcess(const PeerOptions &options, const std::string &script) {
        const std::string &python = options.python;
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
        // PyTorch allocates most of its outputs. Left alone, malloc now and then gives memory back to the system after
        // each call and pays for new pages in the next; these keep it, which is PyTorch at its best and the same in
        // every run.
        std::vector<std::string> variables = {"MALLOC_TRIM_THRESHOLD_=4294967296", "MALLOC_MMAP_THRESHOLD_=33554432",
                                              // Large tensors on huge pages, as the library's packed weights are.
                                              "THP_MEM_ALLOC_ENABLE=1"};
        if (options.caps_isa()) {
            const bool avx2 = options.isa == HALYARD_ISA_AVX2;
            variables.push_back(std::string("ATEN_CPU_CAPABILITY=") + (avx2 ? "avx2" : "default"));
            variables.push_back(std::string("MKL_ENABLE_INSTRUCTIONS=") + (avx2 ? "AVX2" : "SSE4_2"));
            variables.push_back(std::string("ONEDNN_MAX_CPU_ISA=") + (avx2 ? "AVX2" : "SSE41"));
        }
        for (char **variable = environ; *variable != nullptr; variable++) {
            variables.push_back(*variable);
        }
        std::vector<char *> environment;
        for (std::string &variable : variables) {
            environment.push_back(variable.data());
        }
        environment.push_back(nullptr);
        const char *arguments[] = {python.c_str(), "-u", script.c_str(), nullptr};
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
    ~PythonProcess() { stop(); }
    PythonProcess(const PythonProcess &) = delete;
    PythonProcess &operator=(const PythonProcess &) = delete;

    pid_t id() const { return process; }

    /** The reply; {"error": ...} if there is none within `limit` seconds. */
    json ask(const json &request, double limit) {
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

private:
    void stop() {
        if (process > 0) {
            kill(process, SIGKILL);
            waitpid(process, nullptr, 0);
            close(to);
            close(from);
            process = -1;
        }
    }

    pid_t process = -1;
    int to = -1, from = -1;
    std::string received;
};

constexpr double start_limit = 120, prepare_limit = 180, sample_limit = 60;  // seconds

/** The process and the folder through which tensors go; shared by the two peers. */
struct Session {
    explicit Session(const PeerOptions &options)
        : process(options, HALYARD_BENCH_PEERS_DIR "/pytorch.py"),
          folder((fs::is_directory("/dev/shm") ? fs::path("/dev/shm") : fs::temp_directory_path()) /
                 ("halyard-bench-" + std::to_string(getpid()))) {
        fs::create_directories(folder);
    }
    ~Session() {
        std::error_code ignored;
        fs::remove_all(folder, ignored);
    }

    /** One session for both peers; null, with a reason, if this Python has no PyTorch. */
    static std::shared_ptr<Session> start(const PeerOptions &options, std::string &reason) {
        static std::shared_ptr<Session> session;
        static std::string failure;
        if (!session && failure.empty()) {
            auto candidate = std::make_shared<Session>(options);
            const json reply = candidate->process.ask({{"do", "hello"}}, start_limit);
            if (reply.contains("version")) {
                candidate->version = reply["version"];
                session = candidate;
            } else {
                failure = "'" + options.python + "' cannot import torch";
            }
        }
        reason = failure;
        return session;
    }

    PythonProcess process;
    fs::path folder;
    std::string version;
    int next_id = 0;
};

void write_file(const fs::path &path, const Matrix &matrix) {
    std::ofstream(path, std::ios::binary).write(matrix.data(), static_cast<std::streamsize>(matrix.bytes()));
}

/** Fills the matrix; with NaN if the file is short. */
void read_file(const fs::path &path, const Matrix &matrix) {
    std::memset(matrix.data(), 0xff, matrix.bytes());
    std::ifstream(path, std::ios::binary).read(matrix.data(), static_cast<std::streamsize>(matrix.bytes()));
}

class TorchContender : public PeerContender, private Contender {
public:
    TorchContender(Work &owner, std::shared_ptr<Session> shared) : work(owner), session(std::move(shared)) {}
    ~TorchContender() override { session->process.ask({{"do", "release"}, {"id", id}}, sample_limit); }

    Contender &contender() override { return *this; }

    /** Also runs it once, into files. Empty, or why it cannot do the work. */
    std::string prepare(const char *mode) {
        const Kernel &kernel = *work.id.kernel;
        id = session->next_id++;
        const char *layouts[] = {"gate_up", "up_gate", "interleaved"};
        json request = {{"do", "prepare"},
                        {"id", id},
                        {"mode", mode},
                        {"operation", kernel.operation},
                        {"threads", work.id.threads},
                        {"dtype", tests::name_of(work.id.dtype)},
                        {"output_dtype", tests::name_of(work.id.output_dtype())},
                        {"rows", work.id.rows},
                        {"d", work.id.d},
                        {"input_width", work.id.d * kernel.input_width},
                        {"outputs", kernel.outputs},
                        {"sets", work.sets.size()},
                        {"layout", layouts[kernel.layout]},
                        {"layer_norm_eps", layer_norm_eps},
                        {"rms_norm_eps", rms_norm_eps}};
        const auto send = [&](const std::string &name, const Matrix &matrix) {
            write_file(session->folder / name, matrix);
            return (session->folder / name).string();
        };
        for (std::size_t i = 0; i < work.sets[0].inputs.size(); i++) {
            request["inputs"].push_back(send("input" + std::to_string(i), work.sets[0].inputs[i]));
        }
        if (work.weight) {
            request["weight"] = send("weight", *work.weight);
        }
        if (work.bias) {
            request["bias"] = send("bias", *work.bias);
        }
        for (int i = 0; i < kernel.outputs; i++) {
            request["output_paths"].push_back(output_path(i).string());
        }
        if (kernel.layer) {
            request["layer"] = describe_layer(send);
        }
        const json reply = session->process.ask(request, prepare_limit);
        if (reply.contains("error")) {
            return reply["error"];
        }
        note = reply["allocates"] ? "allocates its output" : "";
        return {};
    }

    double error() override {
        for (std::size_t i = 0; i < work.sets[0].outputs.size(); i++) {
            read_file(output_path(static_cast<int>(i)), work.sets[0].outputs[i]);
        }
        return work.worst_error();
    }

private:
    bool times_itself() const override { return true; }

    void run(benchmark::State &state) override {
        while (state.KeepRunningBatch(state.max_iterations)) {
            const json reply =
                session->process.ask({{"do", "time"}, {"id", id}, {"iterations", state.max_iterations}}, sample_limit);
            if (reply.contains("error")) {
                failure = reply["error"];
                state.SkipWithError(failure.c_str());
                return;
            }
            state.SetIterationTime(reply["seconds"]);
        }
    }

    /** Of each matrix only what it repeats goes through a file. */
    template<typename Send>
    json describe_layer(const Send &send) const {
        const LayerForm &form = *work.id.kernel->layer;
        const char *norms[] = {"none", "rms", "layer"};
        const auto send_bias = [&](Layer::Part part) {
            const Matrix *bias = work.layer->bias(part);
            return bias != nullptr ? send("layer_bias" + std::to_string(part), *bias) : "";
        };
        json layer = {{"is_ffn", form.is_ffn},
                      {"gated", form.gated},
                      {"has_residual", form.has_residual},
                      {"norm", norms[form.norm]},
                      {"activation", form.activation == HALYARD_SILU        ? "silu"
                                     : form.activation == HALYARD_GELU_TANH ? "gelu_tanh"
                                                                            : "identity"},
                      {"d_out", work.id.d_out},
                      {"period", random_period},
                      {"bias", send_bias(Layer::first)},
                      {"bias_down", send_bias(Layer::down)}};
        for (const Layer::Part part : {Layer::first, Layer::up, Layer::down}) {
            if ((part == Layer::up && !form.gated) || (part == Layer::down && !form.is_ffn)) {
                continue;
            }
            layer["matrices"].push_back({{"path", send("matrix" + std::to_string(part), work.layer->period(part))},
                                         {"in", work.layer->in(part)},
                                         {"out", work.layer->out(part)},
                                         {"seed", static_cast<int>(part)}});
        }
        return layer;
    }

    fs::path output_path(int i) const { return session->folder / ("output" + std::to_string(i)); }

    Work &work;
    std::shared_ptr<Session> session;
    int id = 0;
};

class PyTorch : public Peer {
public:
    PyTorch(std::shared_ptr<Session> shared, bool compiled) : session(std::move(shared)), compile(compiled) {}
    std::string name() const override { return compile ? "pytorch-compile" : "pytorch"; }
    std::string version() const override { return session->version; }
    std::vector<pid_t> processes() const override { return {session->process.id()}; }
    bool slow_to_prepare() const override { return compile; }

    std::unique_ptr<PeerContender> prepare(Work &work, std::string &reason) override {
        auto contender = std::make_unique<TorchContender>(work, session);
        reason = contender->prepare(compile ? "compile" : "eager");
        return reason.empty() ? std::move(contender) : nullptr;
    }

private:
    std::shared_ptr<Session> session;
    bool compile;
};

template<bool compile>
std::unique_ptr<Peer> make(const PeerOptions &options, std::string &reason) {
    const std::shared_ptr<Session> session = Session::start(options, reason);
    return session ? std::make_unique<PyTorch>(session, compile) : nullptr;
}

const PeerRegistration eager("pytorch", make<false>), compiled("pytorch-compile", make<true>);

}  // namespace
}  // namespace halyard::bench
