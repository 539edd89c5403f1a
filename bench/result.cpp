// See result.h.
#include "result.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ostream>

namespace halyard::bench {
namespace {

using nlohmann::json;

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

std::string percent(double fraction) {
    return format("%.0f %%", 100 * fraction);
}

/** The cell of a peer: its time over ours. */
std::string ratio_cell(const RowResult &row, const PeerResult *peer) {
    if (peer == nullptr || !peer->reason.empty()) {
        return "-";
    }
    if (peer->is_wrong) {
        return "wrong";
    }
    const bool tie = std::fabs(peer->ratio.median - 1) <= row.noise(*peer);
    return format("%.2fx", peer->ratio.median) + (tie ? " tie" : "");
}

json to_json(const Estimate &estimate) {
    return {{"median", estimate.median}, {"mad", estimate.mad}, {"least", estimate.least}};
}

json to_json(const PeerResult &peer) {
    if (!peer.reason.empty()) {
        return {{"reason", peer.reason}};
    }
    json object = {{"error", peer.error}, {"is_wrong", peer.is_wrong}, {"note", peer.note}};
    if (!peer.is_wrong) {
        object["seconds"] = to_json(peer.seconds);
        object["ratio"] = to_json(peer.ratio);
    }
    return object;
}

json to_json(const RowResult &row) {
    json object = {{"name", row.id.name()},
                   {"kernel", row.id.kernel->name},
                   {"dtype", tests::name_of(row.id.dtype)},
                   {"rows", row.id.rows},
                   {"d", row.id.d},
                   {"state", row.id.cold ? "cold" : "hot"},
                   {"threads", row.id.threads},
                   {"isa", row.isa},
                   {"bytes", row.id.bytes_moved()},
                   {"traffic", name_of(row.id.stream())},
                   {"rounds", row.rounds},
                   {"failure", row.failure},
                   {"error", row.error},
                   {"tolerance", row.tolerance},
                   {"is_wrong", row.is_wrong}};
    if (row.rounds > 0) {
        object["seconds"] = to_json(row.seconds);
        object["bytes_per_second"] = row.bytes_per_second();
        object["elements_per_second"] = row.elements_per_second();
        object["limit_seconds"] = to_json(row.limit_seconds);
        object["limit_stores"] = row.limit_stores == Stores::ordinary ? "ordinary" : "non-temporal";
        object["fraction_of_limit"] = to_json(row.fraction);
        object["ours_over_ours_again"] = to_json(row.again);
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
    object["peers"] = json::object();
    for (const PeerResult &peer : row.peers) {
        object["peers"][peer.peer] = to_json(peer);
    }
    return object;
}

/** Text in columns: the first to the left, the others to the right. */
void print_columns(const std::vector<std::vector<std::string>> &lines, std::ostream &out) {
    std::vector<std::size_t> widths;
    for (const auto &line : lines) {
        widths.resize(std::max(widths.size(), line.size()));
        for (std::size_t i = 0; i < line.size(); i++) {
            widths[i] = std::max(widths[i], line[i].size());
        }
    }
    for (const auto &line : lines) {
        for (std::size_t i = 0; i < line.size(); i++) {
            const std::string fill(widths[i] - line[i].size(), ' ');
            out << (i == 0 ? line[i] + fill : "  " + fill + line[i]);
        }
        out << '\n';
    }
}

void print_limits(const Run &run, std::ostream &out) {
    out << "\nLimits of the machine (streams with " << halyard_isa_name(run.limits.isa)
        << ", ordinary stores unless said; GB/s, read and written bytes)\n";
    std::vector<std::vector<std::string>> lines{{""}};
    for (int i = 0; i < stream_count; i++) {
        lines[0].push_back(name_of(static_cast<Stream>(i)));
    }
    for (const BandwidthLimit &limit : run.limits.bandwidth) {
        if (limit.stream == 0) {
            lines.push_back({limit.level + ", " + std::to_string(limit.threads) + " thread" +
                             (limit.threads > 1 ? "s" : "") + " (" +
                             readable_bytes(static_cast<double>(limit.working_set)) + ")"});
        }
        lines.back().push_back(format("%.1f", limit.bandwidth * 1e-9));
    }
    print_columns(lines, out);
    out << "peak multiply-add rate, f32:";
    for (const FlopsLimit &limit : run.limits.flops) {
        out << "  " << halyard_isa_name(limit.isa) << " " << limit.threads << "t "
            << format("%.0f GFLOP/s", limit.flops * 1e-9);
    }
    out << '\n';
}

/** The rows of layers, or the others: a line with the columns `header` names, which `cells` makes, and those of peers.
 */
template<typename Cells>
void print_rows(const Run &run, bool layers, const std::string &title, std::vector<std::string> header,
                const Cells &cells, std::ostream &out) {
    std::vector<const RowResult *> rows;
    for (const RowResult &row : run.rows) {
        if (row.id.kernel->layer.has_value() == layers) {
            rows.push_back(&row);
        }
    }
    if (rows.empty()) {
        return;
    }
    std::vector<std::string> peers;
    for (const Run::PeerInfo &peer : run.peers) {
        const bool took_part = std::any_of(rows.begin(), rows.end(), [&](const RowResult *row) {
            const PeerResult *result = row->find(peer.name);
            return result != nullptr && result->reason.empty();
        });
        if (took_part) {
            peers.push_back(peer.name);
            header.push_back(peer.name);
        }
    }
    std::vector<std::vector<std::string>> lines{header};
    for (const RowResult *row : rows) {
        if (row->rounds == 0) {
            lines.push_back({row->id.name(), row->is_wrong ? "WRONG" : row->failure.empty() ? "-" : "FAILED"});
            continue;
        }
        lines.push_back(cells(*row));
        for (const std::string &peer : peers) {
            lines.back().push_back(ratio_cell(*row, row->find(peer)));
        }
    }
    out << '\n' << title << '\n';
    print_columns(lines, out);
}

void print_row_tables(const Run &run, std::ostream &out) {
    print_rows(
        run, false,
        "Rows (of limit: time of a copy that moves the same bytes the same way, over ours; peers: their time over "
        "ours)",
        {"row", "time", "spread", "GB/s", "Gelements/s", "of limit", "noise"},
        [](const RowResult &row) {
            return std::vector<std::string>{
                row.id.name(),
                readable_time(row.seconds.median),
                percent(row.seconds.mad / row.seconds.median),
                format("%.1f", row.bytes_per_second() * 1e-9),
                format("%.2f", row.elements_per_second() * 1e-9),
                percent(row.fraction.median),
                percent(std::fabs(row.again.median - 1)),
            };
        },
        out);
    print_rows(
        run, true,
        "Layers (of roofline: the longer of reading the matrices and making as many multiply-adds, over ours; peers: "
        "their time over ours)",
        {"row", "time", "spread", "GFLOP/s", "weights GB/s", "of roofline", "bound by", "weights in turn", "noise"},
        [](const RowResult &row) {
            return std::vector<std::string>{
                row.id.name(),
                readable_time(row.seconds.median),
                percent(row.seconds.mad / row.seconds.median),
                format("%.1f", row.flops_per_second() * 1e-9),
                format("%.1f", row.weight_bytes_per_second() * 1e-9),
                percent(row.fraction.median),
                row.reads_longer() ? "reading" : "arithmetic",
                readable_bytes(static_cast<double>(row.weight_set())),
                percent(std::fabs(row.again.median - 1)),
            };
        },
        out);
}

void print_summary(const Run &run, std::ostream &out) {
    std::vector<std::vector<std::string>> lines{{"peer", "rows", "ahead", "tied", "behind", "geometric mean"}};
    for (const Run::PeerInfo &peer : run.peers) {
        int count = 0, ahead = 0, tied = 0;
        double log_sum = 0;
        for (const RowResult &row : run.rows) {
            const PeerResult *result = row.find(peer.name);
            if (result == nullptr || !result->reason.empty() || result->is_wrong) {
                continue;
            }
            const double lead = result->ratio.median - 1, noise = row.noise(*result);
            count++;
            ahead += lead > noise ? 1 : 0;
            tied += std::fabs(lead) <= noise ? 1 : 0;
            log_sum += std::log(result->ratio.median);
        }
        if (count > 0) {
            lines.push_back({peer.name + " " + peer.version, std::to_string(count), std::to_string(ahead),
                             std::to_string(tied), std::to_string(count - ahead - tied),
                             format("%.2fx", std::exp(log_sum / count))});
        }
    }
    if (lines.size() > 1) {
        out << "\nAgainst each peer (ahead: ours takes less time, beyond the noise of the row)\n";
        print_columns(lines, out);
    }
    for (const Run::PeerInfo &peer : run.peers) {
        if (!peer.missing.empty()) {
            out << "no " << peer.name << ": " << peer.missing << '\n';
        }
    }
}

void print_bars(const Run &run, std::ostream &out) {
    std::vector<std::vector<std::string>> lines;
    for (const Bar &bar : judge_bars(run)) {
        if (!bar.value.empty()) {
            lines.push_back({bar.text + (bar.text.find(bar.row) == std::string::npos ? " " + bar.row : ""), bar.value,
                             bar.bound, bar.is_met ? "reached" : "MISSED"});
        }
    }
    if (!lines.empty()) {
        out << "\nNumbers to reach\n";
        print_columns(lines, out);
    }
}

}  // namespace

double RowResult::noise(const PeerResult &peer) const {
    return std::max({std::fabs(again.median - 1), again.mad, peer.ratio.mad});
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
    json object = {{"schema", 1},
                   {"date", run.date},
                   {"mode", run.mode},
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
    object["limits"] = {{"isa", halyard_isa_name(run.limits.isa)}, {"flops", flops}, {"bandwidth", bandwidth}};
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

std::string summary_of(const RowResult &row) {
    if (!row.failure.empty()) {
        return "FAILED: " + row.failure;
    }
    if (row.is_wrong) {
        return "WRONG: error " + format("%.1e", row.error) + " of the row's largest value";
    }
    if (row.rounds == 0) {
        return "interrupted";
    }
    std::string text = readable_time(row.seconds.median) + ", " + percent(row.fraction.median) +
                       (row.id.kernel->layer ? " of roofline" : " of limit");
    for (const PeerResult &peer : row.peers) {
        if (peer.reason.empty()) {
            text += ", " + peer.peer + " " + ratio_cell(row, &peer);
        }
    }
    return text;
}

void print_tables(const Run &run, std::ostream &out) {
    out << "halyard " << run.library_version << " (" << run.isa << ") on " << run.machine.cpu << ", " << run.threads
        << " of " << run.machine.processors << " processors; L1 " << readable_bytes(static_cast<double>(run.machine.l1))
        << ", L2 " << readable_bytes(static_cast<double>(run.machine.l2)) << ", L3 "
        << readable_bytes(static_cast<double>(run.machine.l3)) << "; " << run.date << '\n';
    print_limits(run, out);
    print_row_tables(run, out);
    print_summary(run, out);
    print_bars(run, out);
    out << "\nNoise of the run (ours against ours again, median over rows): " << format("%.1f %%", 100 * run.noise())
        << "; the timing loop adds " << format("%.1f ns", run.loop_overhead * 1e9)
        << " per call; threads are not pinned\n";
    if (run.busy_elsewhere > 0.05) {
        out << "Other programs used " << percent(run.busy_elsewhere)
            << " of the processors meanwhile, which may have disturbed rows on all threads.\n";
    }
    if (run.interrupted) {
        out << "Interrupted: the rows above are those measured before.\n";
    }
}

}  // namespace halyard::bench
