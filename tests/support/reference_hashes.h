// Results whose bits every instruction set with fused multiply-add must give, on whatever machine: tests/data/f32_bits
// holds their hashes, made with AVX2.
#ifndef HALYARD_TESTS_SUPPORT_REFERENCE_HASHES_H
#define HALYARD_TESTS_SUPPORT_REFERENCE_HASHES_H

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "support/operations.h"

namespace halyard::tests {

/** A hash of 32-bit values in their order. All NaN should be the same one, as Tensor::all_bits makes them. */
class BitsHash {
public:
    void add(std::uint32_t bits);
    void add(const std::vector<std::uint32_t> &bits);
    void add(const std::vector<float> &values);
    /** In hexadecimal. */
    std::string text() const;

private:
    std::uint64_t state = 0xcbf29ce484222325u;  // FNV-1a
};

/** What products may be of, by names for labels. */
constexpr std::pair<const char *, halyard_products> all_products[] = {{"storage", HALYARD_PRODUCTS_STORAGE},
                                                                      {"full", HALYARD_PRODUCTS_FULL}};

/** Labels without blanks, and hashes. */
using Hashes = std::map<std::string, std::string>;

/** Expects of every instruction set with fused multiply-add the hashes in f32_bits/<group>.txt. With the environment
 *  variable HALYARD_TEST_UPDATE_HASHES it first writes that file with AVX2. */
void expect_reference_hashes(const std::string &group, const std::function<Hashes(halyard_isa)> &hashes);

}  // namespace halyard::tests

#endif
