// Files of packed weights: what is written comes back, what is there before is kept until all of it is, and what is no such file is
// refused.
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

}  // namespace
}  // namespace halyard::tests
