// What a search came to, and how the database holds it.
#ifndef HALYARD_TUNE_VERDICT_H
#define HALYARD_TUNE_VERDICT_H

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "database.h"
#include "search.h"

namespace halyard::tune {

struct Verdict {
    Choice usual, best;
    bool is_better = false;
    Gain gain;  // of the best over the usual choice; of the best of the others where the usual one stays
    double noise = 0;
    Choice runner_up;
    int tried = 0;
    int looks = 1;               // 2 after another final, with more patience
    bool is_remembered = false;  // from the database
};

Verdict verdict_of(const Outcome &outcome, const Choice &usual);
/** Of a record of kind "verdict". */
Verdict verdict_of(const nlohmann::json &record);
/** Whether it has all that such a record has, each of its type. */
bool is_whole(const nlohmann::json &record);
/** What such a record holds of it. */
nlohmann::json record_of(const Verdict &verdict);

/** Whether another look may change it: something seems faster, but not beyond the noise. */
bool is_doubtful(const Verdict &verdict);

/** The verdict on a subject that the database holds in this setting, from a search of at least this rigor. */
std::optional<Verdict> known_verdict(const Database &database, const Setting &setting, const Subject &subject,
                                     const Rigor &rigor);

}  // namespace halyard::tune

#endif
