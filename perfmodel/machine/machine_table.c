/* SPDX-License-Identifier: Apache-2.0 */
/* The table; the numbers of a machine by key: "bf16.most", "links[1].adapter_GBps"; ranks of a node. */
#include "machine/machine_table.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "core/codec.h"
#include "core/nearest.h"
#include "core/sized.h"
#include "core/status.h"

enum { KEY_BYTES = 64 };
#define GIB 1073741824.0
#define MIB 1048576.0
#define KIB 1024.0

static const qdri_machine_field machine_fields[] = {
    {QDRI_WHOLE, "is_gpu", offsetof(qdr_machine, is_gpu), 1, 0, 1},
    {QDRI_WHOLE, "ranks_per_node", offsetof(qdr_machine, ranks_per_node), 1, 1, 1 << 20},
    {QDRI_NUMBER, "memory_GiB", offsetof(qdr_machine, memory_bytes), GIB, 1e-9, 1e9},
    {QDRI_NUMBER, "memory_GBps", offsetof(qdr_machine, memory_bytes_per_sec), 1e9, 1e-6, 1e9},
    {QDRI_NUMBER, "memory_efficiency", offsetof(qdr_machine, memory_efficiency), 1, 1e-6, 1},
    {QDRI_RATE, "kernel_GFLOPS", offsetof(qdr_machine, kernel_flops), 1e9, 0, 1e9},
    {QDRI_WHOLE, "units", offsetof(qdr_machine, n_units), 1, 1, 1 << 20},
    {QDRI_NUMBER, "wave_power", offsetof(qdr_machine, wave_power), 1, 0, 1},
    {QDRI_RATE, "attention_efficiency", offsetof(qdr_machine, attention_efficiency), 1, 0, 1},
    {QDRI_NUMBER, "processor_slowdown", offsetof(qdr_machine, processor_slowdown), 1, 0, QDRI_MOST_SLOWDOWN},
    {QDRI_NUMBER, "transfer_slowdown", offsetof(qdr_machine, transfer_slowdown), 1, 0, QDRI_MOST_SLOWDOWN},
    {.key = NULL},
};

static const qdri_machine_field products_fields[] = {
    {QDRI_RATE, "peak_TFLOPS", offsetof(qdr_machine_products, peak_flops), 1e12, 0, 1e9},
    {QDRI_NUMBER, "most", offsetof(qdr_machine_products, most), 1, 1e-6, 1},
    {QDRI_NUMBER, "half_m", offsetof(qdr_machine_products, half_m), 1, 0, 1e9},
    {QDRI_NUMBER, "half_n", offsetof(qdr_machine_products, half_n), 1, 0, 1e9},
    {QDRI_NUMBER, "half_k", offsetof(qdr_machine_products, half_k), 1, 0, 1e9},
    {QDRI_NUMBER, "NN", offsetof(qdr_machine_products, factor[0]), 1, 1e-6, 100},
    {QDRI_NUMBER, "NT", offsetof(qdr_machine_products, factor[1]), 1, 1e-6, 100},
    {QDRI_NUMBER, "TN", offsetof(qdr_machine_products, factor[2]), 1, 1e-6, 100},
    {QDRI_NUMBER, "odd_factor", offsetof(qdr_machine_products, odd_factor), 1, 1e-6, 1},
    {.key = NULL},
};

static const qdri_machine_field link_fields[] = {
    {QDRI_WHOLE, "ranks", offsetof(qdr_machine_link, n_ranks), 1, 0, 1 << 20},
    {QDRI_RATE, "rank_GBps", offsetof(qdr_machine_link, rank_bytes_per_sec), 1e9, 0, 1e9},
    {QDRI_WHOLE, "adapters", offsetof(qdr_machine_link, n_adapters), 1, 0, 1 << 20},
    {QDRI_RATE, "adapter_GBps", offsetof(qdr_machine_link, adapter_bytes_per_sec), 1e9, 0, 1e9},
    {QDRI_NUMBER, "step_us", offsetof(qdr_machine_link, step_secs), 1e-6, 0, 1e9},
    {QDRI_NUMBER, "wait_us", offsetof(qdr_machine_link, wait_secs), 1e-6, 0, 1e9},
    {QDRI_NUMBER, "wait_us_per_MiB", offsetof(qdr_machine_link, wait_secs_per_byte), 1e-6 / MIB, 0, 1e9},
    {QDRI_NUMBER, "ring_wait_factor", offsetof(qdr_machine_link, ring_wait_factor), 1, 0, 1000},
    {QDRI_RATE, "switch_GBps", offsetof(qdr_machine_link, switch_bytes_per_sec), 1e9, 0, 1e9},
    {QDRI_NUMBER, "slowdown", offsetof(qdr_machine_link, slowdown), 1, 0, QDRI_MOST_SLOWDOWN},
    {.key = NULL},
};

