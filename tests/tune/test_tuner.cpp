// The tuner without Halide: its judgement of noisy times with clocks that are made up, and the search in spaces whose best
// choice is known.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <set>

#include "bench/temporary_folder.h"
#include "schedules/subprocess.h"
#include "search.h"
#include "support/test_scale.h"
#include "verify.h"

namespace halyard::tune {
namespace {

using schedules::TargetInfo;

// ---- machines that are made up ----

/** Time that passes as it does on a shared machine: samples scatter, the speed drifts for a while, and now and then
 *  somebody else takes the processor. */
class NoisyClock {
public:
    NoisyClock(unsigned seed, double scatter) : random(seed), deviation(scatter) {}

    double passed(double seconds) {
        drift = 0.95 * drift + normal(random) * deviation;
        double factor = std::exp(drift + normal(random) * deviation);
        if (uniform(random) < 0.05) {
            factor *= 1 + uniform(random);
        }
        // Two speeds, as of a processor that is shared.
        if (two_speeds && uniform(random) < 0.4) {
            factor *= 1.15;
        }
        return seconds * factor;
    }

    bool two_speeds = false;

private:
    std::mt19937 random;
    std::normal_distribution<double> normal;
    std::uniform_real_distribution<double> uniform;
    double deviation, drift = 0;
};

/** Costs that are known; one call takes somewhat longer than the other. */
class SyntheticEvaluator : public Evaluator {
public:
    SyntheticEvaluator(NoisyClock &on, double (*of)(const Choice &), Choice default_choice)
        : clock(on), cost(of), defaults(std::move(default_choice)) {}

    std::vector<Choice> admitted(const std::vector<Choice> &choices) override {
        std::vector<Choice> good;
        for (const Choice &choice : choices) {
            asked.push_back(choice);
            if (!is_wrong || !is_wrong(choice)) {
                good.push_back(choice);
            }
        }
        return good;
    }

    Result compare(const std::vector<Choice> &choices, const Sampling &sampling, bool) override {
        compared += choices.size();
        Result result;
        result.gains.resize(choices.size());
        for (const double size : {1.0, 3.0}) {
            std::vector<Choice> all = {defaults, defaults};
            all.insert(all.end(), choices.begin(), choices.end());
            std::vector<std::vector<double>> seconds(all.size());
            for (int round = 0; round < sampling.rounds; round++) {
                for (std::size_t i = 0; i < all.size(); i++) {
                    seconds[i].push_back(clock.passed(size * cost(all[i])));
                }
            }
            result.again.push_back(gain_over(seconds[0], seconds[1]));
            for (std::size_t i = 0; i < choices.size(); i++) {
                result.gains[i].push_back(gain_over(seconds[0], seconds[i + 2]));
            }
        }
        return result;
    }

    bool stopped() override { return compared >= stop_after; }

