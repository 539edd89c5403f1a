// The operations and their references, under the tests' own namespace.
#ifndef HALYARD_TESTS_OPERATIONS_H
#define HALYARD_TESTS_OPERATIONS_H

#include "operations/built.h"
#include "operations/isas.h"
#include "operations/operations.h"
#include "operations/reference.h"

namespace halyard::tests {

using namespace operations;

}  // namespace halyard::tests

#endif
