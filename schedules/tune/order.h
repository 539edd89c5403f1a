// In which order kernels are tuned, so that each group of them gets its share of a time that is too short for all.
#ifndef HALYARD_TUNE_ORDER_H
#define HALYARD_TUNE_ORDER_H

#include <cstddef>
#include <string>
#include <vector>

namespace halyard::tune {

/** The places of `groups` in another order: some rounds, each with its part of every group. Within a group, and among
 *  groups of a round, the order stays. */
std::vector<std::size_t> in_shares(const std::vector<std::string> &groups, std::size_t rounds);

}  // namespace halyard::tune

#endif
