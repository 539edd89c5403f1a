// The machine: blocks of threads that execute a program.
#include <algorithm>
#include <cstring>

#include "ptx.h"
#include "ptx_program.h"

namespace halyard::tests::ptx {
namespace {

constexpr unsigned warp_size = 32;

/** One block of threads. Those whose instruction comes first go on together, so that all that parted meet again where
 * the branches of a program do. */
class Block {
public:
    Block(const Program &program, const unsigned (&block)[3], std::size_t shared_bytes, void *const *parameters)
        : program_(program), block_(block), threads_(block[0] * block[1] * block[2]), parameters_(parameters),
          registers_(static_cast<std::size_t>(program.registers) * threads_), shared_(shared_bytes), at_(threads_),
          waits_(threads_) {}

    void run(const unsigned (&place)[3]) {
        place_ = place;
        // What is read before it was written is NaN.
        std::fill(shared_.begin(), shared_.end(), 0xff);
        std::fill(at_.begin(), at_.end(), 0);
        std::fill(waits_.begin(), waits_.end(), false);
        const std::size_t last = program_.instructions.size() - 1;
        while (true) {
            // The threads that come first, and where the next after them is.
            std::size_t first = last, others = last;
            bool waiting = false;
            for (unsigned t = 0; t < threads_; t++) {
                if (waits_[t]) {
                    waiting = true;
                } else if (at_[t] < first) {
                    others = first;
                    first = at_[t];
                } else if (at_[t] > first) {
                    others = std::min(others, at_[t]);
                }
            }
            if (first == last) {
                if (!waiting) {
                    return;
                }
                std::fill(waits_.begin(), waits_.end(), false);
                continue;
            }
            group_.clear();
            for (unsigned t = 0; t < threads_; t++) {
                if (!waits_[t] && at_[t] == first) {
                    group_.push_back(t);
                }
            }
            go_on(first, others, last);
        }
    }

private:
    /** Has the group execute from an instruction on until its threads part, wait or come to where others are. */
    void go_on(std::size_t at, std::size_t others, std::size_t last) {
        while (at < others) {
            const Instruction &i = program_.instructions[at++];
            active_.clear();
            for (const unsigned t : group_) {
                if (i.guard < 0 || (get(i.guard, t) != 0) != i.guard_negated) {
                    active_.push_back(t);
                }
            }
            const bool all = active_.size() == group_.size();
            if (i.kind == Kind::branch && all) {
                at = i.label;
                continue;
            }
            const bool parts = i.kind == Kind::branch || i.kind == Kind::barrier || i.kind == Kind::end;
            if (!parts) {
                execute(i, last);
                continue;
            }
            for (const unsigned t : group_) {
                at_[t] = at;
            }
            execute(i, last);
            return;
        }
        for (const unsigned t : group_) {
            at_[t] = at;
        }
    }

    Bits &get(int index, unsigned thread) { return registers_[static_cast<std::size_t>(index) * threads_ + thread]; }

    /** An operand by thread. */
    struct Values {
        Values(Block &block, const Operand &operand)
            : first(operand.index < 0 ? &operand.value : &block.get(operand.index, 0)),
              step(operand.index < 0 ? 0 : 1) {}
        Bits operator[](unsigned thread) const { return first[thread * step]; }

        const Bits *first;
        unsigned step;
    };

    Bits value(const Operand &operand, unsigned thread) {
        return operand.index < 0 ? operand.value : get(operand.index, thread);
    }

