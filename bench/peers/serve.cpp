// The process of this program in which a peer's code runs: what crashes or hangs here ends it alone, and the peer's
// OpenMP threads are not ours.
#include <unistd.h>

#include <iostream>
#include <map>

#include "peers/describe.h"

namespace halyard::bench {
namespace {

using nlohmann::json;

/** A row that is ready: the peer's side and what it works on. */
struct Ready {
    std::unique_ptr<BenchmarkCase> bench_case;
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
            return hello();
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
    json hello() const {
        if (!peer) {
            return {{"error", missing}};
        }
        const PeerAbout about = peer->about();
        return {{"version", peer->version()},
                {"family", about.family},
                {"how", about.how},
                {"lacks", about.lacks},
                {"interface", about.interface}};
    }

    json prepare(int id, const CaseId &row) {
        std::string reason = peer->refusal(row);
        if (!reason.empty()) {
            return {{"error", reason}};
        }
        Ready made{std::make_unique<BenchmarkCase>(row, options.cold_set, options.isa, BenchmarkCase::Side::peer),
                   nullptr};
        made.side = peer->prepare(*made.bench_case, reason);
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
