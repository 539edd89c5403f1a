// Peers whose code runs in another process, which answers the requests of process.h: Python files, NAME_peer.py, beside
// this one or in a folder that the user names, in the hands of served.py; and C++ peers in this program's own (serve.cpp).
#include <algorithm>
#include <filesystem>

#include "peers/describe.h"
#include "peers/process.h"

namespace halyard::bench {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

class RemotePeer : public Peer {
public:
    /** `describe` makes the request for a row. */
    using Describe = json (*)(const Process &process, const BenchmarkCase &bench_case);

    RemotePeer(std::string peer, const PeerOptions &options, const std::vector<std::string> &command,
               Describe how_to_describe)
        : label(std::move(peer)), temporary(fs::temp_directory_path(), "halyard-bench"),
          process(options, command, {"TMPDIR=" + temporary.path().string(), "PYTHONDONTWRITEBYTECODE=1"}),
          describe(how_to_describe), hello(process.ask({{"do", "hello"}}, start_limit)) {}

    /** Empty, or why it is not there. */
    std::string missing(const PeerOptions &options) const {
        const bool is_deaf = options.caps_isa() && !hello.value("caps_isa", true);
        return is_deaf ? "cannot be told to use a lesser instruction set" : hello.value("error", "");
    }
    std::string name() const override { return label; }
    std::string version() const override { return hello.value("version", ""); }
    PeerAbout about() const override {
        return {hello.value("family", ""), hello.value("how", ""), hello.value("lacks", ""),
                hello.value("interface", "")};
    }
    std::vector<pid_t> processes() const override { return {process.id()}; }
    bool slow_to_prepare() const override { return hello.value("slow", false); }

    std::string refusal(const CaseId &id) const override {
        if (!hello.contains("operations")) {
            return id.has_heads() ? "is compared for kernels and layers" : "";
        }
        const auto holds = [this](const char *list, const std::string &word) {
            const json &words = hello[list];
            return std::find(words.begin(), words.end(), word) != words.end();
        };
        if (!holds("operations", id.kernel->operation)) {
            return "has no such operation, or is not compared for it";
        }
        return holds("dtypes", operations::name_of(id.dtype)) && holds("dtypes", operations::name_of(id.output_dtype()))
                   ? ""
                   : "is not compared for this type";
    }

    std::unique_ptr<PeerContender> prepare(BenchmarkCase &bench_case, std::string &) override {
        auto contender = std::make_unique<RemoteContender>(bench_case, process);
        contender->prepare(describe(process, bench_case));
        return contender;
    }

private:
    std::string label;
    TemporaryFolder temporary;  // for what its libraries write, such as a compiler's cache
    Process process;
    Describe describe;
    json hello;
};

std::unique_ptr<Peer> start(const std::string &name, const PeerOptions &options,
                            const std::vector<std::string> &command, RemotePeer::Describe describe,
                            std::string &reason) {
    auto peer = std::make_unique<RemotePeer>(name, options, command, describe);
    reason = peer->missing(options);
    return reason.empty() ? std::move(peer) : nullptr;
}

/** The name of the peer in this file; empty if it is none. */
std::string peer_in(const fs::path &file) {
    constexpr std::string_view ending = "_peer.py";
    const std::string name = file.filename().string();
    const bool is_peer =
        name.size() > ending.size() && name.compare(name.size() - ending.size(), ending.size(), ending) == 0;
    return is_peer ? name.substr(0, name.size() - ending.size()) : "";
}

}  // namespace

std::vector<KnownPeer> python_peers(const std::vector<std::string> &folders) {
    std::vector<KnownPeer> found;
    for (const std::string &folder : folders) {
        for (const auto &entry : fs::directory_iterator(folder)) {
            const std::string name = peer_in(entry.path());
            if (name.empty()) {
                continue;
            }
            const std::string script = fs::absolute(entry.path()).string();
            const auto make = [name, script](const PeerOptions &options, std::string &reason) {
                const std::string served = (fs::path(HALYARD_BENCH_PEERS_DIR) / "served.py").string();
                return start(name, options, {options.python, "-u", served, script, HALYARD_BENCH_REPEAT}, describe_row,
                             reason);
            };
            found.push_back({name, make, Runs::here});
        }
    }
    return found;
}

std::unique_ptr<Peer> make_isolated(const std::string &name, const PeerOptions &options, std::string &reason) {
    const std::vector<std::string> command = {fs::read_symlink("/proc/self/exe").string(),
                                              "--serve",
                                              name,
                                              "--isa",
                                              halyard_isa_name(options.isa),
                                              "--python",
                                              options.python};
    const auto describe = [](const Process &, const BenchmarkCase &bench_case) -> json {
        return {{"row", describe_id(bench_case.id)}};
    };
    return start(name, options, command, describe, reason);
}

}  // namespace halyard::bench
