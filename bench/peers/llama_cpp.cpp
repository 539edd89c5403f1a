// The peer "llama.cpp": whole models through llama-cpp-python, in a Python process of its own (llama_cpp_model.py),
// whose malloc is told to use huge pages, as the library's packed weights do.
#include "peers/describe.h"

namespace halyard::bench {
namespace {

class LlamaCpp : public Peer {
public:
    explicit LlamaCpp(const PeerOptions &options)
        : process(Process::python(options, "llama_cpp_model.py", {"GLIBC_TUNABLES=glibc.malloc.hugetlb=1"})) {}

    /** Empty, or why it is not there. */
    std::string start(const PeerOptions &options) {
        const nlohmann::json reply = process.ask({{"do", "hello"}}, start_limit);
        made_version = reply.value("version", "");
        return made_version.empty() ? "'" + options.python + "' cannot import llama_cpp" : "";
    }
    std::string name() const override { return "llama.cpp"; }
    std::string version() const override { return made_version; }
    std::vector<pid_t> processes() const override { return {process.id()}; }

    std::unique_ptr<PeerContender> prepare(Work &work, std::string &reason) override {
        if (!work.id.is_model()) {
            reason = "is compared for whole models";
            return nullptr;
        }
        auto contender = std::make_unique<RemoteContender>(work, process);
        reason = contender->prepare({{"model", describe_model(process, work)}, {"folder", process.folder()}});
        return reason.empty() ? std::move(contender) : nullptr;
    }

private:
    Process process;
    std::string made_version;
};

const PeerRegistration registration("llama.cpp",
                                    [](const PeerOptions &options, std::string &reason) -> std::unique_ptr<Peer> {
                                        if (options.caps_isa()) {
                                            reason = "is built for this machine's instruction set";
                                            return nullptr;
                                        }
                                        auto peer = std::make_unique<LlamaCpp>(options);
                                        reason = peer->start(options);
                                        return reason.empty() ? std::move(peer) : nullptr;
                                    });

}  // namespace
}  // namespace halyard::bench
