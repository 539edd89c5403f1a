// See row_limits.h.
#include "row_limits.h"

#include <algorithm>
#include <cmath>
#include <memory>

namespace halyard::bench {
namespace {

struct Copy {
    BenchmarkCase *bench_case;
    const StreamTable *streams;
    Loop loop;
    Team *team;
    void operator()(std::size_t index) const {
        const OperandSet &set = bench_case->sets[index];
        const bool two_in = set.inputs.size() > 1, two_out = set.outputs.size() > 1;
        const std::size_t bytes = std::max(set.inputs[0].bytes(), set.outputs[0].bytes());
        run_stream(*streams, bench_case->id.stream(), loop,
                   {set.inputs[0].data(), two_in ? set.inputs[1].data() : nullptr, set.outputs[0].data(),
                    two_out ? set.outputs[1].data() : nullptr, bytes},
                   *team);
    }
};

/** The very bytes that the row's call reads, so in whatever level of the memory they are. */
struct ReadWeights {
    BenchmarkCase *bench_case;
    const StreamTable *streams;
    Loop loop;
    Team *team;
    void operator()(std::size_t index) const {
        for (const auto &weights : bench_case->sets[index].weights) {
            // Without the header and what stands beside the matrices.
            halyard_weights_info info{};
            halyard_weights_get_info(weights.get(), &info);
            const auto all = static_cast<std::size_t>(info.bytes);
            const auto matrices =
                static_cast<std::size_t>(info.in_features * info.out_features * (info.gated != 0 ? 2 : 1)) *
                operations::size_of(bench_case->id.dtype);
            const std::size_t bytes = std::min(all, matrices);
            const char *data = static_cast<const char *>(halyard_weights_data(weights.get())) + (all - bytes);
            run_stream(*streams, stream_read, loop, {data, nullptr, nullptr, nullptr, bytes}, *team);
        }
    }
};

/** As many bytes as the row's call reads, where there is no asking for the very ones: the same in every call if the row
 * is hot, else from a memory that is larger than the caches, going on where the call before ended. */
class ReadAsMuch {
public:
    ReadAsMuch(const BenchmarkCase &bench_case, const StreamTable &with, Team &on)
        : bytes(bench_case.id.bytes_moved()), streams(&with), team(&on),
          memory(std::make_shared<Buffer>(bench_case.id.cold ? bench_case.cold_set : bytes)) {}
    /** Reads this memory by the other loop. */
    ReadAsMuch with_hints() const {
        ReadAsMuch other = *this;
        other.loop = Loop::hinted;
        return other;
    }
    void operator()(std::size_t) {
        for (std::size_t left = bytes; left > 0;) {
            const std::size_t count = std::min(left, memory->size() - next);
            run_stream(*streams, stream_read, loop, {memory->data() + next, nullptr, nullptr, nullptr, count}, *team);
            left -= count;
            next = next + count == memory->size() ? 0 : next + count;
        }
    }

private:
    std::size_t bytes, next = 0;
    Loop loop = Loop::plain;
    const StreamTable *streams;
    Team *team;
    std::shared_ptr<Buffer> memory;
};

/** One kind after the other. */
class MultiplyAdds {
public:
    explicit MultiplyAdds(Team &on) : team(&on) {}
    void append(const Chains &chains, double operations) {
        const double rounds = std::ceil(operations / chains.operations / team->size());
        kinds.push_back({&chains, static_cast<std::int64_t>(rounds)});
    }
    void operator()(std::size_t) const {
        team->run([this](int) {
            for (const Kind &kind : kinds) {
                benchmark::DoNotOptimize(kind.chains->run(kind.rounds));
            }
        });
    }

private:
    struct Kind {
        const Chains *chains;
        std::int64_t rounds;  // of each thread
    };
    Team *team;
    std::vector<Kind> kinds;
};

MultiplyAdds multiply_adds_of(const CaseId &id, halyard_isa isa, Team &team) {
    MultiplyAdds all(team);
    const double in_bytes = id.int8_flops();
    if (in_bytes < id.flops()) {
        all.append(streams_of(isa_of_products(isa, id.dtype)).multiply_adds, id.flops() - in_bytes);
    }
    if (in_bytes > 0) {
        const StreamTable &table = streams_of(isa_of_products(isa, operations::Dtype::f32));
        all.append(table.byte_multiply_adds, in_bytes * byte_products(isa, id.kernel->code_bits()));
    }
    return all;
}

}  // namespace

std::vector<std::unique_ptr<Contender>> limits_of(BenchmarkCase &bench_case, halyard_isa isa, Team &team) {
    const StreamTable &streams = streams_of(isa);
    std::vector<std::unique_ptr<Contender>> limits;
    const auto append = [&](const auto &call) {
        limits.push_back(std::make_unique<Local<std::decay_t<decltype(call)>>>(call, bench_case.sets.size()));
    };
    if (!bench_case.id.has_roofline()) {
        append(Copy{&bench_case, &streams, Loop::plain, &team});
        if (bench_case.id.cold) {
            append(Copy{&bench_case, &streams, Loop::hinted, &team});
        }
        return limits;
    }
    if (bench_case.id.kernel->layer) {
        append(ReadWeights{&bench_case, &streams, Loop::plain, &team});
        append(ReadWeights{&bench_case, &streams, Loop::hinted, &team});
    } else {
        const ReadAsMuch read(bench_case, streams, team);
        append(read);
        append(read.with_hints());
    }
    append(multiply_adds_of(bench_case.id, isa, team));
    return limits;
}

}  // namespace halyard::bench
