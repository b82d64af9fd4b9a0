/* SPDX-License-Identifier: Apache-2.0 */
/* How well the fitted constants predict the samples: errors by group and the worst samples, as a table and as JSON. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "calibrate/calibrate.h"
#include "common/json.h"
#include "common/planning.h"
#include "common/statistics.h"

/* ---- errors ---- */

static double error_of(const calibration *c, const calibrate_errors *errors, int i)
{
    return errors->secs[i] / c->samples[i].secs - 1;
}

int calibrate_compare(const calibration *c, const qdr_machine *machine, calibrate_errors *errors, failure *why)
{
    errors->n_groups = errors->n_worst = 0;
    for (int i = 0; i < c->n_samples; i++)
        if (fail_status(why, qdr_sample_secs(machine, &c->samples[i], &errors->secs[i]))) return why->code;
    for (int i = 0; i < c->n_samples; i++) {
        const char *name = c->samples[i].group;
        int at = 0;
        while (at < errors->n_groups && strcmp(errors->groups[at].group, name) != 0) at++;
        if (at == errors->n_groups && at < MAX_GROUPS) {
            double list[MAX_SAMPLES];
            int n = 0;
            for (int j = i; j < c->n_samples; j++)
                if (strcmp(c->samples[j].group, name) == 0) list[n++] = fabs(error_of(c, errors, j));
            const double median = statistics_median(list, (size_t)n); /* sorts them */
            errors->groups[errors->n_groups++] = (group_error){name, n, median, list[n - 1]};
        }
        /* Insert it into the sorted list of the worst. */
        const double error = fabs(error_of(c, errors, i));
        at = errors->n_worst;
        while (at > 0 && error > fabs(error_of(c, errors, errors->worst[at - 1]))) at--;
        if (at == MAX_WORST) continue;
        if (errors->n_worst < MAX_WORST) errors->n_worst++;
        for (int j = errors->n_worst - 1; j > at; j--) errors->worst[j] = errors->worst[j - 1];
        errors->worst[at] = i;
    }
    return EXIT_OK;
}

static void words_of(const qdr_sample *s, char words[96])
{
    switch (s->kind) {
    case QDR_SAMPLE_PRODUCT: snprintf(words, 96, "%s %.0fx%.0fx%.0f", s->group, s->m, s->n, s->k); break;
    case QDR_SAMPLE_COLLECTIVE:
        snprintf(words, 96, "%s of %d, %d apart, %.0f KiB", s->group, s->n_ranks, s->stride, s->bytes / 1024);
        break;
    case QDR_SAMPLE_TOGETHER:
        snprintf(words, 96, "product overlapping %s, %.0f KiB", qdr_coll_kind_name(s->coll), s->bytes / 1024);
        break;
    case QDR_SAMPLE_LAUNCH: snprintf(words, 96, "%s", s->group); break;
    default: snprintf(words, 96, "%s, %.0f KiB", s->group, s->bytes / 1024); break;
    }
}