static const qdri_machine_field tile_fields[] = {
    {QDRI_NUMBER, "m", offsetof(qdr_machine_tile, m), 1, 1, 1e6},
    {QDRI_NUMBER, "n", offsetof(qdr_machine_tile, n), 1, 1, 1e6},
    {QDRI_NUMBER, "efficiency", offsetof(qdr_machine_tile, efficiency), 1, 1e-6, 1},
    {.key = NULL},
};

static const qdri_machine_field protocol_fields[] = {
    {QDRI_NUMBER, "step_factor", offsetof(qdr_machine_protocol, step_factor), 1, 0, 1e6},
    {QDRI_NUMBER, "rate_factor", offsetof(qdr_machine_protocol, rate_factor), 1, 1e-6, 1e6},
    {.key = NULL},
};

static const qdri_machine_field collectives_fields[] = {
    {QDRI_NUMBER, "start_us", offsetof(qdr_machine_collectives, start_secs), 1e-6, 0, 1e9},
    {QDRI_NUMBER, "fill_us", offsetof(qdr_machine_collectives, fill_secs), 1e-6, 0, 1e9},
    {QDRI_WHOLE, "has_tree", offsetof(qdr_machine_collectives, has_tree), 1, 0, 1},
    {QDRI_WHOLE, "by_level", offsetof(qdr_machine_collectives, by_level), 1, 0, 1},
    {QDRI_NUMBER, "direct_KiB", offsetof(qdr_machine_collectives, direct_bytes), KIB, 0, 1e9},
    {QDRI_NUMBER, "direct_all_reduce_KiB", offsetof(qdr_machine_collectives, direct_all_reduce_bytes), KIB, 0, 1e9},
    {QDRI_NUMBER, "two_round_KiB", offsetof(qdr_machine_collectives, two_round_bytes), KIB, 0, 1e9},
    {.key = NULL},
};

