// The peers "pytorch" and "pytorch-compile": PyTorch, eager and through torch.compile, in a Python process of their own
// that pytorch.py describes. Samples are asked for one at a time, so that they stand in the rounds like everyone's.
#include "peers/pytorch.h"

#include "peers/describe.h"

namespace halyard::bench {

using nlohmann::json;

std::shared_ptr<TorchSession> TorchSession::start(const PeerOptions &options, std::string &reason) {
    static std::shared_ptr<TorchSession> session;
    static std::string failure;
    if (!session && failure.empty()) {
        std::shared_ptr<TorchSession> candidate(new TorchSession{Process::python(options, "pytorch.py"), "", ""});
        const json reply = candidate->process.ask({{"do", "hello"}}, start_limit);
        if (reply.contains("version")) {
            candidate->version = reply["version"];
            candidate->transformers = reply["transformers"];
            session = candidate;
        } else {
            failure = "'" + options.python + "' cannot import torch";
        }
    }
    reason = failure;
    return session;
}

namespace {

class PyTorch : public Peer {
public:
    PyTorch(std::shared_ptr<TorchSession> shared, bool compiled) : session(std::move(shared)), compile(compiled) {}
    std::string name() const override { return compile ? "pytorch-compile" : "pytorch"; }
    std::string version() const override { return session->version; }
    std::vector<pid_t> processes() const override { return {session->process.id()}; }
    bool slow_to_prepare() const override { return compile; }

    std::unique_ptr<PeerContender> prepare(Work &work, std::string &reason) override {
        if (work.id.is_model()) {
            reason = "has no model; transformers has";
            return nullptr;
        }
        json request = describe_row(session->process, work);
        request["mode"] = compile ? "compile" : "eager";
        auto contender = std::make_unique<RemoteContender>(work, session->process);
        reason = contender->prepare(request);
        return reason.empty() ? std::move(contender) : nullptr;
    }

private:
    std::shared_ptr<TorchSession> session;
    bool compile;
};

template<bool compile>
std::unique_ptr<Peer> make(const PeerOptions &options, std::string &reason) {
    const std::shared_ptr<TorchSession> session = TorchSession::start(options, reason);
    return session ? std::make_unique<PyTorch>(session, compile) : nullptr;
}

const PeerRegistration eager("pytorch", make<false>), compiled("pytorch-compile", make<true>);

}  // namespace
}  // namespace halyard::bench
