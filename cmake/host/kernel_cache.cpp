// See kernel_cache.h.
#include "kernel_cache.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <vector>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace halyard::host {
namespace {

namespace fs = std::filesystem;

// The folder has a part for each first digit of a digest. A part is trimmed by itself, when a kernel is added to it.
constexpr std::uintmax_t most_bytes_of_part = (std::uintmax_t{512} << 20) / 16;

fs::path folder_of_user() {
    const auto variable = [](const char *name) -> std::string {
        const char *value = std::getenv(name);
        return value == nullptr ? "" : value;
    };
    if (const std::string named = variable("HALYARD_CACHE"); !named.empty()) {
        return named == "off" ? fs::path() : fs::path(named);
    }
    if (const std::string caches = variable("XDG_CACHE_HOME"); fs::path(caches).is_absolute()) {
        return fs::path(caches) / "halyard";
    }
    const std::string home = variable("HOME");
    return home.empty() ? fs::path() : fs::path(home) / ".cache/halyard";
}

/** Removes what was used longest ago, and what a killed build left unfinished, until three quarters are left. */
void trim(const fs::path &part) {
    struct Entry {
        fs::file_time_type used;
        std::uintmax_t bytes;
        fs::path file;
    };
    std::vector<Entry> entries;
    std::uintmax_t total = 0;
    for (const fs::directory_entry &each : fs::directory_iterator(part)) {
        std::error_code gone;
        const Entry entry{each.last_write_time(gone), each.file_size(gone), each.path()};
        if (!gone) {
            entries.push_back(entry);
            total += entry.bytes;
        }
    }
    if (total <= most_bytes_of_part) {
        return;
    }
    std::sort(entries.begin(), entries.end(), [](const Entry &a, const Entry &b) { return a.used < b.used; });
    for (const Entry &entry : entries) {
        if (total <= most_bytes_of_part / 4 * 3) {
            break;
        }
        std::error_code gone;
        fs::remove(entry.file, gone);
        total -= entry.bytes;
    }
}

/** The head names the format, and how the bytes after it are parted and hashed. */
std::string entry_of(const std::string &key, const CachedObject &made) {
    const std::string body = key + made.object + made.assembly;
    std::ostringstream head;
    head << "halyard-kernel " << key.size() << ' ' << made.object.size() << ' ' << made.assembly.size() << ' '
         << digest_of(body) << '\n';
    return head.str() + body;
}

}  // namespace

KernelCache::KernelCache() : folder(folder_of_user()) {}

fs::path KernelCache::file_of(const std::string &key) const {
    const std::string name = digest_of(key);
    return folder / "kernels" / name.substr(0, 1) / name;
}

std::optional<CachedObject> KernelCache::find(const std::string &key) const {
    if (folder.empty()) {
        return {};
    }
    const fs::path file = file_of(key);
    // A directory or a pipe has no size, and a damaged file may claim more than there is memory.
    std::error_code error;
    if (const std::uintmax_t size = fs::file_size(file, error); error || size > most_bytes_of_part) {
        return {};
    }
    std::string bytes;
    try {
        bytes = read_file(file);
    } catch (const std::runtime_error &) {
        return {};
    }
    std::istringstream head(bytes.substr(0, bytes.find('\n')));
    std::string format;
    std::size_t key_size = 0, object_size = 0, assembly_size = 0;
    head >> format >> key_size >> object_size >> assembly_size;
    const std::size_t begin = bytes.find('\n') + 1, most = bytes.size() - begin;
    if (!head || key_size > most || object_size > most || assembly_size > most) {
        return {};
    }
    const CachedObject made{bytes.substr(begin + key_size, object_size), bytes.substr(bytes.size() - assembly_size)};
    if (entry_of(key, made) != bytes) {
        return {};
    }
    std::error_code ignored;
    fs::last_write_time(file, fs::file_time_type::clock::now(), ignored);
    return made;
}

void KernelCache::store(const std::string &key, const CachedObject &made) const {
    if (folder.empty()) {
        return;
    }
    const fs::path file = file_of(key), unfinished = file.string() + "-" + std::to_string(getpid());
    try {
        fs::create_directories(file.parent_path());
        write_file(unfinished, entry_of(key, made));
        fs::rename(unfinished, file);
        trim(file.parent_path());
    } catch (const std::exception &) {  // a full disk, a folder that cannot be written to
        std::error_code ignored;
        fs::remove(unfinished, ignored);
    }
}

std::string digest_of(const std::string &bytes) {
    const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
    char digits[33];
    std::snprintf(digits, sizeof(digits), "%016llx%016llx", static_cast<unsigned long long>(hash.high64),
                  static_cast<unsigned long long>(hash.low64));
    return digits;
}

std::string read_file(const fs::path &file) {
    std::ifstream stream(file, std::ios::binary | std::ios::ate);
    std::string bytes(stream ? static_cast<std::size_t>(stream.tellg()) : 0, '\0');
    stream.seekg(0);
    if (!stream.read(bytes.data(), static_cast<std::streamsize>(bytes.size()))) {
        throw std::runtime_error("cannot read '" + file.string() + "': " + std::strerror(errno));
    }
    return bytes;
}

void write_file(const fs::path &file, const std::string &bytes) {
    std::ofstream stream(file, std::ios::binary);
    stream << bytes;
    stream.close();
    if (!stream) {
        throw std::runtime_error("cannot write '" + file.string() + "': " + std::strerror(errno));
    }
}

}  // namespace halyard::host