    void execute(const Instruction &i, std::size_t last) {
        switch (i.kind) {
        case Kind::compute: {
            Bits *const target = &get(i.targets[0].index, 0);
            const Values a(*this, i.sources[0]), b(*this, i.sources[1]), c(*this, i.sources[2]);
            for (const unsigned t : active_) {
                target[t] = i.function(a[t], b[t], c[t]);
            }
            break;
        }
        case Kind::move:
            for (const unsigned t : active_) {
                move(i, t);
            }
            break;
        case Kind::load_parameter: {
            Bits loaded = 0;
            std::memcpy(&loaded, parameters_[i.offset], static_cast<std::size_t>(i.bits / 8));
            for (const unsigned t : active_) {
                get(i.targets[0].index, t) = loaded;
            }
            break;
        }
        case Kind::load:
            for (const unsigned t : active_) {
                const char *from = memory(i, t, i.targets.size());
                for (const Operand &target : i.targets) {
                    Bits loaded = 0;
                    std::memcpy(&loaded, from, static_cast<std::size_t>(i.bits / 8));
                    get(target.index, t) = loaded;
                    from += i.bits / 8;
                }
            }
            break;
        case Kind::store:
            for (const unsigned t : active_) {
                char *to = memory(i, t, i.sources.size() - 1);
                for (std::size_t k = 1; k < i.sources.size(); k++) {
                    const Bits stored = value(i.sources[k], t);
                    std::memcpy(to, &stored, static_cast<std::size_t>(i.bits / 8));
                    to += i.bits / 8;
                }
            }
            break;
        case Kind::branch:
            for (const unsigned t : active_) {
                at_[t] = i.label;
            }
            break;
        case Kind::barrier:
            for (const unsigned t : active_) {
                waits_[t] = true;
            }
            break;
        case Kind::shuffle:
            shuffle(i);
            break;
        case Kind::end:
            for (const unsigned t : active_) {
                at_[t] = last;
            }
            break;
        }
    }

    void move(const Instruction &i, unsigned t) {
        const unsigned places[] = {
            t % block_[0], t / block_[0] % block_[1], t / block_[0] / block_[1], place_[0], place_[1], place_[2]};
        Bits whole = 0;
        if (i.place != Place::none) {
            whole = places[static_cast<int>(i.place)];
        } else {
            const int part = i.bits / static_cast<int>(i.sources.size());
            for (std::size_t k = i.sources.size(); k-- > 0;) {
                whole = (part < 64 ? whole << part : 0) | (value(i.sources[k], t) & mask(part));
            }
        }
        const int part = i.bits / static_cast<int>(i.targets.size());
        for (const Operand &target : i.targets) {
            get(target.index, t) = whole & mask(part);
            whole = part < 64 ? whole >> part : 0;
        }
    }

    static Bits mask(int bits) { return bits == 64 ? ~Bits{0} : (Bits{1} << bits) - 1; }

    char *memory(const Instruction &i, unsigned t, std::size_t parts) {
        const Bits address = value(i.sources[0], t) + static_cast<Bits>(i.offset);
        const std::size_t bytes = parts * static_cast<std::size_t>(i.bits / 8);
        if (address % bytes != 0) {
            stop("an address that is no multiple of " + std::to_string(bytes) + ": " + i.text);
        }
        if (!i.shared) {
            return reinterpret_cast<char *>(address);
        }
        if (address < shared_base || address - shared_base + bytes > shared_.size()) {
            stop("an address beyond shared memory: " + i.text);
        }
        return shared_.data() + (address - shared_base);
    }

    void shuffle(const Instruction &i) {
        shuffled_.clear();
        for (const unsigned t : active_) {
            const unsigned other =
                t / warp_size * warp_size + static_cast<unsigned>(value(i.sources[1], t) % warp_size);
            if (!std::binary_search(active_.begin(), active_.end(), other)) {
                stop("a shuffle with a thread that does not take part: " + i.text);
            }
            shuffled_.push_back(value(i.sources[0], other));
        }
        for (std::size_t k = 0; k < active_.size(); k++) {
            get(i.targets[0].index, active_[k]) = shuffled_[k];
        }
    }

    const Program &program_;
    const unsigned (&block_)[3];
    const unsigned threads_;
    void *const *const parameters_;
    const unsigned *place_ = nullptr;
    std::vector<Bits> registers_;  // [register][thread]
    std::vector<char> shared_;
    std::vector<std::size_t> at_;  // the next instruction of a thread
    std::vector<char> waits_;      // at a barrier
    std::vector<unsigned> group_,
        active_;  // the threads that go on together; those of them that an instruction's guard lets through
    std::vector<Bits> shuffled_;
};

}  // namespace

void run(const Program &program, const unsigned (&grid)[3], const unsigned (&block)[3], std::size_t shared_bytes,
         void *const *parameters) {
    Block threads(program, block, shared_bytes, parameters);
    for (unsigned z = 0; z < grid[2]; z++) {
        for (unsigned y = 0; y < grid[1]; y++) {
            for (unsigned x = 0; x < grid[0]; x++) {
                threads.run({x, y, z});
            }
        }
    }
}

}  // namespace halyard::tests::ptx
