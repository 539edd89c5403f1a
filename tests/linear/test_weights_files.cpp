// Packed weights that come from outside: files, blocks of bytes, and every way in which they can be damaged.
#include <dirent.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iterator>
#include <limits>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/coded_matrix.h"

namespace {

/** The system's call that fails next, as on a full disk; null when it has. */
const char *failing_call = nullptr;

bool fails(const std::string &call) {
    if (failing_call == nullptr || call != failing_call) {
        return false;
    }
    failing_call = nullptr;
    errno = ENOSPC;
    return true;
}

/** What happens at the next allocation of the library, once; null: nothing. */
std::function<void()> at_allocation;

}  // namespace

// The program is linked with --wrap for these.
extern "C" {
ssize_t __real_write(int, const void *, size_t);
int __real_fsync(int);
int __real_fchmod(int, mode_t);
int __real_close(int);
int __real_rename(const char *, const char *);
void *__real_malloc(size_t);

/** A disk becomes full within a file. */
ssize_t __wrap_write(int file, const void *data, size_t bytes) {
    if (failing_call != nullptr && bytes > 100) {
        bytes = 100;
    } else if (fails("write")) {
        return -1;
    }
    return __real_write(file, data, bytes);
}
int __wrap_fsync(int file) {
    return fails("fsync") ? -1 : __real_fsync(file);
}
int __wrap_fchmod(int file, mode_t mode) {
    return fails("fchmod") ? -1 : __real_fchmod(file, mode);
}
int __wrap_close(int file) {
    const bool failed = fails("close");
    const int result = __real_close(file);
    if (failed) {
        errno = ENOSPC;
    }
    return failed ? -1 : result;
}
int __wrap_rename(const char *from, const char *to) {
    return fails("rename") ? -1 : __real_rename(from, to);
}
void *__wrap_malloc(size_t bytes) {
    if (at_allocation) {
        std::exchange(at_allocation, nullptr)();
    }
    return __real_malloc(bytes);
}
}

namespace halyard::tests {
namespace {

/** Bytes at an address that is a multiple of 64. */
class AlignedBytes {
public:
    AlignedBytes(const std::uint8_t *source, std::size_t size)
        : count(size), memory(std::aligned_alloc(64, (size + 64) / 64 * 64)) {
        if (size > 0) {
            std::memcpy(memory, source, size);
        }
    }
    explicit AlignedBytes(const Bytes &source) : AlignedBytes(source.data(), source.size()) {}
    ~AlignedBytes() { std::free(memory); }
    AlignedBytes(const AlignedBytes &) = delete;
    AlignedBytes &operator=(const AlignedBytes &) = delete;

    std::uint8_t *data() const { return static_cast<std::uint8_t *>(memory); }
    std::size_t size() const { return count; }

private:
    std::size_t count;
    void *memory;
};

halyard_status from_memory(const AlignedBytes &bytes, halyard_weights **weights) {
    return halyard_weights_from_memory(bytes.data(), static_cast<std::int64_t>(bytes.size()), weights);
}

/** A directory that is removed with all that is in it. */
class TemporaryDirectory {
public:
    TemporaryDirectory() {
        std::string name = testing::TempDir() + "halyard-XXXXXX";
        path = mkdtemp(name.data());
    }
    ~TemporaryDirectory() {
        chmod(path.c_str(), 0700);
        for (const std::string &name : names()) {
            if (unlink(file(name).c_str()) != 0) {
                rmdir(file(name).c_str());
            }
        }
        rmdir(path.c_str());
    }
    TemporaryDirectory(const TemporaryDirectory &) = delete;
    TemporaryDirectory &operator=(const TemporaryDirectory &) = delete;

