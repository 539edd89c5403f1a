// See verbose.h.
#include "core/system/verbose.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstring>

#include "core/check.h"
#include "core/context.h"
#include "core/kernel_call.h"
#include "core/system/environment.h"
#include "layout/code_panels.h"

namespace halyard {

int verbose_level = 0;

namespace {

constexpr int longest_line = 1024;

int file = STDERR_FILENO;

thread_local int calls_under_way = 0;

[[gnu::format(printf, 1, 2)]] void write_line(const char *format, ...) {
    char line[longest_line] = "halyard_verbose,";
    const int prefix = static_cast<int>(strlen(line));
    va_list arguments;
    va_start(arguments, format);
    const int length = vsnprintf(line + prefix, sizeof(line) - prefix - 1, format, arguments);
    va_end(arguments);
    const int end = prefix + (length < longest_line - prefix - 1 ? length : longest_line - prefix - 2);
    line[end] = '\n';
    for (int done = 0; done <= end;) {
        const ssize_t written = write(file, line + done, end + 1 - done);
        if (written < 0 && errno != EINTR) {
            return;
        }
        done += written > 0 ? static_cast<int>(written) : 0;
    }
}

/** Appends to a text of so many characters, as much as it holds. */
[[gnu::format(printf, 4, 5)]] void append(char *text, int capacity, int *length, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    const int added = vsnprintf(text + *length, capacity - *length, format, arguments);
    va_end(arguments);
    *length = *length + added < capacity ? *length + added : capacity - 1;
}

/** A time in words, with a point whatever the locale. */
class Milliseconds {
public:
    explicit Milliseconds(int64_t ns) {
        snprintf(text_, sizeof(text_), "%lld.%06d", static_cast<long long>(ns / 1000000),
                 static_cast<int>(ns % 1000000));
    }
    const char *get() const { return text_; }

private:
    char text_[32];
};

int read_level() {
    const char *const variable = "HALYARD_VERBOSE", *const value = environment(variable);
    if (!value || strcmp(value, "0") == 0) {
        return 0;
    }
    const int level = number_in_digits(value, 2);
    if (level == 0) {
        say_ignored(variable, value, "0, 1 or 2");
    }
    return level;
}

void open_file() {
    const char *const variable = "HALYARD_VERBOSE_FILE", *const name = environment(variable);
    if (!name) {
        return;
    }
    // Opening a pipe must not wait for a reader, and a terminal must not become that of the process.
    const int opened = open(name, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0666);
    struct stat status;
    if (opened >= 0 && fstat(opened, &status) == 0 && S_ISREG(status.st_mode)) {
        file = opened;
        return;
    }
    if (opened >= 0) {
        close(opened);
    }
    say_ignored(variable, name, "a regular file that can be written");
}

struct ReadVariables {
    ReadVariables() {
        verbose_level = read_level();
        if (verbose_level > 0) {
            open_file();
            write_line("info,version:%s,isa:%s,threads:%d", halyard_version(), halyard_isa_name(best_isa(isa_cap_none)),
                       thread_bound(context_or_default(nullptr)));
        }
    }
};

HALYARD_AT_LOAD_LAST const ReadVariables read_variables;

}  // namespace

int64_t now_in_ns() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return int64_t{1000000000} * now.tv_sec + now.tv_nsec;
}

void CallRecord::begin() {
    calls_under_way++;
    length_ = 0;
    tensors_[0] = '\0';
    on_device_ = false;
    start_ = now_in_ns();
}

void CallRecord::add(const char *name, const DLTensor &tensor) {
    const auto append = [&](auto... arguments) { halyard::append(tensors_, sizeof(tensors_), &length_, arguments...); };
    on_device_ = on_device_ || type_of(tensor.device) != kDLCPU;
    const DLDataType type = tensor.dtype;
    const char *const code = type.code == kDLFloat    ? "f"
                             : type.code == kDLBfloat ? "bf"
                             : type.code == kDLInt    ? "i"
                             : type.code == kDLUInt   ? "u"
                                                      : "?";
    append("%s%s:%s%d:", length_ > 0 ? " " : "", name, code, int{type.bits});
    for (int i = 0; i < tensor.ndim && i < max_rank && tensor.shape; i++) {
        append("%s%lld", i > 0 ? "x" : "", static_cast<long long>(tensor.shape[i]));
    }
}

void CallRecord::add_quantized(const char *prefix, const char *name, const CodeLayout &codes) {
    static constexpr const char *kinds[] = {"plain", "zero", "min", "two_levels", "two_levels_signed"};  // of ScaleKind
    append(tensors_, sizeof(tensors_), &length_, "%s%s%s:%dbit:group%d:%s:%s", length_ > 0 ? " " : "", prefix, name,
           codes.bits, codes.group, kinds[static_cast<int>(codes.kind)], dtype_name(codes.scale_dtype));
}

void CallRecord::add_all_of(const CallRecord &other) {
    on_device_ = on_device_ || other.on_device_;
    append(tensors_, sizeof(tensors_), &length_, "%s%s", length_ > 0 && other.length_ > 0 ? " " : "", other.tensors_);
}

void CallRecord::end(const char *function, const halyard_context *context, halyard_status status) {
    const Milliseconds ms(now_in_ns() - start_);
    if (--calls_under_way > 0 || strncmp(function, "halyard_", 8) != 0) {
        return;
    }
    const halyard_context &c = context_or_default(context);
    write_line("call,%s,%s,%s,%d,%s,%s", function, tensors_,
               on_device_ ? "cuda" : halyard_isa_name(best_isa(c.max_isa)), thread_bound(c),
               halyard_status_name(status), ms.get());
}

void write_kernel(const char *kernel, DType dtype, const char *place, void *const *arguments,
                  const Parameter *parameters, int count, int64_t ns) {
    char buffers[512] = "";
    int length = 0;
    for (int i = 0; i < count; i++) {
        if (parameters[i].rank < 0) {
            continue;
        }
        append(buffers, sizeof(buffers), &length, "%s%s:", length > 0 ? " " : "", parameters[i].name);
        const auto *const buffer = static_cast<const halide_buffer_t *>(arguments[i]);
        for (int dim = parameters[i].rank - 1; dim >= 0; dim--) {
            append(buffers, sizeof(buffers), &length, "%d%s", buffer->dim[dim].extent, dim > 0 ? "x" : "");
        }
    }
    write_line("kernel,%s,%s,%s,%s,%s", kernel, dtype_name(dtype), place, buffers, Milliseconds(ns).get());
}

void run_verbosely(KernelFunction function, void **arguments, const Parameter *parameters, int count) {
    const int64_t start = now_in_ns();
    function(arguments);
    const int64_t ns = now_in_ns() - start;
    const KernelVariant variant = variant_of(function);
    write_kernel(kernel_name(variant.kernel), variant.dtype, halyard_isa_name(variant.isa), arguments, parameters,
                 count, ns);
}

}  // namespace halyard
