// halyard-accuracy: sweeps f32 inputs through every activation and prints, per function and region, the worst error in
// ULP and where it is, as the table of docs/results/accuracy.md. With --step 1 it sweeps all 2^32 inputs.
#include "support/f32_sweep.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <thread>

namespace {

using namespace halyard::tests;

constexpr char usage[] =
    "usage: halyard-accuracy [--step N] [--threads N] [--isa NAME] [--function NAME]\n"
    "\n"
    "Compares f32 activations with float64 references and prints a table of the worst errors.\n"
    "  --step N         take every Nth of the 2^32 f32 numbers (default 1: all of them)\n"
    "  --threads N      threads (default: all processors)\n"
    "  --isa NAME       one instruction set: sse41, avx2 or avx512 (default: all that this machine has)\n"
    "  --function NAME  one function, as in halyard_<name>; swish.beta_1.702 is swish with that beta alone\n"
    "Exits with 1 if an error is beyond its bound in operations/accuracy_bounds.h.\n";

struct Options {
    std::uint64_t step = 1;
    int threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
    std::string isa, function;
};

[[noreturn]] void stop(const std::string &message) {
    std::fprintf(stderr, "halyard-accuracy: %s\n%s", message.c_str(), usage);
    std::exit(2);
}

Options parse(int argc, char **argv) {
    Options options;
    for (int i = 1; i < argc; i++) {
        const std::string name = argv[i];
        if (name == "--help") {
            std::fputs(usage, stdout);
            std::exit(0);
        }
        if (i + 1 == argc) {
            stop(name + " is unknown or lacks its value");
        }
        const char *const value = argv[++i];
        char *end = nullptr;
        const long long number = std::strtoll(value, &end, 10);
        const bool is_count = *value != '\0' && *end == '\0' && number >= 1;
        if (name == "--step" && is_count) {
            options.step = static_cast<std::uint64_t>(number);
        } else if (name == "--threads" && is_count && number <= 256) {
            options.threads = static_cast<int>(number);
        } else if (name == "--isa") {
            options.isa = value;
        } else if (name == "--function") {
            options.function = value;
        } else {
            stop(name + " " + value + " is not an option");
        }
    }
    return options;
}

/** The whole sweep of one function, with each instruction set. */
std::vector<SweepResult> sweep_all(const Activation &activation, const std::vector<halyard_isa> &isas,
                                   const Options &options) {
    constexpr std::uint64_t all = std::uint64_t{1} << 32;
    const std::uint64_t chunk = std::max<std::uint64_t>(1, (all / options.step) / 512) * options.step;
    std::atomic<std::uint64_t> next{0};
    std::mutex lock;
    std::vector<SweepResult> total;
    const auto work = [&] {
        std::vector<halyard_context *> contexts(isas.size(), nullptr);
        for (std::size_t i = 0; i < isas.size(); i++) {
            if (halyard_context_create(&contexts[i]) != HALYARD_OK ||
                halyard_context_set_max_isa(contexts[i], isas[i]) != HALYARD_OK ||
                halyard_context_set_num_threads(contexts[i], 1) != HALYARD_OK) {
                std::fprintf(stderr, "halyard-accuracy: %s\n", halyard_last_error());
                std::abort();
            }
        }
        const std::vector<const halyard_context *> for_calls(contexts.begin(), contexts.end());
        for (std::uint64_t begin = next.fetch_add(chunk); begin < all; begin = next.fetch_add(chunk)) {
            const std::vector<SweepResult> part =
                sweep(activation, for_calls, begin, std::min(all, begin + chunk), options.step);
            const std::lock_guard<std::mutex> guard(lock);
            for (std::size_t i = 0; i < isas.size() && !total.empty(); i++) {
                total[i] = merge(total[i], part[i]);
            }
            total = total.empty() ? part : total;
        }
        for (halyard_context *context : contexts) {
            halyard_context_destroy(context);
        }
    };
    std::vector<std::thread> threads;
    for (int i = 0; i < options.threads; i++) {
        threads.emplace_back(work);
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
    return total;
}

std::string region(const halyard::accuracy::Bound &bound) {
    char text[64];
    if (std::isinf(bound.from) && std::isinf(bound.to)) {
        return "all";
    }
    if (std::isinf(bound.to)) {
        std::snprintf(text, sizeof text, ">= %g", bound.from);
    } else if (std::isinf(bound.from)) {
        std::snprintf(text, sizeof text, "< %g", bound.to);
    } else {
        std::snprintf(text, sizeof text, "%g to %g", bound.from, bound.to);
    }
    return text;
}

/** A row of the table per region and instruction set. */
void print(const Activation &activation, halyard_isa isa, const SweepResult &result) {
    for (const Worst &worst : result.worst) {
        if (worst.ulp < 0) {
            continue;
        }
        char bound[64];
        std::snprintf(bound, sizeof bound, worst.bound.floor > 0 ? "%g of max(\\|y\\|, %g)" : "%g", worst.bound.max_ulp,
                      worst.bound.floor);
        std::printf("| %s | %s | %s | %s | %.3f | %.9g | %.9g | %.9g |\n", activation.label.c_str(),
                    region(worst.bound).c_str(), halyard_isa_name(isa), bound, worst.ulp, static_cast<double>(worst.x),
                    static_cast<double>(worst.got), worst.expected);
    }
    std::fflush(stdout);
    if (result.wrong != 0) {
        std::fprintf(stderr,
                     "halyard-accuracy: %s with %s: %llu of %llu results beyond the bound, first at x = %.9g: %.9g\n",
                     activation.label.c_str(), halyard_isa_name(isa), static_cast<unsigned long long>(result.wrong),
                     static_cast<unsigned long long>(result.inputs), static_cast<double>(result.first_wrong_x),
                     static_cast<double>(result.first_wrong_got));
    }
}

}  // namespace

int main(int argc, char **argv) {
    const Options options = parse(argc, argv);
    std::vector<halyard_isa> isas;
    for (int i = 0; i < halyard_isa_count(); i++) {
        const halyard_isa isa = halyard_isa_at(i);
        if (halyard_isa_supported(isa) != 0 && (options.isa.empty() || options.isa == halyard_isa_name(isa))) {
            isas.push_back(isa);
        }
    }
    if (isas.empty()) {
        stop(options.isa + " is no instruction set of this machine");
    }

    std::uint64_t functions = 0, wrong = 0;
    for (const Activation &activation : activations()) {
        // A function's name stands for it with every beta.
        if (!options.function.empty() && options.function != activation.label &&
            options.function != activation.function) {
            continue;
        }
        if (functions++ == 0) {
            std::printf("| function | x | instruction set | bound (ULP) | worst (ULP) | at x | result | exact |\n"
                        "|---|---|---|---|---|---|---|---|\n");
        }
        const std::vector<SweepResult> results = sweep_all(activation, isas, options);
        for (std::size_t i = 0; i < isas.size(); i++) {
            print(activation, isas[i], results[i]);
            wrong += results[i].wrong;
        }
    }
    if (functions == 0) {
        stop("no activation is called " + options.function);
    }
    return wrong == 0 ? 0 : 1;
}
