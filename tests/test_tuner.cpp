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
#include <random>

#include "bench/temporary_folder.h"
#include "order.h"
#include "schedules/subprocess.h"
#include "search.h"
#include "support/samples.h"
#include "verdict.h"

namespace halyard::tune {
namespace {

using nlohmann::json;
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

class Synthetic : public Competitor {
public:
    Synthetic(NoisyClock &on, double seconds_per_call) : clock(on), cost(seconds_per_call) {}
    double seconds(std::int64_t calls) override { return clock.passed(static_cast<double>(calls) * cost); }

private:
    NoisyClock &clock;
    double cost;
};

/** Costs that are known; one piece of work takes somewhat longer than the other. */
class SyntheticArena : public Arena {
public:
    SyntheticArena(NoisyClock &on, double (*of)(const Choice &), const Choice &usual_choice, std::mt19937 &generator)
        : clock(on), cost(of), usual(usual_choice), random(generator) {}

    bool admits(const Choice &choice) override {
        asked.push_back(choice);
        return !is_wrong || !is_wrong(choice);
    }

    Result compare(const std::vector<Choice> &choices, const Effort &effort, bool) override {
        compared += choices.size();
        Result result;
        result.gains.resize(choices.size());
        for (const double size : {1.0, 3.0}) {
            std::vector<Synthetic> all;
            all.emplace_back(clock, size * cost(usual));
            all.emplace_back(clock, size * cost(usual));
            for (const Choice &choice : choices) {
                all.emplace_back(clock, size * cost(choice));
            }
            std::vector<Competitor *> competitors;
            for (Synthetic &each : all) {
                competitors.push_back(&each);
            }
            const auto seconds = sample_rounds(competitors, effort, random, [] { return false; });
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
    Choice usual;
    std::mt19937 &random;
};

bool always(const Choice &, const TargetInfo &) {
    return true;
}

const TargetInfo nowhere = {8, 16, 32 << 10, 1 << 20, {}, ""};
const SearchSpace plane("test_plane", {{"a", 1, {1, 2, 3, 4, 6, 8, 12, 16}}, {"b", 1, {1, 2, 4, 8, 16, 32, 64, 128}}},
                        always);
const Choice usual = {{"a", 1}, {"b", 1}};

/** Best at a = 6, b = 16: 1.5 times as fast as usual. */
double bowl(const Choice &choice) {
    const double a = std::log2(choice.at("a") / 6.0), b = std::log2(choice.at("b") / 16.0);
    return 1e-5 * (1 + 0.5 * (a * a + b * b) / 22.68);
}

double flat(const Choice &) {
    return 1e-5;
}

/** The usual choice is the best. */
double hill(const Choice &choice) {
    return 1e-5 * (1 + 0.02 * (choice.at("a") + choice.at("b")));
}

Outcome run_search(const SearchSpace &space, double (*cost)(const Choice &), unsigned seed, double scatter,
                   const std::string &rigor, bool two_speeds = false) {
    NoisyClock clock(seed, scatter);
    clock.two_speeds = two_speeds;
    std::mt19937 random(seed);
    SyntheticArena arena(clock, cost, usual, random);
    return search(space, nowhere, usual, rigor_named(rigor), random, arena);
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
                  // Of a process that aborts, an emulator has the last word.
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

// ---- measuring ----

TEST(Measuring, MakesSamplesOfTheWantedLength) {
    NoisyClock clock(1, 0.0);
    Synthetic fast(clock, 1e-6), slow(clock, 2e-6);
    std::mt19937 random(1);
    const auto seconds = sample_rounds({&fast, &slow}, {7, 5e-3}, random, [] { return false; });
    ASSERT_EQ(seconds.size(), 2U);
    ASSERT_EQ(seconds[0].size(), 7U);
    EXPECT_NEAR(median_of(seconds[0]), 1e-6, 1e-12);
    EXPECT_NEAR(gain_over(seconds[0], seconds[1]).ratio, 0.5, 0.01);
}

TEST(Measuring, KeepsWholeRoundsWhenStopped) {
    NoisyClock clock(1, 0.0);
    Synthetic a(clock, 1e-6), b(clock, 2e-6);
    std::mt19937 random(1);
    int left = 9;
    const auto seconds = sample_rounds({&a, &b}, {7, 1e-6}, random, [&left] { return --left < 0; });
    EXPECT_EQ(seconds[0].size(), seconds[1].size());
    EXPECT_LT(seconds[0].size(), 7U);
}

TEST(Measuring, DriftCancelsInRatios) {
    // The machine becomes a tenth slower with every round.
    class Slowing : public Competitor {
    public:
        Slowing(double &shared_time, double seconds_per_call) : time(shared_time), cost(seconds_per_call) {}
        double seconds(std::int64_t calls) override {
            time *= 1.001;
            return static_cast<double>(calls) * cost * time;
        }

    private:
        double &time, cost;
    };
    double time = 1;
    Slowing a(time, 1.0e-5), b(time, 1.1e-5);
    std::mt19937 random(1);
    const auto seconds = sample_rounds({&a, &b}, {15, 1e-3}, random, [] { return false; });
    EXPECT_NEAR(gain_over(seconds[0], seconds[1]).ratio, 1 / 1.1, 0.002);
}

TEST(Measuring, TwoPercentAndThreeTimesTheNoiseAreBothWanted) {
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

TEST(Measuring, TheMedianOfEqualSidesIsSeldomOutside) {
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

TEST(Measuring, EqualCodeIsNoWinnerInTwentyTries) {
    for (const double scatter : {0.003, 0.01, 0.03, 0.1}) {
        for (unsigned seed = 0; seed < 40; seed++) {
            const Outcome outcome = run_search(plane, flat, seed % 20, scatter, "quick", seed >= 20);
            EXPECT_TRUE(outcome.is_decided);
            EXPECT_FALSE(outcome.is_better) << "scatter " << scatter << ", seed " << seed << ": gain "
                                            << outcome.gain.ratio << ", noise " << outcome.noise;
        }
    }
}

// ---- searching ----

TEST(Search, FindsTheBestOfAKnownSpaceDespiteNoise) {
    int best = 0;
    for (unsigned seed = 0; seed < 10; seed++) {
        const Outcome outcome = run_search(plane, bowl, seed, 0.01, "normal");
        ASSERT_TRUE(outcome.is_decided);
        ASSERT_TRUE(outcome.is_better) << seed;
        EXPECT_LT(bowl(outcome.best), 1.03 * 1e-5)
            << seed << ": " << outcome.best.at("a") << " " << outcome.best.at("b");
        EXPECT_NEAR(outcome.gain.ratio, bowl(usual) / bowl(outcome.best), 0.05);
        best += outcome.best == Choice{{"a", 6}, {"b", 16}} ? 1 : 0;
    }
    EXPECT_GE(best, 5);
}

TEST(Search, LeavesTheUsualChoiceWhereItIsBest) {
    for (unsigned seed = 0; seed < 10; seed++) {
        const Outcome outcome = run_search(plane, hill, seed, 0.02, "normal");
        EXPECT_TRUE(outcome.is_decided);
        EXPECT_FALSE(outcome.is_better);
        EXPECT_EQ(outcome.best, usual);
    }
}

TEST(Search, NeitherComparesNorChoosesWhatIsWrong) {
    NoisyClock clock(1, 0.01);
    std::mt19937 random(1);
    SyntheticArena arena(clock, bowl, usual, random);
    arena.is_wrong = [](const Choice &choice) { return choice.at("b") == 16; };
    const Outcome outcome = search(plane, nowhere, usual, rigor_named("normal"), random, arena);
    EXPECT_TRUE(outcome.is_better);
    EXPECT_NE(outcome.best.at("b"), 16);
}

TEST(Search, ASlowShapeOutweighsAGainInTheMean) {
    // Twice as fast on one piece of work and a fifth slower on the other.
    class Uneven : public Arena {
    public:
        bool admits(const Choice &) override { return true; }
        Result compare(const std::vector<Choice> &choices, const Effort &, bool) override {
            return {std::vector<std::vector<Gain>>(choices.size(), {{2.0, 0.001}, {0.8, 0.001}}),
                    {{1.0, 0.001}, {1.0, 0.001}}};
        }
        bool stopped() override { return false; }
    } arena;
    std::mt19937 random(1);
    EXPECT_FALSE(search(plane, nowhere, usual, rigor_named("quick"), random, arena).is_better);
}

TEST(Search, PrunesBeforeItAsks) {
    const SearchSpace pruned(
        "test_pruned", {{"a", 1, {1, 2, 3, 4}}, {"b", 1, {1, 2, 4}}},
        [](const Choice &choice, const TargetInfo &c) { return choice.at("a") * choice.at("b") <= c.registers / 4; });
    NoisyClock clock(1, 0.0);
    std::mt19937 random(1);
    SyntheticArena arena(clock, flat, usual, random);
    search(pruned, nowhere, usual, rigor_named("patient"), random, arena);
    EXPECT_EQ(arena.asked.size(), 6U);  // of 12, without the usual one
    for (const Choice &choice : arena.asked) {
        EXPECT_LE(choice.at("a") * choice.at("b"), 4);
    }
}

TEST(Search, DecidesNothingWhenStopped) {
    for (std::size_t stop_after = 0; stop_after < 60; stop_after += 7) {
        NoisyClock clock(1, 0.01);
        std::mt19937 random(1);
        SyntheticArena arena(clock, bowl, usual, random);
        arena.stop_after = stop_after;
        const Outcome outcome = search(plane, nowhere, usual, rigor_named("normal"), random, arena);
        EXPECT_FALSE(outcome.is_decided);
    }
}

TEST(Search, AnotherLookFindsWhatIsFasterAndNothingElse) {
    for (unsigned seed = 0; seed < 10; seed++) {
        NoisyClock clock(seed, 0.01);
        std::mt19937 random(seed);
        const Rigor &patient = rigor_named("patient");
        const Choice faster = {{"a", 6}, {"b", 16}};
        SyntheticArena bowls(clock, bowl, usual, random);
        const Outcome won = challenge(faster, usual, patient, bowls);
        EXPECT_TRUE(won.is_decided && won.is_better && won.best == faster) << seed;
        SyntheticArena plains(clock, flat, usual, random);
        const Outcome tied = challenge(faster, usual, patient, plains);
        EXPECT_TRUE(tied.is_decided && !tied.is_better && tied.best == usual) << seed;
        bowls.is_wrong = [](const Choice &) { return true; };
        EXPECT_FALSE(challenge(faster, usual, patient, bowls).is_better);
    }
}

TEST(Verdicts, AreDoubtfulWhereSomethingSeemsFasterAndNobodyLookedAgain) {
    Verdict verdict;
    verdict.usual = verdict.best = usual;
    verdict.runner_up = {{"a", 6}, {"b", 16}};
    verdict.gain.ratio = 1.05;
    verdict.noise = 0.1;
    EXPECT_TRUE(is_doubtful(verdict));
    const json kept = record_of(verdict);
    EXPECT_TRUE(is_doubtful(verdict_of(kept)));
    verdict.looks = 2;
    EXPECT_FALSE(is_doubtful(verdict));
    EXPECT_FALSE(is_doubtful(verdict_of(record_of(verdict))));
    verdict.looks = 1;
    verdict.gain.ratio = 1.01;
    EXPECT_FALSE(is_doubtful(verdict));
    verdict.gain.ratio = 1.05;
    verdict.is_better = true;
    EXPECT_FALSE(is_doubtful(verdict));
}

TEST(Order, EveryGroupHasItsShareOfEveryRound) {
    using Places = std::vector<std::size_t>;
    EXPECT_EQ(in_shares({}, 4), Places());
    EXPECT_EQ(in_shares({"x", "x", "x"}, 4), (Places{0, 1, 2}));
    EXPECT_EQ(in_shares({"x", "x", "x", "x", "y", "y", "z"}, 2), (Places{0, 1, 4, 2, 3, 5, 6}));
    // Whatever the groups, each place comes once.
    std::vector<std::string> groups;
    for (int i = 0; i < 263; i++) {
        groups.push_back(std::to_string(i * i % 7));
    }
    Places order = in_shares(groups, 4);
    std::sort(order.begin(), order.end());
    for (std::size_t i = 0; i < groups.size(); i++) {
        ASSERT_EQ(order[i], i);
    }
    EXPECT_EQ(order.size(), groups.size());
}

TEST(Search, TheSameSeedTriesTheSame) {
    std::vector<std::vector<Choice>> asked;
    for (int i = 0; i < 2; i++) {
        NoisyClock clock(5, 0.0);
        std::mt19937 random(5);
        SyntheticArena arena(clock, bowl, usual, random);
        search(plane, nowhere, usual, rigor_named("quick"), random, arena);
        asked.push_back(arena.asked);
    }
    EXPECT_EQ(asked[0], asked[1]);
}

}  // namespace
}  // namespace halyard::tune