static void print_table(const calibration *c, const qdr_machine *machine, const calibrate_errors *errors)
{
    printf("# %s: %s, %d rank%s a node; products f32 %.4g, f64 %.4g, bf16 %.4g GFLOP/s a rank\n", machine->name,
           machine->device, machine->ranks_per_node, PLURAL(machine->ranks_per_node), 1e-9 * machine->f32.peak_flops,
           1e-9 * machine->f64.peak_flops, 1e-9 * machine->bf16.peak_flops);
    printf("# memory %.4g GB/s, kernels %.4g GFLOP/s, attention %.3g of the products' speed, launch %.3g us\n",
           1e-9 * machine->memory_bytes_per_sec, 1e-9 * machine->kernel_flops, machine->attention_efficiency,
           1e6 * machine->software.launch_secs);
    printf("# libraries take %.3g GiB of a rank's memory", machine->software.fixed_bytes / GIB);
    if (machine->software.attention_score_bytes > 0)
        printf(", cuDNN's attention %.3g bytes for each score", machine->software.attention_score_bytes);
    putchar('\n');
    for (int l = 0; l < machine->n_links; l++)
        printf("# %s: %.4g GB/s a %s, step %.3g us%s\n", machine->links[l].name,
               1e-9 * (l ? machine->links[l].adapter_bytes_per_sec : machine->links[l].rank_bytes_per_sec),
               l ? "node" : "rank", 1e6 * machine->links[l].step_secs,
               calibrate_assumes_links(c) ? " (assumed: it takes several ranks to measure it)" : "");
    printf("# overlapping: products take %.3g times as long, collectives %.3g times\n", 1 + machine->processor_slowdown,
           1 + machine->transfer_slowdown);
    const qdr_machine_codecs *codecs = &machine->codecs;
    printf("# codecs, encoding and decoding: int16 %.3g and %.3g GB/s, int8 %.3g and %.3g, int4 %.3g and %.3g\n",
           1e-9 * codecs->encode_bytes_per_sec[QDR_CODEC_INT16], 1e-9 * codecs->decode_bytes_per_sec[QDR_CODEC_INT16],
           1e-9 * codecs->encode_bytes_per_sec[QDR_CODEC_INT8], 1e-9 * codecs->decode_bytes_per_sec[QDR_CODEC_INT8],
           1e-9 * codecs->encode_bytes_per_sec[QDR_CODEC_INT4], 1e-9 * codecs->decode_bytes_per_sec[QDR_CODEC_INT4]);
    const qdr_machine_collectives *ways = &machine->collectives;
    if (ways->direct_bytes > 0)
        printf("# inside a node, memory is read directly from %.0f KiB on, for all-reduces from %.0f KiB\n",
               ways->direct_bytes / 1024, ways->direct_all_reduce_bytes / 1024);
    printf("%-32s %7s %8s %8s\n%-32s %7s %8s %8s\n", "measured", "samples", "median", "largest", "", "", "error",
           "error");
    for (int i = 0; i < errors->n_groups; i++) {
        const group_error *g = &errors->groups[i];
        printf("%-32s %7d %7.1f%% %7.1f%%\n", g->group, g->n_samples, 100 * g->median, 100 * g->most);
    }
    printf("\n%-48s %12s %12s %8s\n", "worst", "measured, us", "model, us", "error");
    for (int i = 0; i < errors->n_worst; i++) {
        const int at = errors->worst[i];
        char words[96];
        words_of(&c->samples[at], words);
        printf("%-48s %12.1f %12.1f %+7.1f%%\n", words, 1e6 * c->samples[at].secs, 1e6 * errors->secs[at],
               100 * error_of(c, errors, at));
    }
}

/* ---- JSON ---- */

/* indices NULL: all samples */
static json_t *json_samples(const calibration *c, const calibrate_errors *errors, const int *indices, int n)
{
    json_t *list = json_array();
    for (int i = 0; i < n; i++) {
        const int at = indices ? indices[i] : i;
        char words[96];
        words_of(&c->samples[at], words);
        json_array_append_new(list, json_pack("{s:s, s:f, s:f, s:f}", "sample", words, "measured_us",
                                              1e6 * c->samples[at].secs, "model_us", 1e6 * errors->secs[at], "error",
                                              error_of(c, errors, at)));
    }
    return list;
}

static json_t *json_facts(const calibration *c, const calibrate_errors *errors)
{
    const qdr_versions *v = qdr_get_versions();
    json_t *groups = json_array();
    for (int i = 0; i < errors->n_groups; i++) {
        const group_error *g = &errors->groups[i];
        json_array_append_new(groups, json_pack("{s:s, s:i, s:f, s:f}", "group", g->group, "samples", g->n_samples,
                                                "median_error", g->median, "largest_error", g->most));
    }
    return json_pack("{s:{s:s, s:s, s:s, s:s, s:s, s:s, s:s}, s:i, s:i, s:b, s:i, s:i, s:o, s:o}", "versions",
                     "quadrille", v->quadrille, "compiler", v->compiler, "mpi", v->mpi, "blas", v->blas, "onednn",
                     v->onednn, "hwloc", v->hwloc, "zfp", v->zfp, "ranks", qdr_context_size(c->ctx), "nodes",
                     c->n_nodes, "links_assumed", calibrate_assumes_links(c), "threads_per_rank",
                     qdr_context_threads(c->ctx), "samples", c->n_samples, "residuals", groups, "worst",
                     json_samples(c, errors, errors->worst, errors->n_worst));
}

char *calibrate_notes(const calibration *c, const calibrate_errors *errors)
{
    json_t *object = json_pack("{s:o}", "calibration", json_facts(c, errors));
    char *text = object ? json_dumps(object, JSON_EMBED | JSON_PRESERVE_ORDER | JSON_INDENT(2) | JSON_REAL_PRECISION(6))
                        : NULL;
    json_decref(object);
    if (!json_has_failed()) return text;
    free(text);
    return NULL;
}

void calibrate_print(const calibration *c, const qdr_machine *machine, const calibrate_errors *errors,
                     bench_format format)
{
    if (format == FORMAT_TABLE) {
        print_table(c, machine, errors);
        return;
    }
    failure unused = {0};
    json_t *object = json_facts(c, errors);
    json_object_set_new(object, "machine", json_string(machine->name));
    json_object_set_new(object, "all", json_samples(c, errors, NULL, c->n_samples));
    write_json(object, JSON_INDENT(2) | JSON_REAL_PRECISION(9), "calibrate", &unused);
}
