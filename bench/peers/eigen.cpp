// Plain f32 products as a C++ program that includes Eigen has them, for eigen_peer.py: compiled for the instruction set of
// this machine, with OpenMP's threads.
#include <Eigen/Core>
#include <string>

using Tensor = Eigen::Map<Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>>;

extern "C" {

const char *halyard_bench_eigen_version() {
    static const std::string version = std::to_string(EIGEN_WORLD_VERSION) + "." + std::to_string(EIGEN_MAJOR_VERSION) +
                                       "." + std::to_string(EIGEN_MINOR_VERSION) + " (" +
                                       Eigen::SimdInstructionSetsInUse() + ")";
    return version.c_str();
}

void halyard_bench_eigen_threads(int count) {
    Eigen::setNbThreads(count);
}

/** y = x w^T; sizes: rows, inputs, outputs; tensors: x, w, y. */
void halyard_bench_eigen(const int *sizes, float *const *tensors) {
    const Tensor x(tensors[0], sizes[0], sizes[1]), w(tensors[1], sizes[2], sizes[1]);
    Tensor(tensors[2], sizes[0], sizes[2]).noalias() = x * w.transpose();
}

}  // extern "C"
