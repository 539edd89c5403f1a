// The words that read the database: show, best, export.
#include <algorithm>
#include <cstdio>
#include <iostream>
#include <map>

#include "bench/replace_file.h"
#include "export.h"
#include "hash.h"
#include "setting.h"
#include "slots.h"
#include "text.h"
#include "words.h"

namespace halyard::tune {

using nlohmann::json;

void print_complaints(const std::vector<std::string> &complaints) {
    for (const std::string &complaint : complaints) {
        std::cerr << complaint << '\n';
    }
}

int word_export(const Options &options) {
    const bench::Machine machine = bench::describe_machine();
    const Setting setting = describe_setting(machine);
    const Database database(options.database);
    std::vector<std::string> complaints = database.complaints();
    std::vector<json> verdicts = current_verdicts(database, setting, complaints);
    // What has another space or other code than the kernels of this program is stale.
    const UsualParameters usual = usual_parameters(options);
    Compiler compiler;
    const auto is_stale = [&](const json &verdict) {
        const Variant variant{find_kernel(verdict.at("kernel")), verdict.at("dtype"), verdict.at("isa")};
        std::string reason = "there is no such kernel any more";
        if (variant.kernel != nullptr && variant.space() != nullptr && slot_of(variant) >= 0) {
            Subject subject{variant.kernel->name,  variant.dtype,           variant.isa,
                            verdict.at("threads"), verdict.at("workloads"), hash_of_space(*variant.space()),
                            verdict.at("code")};
            reason = why_stale(verdict, subject);
            if (reason.empty() && verdict.at("is_better").get<bool>()) {
                subject.code = hash_of(compiler.object(variant, usual.named(variant)));
                reason = why_stale(verdict, subject);
            }
        }
        if (!reason.empty()) {
            complaints.push_back("The verdict on " + verdict.at("kernel").get<std::string>() + " " +
                                 verdict.at("dtype").get<std::string>() + " " + verdict.at("isa").get<std::string>() +
                                 " does not count: " + reason + ".");
        }
        return !reason.empty();
    };
    verdicts.erase(std::remove_if(verdicts.begin(), verdicts.end(), is_stale), verdicts.end());
    print_complaints(complaints);
    if (verdicts.empty()) {
        std::cerr << "halyard-tune: '" << options.database << "' holds no verdict that counts here\n";
        return exit_failure;
    }
    const std::string output = output_file(options, machine);
    const json file = tuned_file(verdicts, setting, read_tuned(output, setting));
    bench::replace_file(output, file.dump(4) + "\n");
    std::size_t entries = 0;
    for (const json &each : file.at("schedules")) {
        entries += each.size();
    }
    const auto changed = static_cast<std::size_t>(std::count_if(
        verdicts.begin(), verdicts.end(), [](const json &verdict) { return verdict.at("is_better").get<bool>(); }));
    std::cerr << output << ": " << changed << " of " << verdicts.size() << " kernels get other parameters than usual";
    if (entries > changed) {
        std::cerr << "; " << entries - changed << " that were not measured stay as they were";
    }
    std::cerr << '\n';
    return 0;
}

int word_show(const Options &options, bool only_better) {
    const Setting setting = describe_setting(bench::describe_machine());
    const Database database(options.database);
    std::vector<std::string> complaints = database.complaints();
    const std::vector<json> verdicts = current_verdicts(database, setting, complaints);
    std::printf("%-8s %-26s %-5s %-28s %-28s %7s %7s %6s\n", "isa", "kernel", "type", "usual", "best", "gain", "noise",
                "tried");
    std::map<std::string, std::vector<Gain>> families;
    for (const json &record : verdicts) {
        const Verdict verdict = verdict_of(record);
        const KernelInfo *kernel = find_kernel(record.at("kernel"));
        families[kernel != nullptr ? kernel->family : "gone"].push_back(verdict.is_better ? verdict.gain : Gain());
        if (only_better && !verdict.is_better) {
            continue;
        }
        std::printf("%-8s %-26s %-5s %-28s %-28s %7s %6.1f%% %6d\n", record.value("isa", "").c_str(),
                    record.value("kernel", "").c_str(), record.value("dtype", "").c_str(),
                    text_of(verdict.usual).c_str(), verdict.is_better ? text_of(verdict.best).c_str() : "stays",
                    verdict.is_better ? number("%.3fx", verdict.gain.ratio).c_str() : "", 100 * verdict.noise,
                    verdict.tried);
    }
    std::vector<Gain> all;
    for (const auto &[family, gains] : families) {
        all.insert(all.end(), gains.begin(), gains.end());
        std::printf("%s: geometric mean of the gains %.3fx over %zu kernels\n", family.c_str(), mean_gain(gains).ratio,
                    gains.size());
    }
    std::printf("all: %.3fx over %zu kernels\n", mean_gain(all).ratio, all.size());
    print_complaints(complaints);
    return 0;
}

}  // namespace halyard::tune
