// The register of peers, see peer.h.
#include "peers/peer.h"

#include <algorithm>
#include <string_view>

namespace halyard::bench {
namespace {

std::vector<PeerRegistration> &peers() {
    static std::vector<PeerRegistration> list;
    return list;
}

}  // namespace

PeerRegistration::PeerRegistration(const char *peer_name, MakePeer make_peer) : name(peer_name), make(make_peer) {
    peers().push_back(*this);
}

bool PeerOptions::caps_isa() const {
    for (int i = isa + 1; i < halyard_isa_count(); i++) {
        if (halyard_isa_supported(static_cast<halyard_isa>(i)) != 0) {
            return true;
        }
    }
    return false;
}

std::vector<PeerRegistration> registered_peers() {
    std::vector<PeerRegistration> sorted = peers();
    std::sort(sorted.begin(), sorted.end(),
              [](const auto &a, const auto &b) { return std::string_view(a.name) < std::string_view(b.name); });
    return sorted;
}

}  // namespace halyard::bench
