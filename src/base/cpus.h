/*
 * The CPUs that this process may run on.
 */
#ifndef GD_BASE_CPUS_H
#define GD_BASE_CPUS_H

/* How many, by the affinity mask; `unknown` where the mask cannot be read (more than 1024 CPUs). */
int gd_cpus(int unknown);

#endif
