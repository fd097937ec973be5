// SPDX-License-Identifier: Apache-2.0
#include "core/arena.hpp"

#include <cmath>
#include <fstream>
#include <sched.h>
#include <string>

namespace dslide {
namespace {

int affinity_threads() {
    cpu_set_t set;
    CPU_ZERO(&set);
    return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

// Path of this process in the given cgroup hierarchy: lines of /proc/self/cgroup are "id:controllers:path".
std::string cgroup_path(const std::string &controller) {
    std::ifstream in("/proc/self/cgroup");
    for (std::string line; std::getline(in, line);) {
        const auto first = line.find(':');
        const auto second = line.find(':', first + 1);
        if (first == std::string::npos || second == std::string::npos) continue;
        std::string controllers = ",";
        controllers.append(line, first + 1, second - first - 1).push_back(',');
        std::string wanted = ",";
        wanted.append(controller).push_back(',');
        if (controllers.find(wanted) != std::string::npos) return line.substr(second + 1);
    }
    return "/";
}

// The tightest quota from the process's group up to the root, in CPUs; 0: none.
template <class Read>
double tightest_quota(const std::string &mount, std::string path, Read &&read) {
    double tightest = 0;
    for (;;) {
        const double quota = read(mount + path);
        if (quota > 0 && (tightest == 0 || quota < tightest)) tightest = quota;
        if (path.empty() || path == "/") return tightest;
        path.resize(path.find_last_of('/'));
    }
}

double quota_v2(const std::string &folder) {
    std::ifstream in(folder + "/cpu.max");
    std::string quota;
    double period = 0;
    if (!(in >> quota >> period) || quota == "max" || period <= 0) return 0;
    return std::strtod(quota.c_str(), nullptr) / period;
}

double quota_v1(const std::string &folder) {
    double quota = 0, period = 0;
    std::ifstream(folder + "/cpu.cfs_quota_us") >> quota;
    std::ifstream(folder + "/cpu.cfs_period_us") >> period;
    return quota > 0 && period > 0 ? quota / period : 0;
}

} // namespace

int available_threads() {
    int threads = affinity_threads();
    for (const double quota : {tightest_quota("/sys/fs/cgroup", cgroup_path(""), quota_v2),
                               tightest_quota("/sys/fs/cgroup/cpu", cgroup_path("cpu"), quota_v1)})
        if (quota > 0) threads = std::min(threads, static_cast<int>(std::ceil(quota)));
    return std::max(threads, 1);
}

} // namespace dslide
