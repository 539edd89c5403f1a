#include "new_folder.h"

#include <sys/stat.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <system_error>

#include "fail.h"
#include "replacement_file.h"

namespace halyard::models {

NewFolder::NewFolder(const std::filesystem::path &path) : path_(path) {
    refuse_if_there();
    const std::filesystem::path name = temporary_beside(path);
    if (mkdir(name.c_str(), 0777) != 0) {
        refuse(path, "cannot be created: ", std::strerror(errno));
    }
    temporary_ = name;
}

NewFolder::~NewFolder() {
    if (!temporary_.empty()) {
        std::error_code ignored;
        std::filesystem::remove_all(temporary_, ignored);
    }
}

void NewFolder::refuse_if_there() const {
    struct stat ignored {};
    if (lstat(path_.c_str(), &ignored) == 0) {
        refuse(path_, "is there already: name a folder that is not, or a file that ends in .gguf");
    }
}

void NewFolder::write(const char *name, std::string_view text) const {
    ReplacementFile file(temporary_ / name);
    file.write(text.data(), text.size());
    file.finish();
}

void NewFolder::finish() {
    refuse_if_there();  // rename would replace an empty folder
    if (std::rename(temporary_.c_str(), path_.c_str()) != 0) {
        refuse(path_, "cannot be created: ", std::strerror(errno));
    }
    temporary_.clear();
    sync_folder_of(path_);
}

}  // namespace halyard::models
