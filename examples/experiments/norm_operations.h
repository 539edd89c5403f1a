// The arithmetic that norms do on a row of d features, and their parameters; see norm_operations.cpp.
#ifndef HALYARD_EXPERIMENTS_NORM_OPERATIONS_H
#define HALYARD_EXPERIMENTS_NORM_OPERATIONS_H

#include <cstdint>
#include <filesystem>

namespace experiments {

/** norm_operations.csv, norm_parameters.csv and norm_published.csv; `partial` is the part of the row from which pRMSNorm takes its mean square. */
void write_norm_operations(const std::filesystem::path &directory, std::int64_t d, float partial);

}  // namespace experiments

#endif
