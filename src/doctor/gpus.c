/* SPDX-License-Identifier: Apache-2.0 */
/* Driver, GPUs, the links between them, and CUDA's libraries. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "doctor/doctor.h"

#define GROUP "GPU"
/* What the library requires: compute capability, and the first NCCL that keeps the order of launches. */
enum { LEAST_MAJOR = 8, LEAST_NCCL = 22600 };

/* Whether there is a GPU that CUDA could use in principle: seen by a driver, or on PCI. */
static int has_hardware(const doctor_report *report)
{
    const qdr_topo *topo = report->topo;
    for (int i = 0; topo && i < topo->n_gpus; i++) {
        const qdr_topo_gpu *gpu = qdr_topo_gpu_at(topo, i);
        if (strncmp(gpu->name, "nvml", 4) == 0 || strncmp(gpu->name, "cuda", 4) == 0 || strstr(gpu->model, "NVIDIA") ||
            strncmp(gpu->model, "PCI 10de", 8) == 0)
            return 1;
    }
    return access("/dev/nvidia0", F_OK) == 0;
}

static void add_status(doctor_report *report)
{
    const qdr_gpu_report *gpus = &report->gpus;
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    /* A driver supports all CUDA versions of its major version. */
    const int is_old = gpus->driver / 1000 < gpus->runtime / 1000;
    if (gpus->status == QDR_OK) return;
    if (visible && (*visible == '\0' || *visible == '-'))
        doctor_add(report, GROUP, "use", DOCTOR_NONE, "CUDA_VISIBLE_DEVICES hides all GPUs");
    else if (has_hardware(report))
        doctor_add_sentence(report, GROUP, "use", DOCTOR_BROKEN, gpus->sentence);
    else if (gpus->driver) /* not all GPUs are on PCI or in /dev: see WSL */
        doctor_add_sentence(report, GROUP, "use", is_old ? DOCTOR_BROKEN : DOCTOR_NOTE, gpus->sentence);
    else
        doctor_add(report, GROUP, "use", DOCTOR_NONE, "there is no NVIDIA GPU; everything runs on the CPU");
}

/* ---- GPUs ---- */

static void add_gpu(doctor_report *report, const qdr_gpu *gpu)
{
    char name[16], all[24], free_bytes[24];
    snprintf(name, sizeof name, "cuda:%d", gpu->number);
    if (gpu->status != QDR_OK) {
        doctor_advise(
            doctor_add(report, GROUP, name, DOCTOR_BROKEN, "it cannot be queried (%s)", qdr_status_text(gpu->status)),
            "run nvidia-smi, which says whether another process uses it exclusively");
        return;
    }
    doctor_bytes_text((double)gpu->bytes, all);
    doctor_bytes_text((double)gpu->bytes_free, free_bytes);
    doctor_finding *finding = doctor_add(report, GROUP, name, gpu->major < LEAST_MAJOR ? DOCTOR_BROKEN : DOCTOR_GOOD,
                                         "%s, %s (%s free), %d multiprocessors, capability %d.%d, PCI %s", gpu->name,
                                         all, free_bytes, gpu->n_sms, gpu->major, gpu->minor, gpu->bus);
    if (gpu->major < LEAST_MAJOR)
        doctor_advise(finding,
                      "Quadrille computes on capability %d.0 (Ampere) or later: leave it out of "
                      "CUDA_VISIBLE_DEVICES, or use the CPU",
                      LEAST_MAJOR);
}

int doctor_can_use(const doctor_report *report, int number)
{
    const qdr_gpu *gpu = &report->gpu[number];
    return number < report->gpus.n_gpus && gpu->status == QDR_OK && gpu->major >= LEAST_MAJOR;
}

static void add_version(doctor_report *report, const char *name, int n)
{
    doctor_add(report, GROUP, name, DOCTOR_GOOD, "%d.%d.%d", n / 10000, n / 100 % 100, n % 100);
}

/* auto is cuDNN there, for some shapes. */
static int has_recorded_gpu(const doctor_report *report)
{
    for (int i = 0; i < report->gpus.n_gpus; i++)
        if (report->gpu[i].major == 9 && report->gpu[i].minor == 0) return 1;
    return 0;
}

/* The kernels that compute attention: requested, and available. */
static void add_cudnn(doctor_report *report)
{
    const qdr_gpu_report *gpus = &report->gpus;
    const char *asked = qdr_environment_value("QDR_ATTENTION");
    const int is_asked = strcmp(asked, "cudnn") == 0, is_auto = strcmp(asked, "auto") == 0;
    if (gpus->n_gpus == 0) return;
    if (gpus->cudnn)
        add_version(report, "cuDNN", gpus->cudnn);
    else if (is_asked)
        doctor_add_sentence(report, GROUP, "cuDNN", DOCTOR_NOTE, gpus->cudnn_sentence);
    else
        doctor_add(report, GROUP, "cuDNN", DOCTOR_NONE, "cannot be used, and is not needed");
    if (is_asked && gpus->cudnn)
        doctor_add(report, GROUP, "attention", DOCTOR_GOOD, "cuDNN's kernels where it has them (QDR_ATTENTION=cudnn)");
    else if (is_auto && gpus->cudnn && has_recorded_gpu(report))
        doctor_add(report, GROUP, "attention", DOCTOR_GOOD,
                   "cuDNN's kernels for the shapes that were measured, own kernels for others (QDR_ATTENTION=auto)");
    else
        doctor_add(report, GROUP, "attention", DOCTOR_GOOD, "own kernels (QDR_ATTENTION=%s%s)", asked,
                   is_auto    ? ", which means own here"
                   : is_asked ? ", which was not found"
                              : "");
}

