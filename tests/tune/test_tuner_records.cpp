// The tuner's records: what their file keeps through cut-off lines and full disks, which of them are refused, and the file
// that is made of them.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "bench/replace_file.h"
#include "bench/temporary_folder.h"
#include "tuned_file.h"

namespace halyard::tune {
namespace {

using bench::replace_file;
using schedules::TargetInfo;

bool always(const Choice &, const TargetInfo &) {
    return true;
}

const SearchSpace plane = {"test_plane", {{"a", 1, {1, 2, 3}}, {"b", 1, {1, 2}}}, always};

const json here = setting_of({{"name", "x86-64-maker-6-1-32k-1024k"}, {"cpu", "Some CPU"}, {"processors", 2}},
                             {{"halyard", "0.1.0"}, {"halide", "21.0.0"}});

json some_facts(const json &changes = json::object()) {
    json facts = here;
    facts.update({{"kernel", "silu"},
                  {"dtype", "f32"},
                  {"isa", "avx2"},
                  {"family", "elementwise"},
                  {"threads", 1},
                  {"cases", {"silu/f32/64x4096/hot/1t"}},
                  {"space", hash_of_space(plane)},
                  {"code", "0123"}});
    facts.update(changes);
    return facts;
}

json decision_record(const json &facts, bool is_better, const std::string &time) {
    Decision decision;
    decision.defaults = {{"vectors", 2}};
    decision.best = {{"vectors", 4}};
    decision.is_better = is_better;
    decision.ratio = 1.0825;
    decision.error = 0.002;
    decision.noise = 0.004;
    return record_of(facts, decision, "normal", time);
}

class RecordsTest : public testing::Test {
protected:
    std::string text_of(const std::string &name) const {
        std::ifstream in(name);
        return {std::istreambuf_iterator<char>(in), {}};
    }

