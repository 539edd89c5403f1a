// Peers whose code runs in another process of this program: what crashes or hangs there ends that process alone, and
// their OpenMP threads are not ours. Here stand both sides, the peer that asks and the process that answers.
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <iostream>
#include <map>

#include "peers/describe.h"
#include "peers/process.h"

namespace halyard::bench {
namespace {

using nlohmann::json;

const Kernel *find_kernel(const std::string &name) {
    for (const auto *kernels : {&catalogue(), &layer_catalogue()}) {
        for (const Kernel &kernel : *kernels) {
            if (kernel.name == name) {
                return &kernel;
            }
        }
    }
    throw std::runtime_error("there is no kernel '" + name + "'");
}

json describe_id(const WorkId &id) {
    return {{"kernel", id.kernel->name}, {"dtype", static_cast<int>(id.dtype)},
            {"rows", id.rows},           {"d", id.d},
            {"d_out", id.d_out},         {"cold", id.cold},
            {"threads", id.threads}};
}

WorkId id_of(const json &row) {
    return {find_kernel(row.at("kernel")),
            static_cast<Dtype>(row.at("dtype").get<int>()),
            row.at("rows"),
            row.at("d"),
            row.at("cold"),
            row.at("threads"),
            row.at("d_out")};
}

// ---- The peer that asks ----

class Isolated : public Peer {
public:
    Isolated(std::string peer, const PeerOptions &options)
        : label(std::move(peer)),
          process(options, {std::filesystem::read_symlink("/proc/self/exe").string(), "--serve", label, "--isa",
                            halyard_isa_name(options.isa), "--python", options.python}) {}

    /** Empty, or why it is not there. */
    std::string start() {
        const json reply = process.ask({{"do", "hello"}}, start_limit);
        told_version = reply.value("version", "");
        return reply.value("error", "");
    }
    std::string name() const override { return label; }
    std::string version() const override { return told_version; }
    std::vector<pid_t> processes() const override { return {process.id()}; }
    std::string refusal(const WorkId &id) const override {
        return id.has_heads() ? "is compared for kernels and layers" : "";
    }

    std::unique_ptr<PeerContender> prepare(Work &work, std::string &reason) override {
        auto contender = std::make_unique<RemoteContender>(work, process);
        reason = contender->prepare({{"row", describe_id(work.id)}});
        return reason.empty() ? std::move(contender) : nullptr;
    }

private:
    std::string label;
    Process process;
    std::string told_version;
};

// ---- The process that answers ----

/** A row that is ready: the peer's side and what it works on. */
struct Ready {
    std::unique_ptr<Work> work;
    std::unique_ptr<PeerContender> side;
};

class Server {
public:
    Server(const KnownPeer &known, const PeerOptions &given) : options(given) {
        peer = known.make(options, missing);
        if (!peer && missing.empty()) {
            missing = "is not there";
        }
    }

    json answer(const json &request) {
        const std::string what = request.at("do");
        if (what == "hello") {
            return peer ? json{{"version", peer->version()}} : json{{"error", missing}};
        }
        const int id = request.at("id");
        if (what == "prepare") {
            return prepare(id, id_of(request.at("row")));
        }
        if (what == "time") {
            benchmark::IterationCount iterations = request.at("iterations");
            const double seconds = sample(ready.at(id).side->contender(), 0, iterations);
            const std::string &failure = ready.at(id).side->contender().failure;
            return failure.empty() ? json{{"seconds", seconds * static_cast<double>(iterations)}}
                                   : json{{"error", failure}};
        }
        ready.erase(id);
        return json::object();
    }

private:
    json prepare(int id, const WorkId &row) {
        std::string reason = peer->refusal(row);
        if (!reason.empty()) {
            return {{"error", reason}};
        }
        Ready made{std::make_unique<Work>(row, options.cold_set, options.isa, Work::Side::peer), nullptr};
        made.side = peer->prepare(*made.work, reason);
        if (!made.side) {
            return {{"error", reason}};
        }
        const json reply = {{"note", made.side->note}, {"accuracy", describe(made.side->accuracy())}};
        ready.emplace(id, std::move(made));
        return reply;
    }

    PeerOptions options;
    std::string missing;
    std::unique_ptr<Peer> peer;
    std::map<int, Ready> ready;
};

}  // namespace

json describe(const Accuracy &accuracy) {
    // JSON has no infinity: null.
    return {{"error", std::isfinite(accuracy.error) ? json(accuracy.error) : json()},
            {"ulps", std::isfinite(accuracy.ulps) ? json(accuracy.ulps) : json()}};
}

Accuracy accuracy_of(const json &described) {
    const auto number = [](const json &value) {
        return value.is_number() ? value.get<double>() : std::numeric_limits<double>::infinity();
    };
    return {number(described.at("error")), number(described.at("ulps"))};
}

std::unique_ptr<Peer> make_isolated(const std::string &name, const PeerOptions &options, std::string &reason) {
    auto peer = std::make_unique<Isolated>(name, options);
    reason = peer->start();
    return reason.empty() ? std::move(peer) : nullptr;
}

int serve_peer(const KnownPeer &known, const PeerOptions &options) {
    FILE *replies = fdopen(dup(STDOUT_FILENO), "w");
    dup2(STDERR_FILENO, STDOUT_FILENO);  // whatever libraries print must not land among the replies
    Server server(known, options);
    for (std::string line; std::getline(std::cin, line);) {
        json reply;
        try {
            reply = server.answer(json::parse(line));
        } catch (const std::exception &error) {  // whatever a library throws is the answer for this row
            reply = {{"error", error.what()}};
        }
        std::fprintf(replies, "%s\n", reply.dump().c_str());
        std::fflush(replies);
    }
    return 0;
}

}  // namespace halyard::bench