    std::string file(const std::string &name) const { return path + "/" + name; }
    std::vector<std::string> names() const {
        std::vector<std::string> found;
        DIR *const directory = opendir(path.c_str());
        while (const dirent *entry = readdir(directory)) {
            const std::string name = entry->d_name;
            if (name != "." && name != "..") {
                found.push_back(name);
            }
        }
        closedir(directory);
        std::sort(found.begin(), found.end());
        return found;
    }

private:
    std::string path;
};

void write_file(const std::string &path, const std::uint8_t *data, std::size_t size) {
    std::ofstream file(path, std::ios::binary | std::ios::trunc);
    file.write(reinterpret_cast<const char *>(data), static_cast<std::streamsize>(size));
    ASSERT_TRUE(file.good()) << path;
}

Bytes read_file(const std::string &path) {
    std::ifstream file(path, std::ios::binary);
    return Bytes(std::istreambuf_iterator<char>(file), {});
}

halyard_status load(const std::string &path, halyard_weights **weights) {
    return halyard_weights_load(path.c_str(), weights);
}

std::size_t open_files() {
    std::size_t count = 0;
    DIR *const directory = opendir("/proc/self/fd");
    while (readdir(directory) != nullptr) {
        count++;
    }
    closedir(directory);
    return count;
}

TEST(WeightsHandle, RefusesNull) {
    halyard_weights_info info{};
    const PackedWeights handle = pack(PackSource({Dtype::f32, 3, 3}));
    EXPECT_TRUE(refused(halyard_weights_get_info(nullptr, &info), HALYARD_INVALID_ARGUMENT, "halyard_weights_get_info",
                        "weights"));
    EXPECT_TRUE(refused(halyard_weights_get_info(handle.get(), nullptr), HALYARD_INVALID_ARGUMENT,
                        "halyard_weights_get_info", "info"));
    EXPECT_EQ(halyard_weights_data(nullptr), nullptr);
    halyard_weights_destroy(nullptr);
    EXPECT_TRUE(
        refused(halyard_weights_save(nullptr, "x"), HALYARD_INVALID_ARGUMENT, "halyard_weights_save", "weights"));
    EXPECT_TRUE(
        refused(halyard_weights_save(handle.get(), nullptr), HALYARD_INVALID_ARGUMENT, "halyard_weights_save", "path"));
    halyard_weights *weights = nullptr;
    EXPECT_TRUE(
        refused(halyard_weights_load(nullptr, &weights), HALYARD_INVALID_ARGUMENT, "halyard_weights_load", "path"));
    EXPECT_TRUE(
        refused(halyard_weights_load("x", nullptr), HALYARD_INVALID_ARGUMENT, "halyard_weights_load", "weights"));
    EXPECT_TRUE(refused(halyard_weights_from_memory(nullptr, 0, &weights), HALYARD_INVALID_ARGUMENT,
                        "halyard_weights_from_memory", "memory"));
    const AlignedBytes block(bytes_of(handle.get()));
    EXPECT_TRUE(refused(halyard_weights_from_memory(block.data(), 0, nullptr), HALYARD_INVALID_ARGUMENT,
                        "halyard_weights_from_memory", "weights"));
    EXPECT_TRUE(refused(halyard_weights_from_memory(block.data(), -1, &weights), HALYARD_INVALID_ARGUMENT,
                        "halyard_weights_from_memory", "bytes"));
    EXPECT_TRUE(refused(halyard_weights_from_memory(block.data() + 4, 4096, &weights), HALYARD_INVALID_ARGUMENT,
                        "halyard_weights_from_memory", "memory"));
    EXPECT_EQ(weights, nullptr);
}

TEST(WeightsFile, HoldsThePackedBytesAndComesBack) {
    const TemporaryDirectory directory;
    const std::string path = directory.file("weights");
    for (const Dtype type : all_dtypes) {
        const PackSource sources(
            {type, 37, 50, HALYARD_WEIGHT_IN_OUT, true, true, true, true, 0, Placement::ends_at_guard});
        const Bytes expected = sources.expected();
        for (const halyard_isa isa : supported_isas()) {
            const Context context(isa);
            const PackedWeights packed = pack(sources, context.get());
            ASSERT_EQ(halyard_weights_save(packed.get(), path.c_str()), HALYARD_OK) << halyard_last_error();
            EXPECT_EQ(directory.names(), std::vector<std::string>{"weights"});
            EXPECT_EQ(read_file(path), expected) << halyard_isa_name(isa);

            halyard_weights *loaded = nullptr;
            ASSERT_EQ(load(path, &loaded), HALYARD_OK) << halyard_last_error();
            const PackedWeights handle(loaded);
            EXPECT_TRUE(same_bytes(expected, halyard_weights_data(loaded)));
            halyard_weights_info info{};
            ASSERT_EQ(halyard_weights_get_info(loaded, &info), HALYARD_OK);
            EXPECT_TRUE(info.in_features == 37 && info.out_features == 50 && info.gated == 1 && info.norm_folded == 1);
            EXPECT_EQ(info.bytes, static_cast<std::int64_t>(expected.size()));
            EXPECT_EQ(info.dtype.code, dlpack_type(type).code);
            EXPECT_EQ(info.dtype.bits, dlpack_type(type).bits);

            // What was loaded can be saved, over the very file it is mapped from: that one stays as long as it is used.
            ASSERT_EQ(halyard_weights_save(loaded, path.c_str()), HALYARD_OK) << halyard_last_error();
            EXPECT_TRUE(same_bytes(expected, halyard_weights_data(loaded)));
            EXPECT_EQ(read_file(path), expected);

            const AlignedBytes copy(expected);
            halyard_weights *viewed = nullptr;
            ASSERT_EQ(from_memory(copy, &viewed), HALYARD_OK) << halyard_last_error();
            EXPECT_EQ(halyard_weights_data(viewed), copy.data());
            halyard_weights_destroy(viewed);
        }
    }
}

// Where inputs came one by one.
TEST(WeightsFile, OfVersion1InBf16IsConverted) {
    const TemporaryDirectory directory;
    const std::string path = directory.file("weights");
    const auto files = open_files();
    for (const std::int64_t in : {1, 2, 37, 600}) {
        const PackSource sources(
            {Dtype::bf16, in, 50, HALYARD_WEIGHT_OUT_IN, true, true, true, true, 0, Placement::ends_at_guard});
        const Bytes old = sources.expected(1), expected = sources.expected();
        ASSERT_NE(old, expected);
        write_file(path, old.data(), old.size());
        halyard_weights *weights = nullptr;
        ASSERT_EQ(load(path, &weights), HALYARD_OK) << halyard_last_error();
        const PackedWeights loaded(weights);
        EXPECT_EQ(bytes_of(loaded.get()), expected);

        const AlignedBytes copy(old);
        ASSERT_EQ(from_memory(copy, &weights), HALYARD_OK) << halyard_last_error();
        const PackedWeights viewed(weights);
        EXPECT_NE(halyard_weights_data(viewed.get()), copy.data());
        EXPECT_EQ(bytes_of(viewed.get()), expected);
    }
    EXPECT_EQ(open_files(), files);
    // Others of version 2 there are none.
    Bytes block = PackSource({Dtype::f16, 6, 5}).expected();
    store_to<std::uint32_t>(block.data(), packed::version, 2);
    sign(block.data(), block.size());
    const AlignedBytes aligned(block);
    halyard_weights *weights = nullptr;
    EXPECT_TRUE(
        refused(from_memory(aligned, &weights), HALYARD_INVALID_ARGUMENT, "halyard_weights_from_memory", "no version"));
}

// Another process writes another header, with fitting checksum, once this one is checked.
TEST(WeightsFile, IsWhatItsHeaderSaidWhenItWasChecked) {
    const TemporaryDirectory directory;
    const std::string path = directory.file("weights");
    const PackSource sources({Dtype::bf16, 37, 50}), f32({Dtype::f32, 37, 50});
    for (const Bytes &block : {f32.expected(), sources.expected(), sources.expected(1)}) {
        Bytes altered(block.begin(), block.begin() + packed::header_size);
        store_to<std::int64_t>(altered.data(), packed::in_features, 1 << 20);
        store_to<std::int64_t>(altered.data(), packed::out_features, 1 << 20);
        sign_header(altered.data());
        write_file(path, block.data(), block.size());
        at_allocation = [&] {
            std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
            file.write(reinterpret_cast<const char *>(altered.data()), packed::header_size);
        };
        halyard_weights *weights = nullptr;
        ASSERT_EQ(load(path, &weights), HALYARD_OK) << halyard_last_error();
        const PackedWeights loaded(weights);
        EXPECT_FALSE(at_allocation) << "nothing was altered";
        halyard_weights_info info{};
        ASSERT_EQ(halyard_weights_get_info(weights, &info), HALYARD_OK);
        EXPECT_EQ(info.in_features, 37);
        EXPECT_EQ(info.out_features, 50);
    }
}

TEST(WeightsFile, ReplacesAFileAndKeepsItsMode) {
    const TemporaryDirectory directory;
    const std::string path = directory.file("weights"), fresh = directory.file("fresh");
    const PackSource sources({Dtype::bf16, 5, 5});
    const PackedWeights handle = pack(sources);
    struct stat status {};
    for (const mode_t mode : {0600, 0640, 0444, 0755}) {
        unlink(path.c_str());
        const Bytes old(100000, 7);
        write_file(path, old.data(), old.size());
        ASSERT_EQ(chmod(path.c_str(), mode), 0);
        // Another's, where this process may give files away.
        if (chown(path.c_str(), 1234, 4321) != 0) {
            ASSERT_NE(errno, ENOENT);
        }
        struct stat before {};
        ASSERT_EQ(stat(path.c_str(), &before), 0);
        ASSERT_EQ(halyard_weights_save(handle.get(), path.c_str()), HALYARD_OK) << halyard_last_error();
        EXPECT_EQ(read_file(path), sources.expected());
        ASSERT_EQ(stat(path.c_str(), &status), 0);
        EXPECT_EQ(status.st_mode & 07777, mode);
        EXPECT_EQ(status.st_uid, before.st_uid);
        EXPECT_EQ(status.st_gid, before.st_gid);
    }
    // A new file has the mode that any new file has.
    const mode_t mask = umask(0027);
    EXPECT_EQ(halyard_weights_save(handle.get(), fresh.c_str()), HALYARD_OK) << halyard_last_error();
    umask(mask);
    ASSERT_EQ(stat(fresh.c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 07777, 0640u);
}

TEST(WeightsFile, ReplacesNothingButFiles) {
    const TemporaryDirectory directory;
    const PackedWeights handle = pack(PackSource({Dtype::f32, 5, 5}));
    const auto refuses = [&](const std::string &name, const std::string &word) {
        const std::string path = directory.file(name);
        return refused(halyard_weights_save(handle.get(), path.c_str()), HALYARD_INVALID_ARGUMENT,
                       "halyard_weights_save", word + ": " + path);
    };
    const Bytes content(10, 7);
    write_file(directory.file("file"), content.data(), content.size());
    ASSERT_EQ(symlink("file", directory.file("link").c_str()), 0);
    ASSERT_EQ(symlink("nothing", directory.file("to_nothing").c_str()), 0);
    ASSERT_EQ(mkfifo(directory.file("pipe").c_str(), 0600), 0);
    ASSERT_EQ(mkdir(directory.file("directory").c_str(), 0700), 0);
    std::vector<std::string> names = {"directory", "file", "link", "pipe", "to_nothing"};
    EXPECT_TRUE(refuses("link", "path is a symbolic link, and only a regular file is replaced"));
    EXPECT_TRUE(refuses("to_nothing", "path is a symbolic link, and only a regular file is replaced"));
    EXPECT_TRUE(refuses("pipe", "path is a pipe, socket or device, and only a regular file is replaced"));
    EXPECT_TRUE(refuses("directory", "path is a directory, and only a regular file is replaced"));
    // Where devices can be made.
    if (mknod(directory.file("null").c_str(), S_IFCHR | 0600, makedev(1, 3)) == 0) {
        EXPECT_TRUE(refuses("null", "path is a pipe, socket or device, and only a regular file is replaced"));
        names.insert(names.begin() + 3, "null");
    }
    EXPECT_EQ(directory.names(), names);
    struct stat status {};
    ASSERT_EQ(lstat(directory.file("link").c_str(), &status), 0);
    EXPECT_TRUE(S_ISLNK(status.st_mode));
    ASSERT_EQ(lstat(directory.file("pipe").c_str(), &status), 0);
    EXPECT_TRUE(S_ISFIFO(status.st_mode));
    EXPECT_EQ(read_file(directory.file("file")), content);
}

TEST(WeightsFile, MayHaveANameOfAnyLength) {
    const TemporaryDirectory directory;
    const PackSource sources({Dtype::f32, 5, 5});
    const PackedWeights handle = pack(sources);
    const std::string longest = directory.file(std::string(255, 'x'));
    for (const std::string &path : {longest, longest, directory.file("x")}) {
        ASSERT_EQ(halyard_weights_save(handle.get(), path.c_str()), HALYARD_OK) << halyard_last_error();
        EXPECT_EQ(read_file(path), sources.expected());
    }
    EXPECT_EQ(directory.names().size(), 2u);
    EXPECT_TRUE(refused(halyard_weights_save(handle.get(), (longest + "x").c_str()), HALYARD_INVALID_ARGUMENT,
                        "halyard_weights_save", "path cannot be written (File name too long)"));
    // Without a directory it is one of the current one.
    char *const before = getcwd(nullptr, 0);
    ASSERT_EQ(chdir(directory.file("").c_str()), 0);
    EXPECT_EQ(halyard_weights_save(handle.get(), "here"), HALYARD_OK) << halyard_last_error();
    ASSERT_EQ(chdir(before), 0);
    std::free(before);
    EXPECT_EQ(read_file(directory.file("here")), sources.expected());
}

TEST(WeightsFile, LeavesNothingBehindWhereItCannotBeWritten) {
    const TemporaryDirectory directory;
    const PackedWeights handle = pack(PackSource({Dtype::f32, 5, 5}));
    const auto fails = [&](const std::string &path) {
        return refused(halyard_weights_save(handle.get(), path.c_str()), HALYARD_INVALID_ARGUMENT,
                       "halyard_weights_save", "path");
    };
    const std::size_t files = open_files();
    EXPECT_TRUE(fails(directory.file("missing/weights")));
    EXPECT_TRUE(fails(""));
    EXPECT_TRUE(fails(directory.file(std::string(5000, 'x'))));
    ASSERT_EQ(mkdir(directory.file("directory").c_str(), 0700), 0);
    EXPECT_TRUE(fails(directory.file("directory")));
    EXPECT_TRUE(fails("/dev/null/weights"));
    EXPECT_TRUE(fails("/proc/weights"));
    EXPECT_EQ(directory.names(), std::vector<std::string>{"directory"});
    EXPECT_EQ(open_files(), files);
}

TEST(WeightsFile, LeavesNothingBehindWhereTheDiskIsFull) {
    // A limit on the size of files is a disk that is full early.
    const TemporaryDirectory directory;
    const PackSource sources({Dtype::f32, 100, 100});
    const PackedWeights handle = pack(sources);
    ASSERT_EQ(halyard_weights_save(handle.get(), directory.file("weights").c_str()), HALYARD_OK);
    const auto save_with_little_room = [&] {
        rlimit limit{};
        limit.rlim_cur = limit.rlim_max = 8192;
        signal(SIGXFSZ, SIG_IGN);
        setrlimit(RLIMIT_FSIZE, &limit);
        const halyard_status status = halyard_weights_save(handle.get(), directory.file("weights").c_str());
        _exit(status == HALYARD_INVALID_ARGUMENT ? 0 : 1);
    };
    EXPECT_EXIT(save_with_little_room(), testing::ExitedWithCode(0), "");
    EXPECT_EQ(directory.names(), std::vector<std::string>{"weights"});
    EXPECT_EQ(read_file(directory.file("weights")), sources.expected());
}

TEST(WeightsFile, LeavesNothingBehindWhereACallOfTheSystemFails) {
    const TemporaryDirectory directory;
    const PackSource sources({Dtype::f32, 100, 100});
    const PackedWeights handle = pack(sources);
    const std::string path = directory.file("weights");
    const Bytes old(100, 7);
    const std::size_t files = open_files();
    for (const bool is_there : {false, true}) {
        if (is_there) {
            write_file(path, old.data(), old.size());
        }
        for (const char *const call : {"write", "fsync", "fchmod", "close", "rename"}) {
            failing_call = call;
            const halyard_status status = halyard_weights_save(handle.get(), path.c_str());
            const bool was_made = failing_call == nullptr;
            failing_call = nullptr;
            if (was_made) {
                EXPECT_TRUE(refused(status, HALYARD_INVALID_ARGUMENT, "halyard_weights_save",
                                    "path cannot be written (No space left on device): " + path))
                    << call;
            } else {
                // A new file's mode needs no call.
                EXPECT_TRUE(!is_there && std::string(call) == "fchmod") << call;
                EXPECT_EQ(unlink(path.c_str()), 0);
            }
            EXPECT_EQ(directory.names().size(), is_there ? 1u : 0u) << call;
            if (is_there) {
                EXPECT_EQ(read_file(path), old) << call;
            }
        }
    }
    EXPECT_EQ(open_files(), files);
}

TEST(WeightsFile, RefusesWhatIsNoFileOfWeights) {
    const TemporaryDirectory directory;
    const std::size_t files = open_files();
    halyard_weights *weights = nullptr;
    const auto fails = [&](const std::string &path, const std::string &word) {
        return refused(load(path, &weights), HALYARD_INVALID_ARGUMENT, "halyard_weights_load", word);
    };
    EXPECT_TRUE(fails(directory.file("missing"), "No such file"));
    EXPECT_TRUE(fails("", "path"));
    EXPECT_TRUE(fails(directory.file(""), "regular file"));
    ASSERT_EQ(mkfifo(directory.file("pipe").c_str(), 0600), 0);
    EXPECT_TRUE(fails(directory.file("pipe"), "regular file"));
    EXPECT_TRUE(fails("/dev/zero", "regular file"));

    const std::string path = directory.file("file");
    write_file(path, nullptr, 0);
    EXPECT_TRUE(fails(path, "empty"));
    const std::string text = "safetensors or some such";
    write_file(path, reinterpret_cast<const std::uint8_t *>(text.data()), text.size());
    EXPECT_TRUE(fails(path, "other than packed weights"));
    Bytes block = PackSource({Dtype::f32, 5, 5}).expected();
    write_file(path, block.data(), 100);
    EXPECT_TRUE(fails(path, "truncated"));
    write_file(path, block.data(), block.size() - 1);
    EXPECT_TRUE(fails(path, "truncated"));
    block.push_back(0);
    write_file(path, block.data(), block.size());
    EXPECT_TRUE(fails(path, "altered"));
    block.pop_back();
    block[packed::version] = 5;
    sign(block.data(), block.size());
    write_file(path, block.data(), block.size());
    EXPECT_TRUE(refused(load(path, &weights), HALYARD_UNSUPPORTED, "halyard_weights_load", "version 5"));
    EXPECT_EQ(weights, nullptr);
    EXPECT_EQ(open_files(), files);
    if (geteuid() != 0) {
        chmod(path.c_str(), 0);
        EXPECT_TRUE(fails(path, "path"));
    }
}

TEST(WeightsFile, CanBeLoadedByManyThreadsAtOnce) {
    const TemporaryDirectory directory;
    const std::string path = directory.file("weights");
    const PackSource sources({Dtype::f16, 300, 200});
    const Bytes expected = sources.expected();
    ASSERT_EQ(halyard_weights_save(pack(sources).get(), path.c_str()), HALYARD_OK);
    std::vector<int> failures(8);
    std::vector<std::thread> threads;
    for (int &failed : failures) {
        threads.emplace_back([&] {
            for (int i = 0; i < 20; i++) {
                halyard_weights *weights = nullptr;
                failed += load(path, &weights) != HALYARD_OK || !same_bytes(expected, halyard_weights_data(weights));
                // Some replace it meanwhile, by the same: whoever loads gets one of the files whole.
                failed += i % 5 == 0 && halyard_weights_save(weights, path.c_str()) != HALYARD_OK;
                halyard_weights_destroy(weights);
            }
        });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
    EXPECT_EQ(failures, std::vector<int>(8));
    EXPECT_EQ(directory.names(), std::vector<std::string>{"weights"});
}

class Damage : public testing::Test {
protected:
    testing::AssertionResult refuses(const Bytes &block, const std::string &word = "") {
        halyard_weights *weights = nullptr;
        const AlignedBytes aligned(block);
        const halyard_status status = from_memory(aligned, &weights);
        if (status == HALYARD_OK) {
            halyard_weights_destroy(weights);
            return testing::AssertionFailure() << "accepted";
        }
        return refused(status, status, "halyard_weights_from_memory", word);
    }

    const Bytes good =
        PackSource({Dtype::bf16, 21, 40, HALYARD_WEIGHT_OUT_IN, true, true, true, true, 0, Placement::ends_at_guard})
            .expected();
};

TEST_F(Damage, OfAnyBitOfTheHeaderIsNoticed) {
    for (std::size_t bit = 0; bit < 8 * packed::header_size; bit++) {
        Bytes block = good;
        block[bit / 8] ^= static_cast<std::uint8_t>(1u << bit % 8);
        const std::size_t byte = bit / 8;
        // Versions 2 and 3 are a bit apart.
        EXPECT_TRUE(refuses(block, byte < packed::version                                ? "other than packed weights"
                                   : byte < packed::dtype && block[packed::version] != 3 ? "version"
                                                                                         : "altered"))
            << "bit " << bit;
    }
}

TEST_F(Damage, OfAnyByteBehindItIsNoticed) {
    for (std::size_t byte = packed::header_size; byte < good.size(); byte++) {
        Bytes block = good;
        block[byte] ^= static_cast<std::uint8_t>(1u << byte % 8);
        ASSERT_TRUE(refuses(block, "altered")) << "byte " << byte;
    }
    // Panels and columns that change places.
    Bytes block = good;
    const std::size_t begin = panels_begin(16 * 6), panel = 22 * 16 * 2;
    std::swap_ranges(block.begin() + static_cast<std::ptrdiff_t>(begin),
                     block.begin() + static_cast<std::ptrdiff_t>(begin + panel),
                     block.begin() + static_cast<std::ptrdiff_t>(begin + panel));
    EXPECT_TRUE(refuses(block, "altered"));
}

TEST_F(Damage, ByTruncationIsNoticedAtEveryLength) {
    for (std::size_t size = 0; size < good.size(); size++) {
        ASSERT_TRUE(refuses(Bytes(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(size)),
                            size == 0 ? "empty" : "truncated"))
            << size;
    }
    for (const std::size_t more : {1, 16, 64, 5000}) {
        Bytes block = good;
        block.resize(good.size() + more);
        EXPECT_TRUE(refuses(block, "altered")) << more;
    }
}

// With checksums that fit: only the meaning of the fields is wrong.
TEST_F(Damage, OfFieldsIsNoticedWhateverTheChecksumSays) {
    const std::int64_t most = std::numeric_limits<std::int64_t>::max();
    const struct {
        std::size_t field;
        std::vector<std::int64_t> values;
        bool wide;
    } all[] = {
        {packed::dtype, {3, 4, 255, 1 << 16, 0xffffffff}, false},
        {packed::gated, {2, 3, 0xffffffff}, false},
        {packed::norm_folded, {2, 0x80000000, 0xffffffff}, false},
        {packed::in_features, {0, -1, 20, 23, most, std::int64_t{1} << 31, std::int64_t{1} << 58, -most - 1}, true},
        {packed::out_features, {0, -1, 32, 49, most, most - 15, std::int64_t{1} << 31, -most - 1}, true},
        {packed::bytes, {0, -1, 128, 4096, most, -most - 1}, true},
        {packed::reserved, {1, -1}, true},
        {packed::reserved + 40, {1, std::int64_t{1} << 63}, true},
    };
    for (const auto &each : all) {
        for (const std::int64_t value : each.values) {
            Bytes block = good;
            if (each.wide) {
                store_to(block.data(), each.field, value);
            } else {
                store_to(block.data(), each.field, static_cast<std::uint32_t>(value));
            }
            sign(block.data(), block.size());
            EXPECT_TRUE(refuses(block)) << "field at " << each.field << ": " << value;
        }
    }
    // Consistent in itself, and larger than the block.
    Bytes block = good;
    store_to<std::int64_t>(block.data(), packed::in_features, 1000000);
    store_to<std::int64_t>(block.data(), packed::bytes,
                           static_cast<std::int64_t>(panels_begin(16 * 6)) + 6 * 16 * 2 * std::int64_t{1000000});
    sign(block.data(), block.size());
    EXPECT_TRUE(refuses(block, "truncated"));
}

// Blocks with codes are damaged likewise.
class DamagedCodes : public Damage {
protected:
    static Bytes block_of(halyard_scale_kind kind, int bits, int group) {
        return CodedMatrix::random({250, 20, bits, kind, Dtype::f16, group, true}, 3).block();
    }
    const Bytes codes = block_of(HALYARD_SCALE_ZERO, 4, 32);
};

TEST_F(DamagedCodes, AreNoticedInAnyBit) {
    for (std::size_t bit = 0; bit < 8 * packed::header_size; bit++) {
        Bytes block = codes;
        block[bit / 8] ^= static_cast<std::uint8_t>(1u << bit % 8);
        EXPECT_TRUE(refuses(block)) << "bit " << bit;
    }
    for (std::size_t byte = packed::header_size; byte < codes.size(); byte++) {
        Bytes block = codes;
        block[byte] ^= static_cast<std::uint8_t>(1u << byte % 8);
        ASSERT_TRUE(refuses(block, "altered")) << "byte " << byte;
    }
    for (std::size_t size = 1; size < codes.size(); size += 7) {
        ASSERT_TRUE(refuses(Bytes(codes.begin(), codes.begin() + static_cast<std::ptrdiff_t>(size)), "truncated"))
            << size;
    }
}

TEST_F(DamagedCodes, AreNoticedInFieldsWhateverTheChecksumSays) {
    const struct {
        std::size_t field;
        std::vector<std::uint32_t> values;
    } all[] = {
        {packed::version, {1, 2}},
        {packed::dtype, {1, 2, 3}},
        {packed::norm_folded, {1, 2}},
        {packed::code_bits, {0, 1, 2, 3, 5, 7, 8, 9, 16, 32, 1 << 16, 0x80000004, 0xffffffff}},
        {packed::scale_kind, {0, 2, 3, 4, 5, 256, 0x80000001, 0xffffffff}},
        {packed::scale_dtype, {0, 3, 255, 257, 0xffffffff}},
        {packed::code_group, {0, 1, 8, 16, 33, 48, 64, 128, 256, 288, 512, 1 << 16, 0x80000020, 0xffffffff}},
        {packed::in_features, {0, 60, 260}},
        {packed::out_features, {0, 33}},
        {packed::reserved, {1, 0x80000000}},
        {packed::reserved + 44, {1}},
    };
    for (const auto &each : all) {
        for (const std::uint32_t value : each.values) {
            Bytes block = codes;
            store_to(block.data(), each.field, value);
            sign(block.data(), block.size());
            EXPECT_TRUE(refuses(block)) << "field at " << each.field << ": " << value;
        }
    }
    // Fields that only blocks with codes have.
    for (const std::size_t field : {packed::code_bits, packed::scale_kind, packed::scale_dtype, packed::code_group}) {
        Bytes block = good;
        store_to<std::uint32_t>(block.data(), field, 4);
        sign(block.data(), block.size());
        EXPECT_TRUE(refuses(block)) << "field at " << field;
    }
    // Combinations that no kind has, with the size that they would have.
    const struct {
        halyard_scale_kind kind;
        int bits, group;
        Dtype scales;
    } none[] = {{HALYARD_SCALE_MIN, 4, 32, Dtype::f32},
                {HALYARD_SCALE_TWO_LEVELS, 4, 64, Dtype::f16},
                {HALYARD_SCALE_TWO_LEVELS, 8, 16, Dtype::f16},
                {HALYARD_SCALE_TWO_LEVELS, 4, 32, Dtype::bf16},
                {HALYARD_SCALE_TWO_LEVELS_SIGNED, 4, 16, Dtype::f16},
                {HALYARD_SCALE_TWO_LEVELS_SIGNED, 8, 32, Dtype::f16},
                {HALYARD_SCALE_TWO_LEVELS_SIGNED, 8, 16, Dtype::f32}};
    for (const auto &each : none) {
        EXPECT_TRUE(refuses(CodedMatrix({250, 20, each.bits, each.kind, each.scales, each.group, true}).block()))
            << each.kind << " in groups of " << each.group;
    }
}

TEST(CodesFile, ComesBackAsItWas) {
    const TemporaryDirectory directory;
    for (const halyard_scale_kind kind : {HALYARD_SCALE_PLAIN, HALYARD_SCALE_ZERO, HALYARD_SCALE_MIN,
                                          HALYARD_SCALE_TWO_LEVELS, HALYARD_SCALE_TWO_LEVELS_SIGNED}) {
        const CodeForm form = {700, 40, 8, kind, Dtype::f16, kind == HALYARD_SCALE_TWO_LEVELS_SIGNED ? 16 : 32, false};
        const Bytes block = CodedMatrix::random(form, 4).block();
        const AlignedBytes memory(block);
        halyard_weights *weights = nullptr, *loaded = nullptr;
        ASSERT_EQ(from_memory(memory, &weights), HALYARD_OK) << halyard_last_error();
        const std::string path = directory.file("codes");
        ASSERT_EQ(halyard_weights_save(weights, path.c_str()), HALYARD_OK) << halyard_last_error();
        halyard_weights_destroy(weights);
        EXPECT_EQ(read_file(path), block);
        ASSERT_EQ(load(path, &loaded), HALYARD_OK) << halyard_last_error();
        EXPECT_TRUE(same_bytes(block, halyard_weights_data(loaded)));
        halyard_weights_info info{};
        ASSERT_EQ(halyard_weights_get_info(loaded, &info), HALYARD_OK);
        EXPECT_EQ(info.code_bits, 8);
        EXPECT_EQ(info.code_group, form.group);
        EXPECT_EQ(info.scale_kind, kind);
        EXPECT_EQ(info.scale_dtype.bits, 16);
        EXPECT_EQ(info.in_features, 700);
        EXPECT_EQ(info.bytes, static_cast<std::int64_t>(block.size()));
        halyard_weights_destroy(loaded);
    }
}

/** Reads everything that the library would read of accepted weights. */
double sum_of_everything(const halyard_weights *weights) {
    double sum = 0;
    for (const std::uint8_t byte : bytes_of(weights)) {
        sum += byte;
    }
    return sum;
}

// Thousands of small changes, some with checksums made to fit, so that the checks behind them have to hold. An accepted
// block is one whose fields are consistent, and can be used.
TEST(WeightsMutations, NeverCrashAndAreAcceptedOnlyIfConsistent) {
    std::vector<Bytes> seeds;
    for (const Dtype type : all_dtypes) {
        seeds.push_back(PackSource({type, 3, 5}).expected());
        seeds.push_back(
            PackSource({type, 9, 17, HALYARD_WEIGHT_OUT_IN, true, true, true, true, 0, Placement::ends_at_guard})
                .expected());
    }
    for (const halyard_scale_kind kind : {HALYARD_SCALE_PLAIN, HALYARD_SCALE_MIN, HALYARD_SCALE_TWO_LEVELS}) {
        seeds.push_back(CodedMatrix::random({9, 17, 4, kind, Dtype::f16, 32, kind == HALYARD_SCALE_MIN}, 5).block());
    }
    int accepted = 0;
    for (std::uint64_t i = 0; i < 24000; i++) {
        const auto random = [&](std::uint64_t which, std::uint64_t below) { return hash(i + 1000, which, 9) % below; };
        Bytes block = seeds[random(0, seeds.size())];
        const std::uint64_t changes = 1 + random(1, 4);
        for (std::uint64_t change = 0; change < changes; change++) {
            // Most in the fields that say how large things are.
            const std::size_t at =
                random(10 + change, 4) == 0 ? random(20 + change, block.size()) : 8 + random(20 + change, 64);
            switch (random(30 + change, 4)) {
            case 0:
                block[at] ^= static_cast<std::uint8_t>(1u << random(40 + change, 8));
                break;
            case 1:
                block[at] = static_cast<std::uint8_t>(random(40 + change, 256));
                break;
            case 2:
                block[at] = static_cast<std::uint8_t>(block[at] + 1);
                break;
            default:
                block[at] = random(40 + change, 2) != 0 ? 0xff : 0;
            }
        }
        if (random(2, 8) == 0) {
            block.resize(random(3, 2 * block.size()));
        }
        if (block.size() >= packed::header_size && random(4, 4) != 0) {
            if (random(5, 2) != 0) {
                store_to(block.data(), packed::bytes, static_cast<std::int64_t>(block.size()));
            }
            store_to(block.data(), packed::version, static_cast<std::uint32_t>(1 + random(6, 4)));
            sign(block.data(), block.size());
        }
        const AlignedBytes aligned(block);
        halyard_weights *weights = nullptr;
        if (from_memory(aligned, &weights) == HALYARD_OK) {
            accepted++;
            halyard_weights_info info{};
            ASSERT_EQ(halyard_weights_get_info(weights, &info), HALYARD_OK);
            const auto dtype = load_from<std::uint32_t>(block.data(), packed::dtype),
                       version = load_from<std::uint32_t>(block.data(), packed::version);
            const auto panels = static_cast<std::size_t>((info.out_features + 15) / 16 * (info.gated + 1)),
                       in = static_cast<std::size_t>(info.in_features);
            if (version >= 3) {
                const std::size_t panel_bytes = code_panel_size(
                    static_cast<std::uint32_t>(info.code_bits), static_cast<std::uint32_t>(info.scale_kind),
                    load_from<std::uint32_t>(block.data(), packed::scale_dtype),
                    static_cast<std::size_t>(info.code_group), in);
                ASSERT_EQ(block.size(), panels_begin(16 * panels, version == 4 ? in : 0) + panels * panel_bytes);
                ASSERT_EQ(static_cast<std::size_t>(info.bytes), block.size());
            } else {
                ASSERT_EQ(block.size(), panels_begin(16 * panels) + panels * panel_size(version, dtype, in));
                ASSERT_EQ(static_cast<std::size_t>(info.bytes),
                          panels_begin(16 * panels) + panels * panel_size(version_of(dtype), dtype, in));
            }
            ASSERT_GE(sum_of_everything(weights), 0);
            halyard_weights_destroy(weights);
        } else {
            ASSERT_EQ(weights, nullptr);
            ASSERT_NE(*halyard_last_error(), '\0');
        }
    }
    // Changes of values alone, such as of an element, make a block that is as good as any.
    EXPECT_GT(accepted, 100);
    EXPECT_LT(accepted, 20000);
}

}  // namespace
}  // namespace halyard::tests
