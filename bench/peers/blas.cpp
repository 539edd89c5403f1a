// The peers "mkl" and "openblas": cblas_sgemm for plain f32 products, from a shared library that is looked for at run
// time. MKL's weights are packed beforehand (cblas_sgemm_pack), as ours are; OpenBLAS has no such form.
#include <dlfcn.h>

#include <cctype>
#include <filesystem>
#include <sstream>

#include "layer.h"
#include "peers/peer.h"

namespace halyard::bench {
namespace {

// Of the CBLAS interface.
enum { row_major = 101, no_transpose = 111, transpose = 112, b_matrix = 162, packed_storage = 151 };

using Gemm = void (*)(int, int, int, int, int, int, float, const float *, int, const float *, int, float, float *, int);
using GemmCompute = void (*)(int, int, int, int, int, int, const float *, int, const float *, int, float, float *, int);
using GemmAlloc = float *(*)(int, int, int, int);
using GemmPack = void (*)(int, int, int, int, int, int, float, const float *, int, float *);

class Library {
public:
    explicit Library(const std::vector<std::string> &names) {
        for (const std::string &name : names) {
            handle = handle != nullptr ? handle : dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
        }
    }
    // Never closed: the libraries' threads may not outlive their code.

    explicit operator bool() const { return handle != nullptr && dlsym(handle, "cblas_sgemm") != nullptr; }

    /** Null if the library has no such function. */
    template<typename Function>
    Function find(const char *name) const {
        return reinterpret_cast<Function>(dlsym(handle, name));
    }

private:
    void *handle = nullptr;
};

/** One plain product, by operand set. */
class Product {
public:
    Product(const Library &library, BenchmarkCase &bench_case)
        : gemm(library.find<Gemm>("cblas_sgemm")), compute(library.find<GemmCompute>("cblas_sgemm_compute")),
          free_packed(library.find<void (*)(float *)>("cblas_sgemm_free")), rows(static_cast<int>(bench_case.id.rows)),
          in(static_cast<int>(bench_case.id.d)), out(static_cast<int>(bench_case.id.d_out)) {
        const auto allocate = library.find<GemmAlloc>("cblas_sgemm_alloc");
        const auto pack = library.find<GemmPack>("cblas_sgemm_pack");
        if (allocate == nullptr || pack == nullptr || free_packed == nullptr) {
            compute = nullptr;
        }
        for (const OperandSet &set : bench_case.sets) {
            x.push_back(reinterpret_cast<const float *>(set.inputs[0].data()));
            y.push_back(reinterpret_cast<float *>(set.outputs[0].data()));
            Matrix source = bench_case.layer->source(Layer::first);
            if (compute != nullptr) {
                packed.push_back(allocate(b_matrix, rows, out, in));
                pack(row_major, b_matrix, transpose, rows, out, in, 1.0f,
                     reinterpret_cast<const float *>(source.data()), in, packed.back());
            } else {
                plain.push_back(std::move(source));
            }
        }
    }
    ~Product() {
        for (float *each : packed) {
            free_packed(each);
        }
    }
    Product(const Product &) = delete;
    Product &operator=(const Product &) = delete;

    void operator()(std::size_t set) const {
        if (compute != nullptr) {
            compute(row_major, no_transpose, packed_storage, rows, out, in, x[set], in, packed[set], in, 0.0f, y[set],
                    out);
        } else {
            gemm(row_major, no_transpose, transpose, rows, out, in, 1.0f, x[set], in,
                 reinterpret_cast<const float *>(plain[set].data()), in, 0.0f, y[set], out);
        }
    }

private:
    Gemm gemm;
    GemmCompute compute;
    void (*free_packed)(float *);
    int rows, in, out;
    std::vector<const float *> x;
    std::vector<float *> y;
    std::vector<float *> packed;
    std::vector<Matrix> plain;
};

class Blas : public Peer {
public:
    Blas(std::string of, Library from, void (*set_number_of_threads)(int), std::string told, PeerAbout says)
        : label(std::move(of)), library(from), set_threads(set_number_of_threads), told_version(std::move(told)),
          told_about(std::move(says)) {}
    std::string name() const override { return label; }
    std::string version() const override { return told_version; }
    PeerAbout about() const override { return told_about; }

