// The peer "in f32": the same kernel of this library on f32 tensors, the bar for the 16-bit types out of cache.
#include "peers/peer.h"

namespace halyard::bench {
namespace {

class F32Contender : public PeerContender {
public:
    F32Contender(const WorkId &id, const PeerOptions &options)
        : work(id, options.cold_set, options.isa), local(Call{&work}, work.sets.size()) {}
    Contender &contender() override { return local; }
    Accuracy accuracy() override {
        work.spoil_outputs();
        work.call(0);
        return work.accuracy();
    }

private:
    struct Call {
        Work *work;
        void operator()(std::size_t set) const { work->id.kernel->call(*work, work->sets[set]); }
    };
    Work work;
    Local<Call> local;
};

class InF32 : public Peer {
public:
    explicit InF32(const PeerOptions &given) : options(given) {}
    std::string name() const override { return "in f32"; }
    std::string version() const override { return "(this library)"; }

    std::unique_ptr<PeerContender> prepare(Work &work, std::string &reason) override {
        if (work.id.dtype == Dtype::f32 || !work.id.cold || work.id.kernel->cast_to || work.id.has_heads()) {
            reason = "is compared for kernels and layers of 16-bit types out of cache";
            return nullptr;
        }
        WorkId id = work.id;
        id.dtype = Dtype::f32;
        return std::make_unique<F32Contender>(id, options);
    }

private:
    PeerOptions options;
};

const PeerRegistration registration("in f32", [](const PeerOptions &options, std::string &) -> std::unique_ptr<Peer> {
    return std::make_unique<InF32>(options);
});

}  // namespace
}  // namespace halyard::bench
