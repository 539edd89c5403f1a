// Work lists: text files that say which rows a run measures. docs/benchmarks.md describes the format.
//
// A line is a statement: a word, then key=value,value,...; what follows a # is a comment. Every combination of the
// values is a row. Whatever is wrong is said with file, line and column, and with what there is instead.
#ifndef HALYARD_BENCH_CASES_WORK_LIST_H
#define HALYARD_BENCH_CASES_WORK_LIST_H

#include <stdexcept>
#include <string>
#include <vector>

#include "benchmark_case.h"

namespace halyard::bench {

/** A sentence for who typed a command or wrote a list: of a list "FILE:LINE:COLUMN: what is wrong". */
struct UsageError : std::runtime_error {
    using std::runtime_error::runtime_error;
};

/** The rows of a list in its order, each once, with `threads` where it says "all". `list` is the name of one in
 * `folder`
 *  ("quick") or a path. */
std::vector<CaseId> read_work_list(const std::string &list, const std::string &folder, int threads);

/** The rows of a model in a GGUF file: prompts of 128 and 512 tokens and a decode behind 128, with products of f32 and of bf16. */
std::vector<CaseId> rows_of_model_file(const std::string &path, int threads);

/** The names of the lists in `folder`, with ", " between them. */
std::string work_lists_in(const std::string &folder);

}  // namespace halyard::bench

#endif
