// A process that does a peer's work: one request, one reply, each a line of JSON; tensors go through files. A peer that
// crashes, or that takes longer than the row's time, costs that row and no other: its process ends and the next row
// starts another.
#ifndef HALYARD_BENCH_PEERS_PROCESS_H
#define HALYARD_BENCH_PEERS_PROCESS_H

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "peers/peer.h"
#include "temporary_folder.h"

namespace halyard::bench {

class Process {
public:
    /** Runs `command` with more environment variables ("NAME=value") than this process has. */
    Process(const PeerOptions &options, std::vector<std::string> command,
            const std::vector<std::string> &more_variables);
    ~Process();
    Process(const Process &) = delete;
    Process &operator=(const Process &) = delete;

    pid_t id() const { return process; }
    double row_limit() const { return limit_per_row; }
    void tell(const nlohmann::json &request);
    /** The reply; {"error": ...} if there is none within `limit` seconds, which ends the process. */
    nlohmann::json hear(double limit);
    nlohmann::json ask(const nlohmann::json &request, double limit);
    /** Starts it again if it has ended, unless it has done so too often. */
    void revive();
    /** A folder for files of tensors that goes away with this. */
    const std::filesystem::path &folder() const { return files.path(); }

    /** Writes a tensor to a file of the folder; returns its path. */
    std::string send(const std::string &name, const Matrix &matrix) const;
    /** Fills the matrix from a file of the folder; with NaN if the file is short. */
    void receive(const std::string &name, const Matrix &matrix) const;

private:
    void start();
    void stop();
    /** Ends it and says how it ended. */
    nlohmann::json died();

    std::vector<std::string> command, variables;
    double limit_per_row;
    int starts = 0;
    pid_t process = -1;
    int to = -1, from = -1;
    bool is_told = false;  // the last request went out
    std::string received;
    TemporaryFolder files;
};

/** Seconds that a process gets to start. */
constexpr double start_limit = 120;

/** Work that such a process prepares and then times whenever it is asked: requests "prepare", "time" and "release". */
class RemoteContender : public PeerContender, private Contender {
public:
    RemoteContender(BenchmarkCase &bench_case, Process &process);
    ~RemoteContender() override;
    Contender &contender() override { return *this; }

    /** Sends the request with `id`, threads and the names of the output files added; wait() has the answer. */
    void prepare(nlohmann::json request);
    std::string wait() override;
    /** Of the outputs in those files, or as the reply had it. */
    Accuracy accuracy() override;

private:
    bool times_itself() const override { return true; }
    void run(benchmark::State &state) override;
    /** The reply within what is left of the row's time. */
    nlohmann::json hear();
    static std::string output_name(std::size_t i) { return "output" + std::to_string(i); }

    BenchmarkCase &bench_case;
    Process &process;
    int id;
    double seconds_left;
    bool is_awaited = false, has_told = false;
    Accuracy told{};
};

}  // namespace halyard::bench

#endif
