// The peer "in f32": the same kernel of this library on f32 tensors, the bar for the 16-bit types out of cache.
#include "peers/peer.h"

namespace halyard::bench {
namespace {

class F32Contender : public PeerContender {
public:
    F32Contender(const CaseId &id, const PeerOptions &options)
        : bench_case(id, options.cold_set, options.isa), local(Call{&bench_case}, bench_case.sets.size()) {}
    Contender &contender() override { return local; }
    Accuracy accuracy() override {
        bench_case.spoil_outputs();
        bench_case.call(0);
        return bench_case.accuracy();
    }

private:
    struct Call {
        BenchmarkCase *bench_case;
        void operator()(std::size_t set) const { bench_case->id.kernel->call(*bench_case, bench_case->sets[set]); }
    };
    BenchmarkCase bench_case;
    Local<Call> local;
};

class InF32 : public Peer {
public:
    explicit InF32(const PeerOptions &given) : options(given) {}
    std::string name() const override { return "in f32"; }
    std::string version() const override { return "(this library)"; }

    std::unique_ptr<PeerContender> prepare(BenchmarkCase &bench_case, std::string &reason) override {
        if (bench_case.id.dtype == Dtype::f32 || !bench_case.id.cold || bench_case.id.kernel->cast_to ||
            bench_case.id.has_heads()) {
            reason = "is compared for kernels and layers of 16-bit types out of cache";
            return nullptr;
        }
        CaseId id = bench_case.id;
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
