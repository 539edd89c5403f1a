// Makes an object file of several kernels: by a generator's program and, if their prefetches are chosen in the assembly or they
// need an assembler of their own, by way of assembly. What was made before comes from the cache (kernel_cache.h).
//
//   halyard_make_kernels digest OUT FILE... [-- WORD...]
//       writes a digest of the files' content and of what a command prints, unless that is there already
//   halyard_make_kernels OBJECT DIGEST LIST [--assemble DIGEST WORD...] -- PROGRAM GENERATOR TARGET
//       OBJECT ends in .o; with --assemble the assembly is kept beside it. DIGEST is the file that has the digest of all that
//       the program makes it by, and the second one that of what assembles it. The words are a compiler and its flags.
//       LIST has a line for each kernel: SYMBOL PREFETCH NAME=VALUE..., where the last are GeneratorParams. PREFETCH is "-" or, which
//       takes --assemble for x86, a number of bytes: then there is a streamed form of the kernel, which prefetches so far ahead of its
//       loads (streamed_form.h).
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
#include <sstream>
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

/** A line of the list. */
struct Kernel {
    std::string symbol;
    std::optional<int> prefetch_bytes;  // of the streamed form, if there is to be one
    Words parameters;
};

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
        throw std::runtime_error("a number of bytes is needed, not '" + word + "'");
    }
    return number;
}

std::vector<Kernel> read_list(const std::string &list) {
    std::vector<Kernel> kernels;
    std::istringstream lines(read_file(list));
    for (std::string line; std::getline(lines, line);) {
        std::istringstream words(line);
        Kernel kernel;
        std::string prefetch;
        if (!(words >> kernel.symbol >> prefetch)) {
            throw std::runtime_error("'" + list + "' has a line without a symbol and a prefetch");
        }
        if (prefetch != "-") {
            kernel.prefetch_bytes = number_of(prefetch);
        }
        for (std::string word; words >> word;) {
            kernel.parameters.push_back(word);
        }
        kernels.push_back(kernel);
    }
    return kernels;
}

/** Where a kernel's instructions are in the assembly of all: its function, and the entry that calls it with an array of arguments. */
std::pair<std::size_t, std::size_t> place_of(const std::string &assembly, const std::string &symbol) {
    const std::size_t begin = assembly.find("\t.section\t.text." + symbol + ",");
    const std::size_t size = assembly.find("\t.size\t" + symbol + "_argv,", begin);
    if (begin == std::string::npos || size == std::string::npos) {
        throw std::runtime_error("the assembly has no section of '" + symbol + "'");
    }
    return {begin, assembly.find('\n', size) + 1};
}

void replace_all(std::string &text, const std::string &from, const std::string &to) {
    for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
        text.replace(at, from.size(), to);
    }
}

/** Halide 21 emits prefetches of the non-temporal kind alone, which on x86 bypass the second-level cache, and on ARM ask for the first.
 *  What is prefetched here is mostly read by every tile of rows in turn, long after: that kind is slower than none. With near=true it is
 *  read once, soon after (docs/results/kernel-notes.md has both). */
void choose_prefetches(std::string &text, const Kernel &kernel) {
    const bool near =
        std::find(kernel.parameters.begin(), kernel.parameters.end(), "near=true") != kernel.parameters.end();
    replace_all(text, "prefetchnta", near ? "prefetcht0" : "prefetcht1");
    replace_all(text, "pldl1strm", near ? "pldl1keep" : "pldl2keep");
}

/** `command`: program, generator, target. */
CachedObject make(const std::string &stem, const std::string &list, const std::vector<Kernel> &kernels,
                  const Words &assemble, const Words &command) {
    const std::string object = stem + ".o", assembly = stem + ".s";
    run({command[0], "kernels", command[1], command[2], list, assemble.empty() ? object : assembly});
    if (assemble.empty()) {
        return {read_file(object), ""};
    }
    std::string text = read_file(assembly);
    for (const Kernel &kernel : kernels) {
        const auto [begin, end] = place_of(text, kernel.symbol);
        std::string part = text.substr(begin, end - begin);
        choose_prefetches(part, kernel);
        if (kernel.prefetch_bytes) {
            part += streamed_form(part, kernel.symbol, *kernel.prefetch_bytes);
        }
        text.replace(begin, end - begin, part);
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

void make_kernels(const std::string &object, const std::string &digest, const std::string &list,
                  const Assembler &assembler, const Words &command) {
    const std::filesystem::path path(object);
    if (path.extension() != ".o") {
        throw std::runtime_error("'" + object + "' does not end in .o, as an object file must");
    }
    const std::string stem = std::filesystem::path(path).replace_extension();
    const std::vector<Kernel> kernels = read_list(list);
    // The program counts by its digest: it holds the path of a library. Parameters count in any order.
    std::string key = read_file(digest) + command[1] + "\n" + command[2] + "\n";
    for (const Kernel &kernel : kernels) {
        Words parameters = kernel.parameters;
        std::sort(parameters.begin(), parameters.end());
        key += kernel.symbol + (kernel.prefetch_bytes ? " " + std::to_string(*kernel.prefetch_bytes) : "");
        for (const std::string &parameter : parameters) {
            key += " " + parameter;
        }
        key += "\n";
        if (kernel.prefetch_bytes && assembler.command.empty()) {
            throw std::runtime_error("a streamed form of '" + kernel.symbol + "' needs --assemble");
        }
    }
    const Words &assemble = assembler.command;
    if (!assemble.empty()) {
        key += read_file(assembler.digest);
        for (std::size_t i = 1; i < assemble.size(); i++) {
            key += assemble[i] + "\n";
        }
    }
    const KernelCache cache;
    if (const auto made = cache.find(key)) {
        write_file(object, made->object);
        if (!assemble.empty()) {
            write_file(stem + ".s", made->assembly);
        }
        return;
    }
    cache.store(key, make(stem, list, kernels, assemble, command));
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
        const std::ptrdiff_t before = dashes - words.begin();
        const bool assembles = before > 5 && words[3] == "--assemble";
        if (assembles) {
            assembler = {words[4], Words(words.begin() + 5, dashes)};
        }
        if (command.size() != 3 || (before != 3 && !assembles)) {
            throw std::runtime_error("wrong arguments; make_kernels.cpp says what there is");
        }
        make_kernels(words[0], words[1], words[2], assembler, command);
        return 0;
    } catch (const ProgramFailed &failed) {
        return failed.status;
    } catch (const std::exception &error) {
        std::cerr << "halyard_make_kernels: " << error.what() << '\n';
        return 1;
    }
}
