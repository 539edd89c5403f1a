// See result.h.
#include "result.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <stdexcept>

namespace halyard::bench {
namespace {

using json = nlohmann::ordered_json;

json to_json(const Estimate &estimate) {
    return {
        {"median", estimate.median}, {"mad", estimate.mad}, {"least", estimate.least}, {"samples", estimate.samples}};
}

/** JSON has no infinity: null. */
void add_accuracy(json &object, const Accuracy &accuracy) {
    object["error"] = std::isfinite(accuracy.error) ? json(accuracy.error) : json();
    if (accuracy.ulps >= 0) {
        object["ulps"] = std::isfinite(accuracy.ulps) ? json(accuracy.ulps) : json();
    }
}

json to_json(const Limits &limits) {
    json flops = json::array(), bandwidth = json::array();
    for (const FlopsLimit &limit : limits.flops) {
        flops.push_back({{"isa", halyard_isa_name(limit.isa)},
                         {"threads", limit.threads},
                         {"flops_per_second", limit.flops},
                         {"int8", limit.int8}});
    }
    for (const BandwidthLimit &limit : limits.bandwidth) {
        bandwidth.push_back({{"stream", name_of(limit.stream)},
                             {"level", limit.level},
                             {"working_set", limit.working_set},
                             {"threads", limit.threads},
                             {"bytes_per_second", limit.bandwidth}});
    }
    return {{"isa", halyard_isa_name(limits.isa)},
            {"flops", flops},
            {"bandwidth", bandwidth},
            {"contradictions", limits.contradictions}};
}

json to_json(const PeerResult &peer, const RowResult &row) {
    if (!peer.reason.empty()) {
        return {{"reason", peer.reason}};
    }
    json object = {{"is_wrong", peer.is_wrong}, {"note", peer.note}};
    add_accuracy(object, peer.accuracy);
    if (peer.resident != 0) {
        object["resident"] = peer.resident;
    }
    if (!peer.is_wrong) {
        object["seconds"] = to_json(peer.seconds);
        object["ratio"] = to_json(peer.ratio);
        object["noise"] = row.noise(peer);
        object["verdict"] = name_of(row.verdict(peer));
    }
    return object;
}

std::string format(const char *pattern, double value) {
    char text[64];
    std::snprintf(text, sizeof(text), pattern, value);
    return text;
}

std::string readable_time(double seconds) {
    return seconds < 1e-6   ? format("%.1f ns", seconds * 1e9)
           : seconds < 1e-3 ? format("%.2f us", seconds * 1e6)
                            : format("%.2f ms", seconds * 1e3);
}

}  // namespace

const char *name_of(Verdict verdict) {
    return verdict == Verdict::ahead ? "ahead" : verdict == Verdict::tie ? "tie" : "behind";
}

double noise_of(const Estimate &again, const Estimate &ratio) {
    constexpr double deviation_per_mad = 1.4826;  // of a normal distribution
    return std::max({std::fabs(again.median - 1), deviation_per_mad * again.mad, deviation_per_mad * ratio.mad});
}

Verdict verdict_of(const Estimate &ratio, double noise) {
    constexpr double least = 0.01;
    const double lead = ratio.median - 1;
    return std::fabs(lead) <= std::max(noise, least) ? Verdict::tie : lead > 0 ? Verdict::ahead : Verdict::behind;
}

bool RowResult::is_beyond_limit() const {
    return rounds > 0 && verdict_of(fraction, noise_of(again, fraction)) == Verdict::ahead;
}

json to_json(const RowResult &row) {
    json object = {{"name", row.id.name()},
                   {"kernel", row.id.kernel->name},
                   {"group", row.id.kernel->group},
                   {"dtype", operations::name_of(row.id.dtype)},
                   {"rows", row.id.rows},
                   {"d", row.id.d},
                   {"state", row.id.cold ? "cold" : "hot"},
                   {"threads", row.id.threads},
                   {"isa", row.isa},
                   {"bytes", row.id.bytes_moved()},
                   {"traffic", name_of(row.id.stream())},
                   {"rounds", row.rounds},
                   {"failure", row.failure},
                   {"tolerance", row.tolerance},
                   {"is_wrong", row.is_wrong}};
    add_accuracy(object, row.accuracy);
    if (row.rounds > 0) {
        object["seconds"] = to_json(row.seconds);
        object["limit_seconds"] = to_json(row.limit_seconds);
        object["limit_stores"] = row.limit_loop == Loop::plain ? "ordinary" : "non-temporal";
        object["fraction_of_limit"] = to_json(row.fraction);
        object["is_beyond_limit"] = row.is_beyond_limit();
        object["attempts"] = row.attempts;
        object["ours_over_ours_again"] = to_json(row.again);
        object["noise"] = row.own_noise();
    }
    if (row.id.flops() > 0) {
        object["flops"] = row.id.flops();
    }
    if (row.id.has_roofline()) {
        object["weight_bytes"] = row.id.weight_bytes();
        object["int8_products"] = row.id.kernel->has_int8_products();
    }
    if (row.id.has_roofline() && row.rounds > 0) {
        object["sets"] = row.sets;
        object["read_seconds"] = to_json(row.read_seconds);
        object["multiply_add_seconds"] = to_json(row.multiply_add_seconds);
    }
    if (row.id.kernel->layer) {
        object["d_out"] = row.id.d_out;
    } else if (row.id.has_heads()) {
        object["family"] = row.id.kernel->operation;
    }
    if (row.resident != 0) {
        object["resident"] = row.resident;
    }
    object["peers"] = json::object();
    for (const PeerResult &peer : row.peers) {
        object["peers"][peer.peer] = to_json(peer, row);
    }
    return object;
}

json header_of(const Run &run) {
    json peers = json::array();
    for (const Run::PeerInfo &peer : run.peers) {
        peers.push_back({{"name", peer.name}, {"missing", peer.missing}});
        peers.back().update(peer.about);
    }
    const Machine &machine = run.machine;
    return {{"schema", 3},
            {"date", run.date},
            {"work_list", run.work_list},
            {"library", {{"version", run.library_version}, {"isa", run.isa}, {"compiler", run.compiler}}},
            {"threads", run.threads},
            {"pinned", false},
            {"loop_overhead_seconds", run.loop_overhead},
            {"machine",
             {{"cpu", machine.cpu},
              {"system", machine.system},
              {"processors", machine.processors},
              {"l1", machine.l1},
              {"l2", machine.l2},
              {"l3", machine.l3},
              {"memory", machine.memory}}},
            {"peers", peers},
            {"limits", to_json(run.limits)}};
}

json end_of(const Run &run) {
    return {{"interrupted", run.interrupted}, {"busy_elsewhere", run.busy_elsewhere}, {"limits", to_json(run.limits)}};
}

std::string summary_of(const RowResult &row) {
    if (!row.failure.empty()) {
        return "FAILED: " + row.failure;
    }
    if (row.is_wrong) {
        return "WRONG: error " + format("%.1e", row.accuracy.error) + " of the row's largest value";
    }
    if (row.rounds == 0) {
        return "interrupted";
    }
    std::string text = readable_time(row.seconds.median) + ", " + format("%.0f %%", 100 * row.fraction.median) +
                       (row.is_beyond_limit() ? " (!)" : "") + (row.id.has_roofline() ? " of roofline" : " of limit");
    for (const PeerResult &peer : row.peers) {
        if (peer.reason.empty()) {
            text += ", " + peer.peer + " " +
                    (peer.is_wrong
                         ? "wrong"
                         : format("%.2fx", peer.ratio.median) + (row.verdict(peer) == Verdict::tie ? " tie" : ""));
        }
    }
    return text;
}

ResultFile::ResultFile(const std::string &file_name) : name(file_name) {
    if (!name.empty()) {
        const bool is_new = !std::filesystem::exists(name);
        file.open(name, std::ios::app);
        if (!file) {
            throw std::runtime_error("cannot write '" + name + "': " + std::strerror(errno));
        }
        file.close();
        if (is_new) {
            std::filesystem::remove(name);
        }
    }
}

void ResultFile::write(const json &line) {
    if (name.empty()) {
        return;
    }
    if (!file.is_open()) {
        file.open(name, std::ios::trunc);
    }
    file << line.dump() << std::endl;
    if (!file) {
        throw std::runtime_error("cannot write '" + name + "': " + std::strerror(errno));
    }
}

}  // namespace halyard::bench
