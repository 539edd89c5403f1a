// The peer "eigen": plain f32 products as a C++ program that includes Eigen has them, with the library's own threads
// off but for OpenMP, and compiled for the instruction set of this machine.
#include <Eigen/Core>

#include "layer.h"
#include "peers/peer.h"

namespace halyard::bench {
namespace {

using RowMajor = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

class EigenPeer : public Peer {
public:
    std::string name() const override { return "eigen"; }
    std::string version() const override {
        return std::to_string(EIGEN_WORLD_VERSION) + "." + std::to_string(EIGEN_MAJOR_VERSION) + "." +
               std::to_string(EIGEN_MINOR_VERSION) + " (" + Eigen::SimdInstructionSetsInUse() + ")";
    }

    PeerAbout about() const override {
        return {"Eigen", "compiled for this machine, on OpenMP", "is compared for plain f32 products", "C"};
    }

    std::string refusal(const CaseId &id) const override {
        return is_plain_f32_product(id) ? "" : "is compared for plain f32 products";
    }

    std::unique_ptr<PeerContender> prepare(BenchmarkCase &bench_case, std::string &) override {
        Eigen::setNbThreads(bench_case.id.threads);
        auto weights = std::make_shared<std::vector<Matrix>>();
        for (std::size_t i = 0; i < bench_case.sets.size(); i++) {
            weights->push_back(bench_case.layer->source(Layer::first));
        }
        return make_local_peer(bench_case, [&bench_case, weights](std::size_t set) {
            const auto as_matrix = [](const Matrix &matrix) {
                return Eigen::Map<RowMajor>(reinterpret_cast<float *>(matrix.data()), matrix.rows(), matrix.width());
            };
            as_matrix(bench_case.sets[set].outputs[0]).noalias() =
                as_matrix(bench_case.sets[set].inputs[0]) * as_matrix((*weights)[set]).transpose();
        });
    }
};

std::unique_ptr<Peer> make(const PeerOptions &options, std::string &reason) {
    if (options.caps_isa()) {
        reason = "is compiled for the instruction set of the machine that built it";
        return nullptr;
    }
    return std::make_unique<EigenPeer>();
}

const PeerRegistration registration("eigen", make, Runs::isolated);

}  // namespace
}  // namespace halyard::bench
