// See order.h.
#include "order.h"

#include <algorithm>

namespace halyard::tune {

std::vector<std::size_t> in_shares(const std::vector<std::string> &groups, std::size_t rounds) {
    std::vector<std::string> names;  // as they appear
    for (const std::string &group : groups) {
        if (std::find(names.begin(), names.end(), group) == names.end()) {
            names.push_back(group);
        }
    }
    std::vector<std::size_t> order;
    for (std::size_t round = 0; round < rounds; round++) {
        for (const std::string &name : names) {
            const auto members = static_cast<std::size_t>(std::count(groups.begin(), groups.end(), name));
            const std::size_t begin = round * members / rounds, end = (round + 1) * members / rounds;
            std::size_t member = 0;
            for (std::size_t i = 0; i < groups.size(); i++) {
                if (groups[i] == name) {
                    if (member >= begin && member < end) {
                        order.push_back(i);
                    }
                    member++;
                }
            }
        }
    }
    return order;
}

}  // namespace halyard::tune
