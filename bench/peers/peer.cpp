// See peer.h.
#include "peers/peer.h"

#include <algorithm>
#include <string_view>

namespace halyard::bench {

using nlohmann::json;
namespace fs = std::filesystem;

namespace {

constexpr double start_limit = 120;  // seconds that a process gets to start

std::string output_name(std::size_t i) {
    return "output" + std::to_string(i);
}

}  // namespace

// ---- PeerContender ----

PeerContender::PeerContender(BenchmarkCase &owner, Process &with)
    : bench_case(owner), process(with), seconds_left(with.row_limit()) {
    static int next_id = 0;
    id = next_id++;
    process.revive();
    json request = describe_row(process, bench_case);
    request["do"] = "prepare";
    request["id"] = id;
    request["threads"] = bench_case.id.threads;
    for (std::size_t i = 0; i < bench_case.sets[0].outputs.size(); i++) {
        request["output_paths"].push_back((process.folder() / output_name(i)).string());
    }
    process.tell(request);
}

PeerContender::~PeerContender() {
    if (is_awaited) {
        wait();
    }
    process.ask({{"do", "release"}, {"id", id}}, start_limit);
}

json PeerContender::hear() {
    const auto start = std::chrono::steady_clock::now();
    json reply = process.hear(seconds_left);
    seconds_left -= std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return reply;
}

std::string PeerContender::wait() {
    is_awaited = false;
    const json reply = hear();
    note = reply.value("note", "");
    resident = reply.value("resident", std::size_t{0});
    return reply.value("error", "");
}

Accuracy PeerContender::accuracy() const {
    for (std::size_t i = 0; i < bench_case.sets[0].outputs.size(); i++) {
        process.receive(output_name(i), bench_case.sets[0].outputs[i]);
    }
    return bench_case.accuracy();
}

void PeerContender::run(benchmark::State &state) {
    while (state.KeepRunningBatch(state.max_iterations)) {
        process.tell({{"do", "time"}, {"id", id}, {"iterations", state.max_iterations}});
        const json reply = hear();
        if (reply.contains("error")) {
            failure = reply["error"];
            state.SkipWithError(failure.c_str());
            return;
        }
        state.SetIterationTime(reply["seconds"]);
    }
}

// ---- Peer ----

Peer::Peer(std::string label, const std::string &script, const PeerOptions &options)
    : name(std::move(label)), is_capped(options.caps_isa()),
      process(options, {options.python, "-u", (fs::path(HALYARD_BENCH_PEERS_DIR) / "served.py").string(), script,
                        HALYARD_BENCH_LIBRARIES_DIR}),
      hello(process.ask({{"do", "hello"}}, start_limit)) {}

std::string Peer::missing() const {
    const bool is_deaf = is_capped && !hello.value("caps_isa", true);
    return is_deaf ? "cannot be told to use a lesser instruction set" : hello.value("error", "");
}

std::string Peer::refusal(const CaseId &id) const {
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

std::map<std::string, std::string> known_peers(const std::vector<std::string> &folders) {
    constexpr std::string_view ending = "_peer.py";
    std::map<std::string, std::string> found;
    for (const std::string &folder : folders) {
        for (const auto &entry : fs::directory_iterator(folder)) {
            const std::string file = entry.path().filename().string();
            const std::size_t length = file.size() - std::min(file.size(), ending.size());
            if (length > 0 && file.substr(length) == ending) {
                found.emplace(file.substr(0, length), fs::absolute(entry.path()).string());
            }
        }
    }
    return found;
}

}  // namespace halyard::bench
