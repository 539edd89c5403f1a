// What the benchmark needs of the CUDA driver, opened at run time.
#ifndef HALYARD_BENCH_CUDA_CUDA_H
#define HALYARD_BENCH_CUDA_CUDA_H

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace halyard::bench::cuda {

/** Ends the program with a message. */
[[noreturn]] void stop(const std::string &message);

/** Says why the library finds no device to run on. What a program then exits with: 0, or 1 where the system has devices of
 *  NVIDIA. */
int say_no_device(const char *reason);

using Stream = void *;

/** A device of the machine and a stream on it. Every failure ends the program. */
class Gpu {
public:
    explicit Gpu(int ordinal);

    std::string name;
    std::int64_t l2_bytes = 0, memory_bytes = 0;
    bool stand_in = false;  // nothing that is measured means anything
    Stream stream = nullptr;

    std::uint64_t allocate(std::int64_t bytes);
    void free(std::uint64_t memory);
    /** Fills memory with 16-bit numbers that are ordinary ones in f16, bf16 and, two at a time, f32. */
    void fill(std::uint64_t memory, std::int64_t bytes);
    void copy(std::uint64_t from, std::uint64_t to, std::int64_t bytes);
    void wait();

    /** Microseconds from the beginning to the end of what `work` puts into the stream. */
    double microseconds(const std::function<void()> &work);

    /** What `work` puts into the stream, to be launched as a whole. */
    class Graph {
    public:
        Graph(Gpu &gpu, const std::function<void()> &work);
        ~Graph();
        Graph(const Graph &) = delete;
        Graph &operator=(const Graph &) = delete;

        void launch();

    private:
        Gpu &gpu_;
        void *executable_ = nullptr;
    };

private:
    void *begin_ = nullptr, *end_ = nullptr;
};

}  // namespace halyard::bench::cuda

#endif
