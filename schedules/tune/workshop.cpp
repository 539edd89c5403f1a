// See workshop.h.
#include "workshop.h"

#include <sys/mman.h>
#include <unistd.h>

#include "hash.h"
#include "slots.h"

namespace halyard::tune {

Workshop::Workshop(const UsualParameters &usual_parameters, const TuneOptions &chosen)
    : usual(usual_parameters), options(chosen), finder(chosen.threads, chosen.cold_set) {
    set_resolver([this](int slot) {
        std::unique_ptr<Loaded> &kernel = loaded[slot];
        if (kernel == nullptr) {
            const Variant variant = variant_of(slot);
            kernel = compiler.load(usual_object(variant), variant.symbol());
        }
        return kernel->function();
    });
    for (const KernelInfo &kernel : kernel_table()) {
        for (const std::string &isa : isa_names()) {
            for (const std::string &dtype : dtype_names()) {
                const Variant variant{&kernel, dtype, isa};
                if (kernel.family == "matmul" && slot_of(variant) >= 0) {
                    set_tile_panels(variant, usual.complete(variant).at("panels"));
                }
            }
        }
    }
}

const std::string &Workshop::usual_object(const Variant &variant) {
    std::string &object = objects[variant.symbol()];
    if (object.empty()) {
        object = compiler.object(variant, usual.named(variant));
    }
    return object;
}

Subject Workshop::subject(const Variant &variant, const std::vector<Workload> &workloads) {
    Subject subject;
    subject.kernel = variant.kernel->name;
    subject.dtype = variant.dtype;
    subject.isa = variant.isa;
    subject.threads = options.threads;
    for (const Workload &workload : workloads) {
        subject.workloads.push_back(workload.name());
    }
    subject.space = hash_of_space(*variant.space());
    subject.code = hash_of(usual_object(variant));
    return subject;
}

namespace {

/** Whether two calls have operands of the same shapes and values. */
bool have_same_operands(const bench::WorkId &a, const bench::WorkId &b) {
    const bench::Kernel &x = *a.kernel, &y = *b.kernel;
    return !x.layer && !y.layer && !x.prepare && !y.prepare && x.inputs == y.inputs && x.outputs == y.outputs &&
           x.input_width == y.input_width && x.has_weight == y.has_weight && x.has_bias == y.has_bias &&
           x.cast_to == y.cast_to && a.dtype == b.dtype && a.rows == b.rows && a.d == b.d && a.cold == b.cold &&
           a.threads == b.threads;
}

}  // namespace

void set_inherited(const bench::Work &work, bool inherited) {
    const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
    for (const bench::Operands &set : work.sets) {
        for (const auto *matrices : {&set.inputs, &set.outputs}) {
            for (const bench::Matrix &matrix : *matrices) {
                const auto begin = reinterpret_cast<std::uintptr_t>(matrix.data()), end = begin + matrix.bytes();
                const std::uintptr_t first = (begin + page - 1) / page * page, last = end / page * page;
                if (first < last) {
                    madvise(reinterpret_cast<void *>(first), last - first, inherited ? MADV_DOFORK : MADV_DONTFORK);
                }
            }
        }
    }
}

std::unique_ptr<bench::Work> Workshop::take(const Workload &workload, const std::string &isa) {
    if (spare != nullptr && have_same_operands(spare->id, workload.id) &&
        halyard_context_isa(spare->context.get()) == isa_named(isa)) {
        spare->id = workload.id;
        return std::move(spare);
    }
    if (!workload.id.cold) {
        return finder.make(workload, isa);
    }
    drop_spare();
    std::unique_ptr<bench::Work> work = finder.make(workload, isa);
    set_inherited(*work, false);
    return work;
}

void Workshop::drop_spare() {
    if (spare != nullptr) {
        set_inherited(*spare, true);  // whoever gets the memory next
        spare = nullptr;
    }
}

void Workshop::give_back(std::unique_ptr<bench::Work> work) {
    if (work != nullptr && work->id.cold) {
        drop_spare();
        spare = std::move(work);
    }
}

}  // namespace halyard::tune
