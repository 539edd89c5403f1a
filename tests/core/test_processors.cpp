// CPU quotas of control groups, read from folders made here.
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>

#include "core/system/processors.h"

namespace halyard::tests {
namespace {

/** A root folder with files in it, removed with the object. */
class Root {
public:
    Root() {
        std::string name = testing::TempDir() + "halyard-XXXXXX";
        if (mkdtemp(name.data()) == nullptr) {
            ADD_FAILURE() << "no temporary folder";
        }
        path_ = name;
    }
    ~Root() { std::filesystem::remove_all(path_); }
    Root(const Root &) = delete;
    Root &operator=(const Root &) = delete;

    Root &file(const std::string &name, const std::string &text) {
        const std::filesystem::path whole = path_ / name;
        std::filesystem::create_directories(whole.parent_path());
        std::ofstream(whole) << text;
        return *this;
    }
    std::int64_t processors() const { return processors_of_quota(path_.c_str()); }

private:
    std::filesystem::path path_;
};

constexpr std::int64_t no_quota = INT64_MAX;

TEST(Quota, IsNoneWhereNothingIsSaid) {
    EXPECT_EQ(Root().processors(), no_quota);
    EXPECT_EQ(Root().file("proc/self/cgroup", "0::/\n").processors(), no_quota);
    EXPECT_EQ(Root().file("proc/self/cgroup", "").file("sys/fs/cgroup/cpu.max", "50000 100000\n").processors(),
              no_quota);
}

TEST(Quota, OfVersion2IsRoundedUp) {
    const auto with = [](const std::string &text) {
        return Root().file("proc/self/cgroup", "0::/\n").file("sys/fs/cgroup/cpu.max", text).processors();
    };
    EXPECT_EQ(with("max 100000\n"), no_quota);
    EXPECT_EQ(with("50000 100000\n"), 1);
    EXPECT_EQ(with("100000 100000\n"), 1);
    EXPECT_EQ(with("100001 100000\n"), 2);
    EXPECT_EQ(with("350000 100000\n"), 4);
    EXPECT_EQ(with("1 1000000\n"), 1);
    for (const char *none : {"", "\n", "100000", "0 100000", "100000 0", "-1 100000", "x y"}) {
        EXPECT_EQ(with(none), no_quota) << none;
    }
}

TEST(Quota, IsTheLeastOfTheGroupsAroundOne) {
    const auto with = [](const std::string &outer, const std::string &middle, const std::string &inner) {
        return Root()
            .file("proc/self/cgroup", "0::/a/b c\n")
            .file("sys/fs/cgroup/cpu.max", outer)
            .file("sys/fs/cgroup/a/cpu.max", middle)
            .file("sys/fs/cgroup/a/b c/cpu.max", inner)
            .processors();
    };
    EXPECT_EQ(with("max 100000", "300000 100000", "max 100000"), 3);
    EXPECT_EQ(with("200000 100000", "300000 100000", "max 100000"), 2);
    EXPECT_EQ(with("max 100000", "300000 100000", "150000 100000"), 2);
}

TEST(Quota, OfVersion1IsInTheGroupOfCpu) {
    const auto with = [](const std::string &quota) {
        return Root()
            .file("proc/self/cgroup", "9:cpuset:/a\n4:cpuacct,cpu:/b\n1:name=systemd:/c\n0::/d\n")
            .file("sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "100000\n")
            .file("sys/fs/cgroup/cpu/a/cpu.cfs_period_us", "100000\n")
            .file("sys/fs/cgroup/cpu/b/cpu.cfs_quota_us", quota)
            .file("sys/fs/cgroup/cpu/b/cpu.cfs_period_us", "50000\n")
            .processors();
    };
    EXPECT_EQ(with("-1\n"), no_quota);
    EXPECT_EQ(with("250000\n"), 5);
    EXPECT_EQ(with("250001\n"), 6);
}

TEST(Quota, OfAContainerThatSeesThePathOfItsHost) {
    EXPECT_EQ(Root()
                  .file("proc/self/cgroup", "2:cpu,cpuacct:/docker/0123\n0::/system.slice/x\n")
                  .file("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "400000\n")
                  .file("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n")
                  .processors(),
              4);
    EXPECT_EQ(
        Root().file("proc/self/cgroup", "0::/../..\n").file("sys/fs/cgroup/cpu.max", "700000 100000").processors(), 7);
}

TEST(Processors, AreThereOnThisMachine) {
    EXPECT_GE(usable_processors(), 1);
}

}  // namespace
}  // namespace halyard::tests
