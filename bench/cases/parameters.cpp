// See parameters.h.
#include "parameters.h"

#include <cmath>

namespace halyard::bench {

void Parameters::add_matrix(const std::string &name, Dtype dtype, std::int64_t out, std::int64_t in, unsigned seed,
                            double deviation) {
    matrices.try_emplace(name, dtype, out, in, seed,
                         deviation != 0 ? deviation : 1 / std::sqrt(static_cast<double>(in)));
}

void Parameters::add_vector(const std::string &name, Dtype dtype, std::int64_t width, unsigned seed, double mean) {
    vectors[name] = random_vector(dtype, width, seed, mean);
}

const DLTensor *Parameters::vector(const std::string &name) const {
    const auto found = vectors.find(name);
    return found != vectors.end() ? &found->second->view : nullptr;
}

operations::Row Parameters::values(const std::string &name) const {
    const auto found = vectors.find(name);
    return found != vectors.end() ? found->second->row(0) : operations::Row();
}

}  // namespace halyard::bench
