// The machine and the versions that a record is made with, and the name of the file of tuned parameters for such a
// machine.
#ifndef HALYARD_TUNE_SETTING_H
#define HALYARD_TUNE_SETTING_H

#include "bench/machine.h"
#include "database.h"

namespace halyard::tune {

/** "x86-64-genuineintel-6-85-32k-1024k": maker, family and model of the processor and the first two levels of its data
 *  caches, as cmake/HalyardTuned.cmake finds them too. */
std::string machine_name(const bench::Machine &machine);

Setting describe_setting(const bench::Machine &machine);

}  // namespace halyard::tune

#endif
