/* SPDX-License-Identifier: Apache-2.0 */
/* Findings and the underlying numbers as one JSON object: null for what is unknown or unlimited. */
#include <math.h>
#include <quadrille/version.h>

#include "common/json.h"
#include "doctor/doctor.h"

static json_t *version_or_null(int version) { return version ? json_integer(version) : json_null(); }

static json_t *finding(const doctor_finding *f)
{
    return json_pack("{s:s, s:o, s:s, s:o, s:o, s:o}", "group", f->group, "name", json_text(f->name), "state",
                     doctor_state_name(f->state), "text", json_text(f->text), "remedy",
                     *f->remedy ? json_text(f->remedy) : json_null(), "secs",
                     f->secs < 0 ? json_null() : json_real(f->secs));
}

static json_t *findings(const doctor_report *report)
{
    json_t *list = json_array();
    for (int i = 0; i < report->n; i++) json_array_append_new(list, finding(&report->findings[i]));
    return list;
}

static json_t *gpus(const qdr_gpu_report *report)
{
    json_t *list = json_array();
    for (int i = 0; i < report->n_gpus; i++) {
        const qdr_gpu *gpu = &report->gpus[i];
        json_array_append_new(list,
                              json_pack("{s:i, s:s, s:o, s:s, s:[i,i], s:i, s:I, s:I}", "number", gpu->number, "status",
                                        qdr_status_name(gpu->status), "name", json_text(gpu->name), "bus", gpu->bus,
                                        "capability", gpu->major, gpu->minor, "multiprocessors", gpu->n_sms, "bytes",
                                        (json_int_t)gpu->bytes, "bytes_free", (json_int_t)gpu->bytes_free));
    }
    return list;
}

static json_t *links(const qdr_topo *topo)
{
    json_t *list = json_array();
    for (int i = 0; topo && i < topo->n_gpu_links; i++) {
        const qdr_topo_gpu_link *link = &topo->gpu_links[i];
        json_array_append_new(list, json_pack("{s:o, s:o, s:s, s:o, s:o}", "a", json_text(topo->gpus[link->a].bus), "b",
                                              json_text(topo->gpus[link->b].bus), "link", qdr_link_name(link->link),
                                              "rate", link->rate > 0 ? json_real(link->rate) : json_null(), "peer",
                                              link->peer < 0 ? json_null() : json_boolean(link->peer)));
    }
    return list;
}

static json_t *versions(const qdr_gpu_report *g)
{
    const qdr_versions v = qdr_get_versions();
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:o, s:o, s:o, s:o, s:o}", "quadrille", v.quadrille, "compiler",
                     v.compiler, "mpi", v.mpi, "blas", v.blas, "onednn", v.onednn, "hwloc", v.hwloc, "cuda_driver",
                     version_or_null(g->driver), "cuda", version_or_null(g->runtime), "cublaslt",
                     version_or_null(g->cublaslt), "nccl", version_or_null(g->nccl), "cudnn",
                     version_or_null(g->cudnn));
}

static json_t *limits(void)
{
    json_t *object = json_object();
    for (const doctor_limit *limit = doctor_limits; limit->name; limit++) {
        const double now = doctor_limit_now(limit);
        json_object_set_new(object, limit->name, now < 0 || isinf(now) ? json_null() : json_integer((json_int_t)now));
    }
    return object;
}

static void set_variable(const char *name, const char *value, void *object)
{
    json_object_set_new(object, name, json_text(value));
}

int doctor_print_json(const doctor_report *report, failure *why)
{
    const int n_broken = doctor_count(report, DOCTOR_BROKEN);
    json_t *environment = json_object();
    if (environment) doctor_for_variables(report, set_variable, environment);
    json_t *object = json_pack("{s:o, s:b, s:i, s:s, s:o, s:o, s:o, s:o, s:o, s:o}", "host",
                               json_text(report->topo ? report->topo->host : ""), "works", n_broken == 0, "broken",
                               n_broken, "gpu_status", qdr_status_name(report->gpus.status), "versions",
                               versions(&report->gpus), "gpus", gpus(&report->gpus), "gpu_links", links(report->topo),
                               "limits", limits(), "environment", environment, "findings", findings(report));
    return write_json(object, JSON_INDENT(1), "doctor", why);
}
