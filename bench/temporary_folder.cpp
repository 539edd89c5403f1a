// See temporary_folder.h.
#include "temporary_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

namespace halyard::bench {
namespace {

namespace fs = std::filesystem;

const std::string pattern = "-XXXXXX";

/** Opens a folder, not what a link leads to, and locks it; -1 if it is locked (EWOULDBLOCK) or not this user's. */
int locked(const fs::path &folder) {
    const int descriptor = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct stat status {};
    if (descriptor >= 0 && fstat(descriptor, &status) == 0 && status.st_uid == geteuid() &&
        flock(descriptor, LOCK_EX | LOCK_NB) == 0) {
        return descriptor;
    }
    const int error = errno;
    if (descriptor >= 0) {
        close(descriptor);
    }
    errno = error;
    return -1;
}

void remove_left_ones(const fs::path &parent, const std::string &name) {
    std::error_code error;
    for (fs::directory_iterator each(parent, error), end; !error && each != end; each.increment(error)) {
        const std::string file = each->path().filename().string();
        if (file.size() != name.size() + pattern.size() || file.rfind(name + "-", 0) != 0 ||
            file.find('-', name.size() + 1) != std::string::npos) {
            continue;
        }
        const int descriptor = locked(each->path());
        if (descriptor >= 0) {
            std::error_code ignored;
            fs::remove_all(each->path(), ignored);
            close(descriptor);
        }
    }
}

}  // namespace

TemporaryFolder::TemporaryFolder(const fs::path &parent, const std::string &name) {
    remove_left_ones(parent, name);
    while (true) {
        std::string made = (parent / (name + pattern)).string();
        if (mkdtemp(made.data()) == nullptr) {
            throw std::runtime_error("no folder for temporary files can be made in '" + parent.string() +
                                     "': " + std::strerror(errno));
        }
        folder = made;
        lock = locked(folder);
        // Another process may take it for one that was left, until it is locked.
        if (lock < 0 ? errno != EWOULDBLOCK : fs::exists(folder)) {
            return;
        }
        if (lock >= 0) {
            close(lock);
        }
    }
}

TemporaryFolder::~TemporaryFolder() {
    std::error_code ignored;
    fs::remove_all(folder, ignored);
    if (lock >= 0) {
        close(lock);
    }
}

}  // namespace halyard::bench
