// A process that does a peer's work: one request, one reply, each a line of JSON; tensors go through files. A peer that
// crashes, or that takes longer than the row's time, costs that row and no other: its process ends and the next row
// starts another.
#ifndef HALYARD_BENCH_PEERS_PROCESS_H
#define HALYARD_BENCH_PEERS_PROCESS_H

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "benchmark_case.h"
#include "temporary_folder.h"

namespace halyard::bench {

/** How the program was asked to find peers. */
struct PeerOptions {
    std::string python;  // the interpreter that may have PyTorch
    std::size_t cold_set;
    halyard_isa isa;
    double row_limit;  // seconds that a peer's process gets for one row

    /** True if the program was told to use a lesser instruction set than this machine has: peers then do likewise. */
    bool caps_isa() const;
};

class Process {
public:
    Process(const PeerOptions &options, std::vector<std::string> command);
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
    std::string send(const std::string &name, const Matrix &matrix) const {
        return send(name, matrix.data(), matrix.bytes());
    }
    std::string send(const std::string &name, const void *data, std::size_t bytes) const;
    /** Fills the matrix from a file of the folder; with NaN if the file is short. */
    void receive(const std::string &name, const Matrix &matrix) const;

private:
    void start();
    void stop();
    /** Ends it and says how it ended. */
    nlohmann::json died();

    std::vector<std::string> command;
    double limit_per_row;
    int starts = 0;
    pid_t process = -1;
    int to = -1, from = -1;
    bool is_told = false;  // the last request went out
    std::string received;
    TemporaryFolder files, temporary;    // for tensors; for what its libraries write, such as a compiler's cache
    std::vector<std::string> variables;  // its environment
};

}  // namespace halyard::bench

#endif
