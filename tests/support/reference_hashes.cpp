// Hashes of results, in files and compared.
#include "support/reference_hashes.h"

#include <gtest/gtest.h>

#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "support/operations.h"

namespace halyard::tests {
namespace {

void write(const std::string &path, const Hashes &hashes) {
    std::ofstream file(path);
    file << "# Hashes of results on fixed inputs, made with avx2 where HALYARD_TEST_UPDATE_HASHES was set. Every\n"
            "# instruction set with fused multiply-add must give them.\n";
    for (const auto &[label, hash] : hashes) {
        file << label << ' ' << hash << '\n';
    }
}

/** One pair a line; lines that begin with # say how they came about. */
Hashes read(const std::string &path) {
    Hashes hashes;
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) {
        const std::size_t space = line.find(' ');
        if (!line.empty() && line[0] != '#' && space != std::string::npos) {
            hashes[line.substr(0, space)] = line.substr(space + 1);
        }
    }
    return hashes;
}

}  // namespace

void BitsHash::add(std::uint32_t bits) {
    for (int byte = 0; byte < 4; byte++) {
        state = (state ^ ((bits >> (8 * byte)) & 0xff)) * 0x100000001b3u;
    }
}

void BitsHash::add(const std::vector<std::uint32_t> &bits) {
    for (const std::uint32_t each : bits) {
        add(each);
    }
}

void BitsHash::add(const std::vector<float> &values) {
    for (const float value : values) {
        std::uint32_t bits;
        std::memcpy(&bits, &value, sizeof bits);
        add(std::isnan(value) ? 0x7fc00000u : bits);
    }
}

std::string BitsHash::text() const {
    char text[20];
    std::snprintf(text, sizeof text, "%016" PRIx64, state);
    return text;
}

void expect_reference_hashes(const std::string &group, const std::function<Hashes(halyard_isa)> &hashes) {
    const std::string path = HALYARD_TEST_DATA "/f32_bits/" + group + ".txt";
    if (std::getenv("HALYARD_TEST_UPDATE_HASHES") != nullptr) {
        ASSERT_TRUE(halyard_isa_supported(HALYARD_ISA_AVX2));
        write(path, hashes(HALYARD_ISA_AVX2));
    }
    const Hashes expected = read(path);
    ASSERT_FALSE(expected.empty()) << path;
    const std::vector<halyard_isa> isas = fused_isas();
    if (isas.empty()) {
        GTEST_SKIP() << "this machine has no fused multiply-add";
    }
    for (const halyard_isa isa : isas) {
        const Hashes got = hashes(isa);
        if (!is_subset) {
            EXPECT_EQ(expected.size(), got.size()) << path << " does not fit what there is";
        }
        for (const auto &[label, hash] : got) {
            const auto found = expected.find(label);
            ASSERT_NE(found, expected.end()) << label << " is not in " << path;
            EXPECT_EQ(hash, found->second) << label << " with " << halyard_isa_name(isa);
        }
    }
}

}  // namespace halyard::tests
