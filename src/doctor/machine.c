/* SPDX-License-Identifier: Apache-2.0 */
/* Cores, memory and the limits of this process. */
#define _DEFAULT_SOURCE 1 /* RLIMIT_MEMLOCK, RLIMIT_NPROC */
#include <math.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>

#include "doctor/doctor.h"

#define KIB 1024.0
#define GIB (KIB * KIB * KIB)
#define SHM "/dev/shm"
#define SHM_LEAST GIB

const doctor_limit doctor_limits[] = {
    {"memory_lock", "locked memory (ulimit -l)", RLIMIT_MEMLOCK, KIB, GIB,
     "adapters that read memory by themselves (InfiniBand, RoCE, Slingshot) need it locked: ulimit "
     "-l unlimited, or 'memlock unlimited' in /etc/security/limits.conf"},
    {"open_files", "open files (ulimit -n)", RLIMIT_NOFILE, 1, 1024,
     "each connection and each shared buffer is a file: ulimit -n 65536"},
    {"threads", "threads (ulimit -u)", RLIMIT_NPROC, 1, 4096,
     "each local rank has three threads and those of BLAS: ulimit -u 65536"},
    {"address_space", "address space (ulimit -v)", RLIMIT_AS, KIB, INFINITY,
     "BLAS, threads and CUDA take addresses far beyond what they use: ulimit -v unlimited, and "
     "limit memory by a control group"},
    {"stack", "stack (ulimit -s)", RLIMIT_STACK, KIB, KIB *KIB, "threads get stacks of this size: ulimit -s 8192"},
    {NULL, NULL, 0, 0, 0, NULL},
};

double doctor_limit_now(const doctor_limit *limit)
{
    struct rlimit now;
    if (getrlimit(limit->resource, &now) != 0) return -1;
    return now.rlim_cur == RLIM_INFINITY ? (double)INFINITY : (double)now.rlim_cur;
}

static void add_limit(doctor_report *report, const doctor_limit *limit)
{
    const double now = doctor_limit_now(limit);
    char text[24] = "unlimited";
    if (now < 0) return;
    if (now < (double)INFINITY && limit->unit > 1) doctor_bytes_text(now, text);
    if (now < (double)INFINITY && limit->unit <= 1) snprintf(text, sizeof text, "%.0f", now);
    doctor_finding *finding = doctor_add(report, "limits", limit->text, now < limit->least ? DOCTOR_NOTE : DOCTOR_GOOD,
                                         "%s", text);
    if (now < limit->least) doctor_advise(finding, "%s", limit->remedy);
}

static void add_shm(doctor_report *report)
{
    static const char remedy[] = "ranks of one node share memory there: mount -o "
                                 "remount,size=50% " SHM ", or docker run --shm-size=8g";
    struct statvfs is;
    char all[24], left[24];
    if (statvfs(SHM, &is) != 0) {
        doctor_advise(doctor_add(report, "limits", SHM, DOCTOR_NOTE, "there is none"), "%s", remedy);
        return;
    }
    const double unit = (double)is.f_frsize;
    doctor_bytes_text(unit * (double)is.f_blocks, all);
    doctor_bytes_text(unit * (double)is.f_bavail, left);
    const int is_small = unit * (double)is.f_bavail < SHM_LEAST;
    doctor_finding *finding = doctor_add(report, "limits", SHM, is_small ? DOCTOR_NOTE : DOCTOR_GOOD, "%s, %s free",
                                         all, left);
    if (is_small) doctor_advise(finding, "%s", remedy);
}

void doctor_find_machine(doctor_report *report)
{
    const qdr_topo *topo = report->topo;
    if (topo) {
        const char *model = topo->n_packages && *topo->packages[0].model ? topo->packages[0].model
                                                                         : "unknown processor";
        char bytes[24];
        doctor_bytes_text((double)topo->bytes, bytes);
        doctor_add(report, "machine", "processors", DOCTOR_GOOD,
                   "%d package%s (%s), %d NUMA node%s, %d core%s, %d hardware thread%s, %s", topo->n_packages,
                   PLURAL(topo->n_packages), model, topo->n_numas, PLURAL(topo->n_numas), topo->n_cores,
                   PLURAL(topo->n_cores), topo->n_threads, PLURAL(topo->n_threads), bytes);
        /* A launcher that binds all ranks to one core is a frequent mistake. */
        const int is_narrow = topo->here.core >= 0 && topo->n_cores > 1;
        doctor_finding *finding = doctor_add(report, "machine", "binding", is_narrow ? DOCTOR_NOTE : DOCTOR_GOOD,
                                             "may run on hardware thread%s %s", strpbrk(topo->cpus, "-,") ? "s" : "",
                                             *topo->cpus ? topo->cpus : "?");
        if (is_narrow)
            doctor_advise(finding, "a rank's threads share this one core; bind each rank to several "
                                   "(srun --cpus-per-task, mpiexec -bind-to), or not at all");
        for (int i = 0; i < topo->n_nics; i++) {
            const qdr_topo_nic *nic = &topo->nics[i];
            char rate[32] = "unknown rate";
            if (nic->rate > 0) snprintf(rate, sizeof rate, "%.1f GB/s", nic->rate / 1e9);
            doctor_add(report, "machine", "adapter", DOCTOR_GOOD, "%s, %s%s%s", nic->name, rate,
                       *nic->bus ? ", PCI " : "", nic->bus);
        }
    }
    for (const doctor_limit *limit = doctor_limits; limit->name; limit++) add_limit(report, limit);
    add_shm(report);
}
