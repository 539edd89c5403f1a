// Makes a kernel's object file: by a generator's program and, of kernels whose prefetches are chosen in the assembly or that
// need an assembler of their own, by way of assembly. What was made before comes from the cache (kernel_cache.h).
//
//   halyard_make_kernel digest OUT FILE... [-- WORD...]
//       writes a digest of the files' content and of what a command prints, unless that is there already
//   halyard_make_kernel OBJECT DIGEST [--streamed BYTES] [--assemble DIGEST WORD...] -- PROGRAM GENERATOR SYMBOL ARGUMENT...
//       OBJECT ends in .o; with --assemble the assembly is kept beside it. DIGEST is the file that has the digest of all that
//       the program makes it by, and the second one that of what assembles it. The words are a compiler and its flags; the
//       arguments are Halide's target and GeneratorParams.
//       With --streamed, which takes --assemble for x86, there is a second form of the kernel, which prefetches so many bytes ahead of
//       its loads (streamed_form.h).
//
// If a program fails, its message is the last that is printed, and its status that of this one.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <optional>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "kernel_cache.h"
#include "streamed_form.h"

namespace {

using namespace halyard::host;
using Words = std::vector<std::string>;

struct ProgramFailed {
    int status;
};

using Edits = std::vector<std::pair<std::string, std::string>>;

/** Halide 21 emits prefetches of the non-temporal kind alone, which on x86 bypass the second-level cache, and on ARM ask for the first.
 *  What is prefetched here is mostly read by every tile of rows in turn, long after: that kind is slower than none. With near=true it is
 *  read once, soon after (docs/results/kernel-notes.md has both). */
Edits prefetch_edits(const Words &arguments) {
    const bool near = std::find(arguments.begin(), arguments.end(), "near=true") != arguments.end();
    return {{"prefetchnta", near ? "prefetcht0" : "prefetcht1"}, {"pldl1strm", near ? "pldl1keep" : "pldl2keep"}};
}

[[noreturn]] void execute(const Words &words) {
    std::vector<char *> arguments;
    for (const std::string &word : words) {
        arguments.push_back(const_cast<char *>(word.c_str()));
    }
    arguments.push_back(nullptr);
    execvp(arguments[0], arguments.data());
    std::perror(arguments[0]);
    _exit(127);
}

int wait_for(pid_t process) {
    int status = 0;
    if (process < 0 || waitpid(process, &status, 0) != process) {
        throw std::runtime_error("no process could be started");
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void run(const Words &words) {
    const pid_t process = fork();
    if (process == 0) {
        execute(words);
    }
    if (const int status = wait_for(process); status != 0) {
        throw ProgramFailed{status};
    }
}

/** What the program prints. */
std::string output_of(const Words &words) {
    int ends[2];
    if (pipe(ends) != 0) {
        throw std::runtime_error("no pipe could be made");
    }
    const pid_t process = fork();
    if (process == 0) {
        dup2(ends[1], STDOUT_FILENO);
        close(ends[0]);
        close(ends[1]);
        execute(words);
    }
    close(ends[1]);
    std::string text;
    char buffer[4096];
    for (ssize_t count = 0; (count = read(ends[0], buffer, sizeof(buffer))) > 0;) {
        text.append(buffer, static_cast<std::size_t>(count));
    }
    close(ends[0]);
    if (const int status = wait_for(process); status != 0) {
        throw ProgramFailed{status};
    }
    return text;
}

/** What assembles a kernel: a compiler with its flags, and the file that has the digest of both programs. None without a command. */
struct Assembler {
    std::string digest;
    Words command;
};

/** A whole number that is not negative. */
int number_of(const std::string &word) {
    int number = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
    if (error != std::errc() || end != word.data() + word.size() || number < 0) {
        throw std::runtime_error("--streamed takes a number of bytes, not '" + word + "'");
    }
    return number;
}

void replace_all(std::string &text, const std::string &from, const std::string &to) {
    for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
        text.replace(at, from.size(), to);
    }
}

/** `command`: program, generator, symbol, arguments. */
Kernel make(const std::string &stem, const std::optional<int> &streamed, const Words &assemble, const Words &command) {
    const std::filesystem::path path(stem);
    const std::string &symbol = command[2];
    Words generate{command[0], "-g", command[1], "-f", symbol};
    generate.insert(generate.end(), command.begin() + 3, command.end());
    const std::string object = stem + ".o", assembly = stem + ".s";
    generate.insert(generate.end(),
                    {"-o", path.parent_path(), "-n", path.filename(), "-e", assemble.empty() ? "object" : "assembly"});
    run(generate);
    if (assemble.empty()) {
        return {read_file(object), ""};
    }
    std::string text = read_file(assembly);
    for (const auto &[from, to] : prefetch_edits(command)) {
        replace_all(text, from, to);
    }
    if (streamed) {
        text += streamed_form(text, symbol, *streamed);
    }
    write_file(assembly, text);
    Words words = assemble;
    words.insert(words.end(), {"-c", assembly, "-o", object});
    run(words);
    return {read_file(object), text};
}

void write_digest(const std::string &out, const Words &files, const Words &command) {
    std::string text;
    for (const std::string &file : files) {
        text += digest_of(read_file(file)) + "\n";
    }
    if (!command.empty()) {
        text += digest_of(output_of(command)) + "\n";
    }
    if (!std::filesystem::exists(out) || read_file(out) != text) {
        write_file(out, text);
    }
}

void make_kernel(const std::string &object, const std::string &digest, const std::optional<int> &streamed,
                 const Assembler &assembler, const Words &command) {
    const std::filesystem::path path(object);
    if (path.extension() != ".o") {
        throw std::runtime_error("'" + object + "' does not end in .o, as an object file must");
    }
    const std::string stem = std::filesystem::path(path).replace_extension();
    // The program counts by its digest: it holds the path of a library. Arguments count in any order.
    std::string key = read_file(digest);
    Words arguments(command.begin() + 1, command.end());
    std::sort(arguments.begin() + 2, arguments.end());
    for (const std::string &argument : arguments) {
        key += argument + "\n";
    }
    const Words &assemble = assembler.command;
    if (!assemble.empty()) {
        key += read_file(assembler.digest);
        for (std::size_t i = 1; i < assemble.size(); i++) {
            key += assemble[i] + "\n";
        }
    }
    if (streamed) {
        key += "streamed " + std::to_string(*streamed) + "\n";
    }
    const KernelCache cache;
    if (const auto kernel = cache.find(key)) {
        write_file(object, kernel->object);
        if (!assemble.empty()) {
            write_file(stem + ".s", kernel->assembly);
        }
        return;
    }
    cache.store(key, make(stem, streamed, assemble, command));
}

}  // namespace

int main(int count, char **arguments) {
    try {
        const Words words(arguments + 1, arguments + count);
        // What comes before a command, and the command.
        const auto dashes = std::find(words.begin(), words.end(), "--");
        const Words command(dashes == words.end() ? dashes : dashes + 1, words.end());
        if (words.size() >= 2 && words[0] == "digest") {
            write_digest(words[1], Words(words.begin() + 2, dashes), command);
            return 0;
        }
        Assembler assembler;
        std::ptrdiff_t i = 2;
        const std::ptrdiff_t before = dashes - words.begin();
        std::optional<int> streamed;
        if (i + 1 < before && words[i] == "--streamed") {
            streamed = number_of(words[i + 1]);
            i += 2;
        }
        if (i + 2 < before && words[i] == "--assemble") {
            assembler = {words[i + 1], Words(words.begin() + i + 2, dashes)};
            i = before;
        }
        if (command.size() < 3 || i != before || (streamed && assembler.command.empty())) {
            throw std::runtime_error("wrong arguments; make_kernel.cpp says what there is");
        }
        make_kernel(words[0], words[1], streamed, assembler, command);
        return 0;
    } catch (const ProgramFailed &failed) {
        return failed.status;
    } catch (const std::exception &error) {
        std::cerr << "halyard_make_kernel: " << error.what() << '\n';
        return 1;
    }
}