    bool (*is_wrong)(const Choice &) = nullptr;
    std::vector<Choice> asked;
    std::size_t compared = 0, stop_after = SIZE_MAX;

private:
    NoisyClock &clock;
    double (*cost)(const Choice &);
    const Choice defaults;
};

bool always(const Choice &, const TargetInfo &) {
    return true;
}

const TargetInfo nowhere = {8, 16, 32 << 10, 1 << 20, {}, ""};
const SearchSpace plane = {
    "test_plane", {{"a", 1, {1, 2, 3, 4, 6, 8, 12, 16}}, {"b", 1, {1, 2, 4, 8, 16, 32, 64, 128}}}, always};
const Choice defaults = {{"a", 1}, {"b", 1}};

/** Best at a = 6, b = 16: 1.5 times as fast as the default. */
double bowl(const Choice &choice) {
    const double a = std::log2(choice.at("a") / 6.0), b = std::log2(choice.at("b") / 16.0);
    return 1e-5 * (1 + 0.5 * (a * a + b * b) / 22.68);
}

double flat(const Choice &) {
    return 1e-5;
}

/** The default choice is the best. */
double hill(const Choice &choice) {
    return 1e-5 * (1 + 0.02 * (choice.at("a") + choice.at("b")));
}

Decision run_search(double (*cost)(const Choice &), unsigned seed, double scatter, const std::string &effort,
                    bool two_speeds = false) {
    NoisyClock clock(seed, scatter);
    clock.two_speeds = two_speeds;
    std::mt19937 random(seed);
    SyntheticEvaluator evaluator(clock, cost, defaults);
    return search(plane, nowhere, defaults, effort_named(effort), random, evaluator);
}

// ---- work in processes of their own ----

TEST(Subprocess, SaysWhyItEndedBadly) {
    const auto reason = [](const std::function<void()> &work, int most_seconds = 0) {
        return schedules::Subprocess(work, most_seconds).wait();
    };
    EXPECT_EQ(reason([] { std::puts("all is well"); }), "");
    EXPECT_EQ(reason([] { throw std::runtime_error("no such schedule"); }), "no such schedule");
    EXPECT_EQ(reason([] {
                  std::puts("Internal error\n\nWarning: so far");
                  std::fflush(stdout);
                  // An emulator has the last word of a process that aborts.
                  tests::emulated ? std::_Exit(1) : std::abort();
              }),
              "Internal error");
    EXPECT_EQ(reason([] { raise(SIGKILL); }), "it ended by a signal: Killed");
    EXPECT_EQ(reason([] { std::_Exit(3); }), "it ended with status 3");
    EXPECT_EQ(reason([] { pause(); }, 1), "it did not come to an end within 1 s");
}

TEST(Subprocess, WorksSideBySide) {
    const bench::TemporaryFolder temporary(testing::TempDir(), "halyard-test");
    const std::string folder = temporary.path();
    std::vector<std::unique_ptr<schedules::Subprocess>> processes;
    for (int i = 0; i < 4; i++) {
        const std::string file = folder + "/" + std::to_string(i);
        processes.push_back(std::make_unique<schedules::Subprocess>([&] { std::ofstream(file) << i; }));
    }
    processes.clear();  // waits
    for (int i = 0; i < 4; i++) {
        std::ifstream file(folder + "/" + std::to_string(i));
        int value = -1;
        file >> value;
        EXPECT_EQ(value, i);
    }
}

TEST(Subprocess, ProgramsGetTheirArgumentsAsTheyAre) {
    const bench::TemporaryFolder folder(testing::TempDir(), "halyard-test");
    const std::string name = folder.path() / "it's $HOME; & \"more\"";
    schedules::run_program({"touch", name});
    EXPECT_TRUE(std::filesystem::exists(name));
    EXPECT_THROW(schedules::run_program({"false"}), std::runtime_error);
    EXPECT_THROW(schedules::run_program({"no-such-program-anywhere"}), std::runtime_error);
}

// ---- candidates in processes of their own ----

TEST(Verify, RefusesWhatIsWrongCrashesOrHangs) {
    const auto failure = [](const std::function<std::string()> &call) {
        const Check good{"the first call", [] { return "abc"; }, "abc"};
        return verify(
            {good, {"the second call", call, "def"}}, [] {}, 2);
    };
    EXPECT_EQ(failure([] { return "def"; }), "");
    EXPECT_EQ(failure([] { return "dee"; }), "gives other bits at the second call");
    EXPECT_EQ(failure([]() -> std::string { std::_Exit(3); }), "it ended with status 3");
    EXPECT_EQ(failure([]() -> std::string {
                  raise(SIGKILL);
                  return "def";
              }),
              "it ended by a signal: Killed");
    EXPECT_EQ(failure([]() -> std::string {
                  pause();
                  return "def";
              }),
              "it did not come to an end within 2 s");
}

TEST(Verify, InstallsInTheOtherProcessAlone) {
    int installed = 0;
    const Check check{"call", [&] { return std::to_string(installed); }, "1"};
    EXPECT_EQ(verify({check}, [&] { installed++; }), "");
    EXPECT_EQ(installed, 0);
}

// ---- temporary folders ----

TEST(TemporaryFolder, IsForThisUserAloneAndGoesAway) {
    const bench::TemporaryFolder parent(testing::TempDir(), "halyard-test");
    std::filesystem::path path;
    {
        const bench::TemporaryFolder folder(parent.path(), "mine"), other(parent.path(), "mine");
        path = folder.path();
        EXPECT_NE(path, other.path());
        EXPECT_TRUE(std::filesystem::exists(path));  // the second did not take the first for one that was left
        EXPECT_EQ(std::filesystem::status(path).permissions(), std::filesystem::perms::owner_all);
        std::ofstream(path / "file") << 1;
    }
    EXPECT_TRUE(std::filesystem::is_empty(parent.path()));
    EXPECT_THROW(bench::TemporaryFolder(parent.path() / "none", "mine"), std::runtime_error);
}

TEST(TemporaryFolder, RemovesWhatAKilledProcessLeft) {
    namespace fs = std::filesystem;
    const bench::TemporaryFolder parent(testing::TempDir(), "halyard-test");
    schedules::Subprocess([&] {
        const bench::TemporaryFolder folder(parent.path(), "mine");
        std::ofstream(folder.path() / "file") << 1;
        raise(SIGKILL);
    }).wait();
    EXPECT_FALSE(fs::is_empty(parent.path()));
    // What only looks like one stays, and so does what a link leads to.
    const fs::path others[] = {parent.path() / "mine-abc", parent.path() / "mine-abcdefg",
                               parent.path() / "mine-ab-cde", parent.path() / "target"};
    for (const fs::path &other : others) {
        fs::create_directory(other);
    }
    std::ofstream(others[3] / "file") << 1;
    fs::create_directory_symlink(others[3], parent.path() / "mine-abcdef");
    { const bench::TemporaryFolder folder(parent.path(), "mine"); }
    for (const fs::path &other : others) {
        EXPECT_TRUE(fs::exists(other)) << other;
    }
    EXPECT_TRUE(fs::exists(others[3] / "file"));
    EXPECT_EQ(std::distance(fs::directory_iterator(parent.path()), fs::directory_iterator()), 5);
}

// ---- judging times ----

TEST(Gain, DriftCancelsInRatios) {
    // The machine becomes a tenth slower with every round.
    std::vector<double> a, b;
    double time = 1;
    for (int round = 0; round < 15; round++, time *= 1.1) {
        a.push_back(1.0e-5 * time);
        b.push_back(1.1e-5 * time);
    }
    EXPECT_NEAR(gain_over(a, b).ratio, 1 / 1.1, 1e-9);
    EXPECT_NEAR(gain_over(a, b).error, 0, 1e-9);
}

TEST(Gain, TwoPercentAndThreeTimesTheNoiseAreBothWanted) {
    EXPECT_FALSE(is_beyond_noise({1.019, 0.0}, 0.0));
    EXPECT_TRUE(is_beyond_noise({1.021, 0.0}, 0.0));
    EXPECT_FALSE(is_beyond_noise({1.05, 0.0}, 0.02));
    EXPECT_TRUE(is_beyond_noise({1.07, 0.0}, 0.02));
    EXPECT_FALSE(is_beyond_noise({1.07, 0.03}, 0.0));
    EXPECT_TRUE(is_slower_beyond_noise({0.97, 0.0}, 0.0));
    EXPECT_FALSE(is_slower_beyond_noise({0.97, 0.0}, 0.02));
    // Nearly all rounds have to agree.
    EXPECT_FALSE(is_beyond_noise({1.2, 0.0, 0.99, 1.3}, 0.0));
    EXPECT_TRUE(is_beyond_noise({1.2, 0.0, 1.01, 1.3}, 0.0));
    EXPECT_FALSE(is_slower_beyond_noise({0.8, 0.0, 0.7, 1.01}, 0.0));
}

TEST(Gain, TheMedianOfEqualSidesIsSeldomOutside) {
    const std::vector<double> ones(15, 1.0);
    std::vector<double> times;
    for (int i = 0; i < 15; i++) {
        times.push_back(1.0 / (i + 1));  // ratios 1 to 15
    }
    const Gain gain = gain_over(ones, times);
    EXPECT_DOUBLE_EQ(gain.ratio, 8);
    // At most 2 of 15 fair tosses: 121 of 32768 cases; at most 3: 576.
    EXPECT_DOUBLE_EQ(gain.low, 3);
    EXPECT_DOUBLE_EQ(gain.high, 13);
}

TEST(Search, EqualCodeIsNoWinnerInTwentyTries) {
    for (const double scatter : {0.003, 0.01, 0.03, 0.1}) {
        for (unsigned seed = 0; seed < 40; seed++) {
            const Decision decision = run_search(flat, seed % 20, scatter, "quick", seed >= 20);
            EXPECT_TRUE(decision.is_made);
            EXPECT_FALSE(decision.is_better) << "scatter " << scatter << ", seed " << seed << ": gain "
                                             << decision.ratio << ", noise " << decision.noise;
        }
    }
}

TEST(Search, FindsTheBestOfAKnownSpaceDespiteNoise) {
    int best = 0;
    for (unsigned seed = 0; seed < 10; seed++) {
        const Decision decision = run_search(bowl, seed, 0.01, "exhaustive");
        ASSERT_TRUE(decision.is_made);
        ASSERT_TRUE(decision.is_better) << seed;
        EXPECT_EQ(decision.tried, 63);
        EXPECT_LT(bowl(decision.best), 1.03 * 1e-5)
            << seed << ": " << decision.best.at("a") << " " << decision.best.at("b");
        EXPECT_NEAR(decision.ratio, bowl(defaults) / bowl(decision.best), 0.05);
        best += decision.best == Choice{{"a", 6}, {"b", 16}} ? 1 : 0;
    }
    EXPECT_GE(best, 5);
}

TEST(Search, TriesARandomPartOfALargeSpace) {
    NoisyClock clock(1, 0.01);
    std::set<Choice> all;
    for (unsigned seed = 1; seed <= 30; seed++) {
        std::mt19937 random(seed);
        SyntheticEvaluator evaluator(clock, bowl, defaults);
        search(plane, nowhere, defaults, effort_named("quick"), random, evaluator);
        const std::set<Choice> asked(evaluator.asked.begin(), evaluator.asked.end());
        EXPECT_EQ(evaluator.asked.size(), 12U);
        EXPECT_EQ(asked.size(), 12U);
        all.insert(asked.begin(), asked.end());
    }
    EXPECT_EQ(all.size(), 63U);  // sooner or later each, and never the default
    EXPECT_EQ(all.count(defaults), 0U);
}

TEST(Search, LeavesTheDefaultWhereItIsBest) {
    for (unsigned seed = 0; seed < 10; seed++) {
        const Decision decision = run_search(hill, seed, 0.02, "normal");
        EXPECT_TRUE(decision.is_made);
        EXPECT_FALSE(decision.is_better);
    }
}

TEST(Search, NeitherComparesNorChoosesWhatIsWrong) {
    NoisyClock clock(1, 0.01);
    std::mt19937 random(1);
    SyntheticEvaluator evaluator(clock, bowl, defaults);
    evaluator.is_wrong = [](const Choice &choice) { return choice.at("b") == 16; };
    const Decision decision = search(plane, nowhere, defaults, effort_named("exhaustive"), random, evaluator);
    EXPECT_TRUE(decision.is_better);
    EXPECT_NE(decision.best.at("b"), 16);
    evaluator.is_wrong = [](const Choice &) { return true; };
    const Decision none = search(plane, nowhere, defaults, effort_named("exhaustive"), random, evaluator);
    EXPECT_TRUE(none.is_made);
    EXPECT_FALSE(none.is_better);
    EXPECT_EQ(none.best, defaults);
}

/** Gains that are given, one result after the other. */
class GivenEvaluator : public Evaluator {
public:
    std::vector<Choice> admitted(const std::vector<Choice> &choices) override { return {choices.front()}; }
    Result compare(const std::vector<Choice> &choices, const Sampling &, bool) override {
        const std::vector<Gain> gains = given[std::min(comparisons++, given.size() - 1)];
        return {std::vector<std::vector<Gain>>(choices.size(), gains),
                std::vector<Gain>(gains.size() + (gives_up ? 1 : 0), {1.0, 0.001, 0.99, 1.01})};
    }
    bool stopped() override { return false; }

