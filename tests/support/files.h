// Files for tests, and messages of `Error`.
#ifndef HALYARD_TESTS_FILES_H
#define HALYARD_TESTS_FILES_H

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>

#include "halyard/halyard.hpp"

namespace halyard::tests {

/** A folder that is removed with all that is in it. */
class TemporaryFolder {
public:
    TemporaryFolder() {
        std::string name = testing::TempDir() + "halyard-XXXXXX";
        path_ = mkdtemp(name.data());
    }
    ~TemporaryFolder() { std::filesystem::remove_all(path_); }
    TemporaryFolder(const TemporaryFolder &) = delete;
    TemporaryFolder &operator=(const TemporaryFolder &) = delete;

    const std::filesystem::path &path() const { return path_; }
    std::filesystem::path operator/(const std::string &name) const { return path_ / name; }

private:
    std::filesystem::path path_;
};

inline void write_text(const std::filesystem::path &path, std::string_view text) {
    std::ofstream file(path, std::ios::binary | std::ios::trunc);
    file.write(text.data(), static_cast<std::streamsize>(text.size()));
    ASSERT_TRUE(file.good()) << path;
}

inline std::string read_text(const std::filesystem::path &path) {
    std::ifstream file(path, std::ios::binary);
    EXPECT_TRUE(file.good()) << path;
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
}

/** `call` throws an `Error` whose message holds every one of `words`. */
template<class Call, class... Words>
testing::AssertionResult throws(halyard_status status, const Call &call, const Words &...words) {
    try {
        call();
    } catch (const Error &error) {
        const std::string message = error.what();
        if (error.status() != status) {
            return testing::AssertionFailure() << "status " << halyard_status_name(error.status()) << ": " << message;
        }
        for (const std::string_view word : {std::string_view(words)...}) {
            if (message.find(word) == std::string::npos) {
                return testing::AssertionFailure() << "the message does not hold \"" << word << "\": " << message;
            }
        }
        return testing::AssertionSuccess();
    }
    return testing::AssertionFailure() << "nothing was thrown";
}

}  // namespace halyard::tests

#endif
