// The register of peers, see peer.h.
#include "peers/peer.h"

#include <algorithm>
#include <iterator>

#include "operations/isas.h"

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
    return std::any_of(std::begin(operations::built_isas), std::end(operations::built_isas),
                       [&](halyard_isa each) { return each > isa && halyard_isa_preferred(each) != 0; });
}

bool is_plain_f32_product(const WorkId &id) {
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