_Static_assert(QDR_N_CODECS <= QDR_MAX_CODECS, "a rate for each codec");
#define RATE(key, member) {QDRI_RATE, key "_GBps", offsetof(qdr_machine_codecs, member), 1e9, 0, 1e9},
#define RATES(name, kind, bits, flags)                                                                                 \
    RATE(name "_encode", encode_bytes_per_sec[QDR_CODEC_##kind])                                                       \
    RATE(name "_decode", decode_bytes_per_sec[QDR_CODEC_##kind])
static const qdri_machine_field codecs_fields[] = {
    QDRI_CODECS(RATES) /* of each, encoding and decoding */
    {QDRI_NUMBER, "rotated_factor", offsetof(qdr_machine_codecs, rotated_factor), 1, 0, 10},
    {QDRI_NUMBER, "feedback_factor", offsetof(qdr_machine_codecs, feedback_factor), 1, 0, 10},
    {QDRI_NUMBER, "processor_share", offsetof(qdr_machine_codecs, processor_share), 1, 0, 1},
    {.key = NULL},
};

static const qdri_machine_field file_fields[] = {
    {QDRI_RATE, "rank_GBps", offsetof(qdr_machine_file, rank_bytes_per_sec), 1e9, 0, 1e9},
    {QDRI_RATE, "all_GBps", offsetof(qdr_machine_file, all_bytes_per_sec), 1e9, 0, 1e9},
    {.key = NULL},
};

static const qdri_machine_field software_fields[] = {
    {QDRI_NUMBER, "launch_us", offsetof(qdr_machine_software, launch_secs), 1e-6, 0, 1e9},
    {QDRI_NUMBER, "host_us", offsetof(qdr_machine_software, host_secs), 1e-6, 0, 1e9},
    {QDRI_NUMBER, "host_power", offsetof(qdr_machine_software, host_power), 1, 0, 100},
    {QDRI_NUMBER, "microbatch_us", offsetof(qdr_machine_software, microbatch_secs), 1e-6, 0, 1e12},
    {QDRI_NUMBER, "step_us", offsetof(qdr_machine_software, step_secs), 1e-6, 0, 1e12},
    {QDRI_WHOLE, "fused_biases", offsetof(qdr_machine_software, fused_biases), 1, 0, 1},
    {QDRI_NUMBER, "score_bytes", offsetof(qdr_machine_software, score_bytes), 1, 0, 1e6},
    {QDRI_NUMBER, "logit_bytes", offsetof(qdr_machine_software, logit_bytes), 1, 0, 1e6},
    {QDRI_NUMBER, "weight_gradient_bytes", offsetof(qdr_machine_software, weight_gradient_bytes), 1, 0, 1e6},
    {QDRI_NUMBER, "gradient_bytes", offsetof(qdr_machine_software, gradient_bytes), 1, 0, 16},
    {QDRI_NUMBER, "optimizer_bytes", offsetof(qdr_machine_software, optimizer_bytes), 1, 0, 1e6},
    {QDRI_NUMBER, "collective_host_us", offsetof(qdr_machine_software, collective_host_secs), 1e-6, 0, 1e9},
    {QDRI_NUMBER, "collective_rank_us", offsetof(qdr_machine_software, collective_rank_secs), 1e-6, 0, 1e9},
    {QDRI_NUMBER, "staged_rank_us", offsetof(qdr_machine_software, staged_rank_secs), 1e-6, 0, 1e9},
    {QDRI_NUMBER, "stall_us", offsetof(qdr_machine_software, stall_secs), 1e-6, 0, 1e12},
    {QDRI_NUMBER, "stall_memory_share", offsetof(qdr_machine_software, stall_memory_share), 1, 0, 10},
    {QDRI_WHOLE, "stall_nodes", offsetof(qdr_machine_software, stall_nodes), 1, 0, 1 << 20},
    {QDRI_WHOLE, "gathers_again", offsetof(qdr_machine_software, gathers_again), 1, 0, 1},
    {QDRI_WHOLE, "balanced_stages", offsetof(qdr_machine_software, balanced_stages), 1, 0, 1},
    {QDRI_WHOLE, "returns_after_step", offsetof(qdr_machine_software, returns_after_step), 1, 0, 1},
    {QDRI_NUMBER, "saved_ffn", offsetof(qdr_machine_software, saved_ffn), 1, 0, 100},
    {QDRI_NUMBER, "live_hidden", offsetof(qdr_machine_software, live_hidden), 1, 0, 100},
    {QDRI_NUMBER, "logit_memory_bytes", offsetof(qdr_machine_software, logit_memory_bytes), 1, 0, 1000},
    {QDRI_NUMBER, "bucket_MiB", offsetof(qdr_machine_software, bucket_bytes), MIB, 0, 1e9},
    {QDRI_NUMBER, "send_bytes", offsetof(qdr_machine_software, send_bytes), 1, 0, 100},
    {QDRI_NUMBER, "fixed_GiB", offsetof(qdr_machine_software, fixed_bytes), GIB, 0, 1e9},
    {QDRI_NUMBER, "fragment_share", offsetof(qdr_machine_software, fragment_share), 1, 0, 10},
    {QDRI_NUMBER, "attention_score_bytes", offsetof(qdr_machine_software, attention_score_bytes), 1, 0, 1e6},
    {.key = NULL},
};

static const qdri_machine_field state_fields[] = {
    {QDRI_WHOLE, "of_pipelines", offsetof(qdr_machine_state, of_pipelines), 1, 0, 1},
    {QDRI_NUMBER, "rank_us", offsetof(qdr_machine_state, rank_secs), 1e-6, 0, 1e9},
    {QDRI_NUMBER, "stage_us", offsetof(qdr_machine_state, stage_secs), 1e-6, 0, 1e12},
    {QDRI_NUMBER, "memory_share", offsetof(qdr_machine_state, memory_share), 1, 0, 10},
    {QDRI_NUMBER, "on_1_node", offsetof(qdr_machine_state, shares[0]), 1, 0, 1},
    {QDRI_NUMBER, "on_4_nodes", offsetof(qdr_machine_state, shares[1]), 1, 0, 1},
    {QDRI_NUMBER, "on_16_nodes", offsetof(qdr_machine_state, shares[2]), 1, 0, 1},
    {QDRI_NUMBER, "on_64_nodes", offsetof(qdr_machine_state, shares[3]), 1, 0, 1},
    {.key = NULL},
};

static const qdri_machine_field factors_fields[] = {
    {QDRI_NUMBER, "products", offsetof(qdr_software_factors, products), 1, 1e-3, 10},
    {QDRI_RATE, "attention", offsetof(qdr_software_factors, attention), 1, 0, 10},
    {QDRI_NUMBER, "kernels", offsetof(qdr_software_factors, kernels), 1, 1e-3, 10},
    {QDRI_NUMBER, "links", offsetof(qdr_software_factors, links), 1, 1e-3, 10},
    {.key = NULL},
};

static const qdri_machine_field no_fields[] = {{.key = NULL}};
static const qdri_machine_section software_sections[] = {
    {NULL, 0, no_fields},
    {"factors", offsetof(qdr_software, factors), factors_fields},
    {"costs", offsetof(qdr_software, costs), software_fields},
    {.fields = NULL},
};
static const qdri_machine_list software_lists[] = {
    {"states", offsetof(qdr_software, states), sizeof(qdr_machine_state), offsetof(qdr_software, n_states), 0,
     QDR_MAX_STATES, state_fields},
    {.key = NULL},
};

const qdri_machine_section qdri_machine_sections[] = {
    {NULL, 0, machine_fields},
    {"f64", offsetof(qdr_machine, f64), products_fields},
    {"f32", offsetof(qdr_machine, f32), products_fields},
    {"bf16", offsetof(qdr_machine, bf16), products_fields},
    {"collectives", offsetof(qdr_machine, collectives), collectives_fields},
    {"codecs", offsetof(qdr_machine, codecs), codecs_fields},
    {"file", offsetof(qdr_machine, file), file_fields},
    {"software", offsetof(qdr_machine, software), software_fields},
    {.fields = NULL},
};

const qdri_machine_list qdri_machine_lists[] = {
    {"tiles", offsetof(qdr_machine, tiles), sizeof(qdr_machine_tile), offsetof(qdr_machine, n_tiles), 0, QDR_MAX_TILES,
     tile_fields},
    {"links", offsetof(qdr_machine, links), sizeof(qdr_machine_link), offsetof(qdr_machine, n_links), 1, QDR_MAX_LINKS,
     link_fields},
    {"protocols", offsetof(qdr_machine, collectives.protocols), sizeof(qdr_machine_protocol),
     offsetof(qdr_machine, collectives.n_protocols), 1, QDR_MAX_PROTOCOLS, protocol_fields},
    {"states", offsetof(qdr_machine, states), sizeof(qdr_machine_state), offsetof(qdr_machine, n_states), 0,
     QDR_MAX_STATES, state_fields},
    {.key = NULL},
};

const qdri_file_kind qdri_machine_kind = {"machine",
                                          "machines",
                                          qdri_machine_sections,
                                          qdri_machine_lists,
                                          offsetof(qdr_machine, name),
                                          offsetof(qdr_machine, device)};
const qdri_file_kind qdri_software_kind = {.noun = "software",
                                           .folder = "software",
                                           .sections = software_sections,
                                           .lists = software_lists,
                                           .name = offsetof(qdr_software, name)};

double qdri_machine_get_number(const void *item, const qdri_machine_field *f)
{
    const char *at = (const char *)item + f->offset;
    return f->kind == QDRI_WHOLE ? *(const int *)at : *(const double *)at / f->unit;
}

void qdri_machine_set_number(void *item, const qdri_machine_field *f, double value)
{
    char *at = (char *)item + f->offset;
    if (f->kind == QDRI_WHOLE)
        *(int *)at = (int)value;
    else
        *(double *)at = value * f->unit;
}

int qdri_machine_lacks(const void *machine, const qdri_machine_section *section)
{
    const void *item = (const char *)machine + section->offset;
    return section->fields == products_fields && ((const qdr_machine_products *)item)->peak_flops == 0;
}

/* ---- numbers by key ---- */

/* "a number from 0 to 1e+09", for messages. */
enum { RANGE_BYTES = 80 };
static const char *range_of(const qdri_machine_field *f, char text[RANGE_BYTES])
{
    if (f->kind == QDRI_RATE)
        snprintf(text, RANGE_BYTES, "0 or a number from %g to %g", QDRI_LEAST_RATE, f->most);
    else
        snprintf(text, RANGE_BYTES, "a%s number from %g to %g", f->kind == QDRI_WHOLE ? " whole" : "", f->least,
                 f->most);
    return text;
}

/* One number of a machine. */
typedef struct spot {
    char key[KEY_BYTES];
    void *item;
    const qdri_machine_field *field;
    int is_unused; /* of a type of products that the machine does not support */
} spot;
/* @return 1: stop */
typedef int (*spot_fn)(const spot *at, void *user);

static int is_in_range(const qdri_machine_field *f, double value)
{
    if (!(value >= f->least && value <= f->most)) return 0;
    if (f->kind == QDRI_RATE && value > 0 && value < QDRI_LEAST_RATE) return 0;
    return f->kind != QDRI_WHOLE || value == (double)(int)value;
}

static int list_length(const void *machine, const qdri_machine_list *list)
{
    return *(const int *)(const void *)((const char *)machine + list->count_offset);
}

static int walk_fields(spot at, const char *prefix, const qdri_machine_field *fields, spot_fn each, void *user)
{
    for (at.field = fields; at.field->key; at.field++) {
        snprintf(at.key, sizeof at.key, "%s%s", prefix, at.field->key);
        if (each(&at, user)) return 1;
    }
    return 0;
}

static int walk(const qdri_file_kind *kind, void *whole, spot_fn each, void *user)
{
    char prefix[KEY_BYTES / 2] = "";
    for (const qdri_machine_section *section = kind->sections; section->fields; section++) {
        const spot at = {.item = (char *)whole + section->offset, .is_unused = qdri_machine_lacks(whole, section)};
        if (section->key) snprintf(prefix, sizeof prefix, "%s.", section->key);
        if (walk_fields(at, prefix, section->fields, each, user)) return 1;
    }
    for (const qdri_machine_list *list = kind->lists; list->key; list++)
        for (int j = 0; j < list_length(whole, list); j++) {
            const spot at = {.item = (char *)whole + list->offset + (size_t)j * list->item_bytes};
            snprintf(prefix, sizeof prefix, "%s[%d].", list->key, j);
            if (walk_fields(at, prefix, list->fields, each, user)) return 1;
        }
    return 0;
}

typedef struct search {
    const char *key;
    spot found, nearest;
    int least_distance;
} search;

static int look(const spot *at, void *user)
{
    search *s = user;
    const int distance = qdri_edit_distance(s->key, at->key);
    if (distance < s->least_distance && qdri_name_is_near(s->key, at->key)) {
        s->least_distance = distance;
        s->nearest = *at;
    }
    if (strcmp(s->key, at->key) != 0) return 0;
    s->found = *at;
    return 1;
}

static qdr_status find(qdr_machine *machine, const char *key, spot *found)
{
    if (!machine || !key) return QDR_FAIL(QDR_ERR_ARGUMENT, "machine: the machine or key is NULL");
    search s = {.key = key, .least_distance = INT_MAX};
    if (walk(&qdri_machine_kind, machine, look, &s)) {
        *found = s.found;
        return QDR_OK;
    }
    if (!*s.nearest.key)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "machine: no key '%.64s'; docs/model.md lists the keys", key);
    return QDR_FAIL(QDR_ERR_ARGUMENT, "machine: no key '%.64s'; did you mean '%s'?", key, s.nearest.key);
}

qdr_status qdr_machine_get(const qdr_machine *machine, const char *key, double *value)
{
    qdr_machine own;
    spot at;
    if (!value) return QDR_FAIL(QDR_ERR_ARGUMENT, "machine: the value pointer is NULL");
    *value = 0;
    QDR_TRY(QDRI_TAKE(qdr_machine, machine, &own));
    QDR_TRY(find(&own, key, &at));
    *value = qdri_machine_get_number(at.item, at.field);
    return QDR_OK;
}

qdr_status qdr_machine_set(qdr_machine *machine, const char *key, double value)
{
    qdr_machine own;
    spot at;
    char range[RANGE_BYTES];
    QDR_TRY(QDRI_TAKE(qdr_machine, machine, &own));
    QDR_TRY(find(&own, key, &at));
    const qdri_machine_field *f = at.field;
    if (!is_in_range(f, value))
        return QDR_FAIL(QDR_ERR_ARGUMENT, "machine: key '%s' is %g; %s is needed", key, value, range_of(f, range));
    qdri_machine_set_number(at.item, f, value);
    QDRI_GIVE(qdr_machine, machine, &own);
    return QDR_OK;
}

/* ---- the whole machine ---- */

static int find_bad(const spot *at, void *user)
{
    if (at->is_unused || is_in_range(at->field, qdri_machine_get_number(at->item, at->field))) return 0;
    *(spot *)user = *at;
    return 1;
}

qdr_status qdri_check_numbers(const qdri_file_kind *kind, const void *item, const char *name)
{
    spot bad;
    char range[RANGE_BYTES];
    for (const qdri_machine_list *list = kind->lists; list->key; list++) {
        const int n = list_length(item, list);
        if (n < list->least || n > list->most)
            return QDR_FAIL(QDR_ERR_ARGUMENT, "%s: key '%s' has %d entries; %d to %d are possible", name, list->key, n,
                            list->least, list->most);
    }
    if (!walk(kind, (void *)item, find_bad, &bad)) return QDR_OK; /* find_bad does not change it */
    return QDR_FAIL(QDR_ERR_ARGUMENT, "%s: key '%s' is %g; %s is needed", name, bad.key,
                    qdri_machine_get_number(bad.item, bad.field), range_of(bad.field, range));
}

/* ---- keys ---- */

typedef struct telling {
    qdr_name_fn each;
    void *user;
} telling;

static int tell(const spot *at, void *user)
{
    const telling *to = user;
    to->each(at->key, to->user);
    return 0;
}

void qdr_machine_keys(const qdr_machine *machine, qdr_name_fn each, void *user)
{
    qdr_machine own;
    telling to = {each, user};
    if (each && QDRI_TAKE(qdr_machine, machine, &own) == QDR_OK) walk(&qdri_machine_kind, &own, tell, &to);
}

/* ---- ranks of a node ---- */

/* What the first level joined are single ranks now: each has all adapters of the next. */
static void remove_link(qdr_machine *machine, int level)
{
    qdr_machine_link *links = machine->links, *next = &links[level + 1];
    const double adapters = next->n_adapters * next->adapter_bytes_per_sec;
    if (level == 0 && (!(next->rank_bytes_per_sec > 0) || next->rank_bytes_per_sec > adapters))
        next->rank_bytes_per_sec = adapters;
    machine->n_links--;
    memmove(&links[level], next, (size_t)(machine->n_links - level) * sizeof *links);
}

/* Of GPUs each has the adapters near it: fewer GPUs have fewer. Those of a node are the link's that joins nodes. */
static void share_adapters(const qdr_machine *machine, int n_ranks, qdr_machine_link *links)
{
    const int before = machine->ranks_per_node;
    int l = 0;
    while (l < machine->n_links && links[l].n_ranks > 0 && links[l].n_ranks <= before) l++;
    if (!machine->is_gpu || n_ranks >= before || l == machine->n_links) return;
    links[l].n_adapters = (links[l].n_adapters * n_ranks + before - 1) / before;
}

qdr_status qdr_machine_set_ranks_per_node(qdr_machine *given, int n_ranks)
{
    qdr_machine own, *machine = &own;
    QDR_TRY(QDRI_TAKE(qdr_machine, given, &own));
    if (n_ranks < 1) return QDR_FAIL(QDR_ERR_ARGUMENT, "machine: %d ranks a node; use 1 or more", n_ranks);
    qdr_machine_link *links = machine->links;
    const int before = machine->ranks_per_node;
    share_adapters(machine, n_ranks, links);
    machine->ranks_per_node = n_ranks;
    for (int l = 0; l < machine->n_links; l++) {
        const int joined = links[l].n_ranks;
        links[l].n_ranks = joined >= before ? joined / before * n_ranks : joined < n_ranks ? joined : n_ranks;
    }
    for (int l = machine->n_links - 2; l >= 0; l--) {
        const int all = links[l].n_ranks;
        const int joins_no_more = all == (l > 0 ? links[l - 1].n_ranks : 1); /* than those inside */
        if (joins_no_more || (all < n_ranks && n_ranks % all)) remove_link(machine, l);
    }
    QDRI_GIVE(qdr_machine, given, machine);
    return QDR_OK;
}
