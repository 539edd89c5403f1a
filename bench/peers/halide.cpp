// The peers "halide-adams2019", "halide-li2018" and "halide-mullapudi2016": the kernels' own algorithms with the
// schedules that Halide's autoschedulers make of them for the very shape and threads of the row (autoschedule.cpp,
// built with -DHALYARD_BENCH_AUTOSCHEDULERS=ON): what a user would get without schedules written by hand. Rows of
// several kernels are several such calls.
#include <dlfcn.h>

#include <array>
#include <deque>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "HalideRuntime.h"
#include "kernel_calls.h"
#include "peers/peer.h"

namespace halyard::bench {
namespace {

using Function = int (*)(void **arguments);

/** Two axes, features and rows, or the first alone. */
struct Buffer2 {
    halide_buffer_t buffer{};
    std::array<halide_dimension_t, 2> axes{};

    Buffer2(const Matrix &matrix, std::int64_t column, std::int64_t width, bool is_vector) {
        const std::size_t size = tests::size_of(matrix.dtype());
        axes[0] = {0, static_cast<std::int32_t>(width), 1};
        axes[1] = {0, static_cast<std::int32_t>(matrix.rows()), static_cast<std::int32_t>(matrix.width())};
        buffer.host = reinterpret_cast<std::uint8_t *>(matrix.data()) + static_cast<std::size_t>(column) * size;
        buffer.type =
            halide_type_t(size == 4 ? halide_type_float : halide_type_uint, static_cast<std::uint8_t>(8 * size));
        buffer.dimensions = is_vector ? 1 : 2;
        buffer.dim = axes.data();
    }
    Buffer2(const Buffer2 &) = delete;
};

/** A kernel with its arguments from one operand set. */
class Prepared {
public:
    Prepared(Function compiled, const KernelCall &call, const Work &work, const Operands &set) : function(compiled) {
        for (const KernelArgument &argument : call.arguments) {
            if (const auto *tensor = std::get_if<KernelTensor>(&argument.value)) {
                const bool is_vector = tensor->which == KernelTensor::weight || tensor->which == KernelTensor::bias;
                buffers.emplace_back(matrix_of(*tensor, work, set), tensor->column, tensor->width, is_vector);
                pointers.push_back(&buffers.back().buffer);
            } else {
                scalars.push_back(argument.value);
                pointers.push_back(std::visit([](auto &value) -> void * { return &value; }, scalars.back()));
            }
        }
    }
    Prepared(const Prepared &) = delete;

    void operator()() {
        if (function(pointers.data()) != 0) {
            throw std::runtime_error("the compiled kernel failed");
        }
    }

private:
    static const Matrix &matrix_of(const KernelTensor &tensor, const Work &work, const Operands &set) {
        const auto index = static_cast<std::size_t>(tensor.index);
        return tensor.which == KernelTensor::input    ? set.inputs[index]
               : tensor.which == KernelTensor::output ? set.outputs[index]
               : tensor.which == KernelTensor::weight ? *work.weight
                                                      : *work.bias;
    }

    Function function;
    // What is pointed at stays where it is.
    std::deque<Buffer2> buffers;
    std::deque<decltype(KernelArgument::value)> scalars;
    std::vector<void *> pointers;
};

class Autoscheduled : public Peer {
public:
    Autoscheduled(std::string of, void *library, nlohmann::json compiled)
        : scheduler(std::move(of)), handle(library), kernels(std::move(compiled)),
          set_threads(reinterpret_cast<int (*)(int)>(dlsym(handle, "halide_set_num_threads"))) {}
    std::string name() const override { return scheduler; }
    std::string version() const override {
        return std::to_string(HALIDE_VERSION_MAJOR) + "." + std::to_string(HALIDE_VERSION_MINOR) + "." +
               std::to_string(HALIDE_VERSION_PATCH);
    }

    std::string refusal(const WorkId &row) const override {
        const std::vector<KernelCall> calls = kernel_calls(row);
        if (calls.empty()) {
            return "is compared for rows that are kernels of whole tensors";
        }
        for (const KernelCall &call : calls) {
            if (!kernels.contains(call.name())) {
                return "is compiled for the shapes and threads of the default work list";
            }
            const std::string failure = kernels.at(call.name());
            if (!failure.empty()) {
                return "has no schedule for it: " + failure;
            }
        }
        return {};
    }

    std::unique_ptr<PeerContender> prepare(Work &work, std::string &) override {
        set_threads(work.id.threads);
        const std::vector<KernelCall> calls = kernel_calls(work.id);
        auto prepared = std::make_shared<std::vector<std::deque<Prepared>>>(work.sets.size());
        for (std::size_t set = 0; set < work.sets.size(); set++) {
            for (const KernelCall &call : calls) {
                const auto function = reinterpret_cast<Function>(dlsym(handle, (call.name() + "_argv").c_str()));
                (*prepared)[set].emplace_back(function, call, work, work.sets[set]);
            }
        }
        auto side = make_local_peer(work, [prepared](std::size_t set) {
            for (Prepared &call : (*prepared)[set]) {
                call();
            }
        });
        side->note = "compiled for exactly this shape and these threads";
        return side;
    }

private:
    std::string scheduler;
    void *handle;  // never closed: its threads may not outlive its code
    nlohmann::json kernels;
    int (*set_threads)(int);
};

std::unique_ptr<Peer> make(const std::string &scheduler, const PeerOptions &options, std::string &reason) {
    const std::string stem = HALYARD_BENCH_AUTOSCHEDULED_DIR "/" + scheduler;
    std::ifstream file(stem + ".json");
    if (!file) {
        reason = "was not built (-DHALYARD_BENCH_AUTOSCHEDULERS=ON, which --peers halide does)";
        return nullptr;
    }
    const nlohmann::json list = nlohmann::json::parse(file);
    if (list.at("isa") != halyard_isa_name(options.isa)) {
        reason = "is compiled for " + list.at("isa").get<std::string>();
        return nullptr;
    }
    void *library = dlopen((stem + ".so").c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
        reason = dlerror();
        return nullptr;
    }
    return std::make_unique<Autoscheduled>("halide-" + scheduler, library, list.at("kernels"));
}

PeerRegistration peer_named(const char *name, const char *scheduler) {
    return {name,
            [scheduler](const PeerOptions &options, std::string &reason) { return make(scheduler, options, reason); },
            Runs::isolated, "halide"};
}

const PeerRegistration adams = peer_named("halide-adams2019", "adams2019"), li = peer_named("halide-li2018", "li2018"),
                       mullapudi = peer_named("halide-mullapudi2016", "mullapudi2016");

}  // namespace
}  // namespace halyard::bench
