// The tables of a run, see result.h.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ostream>

#include "result.h"

namespace halyard::bench {
namespace {

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

/** A row beyond its limit is marked: print_doubts() says why. */
std::string fraction_text(const RowResult &row) {
    return percent(row.fraction.median) + (row.is_beyond_limit() ? " (!)" : "");
}

/** The cell of a peer: its time over ours. */
std::string ratio_cell(const RowResult &row, const PeerResult *peer) {
    if (peer == nullptr || !peer->reason.empty()) {
        return "-";
    }
    if (peer->is_wrong) {
        return "wrong";
    }
    return format("%.2fx", peer->ratio.median) + (row.verdict(*peer) == Verdict::tie ? " tie" : "");
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

/** The rows that `wanted` chooses: a line with the columns `header` names, which `cells` makes, and those of peers. */
template<typename Wanted, typename Cells>
void print_rows(const Run &run, const Wanted &wanted, const std::string &title, std::vector<std::string> header,
                const Cells &cells, std::ostream &out) {
    std::vector<const RowResult *> rows;
    for (const RowResult &row : run.rows) {
        if (wanted(row.id)) {
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

void print_resident(const Run &run, std::ostream &out) {
    std::vector<std::vector<std::string>> lines{{"Memory that a model takes", "halyard"}};
    for (const Run::PeerInfo &peer : run.peers) {
        const bool took_part = std::any_of(run.rows.begin(), run.rows.end(), [&](const RowResult &row) {
            const PeerResult *result = row.find(peer.name);
            return result != nullptr && result->resident != 0;
        });
        if (took_part) {
            lines[0].push_back(peer.name);
        }
    }
    const auto cell = [](std::size_t bytes) {
        return bytes == 0 ? std::string("-") : readable_bytes(static_cast<double>(bytes));
    };
    for (const RowResult &row : run.rows) {
        if (row.resident != 0) {
            lines.push_back({row.id.name(), cell(row.resident)});
            for (std::size_t i = 2; i < lines[0].size(); i++) {
                const PeerResult *peer = row.find(lines[0][i]);
                lines.back().push_back(cell(peer != nullptr ? peer->resident : 0));
            }
        }
    }
    if (lines.size() > 1) {
        out << '\n';
        print_columns(lines, out);
    }
}

void print_row_tables(const Run &run, std::ostream &out) {
    print_rows(
        run, [](const WorkId &id) { return !id.has_roofline(); },
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
                fraction_text(row),
                percent(std::fabs(row.again.median - 1)),
            };
        },
        out);
    print_rows(
        run, [](const WorkId &id) { return id.kernel->layer.has_value(); },
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
                fraction_text(row),
                row.reads_longer() ? "reading" : "arithmetic",
                readable_bytes(static_cast<double>(row.weight_set())),
                percent(std::fabs(row.again.median - 1)),
            };
        },
        out);
    const auto transformer_cells = [](const RowResult &row) {
        return std::vector<std::string>{
            row.id.name(),
            readable_time(row.seconds.median),
            percent(row.seconds.mad / row.seconds.median),
            format("%.0f", row.tokens_per_second()),
            format("%.1f", row.flops_per_second() * 1e-9),
            format("%.1f", row.bytes_per_second() * 1e-9),
            fraction_text(row),
            row.reads_longer() ? "reading" : "arithmetic",
            percent(std::fabs(row.again.median - 1)),
        };
    };
    const std::vector<std::string> transformer_columns = {"row",  "time",        "spread",   "tokens/s", "GFLOP/s",
                                                          "GB/s", "of roofline", "bound by", "noise"};
    const struct {
        const char *operation, *title;
    } transformers[] = {{"attention", "Attention"}, {"block", "Transformer blocks"}, {"model", "Whole models"}};
    for (const auto &family : transformers) {
        print_rows(
            run, [&](const WorkId &id) { return id.kernel->operation == family.operation; },
            std::string(family.title) +
                " (of roofline: the longer of reading as many bytes and making as many multiply-adds, over ours; "
                "peers: their time over ours)",
            transformer_columns, transformer_cells, out);
    }
    print_resident(run, out);
}

/** Whether a peer has a time that counts. */
bool counts(const PeerResult *peer) {
    return peer != nullptr && peer->reason.empty() && !peer->is_wrong;
}

/** Some libraries tell their whole configuration as their version. */
std::string shortened(const std::string &text) {
    constexpr std::size_t most = 40;
    return text.size() <= most ? text : text.substr(0, most - 3) + "...";
}

/** Geometric means of the peers' times over ours by group of kernels. */
void print_groups(const Run &run, std::ostream &out) {
    std::vector<std::string> groups;
    for (const RowResult &row : run.rows) {
        if (std::find(groups.begin(), groups.end(), row.id.kernel->group) == groups.end()) {
            groups.push_back(row.id.kernel->group);
        }
    }
    std::vector<std::vector<std::string>> lines{{"Geometric mean of a peer's time over ours"}};
    lines[0].insert(lines[0].end(), groups.begin(), groups.end());
    for (const Run::PeerInfo &peer : run.peers) {
        std::vector<std::string> line{peer.name};
        bool any = false;
        for (const std::string &group : groups) {
            double log_sum = 0;
            int count = 0;
            for (const RowResult &row : run.rows) {
                const PeerResult *result = row.find(peer.name);
                if (row.id.kernel->group == group && counts(result)) {
                    log_sum += std::log(result->ratio.median);
                    count++;
                }
            }
            any = any || count > 0;
            line.push_back(count > 0 ? format("%.2fx", std::exp(log_sum / count)) : "-");
        }
        if (any) {
            lines.push_back(line);
        }
    }
    if (lines.size() > 1) {
        out << '\n';
        print_columns(lines, out);
    }
}

/** Rows where a peer takes less time, the worst first. */
void print_behind(const Run &run, std::ostream &out) {
    constexpr std::size_t most = 10;
    std::vector<std::pair<const RowResult *, const PeerResult *>> behind;
    for (const RowResult &row : run.rows) {
        for (const PeerResult &peer : row.peers) {
            if (counts(&peer) && row.verdict(peer) == Verdict::behind) {
                behind.emplace_back(&row, &peer);
            }
        }
    }
    std::sort(behind.begin(), behind.end(),
              [](const auto &a, const auto &b) { return a.second->ratio.median < b.second->ratio.median; });
    std::vector<std::vector<std::string>> lines{
        {"Where a peer is faster, the worst first", "peer", "its time over ours"}};
    for (std::size_t i = 0; i < std::min(most, behind.size()); i++) {
        lines.push_back(
            {behind[i].first->id.name(), behind[i].second->peer, format("%.2fx", behind[i].second->ratio.median)});
    }
    if (behind.size() > most) {
        lines.push_back({"and " + std::to_string(behind.size() - most) + " more in the report"});
    }
    if (!behind.empty()) {
        out << '\n';
        print_columns(lines, out);
    }
}

void print_summary(const Run &run, std::ostream &out) {
    std::vector<std::vector<std::string>> lines{{"peer", "rows", "ahead", "tied", "behind", "wrong", "geometric mean"}};
    for (const Run::PeerInfo &peer : run.peers) {
        int count = 0, wrong = 0, of[3] = {};
        double log_sum = 0;
        for (const RowResult &row : run.rows) {
            const PeerResult *result = row.find(peer.name);
            wrong += result != nullptr && result->is_wrong ? 1 : 0;
            if (!counts(result)) {
                continue;
            }
            count++;
            of[static_cast<int>(row.verdict(*result))]++;
            log_sum += std::log(result->ratio.median);
        }
        if (count + wrong > 0) {
            lines.push_back({peer.name + " " + shortened(peer.version), std::to_string(count), std::to_string(of[0]),
                             std::to_string(of[1]), std::to_string(of[2]), std::to_string(wrong),
                             count > 0 ? format("%.2fx", std::exp(log_sum / count)) : "-"});
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

void print_bars(const Run &run, bool only_missed, std::ostream &out) {
    std::vector<std::vector<std::string>> lines;
    int judged = 0, reached = 0;
    for (const Bar &bar : judge_bars(run)) {
        if (bar.value.empty()) {
            continue;
        }
        judged++;
        reached += bar.is_met ? 1 : 0;
        if (!bar.is_met || !only_missed) {
            lines.push_back({bar.text + (bar.text.find(bar.row) == std::string::npos ? " " + bar.row : ""), bar.value,
                             bar.bound, bar.is_met ? "reached" : "MISSED"});
        }
    }
    if (judged > 0) {
        out << "\nNumbers to reach: " << reached << " of " << judged << " reached\n";
        print_columns(lines, out);
    }
}

void print_machine(const Run &run, std::ostream &out) {
    out << "halyard " << run.library_version << " (" << run.isa << ") on " << run.machine.cpu << ", " << run.threads
        << " of " << run.machine.processors << " processors; L1 " << readable_bytes(static_cast<double>(run.machine.l1))
        << ", L2 " << readable_bytes(static_cast<double>(run.machine.l2)) << ", L3 "
        << readable_bytes(static_cast<double>(run.machine.l3)) << "; " << run.date << '\n';
}

void print_noise(const Run &run, std::ostream &out) {
    const bool any = std::any_of(run.rows.begin(), run.rows.end(), [](const RowResult &row) { return row.rounds > 0; });
    if (any) {
        out << "\nNoise of the run (ours against ours again, median over rows): "
            << format("%.1f %%", 100 * run.noise()) << "; the timing loop adds "
            << format("%.1f ns", run.loop_overhead * 1e9) << " per call; threads are not pinned\n";
    }
    if (run.is_disturbed()) {
        out << "Other programs used " << percent(run.busy_elsewhere)
            << " of the processors meanwhile, which may have disturbed rows on all threads.\n";
    }
    if (run.interrupted) {
        out << "Interrupted: the rows above are those measured before.\n";
    }
}

/** Limits that something else in the run shows to be too low. */
void print_doubts(const Run &run, std::ostream &out) {
    for (const std::string &limit : run.limits.contradictions) {
        out << "DOUBTFUL LIMIT: " << limit << ": below what another measurement of this run shows, though repeated\n";
    }
    for (const RowResult &row : run.rows) {
        if (row.is_beyond_limit()) {
            out << row.id.name() << " took less time than its limit in " << row.attempts << " measurements (!): "
                << (run.is_disturbed() ? "other programs disturbed the limit in its turns"
                                       : "the loop that stands for the limit is not the fastest way to move its bytes")
                << '\n';
        }
    }
}

}  // namespace

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
    std::string text = readable_time(row.seconds.median) + ", " + fraction_text(row) +
                       (row.id.has_roofline() ? " of roofline" : " of limit");
    for (const PeerResult &peer : row.peers) {
        if (peer.reason.empty()) {
            text += ", " + peer.peer + " " + ratio_cell(row, &peer);
        }
    }
    return text;
}

void print_tables(const Run &run, std::ostream &out) {
    print_machine(run, out);
    print_limits(run, out);
    print_row_tables(run, out);
    print_summary(run, out);
    print_groups(run, out);
    print_bars(run, false, out);
    print_doubts(run, out);
    print_noise(run, out);
}

void print_short(const Run &run, std::ostream &out) {
    print_machine(run, out);
    std::size_t measured = 0;
    for (const RowResult &row : run.rows) {
        measured += row.rounds > 0 ? 1 : 0;
        if (row.is_wrong || !row.failure.empty()) {
            out << row.id.name() << ": " << summary_of(row) << '\n';
        }
    }
    out << measured << " rows measured (" << run.work_list << ")\n";
    print_summary(run, out);
    print_groups(run, out);
    print_behind(run, out);
    print_bars(run, true, out);
    print_doubts(run, out);
    print_noise(run, out);
}

}  // namespace halyard::bench
