// See verdict.h.
#include "verdict.h"

namespace halyard::tune {

using nlohmann::json;

namespace {

/** How patient a rigor of that name is; -1 if there is none. */
int patience_of(const std::string &name) {
    for (std::size_t i = 0; i < rigors().size(); i++) {
        if (rigors()[i].name == name) {
            return static_cast<int>(i);
        }
    }
    return -1;
}

}  // namespace

Verdict verdict_of(const Outcome &outcome, const Choice &usual) {
    return {
        usual,         outcome.best,      outcome.is_better, outcome.is_better ? outcome.gain : outcome.runner_up_gain,
        outcome.noise, outcome.runner_up, outcome.tried};
}

Verdict verdict_of(const json &record) {
    Verdict verdict;
    verdict.usual = record.at("usual").get<Choice>();
    verdict.best = record.at("best").get<Choice>();
    verdict.is_better = record.at("is_better");
    verdict.gain = {record.at("ratio"), record.at("error")};
    verdict.noise = record.at("noise");
    verdict.runner_up = record.at("runner_up").get<Choice>();
    verdict.tried = record.at("tried");
    verdict.looks = record.value("looks", 1);
    return verdict;
}

bool is_whole(const json &record) {
    try {
        verdict_of(record);
        for (const char *field : {"kernel", "dtype", "isa", "space", "code", "rigor", "time"}) {
            record.at(field).get<std::string>();
        }
        record.at("threads").get<int>();
        record.at("workloads").get<std::vector<std::string>>();
        return true;
    } catch (const json::exception &) {
        return false;
    }
}

json record_of(const Verdict &verdict) {
    return {{"usual", verdict.usual},         {"best", verdict.best},        {"is_better", verdict.is_better},
            {"ratio", verdict.gain.ratio},    {"error", verdict.gain.error}, {"noise", verdict.noise},
            {"runner_up", verdict.runner_up}, {"tried", verdict.tried},      {"looks", verdict.looks}};
}

bool is_doubtful(const Verdict &verdict) {
    return !verdict.is_better && verdict.runner_up != verdict.usual && verdict.looks == 1 &&
           is_beyond_noise({verdict.gain.ratio, 0, verdict.gain.ratio, verdict.gain.ratio}, 0);
}

std::optional<Verdict> known_verdict(const Database &database, const Setting &setting, const Subject &subject,
                                     const Rigor &rigor) {
    std::optional<Verdict> newest;
    for (const json &record : database.records()) {
        if (record["kind"] == "verdict" && why_foreign(record, setting).empty() && is_whole(record) &&
            record["kernel"] == subject.kernel && record["dtype"] == subject.dtype && record["isa"] == subject.isa &&
            patience_of(record["rigor"]) >= patience_of(rigor.name) && why_stale(record, subject).empty()) {
            newest = verdict_of(record);
            newest->is_remembered = true;
        }
    }
    return newest;
}

}  // namespace halyard::tune
