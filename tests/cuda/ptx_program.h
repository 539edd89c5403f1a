// Programs as the machine has them: what its parser makes and its blocks of threads execute.
#ifndef HALYARD_TESTS_CUDA_PTX_PROGRAM_H
#define HALYARD_TESTS_CUDA_PTX_PROGRAM_H

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace halyard::tests::ptx {

// A register: 1 (a predicate), 16, 32 or 64 bits, the others zero.
using Bits = std::uint64_t;
using Function = Bits (*)(Bits, Bits, Bits);

// Where shared memory begins for the kernel; not 0, as on the real machine.
constexpr Bits shared_base = 1024;

[[noreturn]] inline void stop(const std::string &message) {
    std::fprintf(stderr, "PTX: %s\n", message.c_str());
    std::abort();
}

/** What an instruction of up to three sources computes; null if it is not known, or none of these. */
Function function_of(const std::string &code);

enum class Kind { compute, move, load_parameter, load, store, branch, barrier, shuffle, end };
enum class Place { threads_x, threads_y, threads_z, block_x, block_y, block_z, none };

struct Operand {
    int index = -1;  // of a register
    Bits value = 0;  // if it is none
};

struct Instruction {
    Kind kind = Kind::end;
    std::string text;
    int guard = -1;  // a predicate
    bool guard_negated = false;
    Function function = nullptr;
    std::vector<Operand> targets, sources;
    int bits = 0;  // of each target or source in memory, or of the whole that a move takes apart or puts together
    bool shared = false;
    std::int64_t offset = 0;  // of an address; of a parameter: its number
    std::size_t label = 0;
    Place place = Place::none;
};

struct Program {
    std::vector<Instruction> instructions;
    std::vector<std::size_t> parameter_bytes;
    int registers = 0;
};

}  // namespace halyard::tests::ptx

#endif
