// Compiles a C++ file, or takes its object from the cache (kernel_cache.h), where it is kept by what it is made of: the compiler, its
// flags, and the text that the preprocessor gives, without the paths that it comes from. A launcher of compilers for CMake.
//
//   halyard_compile COMPILER ARGUMENT...
//       compiles as the command does, -o OBJECT, -c SOURCE and -MF DEPENDENCIES being among the arguments
//
// Objects that depend on more are made anew each time: those with debug information, of sanitizers or profiles, and for the machine
// at hand. So are those with warnings, which are to be seen again. The status is that of the compiler.
#include <fcntl.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "kernel_cache.h"

namespace {

using namespace halyard::host;
namespace fs = std::filesystem;
using Words = std::vector<std::string>;

std::vector<char *> pointers_to(const Words &words) {
    std::vector<char *> pointers;
    for (const std::string &word : words) {
        pointers.push_back(const_cast<char *>(word.c_str()));
    }
    pointers.push_back(nullptr);
    return pointers;
}

/** The status; `messages` is the file that gets what is printed on the error stream. */
int run(const Words &words, const std::string &messages) {
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, messages.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    pid_t process = 0;
    const int failed = posix_spawnp(&process, words[0].c_str(), &actions, nullptr, pointers_to(words).data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    int status = 0;
    if (failed != 0 || waitpid(process, &status, 0) != process) {
        throw std::runtime_error("'" + words[0] + "' could not be started");
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

bool begins_with(const std::string &text, const std::string &start) {
    return text.compare(0, start.size(), start) == 0;
}

/** Whether the object depends on compiler, flags and text alone. */
bool can_be_kept(const Words &words) {
    const auto is_there = [&](const char *word) { return std::find(words.begin(), words.end(), word) != words.end(); };
    const auto depends_on_more = [](const std::string &word) {
        const bool is_machine = word.size() >= 7 && word.compare(word.size() - 7, 7, "=native") == 0;
        return is_machine || begins_with(word, "-g") || begins_with(word, "-fsanitize") ||
               begins_with(word, "-fprofile") || begins_with(word, "--coverage") || begins_with(word, "@");
    };
    return is_there("-c") && is_there("-o") && is_there("-MF") &&
           std::none_of(words.begin(), words.end(), depends_on_more);
}

const std::string &word_after(const Words &words, const std::string &word) {
    const auto at = std::find(words.begin(), words.end(), word);
    if (words.end() - at < 2) {
        throw std::runtime_error("there is nothing after " + word);
    }
    return *(at + 1);
}

/** The compiler, by its file, and the arguments that name no file. */
std::string key_of_command(const Words &words) {
    const fs::path compiler = fs::canonical(words[0]);
    std::string key = compiler.string() + "\n" + std::to_string(fs::file_size(compiler)) + "\n" +
                      std::to_string(fs::last_write_time(compiler).time_since_epoch().count()) + "\n";
    const char *const named[] = {"-I", "-ffile-prefix-map=", "-M"};
    const char *const before_names[] = {"-isystem", "-I", "-MF", "-MT", "-MQ", "-o", "-c"};
    for (std::size_t i = 1; i < words.size(); i++) {
        if (std::find(std::begin(before_names), std::end(before_names), words[i]) != std::end(before_names)) {
            i++;
        } else if (std::none_of(std::begin(named), std::end(named),
                                [&](const char *start) { return begins_with(words[i], start); })) {
            key += words[i] + "\n";
        }
    }
    return key;
}

/** The command that writes the text to a file, and the other files on which it depends as the compiler would. */
Words preprocessing(Words words, const std::string &text) {
    *std::find(words.begin(), words.end(), "-c") = "-E";
    *(std::find(words.begin(), words.end(), "-o") + 1) = text;
    words.push_back("-P");
    return words;
}

/** When a file or its name changed last, in the file system's time; after all times if it is gone. */
std::pair<time_t, long> last_change(const std::string &file) {
    struct stat status;
    if (stat(file.c_str(), &status) != 0) {
        return {std::numeric_limits<time_t>::max(), 0};
    }
    return {status.st_ctim.tv_sec, status.st_ctim.tv_nsec};
}

/** The files that a rule of make names behind its colon. */
Words prerequisites(const std::string &rule) {
    Words files(1);
    for (std::size_t i = rule.find(": ") + 1; i < rule.size(); i++) {
        const bool is_escaped = rule[i] == '\\' && i + 1 < rule.size();
        const char c = is_escaped ? rule[++i] : rule[i];
        if (c == '\n' || (c == ' ' && !is_escaped)) {
            files.emplace_back();
        } else {
            files.back() += c;
        }
    }
    files.erase(std::remove(files.begin(), files.end(), ""), files.end());
    return files;
}

/** Files beside the object that go when it is made. */
struct Temporary {
    std::string file;
    ~Temporary() {
        std::error_code ignored;
        fs::remove(file, ignored);
    }
};

int compile(const Words &words) {
    const std::string &object = word_after(words, "-o");
    const Temporary text{object + ".ii"}, messages{object + ".messages"};
    const Words preprocess = preprocessing(words, text.file);
    const auto fail = [&](int status) {
        std::cerr << read_file(messages.file);
        return status;
    };
    write_file(text.file, "");
    const auto begin = last_change(text.file);
    if (const int status = run(preprocess, messages.file); status != 0) {
        return fail(status);
    }
    const std::string key = key_of_command(words) + read_file(text.file);
    const KernelCache cache;
    if (const auto kept = cache.find(key)) {
        write_file(object, kept->object);
        return 0;
    }
    const int status = run(words, messages.file);
    if (const std::string printed = read_file(messages.file); status != 0 || !printed.empty()) {
        return fail(status);
    }
    // Unless a source was changed meanwhile.
    const Words sources = prerequisites(read_file(word_after(words, "-MF")));
    const auto is_as_before = [&](const std::string &file) { return last_change(file) <= begin; };
    if (std::all_of(sources.begin(), sources.end(), is_as_before)) {
        cache.store(key, {read_file(object), ""});
    }
    return 0;
}

}  // namespace

int main(int count, char **arguments) {
    const Words words(arguments + 1, arguments + count);
    try {
        if (words.empty()) {
            throw std::runtime_error("wrong arguments; compile.cpp says what there is");
        }
        if (can_be_kept(words)) {
            return compile(words);
        }
        execvp(words[0].c_str(), pointers_to(words).data());
        throw std::runtime_error("'" + words[0] + "' could not be started");
    } catch (const std::exception &error) {
        std::cerr << "halyard_compile: " << error.what() << '\n';
        return 1;
    }
}