    std::vector<std::vector<Gain>> given;
    std::size_t comparisons = 0;
    bool gives_up = false;  // in a second call
};

TEST(Search, ALossOnOneCallOutweighsTheMean) {
    std::mt19937 random(1);
    GivenEvaluator evaluator;
    evaluator.given = {{{2.0, 0.001, 1.9, 2.1}, {0.8, 0.001, 0.79, 0.81}}};
    EXPECT_FALSE(search(plane, nowhere, defaults, effort_named("quick"), random, evaluator).is_better);
    evaluator.given = {{{2.0, 0.001, 1.9, 2.1}, {1.0, 0.001, 0.99, 1.01}}};
    EXPECT_TRUE(search(plane, nowhere, defaults, effort_named("quick"), random, evaluator).is_better);
}

TEST(Search, AWinnerMustWinAgainInSamplesThatDidNotChooseIt) {
    std::mt19937 random(1);
    GivenEvaluator evaluator;
    const std::vector<Gain> wins = {{1.3, 0.001, 1.2, 1.4}};
    evaluator.given = {wins, wins, {{1.01, 0.001, 0.99, 1.02}}};
    const Decision decision = search(plane, nowhere, defaults, effort_named("quick"), random, evaluator);
    EXPECT_TRUE(decision.is_made);
    EXPECT_FALSE(decision.is_better);
    EXPECT_EQ(decision.ratio, 1.01);
    EXPECT_EQ(evaluator.comparisons, 3U);  // screen, final, confirmation
}

TEST(Search, WhatCannotGainGetsNoFinal) {
    std::mt19937 random(1);
    GivenEvaluator evaluator;
    evaluator.given = {{{1.01, 0.002, 0.99, 1.02}}};
    const Decision decision = search(plane, nowhere, defaults, effort_named("quick"), random, evaluator);
    EXPECT_TRUE(decision.is_made);
    EXPECT_FALSE(decision.is_better);
    EXPECT_EQ(decision.ratio, 1.01);
    EXPECT_EQ(evaluator.comparisons, 1U);
}

TEST(Search, WhatWasGivenUpInACallDoesNotWin) {
    std::mt19937 random(1);
    GivenEvaluator evaluator;
    evaluator.given = {{{2.0, 0.001, 1.9, 2.1}}};
    evaluator.gives_up = true;
    const Decision decision = search(plane, nowhere, defaults, effort_named("quick"), random, evaluator);
    EXPECT_TRUE(decision.is_made);
    EXPECT_FALSE(decision.is_better);
    EXPECT_EQ(decision.best, defaults);
}

TEST(Search, PrunesBeforeItAsks) {
    const SearchSpace pruned = {
        "test_pruned", {{"a", 1, {1, 2, 3, 4}}, {"b", 1, {1, 2, 4}}}, [](const Choice &choice, const TargetInfo &c) {
            return choice.at("a") * choice.at("b") <= c.registers / 4;
        }};
    NoisyClock clock(1, 0.0);
    std::mt19937 random(1);
    SyntheticEvaluator evaluator(clock, flat, defaults);
    search(pruned, nowhere, defaults, effort_named("exhaustive"), random, evaluator);
    EXPECT_EQ(evaluator.asked.size(), 6U);  // of 12, without the default
    for (const Choice &choice : evaluator.asked) {
        EXPECT_LE(choice.at("a") * choice.at("b"), 4);
    }
}

TEST(Search, DecidesNothingWhenStopped) {
    // 32 in the screen, 3 in the final, 1 in its confirmation.
    for (const std::size_t stop_after : {0, 1, 32, 33, 35, 36}) {
        NoisyClock clock(1, 0.01);
        std::mt19937 random(1);
        SyntheticEvaluator evaluator(clock, bowl, defaults);
        evaluator.stop_after = stop_after;
        const Decision decision = search(plane, nowhere, defaults, effort_named("normal"), random, evaluator);
        EXPECT_FALSE(decision.is_made) << stop_after;
        EXPECT_FALSE(decision.is_better && decision.is_made) << stop_after;
    }
}

TEST(Search, EffortsAreNamed) {
    for (const Effort &effort : efforts()) {
        EXPECT_EQ(effort_named(effort.name).name, effort.name);
    }
    EXPECT_THROW(effort_named("heroic"), std::invalid_argument);
}

}  // namespace
}  // namespace halyard::tune
