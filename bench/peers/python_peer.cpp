// Peers that are one Python file each, NAME_peer.py, beside this one or in a folder that the user names: what served.py
// makes of such a file answers the requests of process.h.
#include <filesystem>

#include "peers/describe.h"
#include "peers/process.h"

namespace halyard::bench {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::string_view ending = "_peer.py";

class PythonPeer : public Peer {
public:
    PythonPeer(std::string file_name, const PeerOptions &options, const fs::path &script)
        : label(std::move(file_name)),
          process(options,
                  {options.python, "-u", (fs::path(HALYARD_BENCH_PEERS_DIR) / "served.py").string(), script.string()}) {
    }

    /** Empty, or why it is not there. */
    std::string start() {
        const json reply = process.ask({{"do", "hello"}}, start_limit);
        told_version = reply.value("version", "");
        operations = reply.value("operations", std::vector<std::string>{});
        types = reply.value("dtypes", std::vector<std::string>{});
        return reply.value("error", "");
    }
    std::string name() const override { return label; }
    std::string version() const override { return told_version; }
    std::vector<pid_t> processes() const override { return {process.id()}; }

    std::string refusal(const WorkId &id) const override {
        const auto holds = [](const std::vector<std::string> &list, const std::string &word) {
            return std::find(list.begin(), list.end(), word) != list.end();
        };
        if (!holds(operations, id.kernel->operation)) {
            return "has no such operation, or is not compared for it";
        }
        return holds(types, operations::name_of(id.dtype)) && holds(types, operations::name_of(id.output_dtype()))
                   ? ""
                   : "is not compared for this type";
    }

    std::unique_ptr<PeerContender> prepare(Work &work, std::string &reason) override {
        auto contender = std::make_unique<RemoteContender>(work, process);
        reason = contender->prepare(describe_row(process, work));
        return reason.empty() ? std::move(contender) : nullptr;
    }

private:
    std::string label;
    Process process;
    std::string told_version;
    std::vector<std::string> operations, types;
};

std::unique_ptr<Peer> make(const std::string &name, const fs::path &script, const PeerOptions &options,
                           std::string &reason) {
    if (options.caps_isa()) {
        reason = "cannot be told to use a lesser instruction set";
        return nullptr;
    }
    auto peer = std::make_unique<PythonPeer>(name, options, script);
    reason = peer->start();
    return reason.empty() ? std::move(peer) : nullptr;
}

}  // namespace

std::vector<KnownPeer> python_peers(const std::vector<std::string> &folders) {
    std::vector<KnownPeer> found;
    for (const std::string &folder : folders) {
        for (const auto &entry : fs::directory_iterator(folder)) {
            const std::string file = entry.path().filename().string();
            if (file.size() > ending.size() && file.compare(file.size() - ending.size(), ending.size(), ending) == 0) {
                const std::string name = file.substr(0, file.size() - ending.size());
                const fs::path script = fs::absolute(entry.path());
                found.push_back({name,
                                 [name, script](const PeerOptions &options, std::string &reason) {
                                     return make(name, script, options, reason);
                                 },
                                 Runs::here});
            }
        }
    }
    return found;
}

}  // namespace halyard::bench
