// Affinity, and the CPU quotas of control groups: cpu.max of version 2, cpu.cfs_quota_us and cpu.cfs_period_us of
// version 1.
#include "core/system/processors.h"

#include <sched.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

namespace halyard {
namespace {

constexpr int max_path = 4096;

int64_t processors_of_affinity() {
    cpu_set_t allowed[16];  // one is too small for some machines
    return sched_getaffinity(0, sizeof(allowed), allowed) == 0 ? CPU_COUNT_S(sizeof(allowed), allowed) : 1;
}

/** Reads numbers from a file of a folder; false if there are others or none. */
template<typename... Numbers>
bool read_numbers(const char *folder, const char *name, const char *format, Numbers *...numbers) {
    char path[max_path + 64];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *const file = fopen(path, "re");
    if (!file) {
        return false;
    }
    const bool read = fscanf(file, format, numbers...) == static_cast<int>(sizeof...(numbers));
    fclose(file);
    return read;
}

/** Processors by the quota of one group alone. */
int64_t processors_of_group(const char *folder) {
    long long quota = 0, period = 0;
    const bool known = read_numbers(folder, "cpu.max", "%lld %lld", &quota, &period) ||
                       (read_numbers(folder, "cpu.cfs_quota_us", "%lld", &quota) &&
                        read_numbers(folder, "cpu.cfs_period_us", "%lld", &period));
    return known && quota > 0 && period > 0 ? (quota - 1) / period + 1 : INT64_MAX;
}

/** Processors by the quotas of a group and those that it is in. In a container the path may be that of the host, of which
 *  only the end is there: what is not there is passed over. */
int64_t processors_of_groups(const char *mount, const char *group) {
    char folder[max_path];
    const int length = snprintf(folder, sizeof(folder), "%s%s", mount, group);
    if (length >= max_path) {
        return INT64_MAX;
    }
    int64_t least = INT64_MAX;
    for (char *end = folder + length; end; end = strrchr(folder + strlen(mount), '/')) {
        *end = '\0';
        least = std::min(least, processors_of_group(folder));
    }
    return least;
}

/** Whether a list with commas names the controller of processors' time. */
bool names_cpu(const char *controllers) {
    for (const char *name = controllers; name; name = strchr(name, ',')) {
        name += *name == ',';
        if (strncmp(name, "cpu", 3) == 0 && (name[3] == ',' || name[3] == '\0')) {
            return true;
        }
    }
    return false;
}

}  // namespace

int64_t processors_of_quota(const char *root) {
    char path[max_path];
    snprintf(path, sizeof(path), "%s/proc/self/cgroup", root);
    FILE *const file = fopen(path, "re");
    int64_t least = INT64_MAX;
    // Lines "number:controllers:path"; that of version 2 names no controllers.
    char line[max_path];
    while (file && fgets(line, sizeof(line), file)) {
        char *const controllers = strchr(line, ':');
        char *const group = controllers ? strchr(controllers + 1, ':') : nullptr;
        if (group) {
            *group = '\0';
            group[1 + strcspn(group + 1, "\n")] = '\0';
            const bool version_2 = controllers[1] == '\0';
            if (version_2 || names_cpu(controllers + 1)) {
                snprintf(path, sizeof(path), "%s/sys/fs/cgroup%s", root, version_2 ? "" : "/cpu");
                least = std::min(least, processors_of_groups(path, group + 1));
            }
        }
    }
    if (file) {
        fclose(file);
    }
    return least;
}

int64_t usable_processors() {
    return std::max<int64_t>(1, std::min(processors_of_affinity(), processors_of_quota("")));
}

}  // namespace halyard
