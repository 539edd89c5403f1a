// Runs a program's tests. CTest takes a program whose tests were all skipped for one that has passed, unless its exit status
// says otherwise.
#include <gtest/gtest.h>

int main(int count, char **arguments) {
    testing::InitGoogleTest(&count, arguments);
    const int failed = RUN_ALL_TESTS();
    const testing::UnitTest &all = *testing::UnitTest::GetInstance();
    constexpr int skipped = 77;  // SKIP_RETURN_CODE in CMakeLists.txt
    return failed == 0 && all.skipped_test_count() > 0 && all.successful_test_count() == 0 ? skipped : failed;
}
