// A Python process that does a peer's work: one request, one reply, each a line of JSON; tensors go through files.
#ifndef HALYARD_BENCH_PEERS_PYTHON_PROCESS_H
#define HALYARD_BENCH_PEERS_PYTHON_PROCESS_H

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "peers/peer.h"

namespace halyard::bench {

/** A process that dies or stays silent is done with. */
class PythonProcess {
public:
    /** Runs `script`, which lies beside the peers' sources, with more environment variables: "NAME=value". */
    PythonProcess(const PeerOptions &options, const std::string &script,
                  const std::vector<std::string> &more_variables = {});
    ~PythonProcess();
    PythonProcess(const PythonProcess &) = delete;
    PythonProcess &operator=(const PythonProcess &) = delete;

    pid_t id() const { return process; }
    /** The reply; {"error": ...} if there is none within `limit` seconds. */
    nlohmann::json ask(const nlohmann::json &request, double limit);
    /** A folder for files of tensors that goes away with this. */
    const std::filesystem::path &folder() const { return files; }

    /** Writes a tensor to a file of the folder; returns its path. */
    std::string send(const std::string &name, const Matrix &matrix) const;
    /** Fills the matrix from a file of the folder; with NaN if the file is short. */
    void receive(const std::string &name, const Matrix &matrix) const;

private:
    void stop();

    pid_t process = -1;
    int to = -1, from = -1;
    std::string received;
    std::filesystem::path files;
};

/** Seconds that a process gets to start, to prepare a row, and to time a sample. */
constexpr double start_limit = 120, prepare_limit = 300, sample_limit = 120;

/** Work that such a process prepares and then times whenever it is asked: requests "prepare", "time" and "release". */
class PythonContender : public PeerContender, private Contender {
public:
    PythonContender(Work &work, PythonProcess &process);
    ~PythonContender() override;
    Contender &contender() override { return *this; }

    /** Sends the request with `id`, threads and the names of the output files added. Empty, or why it cannot do the
     * work. */
    std::string prepare(nlohmann::json request);
    double error() override;

private:
    bool times_itself() const override { return true; }
    void run(benchmark::State &state) override;
    static std::string output_name(std::size_t i) { return "output" + std::to_string(i); }

    Work &work;
    PythonProcess &process;
    int id;
};

}  // namespace halyard::bench

#endif
