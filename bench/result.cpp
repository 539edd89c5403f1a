// See result.h.
#include "result.h"

#include <algorithm>
#include <cmath>

namespace halyard::bench {
namespace {

using nlohmann::json;

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

/** Of attention, blocks and models. */
void add_transformer(json &object, const RowResult &row) {
    const WorkId &id = row.id;
    object["family"] = id.kernel->operation;
    object["heads"] = id.heads().heads;
    object["kv_heads"] = id.heads().kv_heads;
    object["head_dim"] = id.heads().head_dim;
    object["sequences"] = id.sequences();
    object["tokens"] = id.tokens();
    object["cached"] = id.cached;
    object["flops"] = id.flops();
    object["weight_bytes"] = id.weight_bytes();
    object["cache_bytes"] = id.cache_bytes();
    if (row.rounds > 0) {
        object["sets"] = row.sets;
        object["tokens_per_second"] = row.tokens_per_second();
        object["flops_per_second"] = row.flops_per_second();
        object["read_seconds"] = to_json(row.read_seconds);
        object["multiply_add_seconds"] = to_json(row.multiply_add_seconds);
    }
    if (row.resident != 0) {
        object["resident"] = row.resident;
    }
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
        object["bytes_per_second"] = row.bytes_per_second();
        object["elements_per_second"] = row.elements_per_second();
        object["limit_seconds"] = to_json(row.limit_seconds);
        object["limit_stores"] = row.limit_stores == Stores::ordinary ? "ordinary" : "non-temporal";
        object["fraction_of_limit"] = to_json(row.fraction);
        object["is_beyond_limit"] = row.is_beyond_limit();
        object["attempts"] = row.attempts;
        object["ours_over_ours_again"] = to_json(row.again);
        object["noise"] = row.own_noise();
    }
    if (row.id.kernel->layer) {
        object["d_out"] = row.id.d_out;
        object["flops"] = row.id.flops();
        object["weight_bytes"] = row.id.weight_bytes();
    }
    if (row.id.kernel->layer && row.rounds > 0) {
        object["weight_set"] = row.weight_set();
        object["flops_per_second"] = row.flops_per_second();
        object["weight_bytes_per_second"] = row.weight_bytes_per_second();
        object["read_seconds"] = to_json(row.read_seconds);
        object["multiply_add_seconds"] = to_json(row.multiply_add_seconds);
    }
    if (row.id.has_heads()) {
        add_transformer(object, row);
    }
    object["peers"] = json::object();
    for (const PeerResult &peer : row.peers) {
        object["peers"][peer.peer] = to_json(peer, row);
    }
    return object;
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

const PeerResult *RowResult::find(const std::string &peer) const {
    for (const PeerResult &result : peers) {
        if (result.peer == peer) {
            return &result;
        }
    }
    return nullptr;
}

double Run::noise() const {
    std::vector<double> distances;
    for (const RowResult &row : rows) {
        if (row.rounds > 0) {
            distances.push_back(std::fabs(row.again.median - 1));
        }
    }
    return estimate(distances).median;
}

json to_json(const Run &run) {
    json object = {{"schema", 2},
                   {"date", run.date},
                   {"mode", run.mode},
                   {"work_list", run.work_list},
                   {"interrupted", run.interrupted},
                   {"library", {{"version", run.library_version}, {"isa", run.isa}, {"compiler", run.compiler}}},
                   {"threads", run.threads},
                   {"pinned", false},
                   {"loop_overhead_seconds", run.loop_overhead},
                   {"noise", run.noise()},
                   {"busy_elsewhere", run.busy_elsewhere},
                   {"machine",
                    {{"cpu", run.machine.cpu},
                     {"system", run.machine.system},
                     {"processors", run.machine.processors},
                     {"l1", run.machine.l1},
                     {"l2", run.machine.l2},
                     {"l3", run.machine.l3},
                     {"memory", run.machine.memory}}}};
    json flops = json::array(), bandwidth = json::array();
    for (const FlopsLimit &limit : run.limits.flops) {
        flops.push_back(
            {{"isa", halyard_isa_name(limit.isa)}, {"threads", limit.threads}, {"flops_per_second", limit.flops}});
    }
    for (const BandwidthLimit &limit : run.limits.bandwidth) {
        bandwidth.push_back({{"stream", name_of(limit.stream)},
                             {"level", limit.level},
                             {"working_set", limit.working_set},
                             {"threads", limit.threads},
                             {"bytes_per_second", limit.bandwidth}});
    }
    object["limits"] = {{"isa", halyard_isa_name(run.limits.isa)},
                        {"flops", flops},
                        {"bandwidth", bandwidth},
                        {"contradictions", run.limits.contradictions}};
    object["peers"] = json::array();
    for (const Run::PeerInfo &peer : run.peers) {
        object["peers"].push_back({{"name", peer.name}, {"version", peer.version}, {"missing", peer.missing}});
    }
    object["rows"] = json::array();
    for (const RowResult &row : run.rows) {
        object["rows"].push_back(to_json(row));
    }
    object["bars"] = json::array();
    for (const Bar &bar : judge_bars(run)) {
        object["bars"].push_back({{"text", bar.text},
                                  {"row", bar.row},
                                  {"value", bar.value},
                                  {"bound", bar.bound},
                                  {"measured", !bar.value.empty()},
                                  {"is_met", bar.is_met}});
    }
    return object;
}

}  // namespace halyard::bench