    const bench::TemporaryFolder temporary{testing::TempDir(), "halyard-test"};
    const std::string folder = temporary.path(), file = folder + "/sub/tune.jsonl";
};

TEST_F(RecordsTest, RemembersAndGoesOn) {
    {
        Records records(file);
        EXPECT_TRUE(records.decisions().empty());
        records.append(decision_record(some_facts(), true, "2026-11-21T10:00:00Z"));
    }
    const Records records(file);
    EXPECT_TRUE(records.complaints().empty());
    const auto decision = known_decision(records, some_facts(), effort_named("normal"));
    ASSERT_TRUE(decision.has_value());
    EXPECT_TRUE(decision->is_better);
    EXPECT_EQ(decision->best, (Choice{{"vectors", 4}}));
    EXPECT_TRUE(known_decision(records, some_facts(), effort_named("quick")).has_value());
    EXPECT_FALSE(known_decision(records, some_facts(), effort_named("exhaustive")).has_value());
    EXPECT_FALSE(known_decision(records, some_facts({{"kernel", "gelu"}}), effort_named("quick")).has_value());
}

TEST_F(RecordsTest, LeavesOutALineThatWasCutOffAndAppendsAfterIt) {
    Records(file).append(decision_record(some_facts(), true, "2026-11-21T10:00:00Z"));
    {
        std::ofstream out(file, std::ios::app);
        out << R"({"kernel":"si)";
    }
    {
        Records records(file);
        ASSERT_EQ(records.decisions().size(), 1U);
        ASSERT_EQ(records.complaints().size(), 1U);
        EXPECT_NE(records.complaints()[0].find(":2: the last line is cut off"), std::string::npos);
        records.append(decision_record(some_facts(), false, "2026-11-21T11:00:00Z"));
    }
    const Records records(file);
    EXPECT_EQ(records.decisions().size(), 2U);
    EXPECT_FALSE(known_decision(records, some_facts(), effort_named("normal"))->is_better);
}

TEST_F(RecordsTest, WhatHoldsForSomethingElseIsRefusedWithASentence) {
    const json record = decision_record(some_facts(), true, "2026-11-21T10:00:00Z");
    EXPECT_EQ(why_stale(record, here), "");
    EXPECT_EQ(why_stale(record, some_facts()), "");
    json elsewhere = here;
    elsewhere["machine"]["cpu"] = "Another CPU";
    EXPECT_EQ(why_stale(record, elsewhere), "machine's cpu is Some CPU there and Another CPU here");
    EXPECT_EQ(why_stale(json::object(), elsewhere), "machine's cpu is nothing there and Another CPU here");
    json later = here;
    later["versions"]["halide"] = "22.0.0";
    EXPECT_EQ(why_stale(record, later), "versions's halide is 21.0.0 there and 22.0.0 here");
    json other_schema = record;
    other_schema["schema"] = 7;
    EXPECT_EQ(why_stale(other_schema, here), "schema is 7 there and 3 here");
    EXPECT_EQ(why_stale(record, some_facts({{"threads", 2}})), "threads is 1 there and 2 here");
    EXPECT_NE(why_stale(record, some_facts({{"cases", {"x"}}})), "");
    EXPECT_NE(why_stale(record, some_facts({{"space", "other"}})).find("parameters"), std::string::npos);
    EXPECT_NE(why_stale(record, some_facts({{"code", "other"}})).find("code"), std::string::npos);

    Records records(file);
    records.append(record);
    EXPECT_FALSE(known_decision(records, some_facts(elsewhere), effort_named("quick")).has_value());
    std::vector<std::string> complaints;
    EXPECT_TRUE(current_decisions(records, elsewhere, complaints).empty());
    EXPECT_EQ(complaints, std::vector<std::string>{
                              "1 decision does not count: machine's cpu is Some CPU there and Another CPU here."});
}

TEST_F(RecordsTest, ADamagedDecisionIsLeftOut) {
    const json record = decision_record(some_facts(), true, "2026-11-21T10:00:00Z");
    const json changes[] = {{{"isa", 7}},
                            {{"kernel", nullptr}},
                            {{"dtype", json::array()}},
                            {{"best", nullptr}},
                            {{"best", {{"a", "x"}}}},
                            {{"time", 5}},
                            {{"is_better", "yes"}},
                            {{"noise", "none"}},
                            {{"effort", 3}},
                            {{"threads", "one"}},
                            {{"code", 1}},
                            {{"cases", {1, 2}}}};
    Records(file).append(record);
    for (const json &change : changes) {
        json damaged = record;
        damaged.update(change);
        Records(file).append(damaged);
        const Records records(file);
        EXPECT_EQ(records.decisions(), std::vector<json>{record}) << change;
        ASSERT_FALSE(records.complaints().empty());
        EXPECT_NE(records.complaints().back().find("no decision"), std::string::npos) << records.complaints().back();
    }
}

TEST_F(RecordsTest, TheHashOfASpaceChangesWithItsValues) {
    const SearchSpace other = {"test_plane", {{"a", 1, {1, 2}}, {"b", 1, {1, 2}}}, always};
    const SearchSpace usual_differs = {"test_plane", {{"a", 2, {1, 2}}, {"b", 1, {1, 2}}}, always};
    EXPECT_NE(hash_of_space(plane), hash_of_space(other));
    EXPECT_NE(hash_of_space(other), hash_of_space(usual_differs));
}

TEST_F(RecordsTest, SaysWhenItCannotBeWritten) {
    std::filesystem::create_directories(folder + "/sub/tune.jsonl");  // a folder of that name
    EXPECT_THROW(Records(file).require_writable(), RecordsError);
    EXPECT_THROW(Records("/dev/full").append(json::object()), RecordsError);
}

/** Does something in a process in which no file may grow beyond so many bytes. Whether it threw. */
template<typename Error, typename Work>
bool fails_on_full_disk(rlim_t bytes, const Work &work) {
    const pid_t process = fork();
    if (process == 0) {
        signal(SIGXFSZ, SIG_IGN);
        const rlimit limit = {bytes, bytes};
        setrlimit(RLIMIT_FSIZE, &limit);
        try {
            work();
        } catch (const Error &) {
            _exit(0);
        }
        _exit(1);
    }
    int status = 1;
    return waitpid(process, &status, 0) == process && status == 0;
}

TEST_F(RecordsTest, AFullDiskCostsOneRecord) {
    const json record = decision_record(some_facts(), true, "2026-11-21T10:00:00Z");
    Records(file).append(record);
    EXPECT_TRUE(fails_on_full_disk<RecordsError>(text_of(file).size() + 20, [&] { Records(file).append(record); }));
    Records(file).append(record);
    EXPECT_EQ(Records(file).decisions(), (std::vector<json>{record, record}));
}

// ---- the file of parameters ----

TEST_F(RecordsTest, ExportsTheNewestDecisionsSorted) {
    Records records(file);
    records.append(decision_record(some_facts(), false, "2026-11-21T10:00:00Z"));
    records.append(decision_record(some_facts(), true, "2026-11-21T11:00:00Z"));
    records.append(decision_record(some_facts({{"kernel", "gelu"}}), true, "2026-11-20T11:00:00Z"));
    records.append(decision_record(some_facts({{"kernel", "add"}}), false, "2026-11-20T11:00:00Z"));
    std::vector<std::string> complaints;
    const std::vector<json> decisions = current_decisions(records, here, complaints);
    const json exported = tuned_file(decisions, here, json::object());
    EXPECT_EQ(exported["schedules"],
              (json{{"avx2", {{"gelu_f32", {{"vectors", 4}}}, {"silu_f32", {{"vectors", 4}}}}}}));
    EXPECT_EQ(exported["measured"]["avx2"]["silu_f32"], (json{{"gain", 1.083}, {"noise", 0.004}}));
    EXPECT_EQ(exported["date"], "2026-11-21");
    EXPECT_EQ(exported.dump(), tuned_file(decisions, here, json::object()).dump());
    EXPECT_EQ(exported.dump(), tuned_file(decisions, here, exported).dump());
}

TEST_F(RecordsTest, KeepsTheEntriesOfTheFileThatWereNotMeasured) {
    const json measured = {{"gain", 1.5}, {"noise", 0.001}};
    const json before = {
        {"date", "2026-11-25"},
        {"remark", "by hand"},
        {"machine", here["machine"]},
        {"schedules",
         {{"avx2", {{"silu_f32", {{"vectors", 6}}}, {"gelu_f32", {{"vectors", 6}}}, {"row", {{"rows", 2}}}}},
          {"sse41", {{"add_f32", {{"vectors", 3}}}}},
          {"avx512", {{"gelu_bf16", {{"vectors", 3}}}}}}},
        {"measured", {{"avx2", {{"silu_f32", measured}, {"gelu_f32", measured}}}, {"sse41", {{"add_f32", measured}}}}}};
    const json lost = some_facts({{"kernel", "gelu"}}), lost_alone = some_facts({{"kernel", "add"}, {"isa", "sse41"}});
    const std::vector<json> decisions = {decision_record(some_facts(), true, "2026-11-21T10:00:00Z"),
                                         decision_record(lost, false, "2026-11-21T10:00:00Z"),
                                         decision_record(lost_alone, false, "2026-11-21T10:00:00Z")};
    const json exported = tuned_file(decisions, here, before);
    EXPECT_EQ(exported["schedules"], (json{{"avx2", {{"silu_f32", {{"vectors", 4}}}, {"row", {{"rows", 2}}}}},
                                           {"avx512", {{"gelu_bf16", {{"vectors", 3}}}}}}));
    EXPECT_EQ(exported["measured"], (json{{"avx2", {{"silu_f32", {{"gain", 1.083}, {"noise", 0.004}}}}}}));
    EXPECT_EQ(exported["date"], "2026-11-25");
    EXPECT_EQ(exported["remark"], "by hand");
}

TEST_F(RecordsTest, ParametersOfTheRuntimeHaveTheirOwnSection) {
    const auto of_group = [](bool is_better, const Choice &best) {
        const json facts = some_facts({{"kernel", "runtime.stream"}, {"family", "runtime"}, {"dtype", "all"}});
        json record = decision_record(facts, is_better, "2026-11-21T10:00:00Z");
        record["defaults"] = Choice{{"tile", 384}, {"ahead", -1}};
        record["best"] = best;
        return record;
    };
    const json before = {{"schedules", {{"avx2", {{"silu_f32", {{"vectors", 6}}}}}}},
                         {"runtime", {{"tile", 192}, {"gemm_rows", 64}}}};
    const json won = tuned_file({of_group(true, {{"tile", 384}, {"ahead", 2}})}, here, before);
    EXPECT_EQ(won["runtime"], (json{{"ahead", 2}, {"gemm_rows", 64}}));  // what is as everywhere needs no entry
    EXPECT_EQ(won["schedules"], before["schedules"]);
    EXPECT_EQ(won["measured"]["runtime"]["stream"]["gain"], 1.083);
    const json lost = tuned_file({of_group(false, {{"tile", 768}, {"ahead", 2}})}, here, won);
    EXPECT_EQ(lost["runtime"], (json{{"gemm_rows", 64}}));
    EXPECT_FALSE(lost["measured"].contains("runtime"));
    EXPECT_EQ(tuned_file({of_group(true, {})}, here, before)["runtime"], (json{{"gemm_rows", 64}}));
}

TEST_F(RecordsTest, RefusesAFileThatItCouldNotKeep) {
    const std::string target = folder + "/tuned.json";
    EXPECT_EQ(read_tuned(target, here["machine"]["name"]), json::object());
    const auto refusal = [&](const std::string &text) -> std::string {
        replace_file(target, text);
        try {
            read_tuned(target, here["machine"]["name"]);
        } catch (const std::runtime_error &error) {
            EXPECT_NE(std::string(error.what()).find(target), std::string::npos) << error.what();
            return error.what();
        }
        return "accepted";
    };
    for (const char *text :
         {"", R"({"schedules": {"avx2": {"si)", "[]", "{}", "<<<<<<< HEAD\n{\"schedules\": {}}", R"({"schedules": 3})",
          R"({"schedules": {"avx2": 3}})", R"({"schedules": {"avx2": {"a": 3}}})",
          R"({"schedules": {}, "measured": {"avx2": []}})", R"({"schedules": {}, "runtime": [3]})"}) {
        EXPECT_NE(refusal(text).find("is no file of parameters"), std::string::npos) << text;
    }
    EXPECT_NE(refusal(R"({"schedules": {}, "machine": {"name": "another"}})").find("another machine"),
              std::string::npos);
    EXPECT_EQ(refusal(R"({"schedules": {"avx2": {"a": {"vectors": 3}}}})"), "accepted");
    std::filesystem::remove(target);
    std::filesystem::create_directory(target);
    EXPECT_THROW(read_tuned(target, here["machine"]["name"]), std::runtime_error);
}

TEST_F(RecordsTest, AFileIsReplacedAtOnceOrNotAtAll) {
    const std::string target = folder + "/out.json";
    replace_file(target, "old\n");
    replace_file(target, "new\n");
    EXPECT_EQ(text_of(target), "new\n");
    // Left by a killed process, or laid by somebody.
    const std::string other = folder + "/other", part = target + "." + std::to_string(getpid()) + ".part";
    replace_file(other, "other\n");
    std::filesystem::create_symlink(other, part);
    replace_file(target, "new\n");
    EXPECT_EQ(text_of(other), "other\n");
    EXPECT_FALSE(std::filesystem::is_symlink(target));
    EXPECT_THROW(replace_file(folder + "/none/out.json", "x"), std::runtime_error);
    std::filesystem::create_directory(part);
    EXPECT_THROW(replace_file(target, "newer\n"), std::runtime_error);
    EXPECT_EQ(text_of(target), "new\n");
}

TEST_F(RecordsTest, TwoProcessesDoNotMixTheirFiles) {
    const std::string target = folder + "/out.json";
    replace_file(target, "");
    std::vector<pid_t> processes;
    for (const char letter : {'a', 'b', 'c'}) {
        processes.push_back(fork());
        ASSERT_GE(processes.back(), 0);
        if (processes.back() == 0) {
            try {
                for (int i = 0; i < 100; i++) {
                    replace_file(target, std::string(100000, letter));
                }
            } catch (const std::runtime_error &) {
                _exit(1);
            }
            _exit(0);
        }
    }
    for (const pid_t process : processes) {
        int status = 0;
        while (waitpid(process, &status, WNOHANG) == 0) {
            const std::string text = text_of(target);
            EXPECT_TRUE(text.empty() || text == std::string(100000, text[0])) << text.size();
        }
        EXPECT_EQ(status, 0);
    }
}

TEST_F(RecordsTest, ALinkStaysALink) {
    const std::string target = folder + "/out.json", link = folder + "/link.json";
    replace_file(target, "old\n");
    std::filesystem::create_symlink("out.json", link);
    bench::require_replaceable(link);
    replace_file(link, "new\n");
    EXPECT_TRUE(std::filesystem::is_symlink(link));
    EXPECT_EQ(text_of(target), "new\n");
}

TEST_F(RecordsTest, ADeviceHoldsNothingToKeep) {
    const std::string pipe = folder + "/pipe";
    ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
    for (const std::string &device : {pipe, std::string("/dev/full"), std::string("/dev/null")}) {
        alarm(10);  // it would be read without an end
        EXPECT_EQ(read_tuned(device, ""), json::object());
        alarm(0);
    }
}

TEST_F(RecordsTest, ADeviceIsWrittenToAndNotReplaced) {
    const std::string pipe = folder + "/pipe";
    ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
    const int reader = open(pipe.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    ASSERT_GE(reader, 0);
    replace_file(pipe, "text\n");
    char text[16] = {};
    EXPECT_EQ(read(reader, text, sizeof(text)), 5);
    EXPECT_STREQ(text, "text\n");
    close(reader);
    EXPECT_TRUE(std::filesystem::is_fifo(pipe));
    EXPECT_THROW(replace_file("/dev/full", "text\n"), std::runtime_error);
}

TEST_F(RecordsTest, AFullDiskLeavesTheFileOfParameters) {
    const std::string target = folder + "/out.json";
    replace_file(target, "old\n");
    EXPECT_TRUE(fails_on_full_disk<std::runtime_error>(100, [&] { replace_file(target, std::string(200, 'x')); }));
    EXPECT_EQ(text_of(target), "old\n");
    const std::filesystem::directory_iterator files(folder);
    EXPECT_EQ(std::distance(begin(files), end(files)), 1);  // nothing is left beside it
}

}  // namespace
}  // namespace halyard::tune
