// What halyard-quantize prints: a table of tensors and a line for each format.
#ifndef HALYARD_PROGRAMS_QUANTIZE_REPORT_H
#define HALYARD_PROGRAMS_QUANTIZE_REPORT_H

#include <halyard/quantize.hpp>
#include <vector>

/// To stdout. Throws std::runtime_error if it cannot be written.
void print_report(const std::vector<halyard::QuantizedTensor> &tensors);

#endif