static void add_libraries(doctor_report *report)
{
    const qdr_gpu_report *gpus = &report->gpus;
    if (!gpus->has_plugin) {
        doctor_add(report, GROUP, "CUDA", DOCTOR_NONE, "%.*s", (int)strcspn(gpus->sentence, ";"), gpus->sentence);
        return;
    }
    doctor_add(report, GROUP, "CUDA", DOCTOR_GOOD, "built with %d.%d", gpus->runtime / 1000, gpus->runtime % 1000 / 10);
    add_version(report, "cuBLASLt", gpus->cublaslt);
    if (gpus->nccl >= LEAST_NCCL)
        add_version(report, "NCCL", gpus->nccl);
    else if (gpus->nccl)
        doctor_advise(doctor_add(report, GROUP, "NCCL", DOCTOR_NOTE,
                                 "%d.%d.%d, too old to be used: sums over GPUs of several processes go through the "
                                 "host",
                                 gpus->nccl / 10000, gpus->nccl / 100 % 100, gpus->nccl % 100),
                      "%d.%d or later is needed: put a newer libnccl.so.2 first in LD_LIBRARY_PATH", LEAST_NCCL / 10000,
                      LEAST_NCCL / 100 % 100);
    else if (gpus->n_gpus < 2)
        doctor_add(report, GROUP, "NCCL", DOCTOR_NONE, "not installed; one GPU does not need it");
    else
        doctor_advise(doctor_add(report, GROUP, "NCCL", DOCTOR_NOTE,
                                 "none: sums over GPUs of several processes go through the host"),
                      "install libnccl-dev and build again");
    add_cudnn(report);
}

/* ---- links ---- */

static int is_alike(const qdr_topo_gpu_link *a, const qdr_topo_gpu_link *b)
{
    return a->link == b->link && a->peer == b->peer && !(a->rate < b->rate) && !(a->rate > b->rate);
}

/* Counts the links that are like links[first]; 0 if an earlier one is. */
static int count_links(const qdr_topo *topo, int first)
{
    const qdr_topo_gpu_link *link = qdr_topo_gpu_link_at(topo, first);
    int n = 0;
    for (int i = 0; i < topo->n_gpu_links; i++) {
        if (!is_alike(qdr_topo_gpu_link_at(topo, i), link)) continue;
        if (i < first) return 0;
        n++;
    }
    return n;
}

static void add_links(doctor_report *report, const qdr_topo *topo, int first, int n)
{
    const qdr_topo_gpu_link *link = qdr_topo_gpu_link_at(topo, first);
    char rate[48] = "";
    if (link->rate > 0)
        snprintf(rate, sizeof rate, ", %.0f GB/s%s", link->rate / 1e9, link->is_assumed ? " (assumed)" : "");
    doctor_finding *finding = doctor_add(report, GROUP, "links", link->peer == 0 ? DOCTOR_NOTE : DOCTOR_GOOD,
                                         "%s: %d pair%s%s%s; such as GPUs %d and %d", qdr_link_name(link->link), n,
                                         PLURAL(n), rate,
                                         link->peer == 0   ? ", without access to each other's memory"
                                         : link->peer == 1 ? ", with access to each other's memory"
                                                           : "",
                                         link->a, link->b);
    if (link->peer == 0)
        doctor_advise(finding, "see nvidia-smi topo -p2p r; on virtual machines and with the "
                               "IOMMU on, peer access is often off");
}

static void find_links(doctor_report *report)
{
    const qdr_topo *topo = report->topo;
    if (!topo || topo->n_gpus < 2) return;
    for (int i = 0; i < topo->n_gpu_links; i++) {
        const int n = count_links(topo, i);
        if (n) add_links(report, topo, i, n);
    }
    const int n_other = topo->n_gpus * (topo->n_gpus - 1) / 2 - topo->n_gpu_links;
    if (n_other > 0)
        doctor_add(report, GROUP, "links", DOCTOR_GOOD, "through the host: %d pair%s", n_other, PLURAL(n_other));
}

void doctor_find_gpus(doctor_report *report)
{
    const qdr_gpu_report *gpus = &report->gpus;
    const char *source = report->topo ? report->topo->gpu_source : "NVML was not queried";
    const int has_driver = strncmp(source, "NVML, driver ", 13) == 0;
    if (gpus->driver)
        doctor_add(report, GROUP, "driver", DOCTOR_GOOD, "for CUDA %d.%d; %s", gpus->driver / 1000,
                   gpus->driver % 1000 / 10, source);
    else
        doctor_add(report, GROUP, "driver", has_driver ? DOCTOR_GOOD : DOCTOR_NONE, "%s", source);
    add_status(report);
    for (int i = 0; i < report->gpus.n_gpus; i++) add_gpu(report, &report->gpu[i]);
    find_links(report);
    add_libraries(report);
}