    std::string refusal(const CaseId &id) const override {
        return is_plain_f32_product(id) ? "" : "is compared for plain f32 products";
    }

    std::unique_ptr<PeerContender> prepare(BenchmarkCase &bench_case, std::string &) override {
        set_threads(bench_case.id.threads);
        auto product = std::make_shared<Product>(library, bench_case);
        return make_local_peer(bench_case, [product](std::size_t set) { (*product)(set); });
    }

private:
    std::string label;
    Library library;
    void (*set_threads)(int);
    std::string told_version;
    PeerAbout told_about;
};

/** The number in what a library says of itself: "0.3.21", "2026.2". */
std::string version_in(const std::string &text) {
    std::istringstream words(text);
    for (std::string word; words >> word;) {
        if (std::isdigit(static_cast<unsigned char>(word[0])) != 0) {
            return word.substr(0, word.find_first_not_of("0123456789."));
        }
    }
    return text;
}

std::unique_ptr<Peer> make_openblas(const PeerOptions &options, std::string &reason) {
    if (options.caps_isa()) {
        reason = "cannot be capped to an instruction set once it is loaded";
        return nullptr;
    }
    const Library library({"libopenblas.so.0", "libopenblas.so"});
    const auto set_threads = library ? library.find<void (*)(int)>("openblas_set_num_threads") : nullptr;
    if (set_threads == nullptr) {
        reason = "libopenblas.so.0 was not found (Debian: libopenblas0)";
        return nullptr;
    }
    const auto config = library.find<const char *(*)()>("openblas_get_config");
    return std::make_unique<Blas>("openblas", library, set_threads, config != nullptr ? version_in(config()) : "",
                                  PeerAbout{"OpenBLAS", "cblas_sgemm", "is compared for plain f32 products", "C"});
}

std::unique_ptr<Peer> make_mkl(const PeerOptions &options, std::string &reason) {
    if (options.caps_isa()) {
        reason = "cannot be capped to an instruction set once it is loaded";
        return nullptr;
    }
    // Where pip puts it: beside the interpreter.
    const std::filesystem::path beside = std::filesystem::path(options.python).parent_path().parent_path() / "lib";
    const Library library({(beside / "libmkl_rt.so.3").string(), (beside / "libmkl_rt.so.2").string(), "libmkl_rt.so.3",
                           "libmkl_rt.so.2", "libmkl_rt.so"});
    const auto set_threads = library ? library.find<void (*)(int)>("MKL_Set_Num_Threads") : nullptr;
    if (set_threads == nullptr) {
        reason = "libmkl_rt was not found (pip: mkl)";
        return nullptr;
    }
    // GNU's OpenMP: its functions must be there when the layer is loaded.
    dlopen("libgomp.so.1", RTLD_NOW | RTLD_GLOBAL);
    if (const auto set_layer = library.find<int (*)(int)>("MKL_Set_Threading_Layer")) {
        constexpr int gnu = 3;
        set_layer(gnu);
    }
    char version[200] = "";
    if (const auto get = library.find<void (*)(char *, int)>("MKL_Get_Version_String")) {
        get(version, sizeof(version) - 1);
    }
    return std::make_unique<Blas>("mkl", library, set_threads, version_in(version),
                                  PeerAbout{"MKL", "cblas_sgemm_compute on weights packed beforehand",
                                            "is compared for plain f32 products; slower on AMD than on Intel", "C"});
}

const PeerRegistration openblas("openblas", make_openblas, Runs::isolated), mkl("mkl", make_mkl, Runs::isolated);

}  // namespace
}  // namespace halyard::bench
