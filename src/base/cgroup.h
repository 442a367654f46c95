/*
 * The control groups that this process is in, of both versions: what limits it, and what it was
 * denied. A group has no more than those that it is in, so every one on the way up counts.
 *
 *   gd_cgroup_walk("", "memory", take_least_limit, &least);
 */
#ifndef GD_BASE_CGROUP_H
#define GD_BASE_CGROUP_H

#include <stdint.h>

/*
 * Calls visit for the folder of the group and of each above it, up to where its hierarchy is
 * mounted: first of the first version's hierarchy of that controller, then of the second version's.
 * A folder need not exist. root: where the folders proc and sys are; "" but for tests.
 */
void gd_cgroup_walk(const char *root, const char *controller,
                    void (*visit)(void *user, const char *folder), void *user);

/* CPUs that a quota leaves to this process, 0.5 for instance; 0: there is no quota. */
double gd_cgroup_cpus(const char *root);
/* Time that CPUs were denied to the groups for a quota, since they were made; 0 without one. */
int64_t gd_cgroup_throttled_ns(const char *root);
/*
 * How many processes of this group the kernel has killed for want of memory, the group's own or the
 * machine's; -1: not known. Kills in other groups, as of other containers and jobs, are in
 * /proc/vmstat as well, and not here.
 */
int64_t gd_cgroup_oom_kills(const char *root);

#endif
