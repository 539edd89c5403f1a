// The peer "transformers": Hugging Face's LlamaForCausalLM, eager, for whole models; it lives in the process of
// PyTorch.
#include "peers/describe.h"
#include "peers/pytorch.h"

namespace halyard::bench {
namespace {

class Transformers : public Peer {
public:
    explicit Transformers(std::shared_ptr<TorchSession> shared) : session(std::move(shared)) {}
    std::string name() const override { return "transformers"; }
    std::string version() const override { return session->transformers; }
    std::vector<pid_t> processes() const override { return {session->process.id()}; }

    std::unique_ptr<PeerContender> prepare(Work &work, std::string &reason) override {
        if (!work.id.is_model()) {
            reason = "is compared for whole models";
            return nullptr;
        }
        auto contender = std::make_unique<RemoteContender>(work, session->process);
        reason = contender->prepare({{"model", describe_model(session->process, work)}});
        return reason.empty() ? std::move(contender) : nullptr;
    }

private:
    std::shared_ptr<TorchSession> session;
};

const PeerRegistration registration("transformers",
                                    [](const PeerOptions &options, std::string &reason) -> std::unique_ptr<Peer> {
                                        const auto session = TorchSession::start(options, reason);
                                        if (session && session->transformers.empty()) {
                                            reason = "'" + options.python + "' cannot import transformers";
                                            return nullptr;
                                        }
                                        return session ? std::make_unique<Transformers>(session) : nullptr;
                                    });

}  // namespace
}  // namespace halyard::bench
