#include "report.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <stdexcept>
#include <string>

namespace {

std::string text_of(const std::vector<std::int64_t> &shape) {
    std::string text;
    for (const std::int64_t extent : shape) {
        text += (text.empty() ? "" : " x ") + std::to_string(extent);
    }
    return text;
}

/// "Q8_0 for Q4_K" where rows are no whole blocks of what was asked for.
std::string format_of(const halyard::QuantizedTensor &tensor) {
    return tensor.to == tensor.wanted ? tensor.to : tensor.to + " for " + tensor.wanted;
}

double megabytes(std::int64_t bytes) {
    return static_cast<double>(bytes) / 1e6;
}

void print_tensors(const std::vector<halyard::QuantizedTensor> &tensors) {
    int name_width = 6, from_width = 14, to_width = 14;
    const auto widen = [](int &width, const std::string &text) {
        width = std::max(width, static_cast<int>(text.size()));
    };
    for (const halyard::QuantizedTensor &tensor : tensors) {
        widen(name_width, tensor.name);
        widen(from_width, tensor.from);
        widen(to_width, format_of(tensor));
    }
    std::printf("%-*s  %-18s  %-*s  %-*s  %10s  %10s  %9s  %9s\n", name_width, "tensor", "shape", from_width, "from",
                to_width, "to", "MB before", "MB after", "error", "largest");
    for (const halyard::QuantizedTensor &tensor : tensors) {
        std::printf("%-*s  %-18s  %-*s  %-*s  %10.3f  %10.3f  %9.2e  %9.2e\n", name_width, tensor.name.c_str(),
                    text_of(tensor.shape).c_str(), from_width, tensor.from.c_str(), to_width, format_of(tensor).c_str(),
                    megabytes(tensor.bytes_before), megabytes(tensor.bytes_after), tensor.relative_rms_error,
                    tensor.largest_error);
    }
}

struct Sum {
    std::int64_t tensors = 0, before = 0, after = 0;
    double worst = 0;

    void add(const halyard::QuantizedTensor &tensor) {
        tensors++;
        before += tensor.bytes_before;
        after += tensor.bytes_after;
        worst = std::max(worst, tensor.relative_rms_error);
    }
    void print(const std::string &what, int width) const {
        std::printf("%-*s %5lld tensors  %10.3f MB of %10.3f MB before  error at most %.2e\n", width, what.c_str(),
                    static_cast<long long>(tensors), megabytes(after), megabytes(before), worst);
    }
};

}  // namespace

void print_report(const std::vector<halyard::QuantizedTensor> &tensors) {
    print_tensors(tensors);
    std::map<std::string, Sum> formats;
    Sum all;
    int width = 6;
    for (const halyard::QuantizedTensor &tensor : tensors) {
        formats[tensor.to].add(tensor);
        all.add(tensor);
        width = std::max(width, static_cast<int>(tensor.to.size()));
    }
    std::printf("\n");
    for (const auto &[format, sum] : formats) {
        sum.print(format, width);
    }
    all.print("all", width);
    if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
        throw std::runtime_error("the table cannot be written");
    }
}
