// The register of peers, see peer.h.
#include "peers/peer.h"

#include <algorithm>

namespace halyard::bench {
namespace {

std::vector<KnownPeer> &registered() {
    static std::vector<KnownPeer> list;
    return list;
}

}  // namespace

PeerRegistration::PeerRegistration(const char *name, const MakePeer &make, Runs where) {
    registered().push_back({name, make, where});
}

bool PeerOptions::caps_isa() const {
    for (int i = isa + 1; i < halyard_isa_count(); i++) {
        if (halyard_isa_supported(static_cast<halyard_isa>(i)) != 0) {
            return true;
        }
    }
    return false;
}

bool is_plain_f32_product(const CaseId &id) {
    const auto &form = id.kernel->layer;
    return form && !form->is_ffn && !form->gated && !form->has_bias && !form->has_residual &&
           form->activation == HALYARD_IDENTITY && form->norm == HALYARD_NORM_NONE && id.dtype == Dtype::f32;
}

std::vector<KnownPeer> known_peers(const std::vector<std::string> &folders) {
    std::vector<KnownPeer> sorted = registered();
    const std::vector<KnownPeer> python = python_peers(folders);
    sorted.insert(sorted.end(), python.begin(), python.end());
    std::sort(sorted.begin(), sorted.end(), [](const auto &a, const auto &b) { return a.name < b.name; });
    return sorted;
}

}  // namespace halyard::bench
