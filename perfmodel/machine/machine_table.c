/* SPDX-License-Identifier: Apache-2.0 */
/* The table; the numbers of a machine by key: "bf16.most", "links[1].adapter_GBps"; ranks of a node. */
#include "machine/machine_table.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "core/nearest.h"
#include "core/status.h"

enum { KEY_BYTES = 64 };
#define GIB 1073741824.0
#define MIB 1048576.0
#define KIB 1024.0
#define NUMBER(key, type, member, unit, least, most)                                                                   \
    {                                                                                                                  \
        key, offsetof(type, member), unit, least, most, 0, 0                                                           \
    }
/* Something is divided by it; 0: there is none, or its limit is not known. */
#define RATE(key, type, member, unit, most)                                                                            \
    {                                                                                                                  \
        key, offsetof(type, member), unit, 0, most, 0, QDRI_LEAST_RATE                                                 \
    }
#define WHOLE(key, type, member, least, most)                                                                          \
    {                                                                                                                  \
        key, offsetof(type, member), 1, least, most, 1, 0                                                              \
    }
#define END                                                                                                            \
    {                                                                                                                  \
        NULL, 0, 0, 0, 0, 0, 0                                                                                         \
    }

static const qdri_machine_field machine_fields[] = {
    WHOLE("ranks_per_node", qdr_machine, ranks_per_node, 1, 1 << 20),
    NUMBER("memory_GiB", qdr_machine, memory_bytes, GIB, 1e-9, 1e9),
    NUMBER("memory_GBps", qdr_machine, memory_bytes_per_sec, 1e9, 1e-6, 1e9),
    NUMBER("memory_efficiency", qdr_machine, memory_efficiency, 1, 1e-6, 1),
    RATE("kernel_GFLOPS", qdr_machine, kernel_flops, 1e9, 1e9),
    WHOLE("units", qdr_machine, n_units, 1, 1 << 20),
    NUMBER("wave_power", qdr_machine, wave_power, 1, 0, 1),
    RATE("attention_efficiency", qdr_machine, attention_efficiency, 1, 1),
    NUMBER("processor_slowdown", qdr_machine, processor_slowdown, 1, 0, QDRI_MOST_SLOWDOWN),
    NUMBER("transfer_slowdown", qdr_machine, transfer_slowdown, 1, 0, QDRI_MOST_SLOWDOWN),
    END,
};

static const qdri_machine_field products_fields[] = {
    RATE("peak_TFLOPS", qdr_machine_products, peak_flops, 1e12, 1e9),
    NUMBER("most", qdr_machine_products, most, 1, 1e-6, 1),
    NUMBER("half_m", qdr_machine_products, half_m, 1, 0, 1e9),
    NUMBER("half_n", qdr_machine_products, half_n, 1, 0, 1e9),
    NUMBER("half_k", qdr_machine_products, half_k, 1, 0, 1e9),
    NUMBER("NN", qdr_machine_products, factor[0], 1, 1e-6, 100),
    NUMBER("NT", qdr_machine_products, factor[1], 1, 1e-6, 100),
    NUMBER("TN", qdr_machine_products, factor[2], 1, 1e-6, 100),
    NUMBER("odd_factor", qdr_machine_products, odd_factor, 1, 1e-6, 1),
    END,
};

static const qdri_machine_field link_fields[] = {
    WHOLE("ranks", qdr_machine_link, n_ranks, 0, 1 << 20),
    RATE("rank_GBps", qdr_machine_link, rank_bytes_per_sec, 1e9, 1e9),
    WHOLE("adapters", qdr_machine_link, n_adapters, 0, 1 << 20),
    RATE("adapter_GBps", qdr_machine_link, adapter_bytes_per_sec, 1e9, 1e9),
    NUMBER("step_us", qdr_machine_link, step_secs, 1e-6, 0, 1e9),
    NUMBER("wait_us", qdr_machine_link, wait_secs, 1e-6, 0, 1e9),
    NUMBER("wait_us_per_MiB", qdr_machine_link, wait_secs_per_byte, 1e-6 / MIB, 0, 1e9),
    NUMBER("ring_wait_factor", qdr_machine_link, ring_wait_factor, 1, 0, 1000),
    RATE("switch_GBps", qdr_machine_link, switch_bytes_per_sec, 1e9, 1e9),
    NUMBER("slowdown", qdr_machine_link, slowdown, 1, 0, QDRI_MOST_SLOWDOWN),
    END,
};

static const qdri_machine_field tile_fields[] = {
    NUMBER("m", qdr_machine_tile, m, 1, 1, 1e6),
    NUMBER("n", qdr_machine_tile, n, 1, 1, 1e6),
    NUMBER("efficiency", qdr_machine_tile, efficiency, 1, 1e-6, 1),
    END,
};

static const qdri_machine_field protocol_fields[] = {
    NUMBER("step_factor", qdr_machine_protocol, step_factor, 1, 0, 1e6),
    NUMBER("rate_factor", qdr_machine_protocol, rate_factor, 1, 1e-6, 1e6),
    END,
};

static const qdri_machine_field collectives_fields[] = {
    NUMBER("start_us", qdr_machine_collectives, start_secs, 1e-6, 0, 1e9),
    NUMBER("fill_us", qdr_machine_collectives, fill_secs, 1e-6, 0, 1e9),
    WHOLE("has_tree", qdr_machine_collectives, has_tree, 0, 1),
    WHOLE("by_level", qdr_machine_collectives, by_level, 0, 1),
    NUMBER("direct_KiB", qdr_machine_collectives, direct_bytes, KIB, 0, 1e9),
    NUMBER("direct_all_reduce_KiB", qdr_machine_collectives, direct_all_reduce_bytes, KIB, 0, 1e9),
    NUMBER("two_round_KiB", qdr_machine_collectives, two_round_bytes, KIB, 0, 1e9),
    END,
};

static const qdri_machine_field software_fields[] = {
    NUMBER("launch_us", qdr_machine_software, launch_secs, 1e-6, 0, 1e9),
    NUMBER("host_us", qdr_machine_software, host_secs, 1e-6, 0, 1e9),
    NUMBER("host_power", qdr_machine_software, host_power, 1, 0, 100),
    NUMBER("microbatch_us", qdr_machine_software, microbatch_secs, 1e-6, 0, 1e12),
    NUMBER("step_us", qdr_machine_software, step_secs, 1e-6, 0, 1e12),
    WHOLE("fused_biases", qdr_machine_software, fused_biases, 0, 1),
    NUMBER("score_bytes", qdr_machine_software, score_bytes, 1, 0, 1e6),
    NUMBER("logit_bytes", qdr_machine_software, logit_bytes, 1, 0, 1e6),
    NUMBER("weight_gradient_bytes", qdr_machine_software, weight_gradient_bytes, 1, 0, 1e6),
    NUMBER("gradient_bytes", qdr_machine_software, gradient_bytes, 1, 0, 16),
    NUMBER("optimizer_bytes", qdr_machine_software, optimizer_bytes, 1, 0, 1e6),
    NUMBER("collective_host_us", qdr_machine_software, collective_host_secs, 1e-6, 0, 1e9),
    NUMBER("collective_rank_us", qdr_machine_software, collective_rank_secs, 1e-6, 0, 1e9),
    NUMBER("staged_rank_us", qdr_machine_software, staged_rank_secs, 1e-6, 0, 1e9),
    NUMBER("stall_us", qdr_machine_software, stall_secs, 1e-6, 0, 1e12),
    NUMBER("stall_memory_share", qdr_machine_software, stall_memory_share, 1, 0, 10),
    WHOLE("stall_nodes", qdr_machine_software, stall_nodes, 0, 1 << 20),
    WHOLE("gathers_again", qdr_machine_software, gathers_again, 0, 1),
    WHOLE("balanced_stages", qdr_machine_software, balanced_stages, 0, 1),
    NUMBER("saved_ffn", qdr_machine_software, saved_ffn, 1, 0, 100),
    NUMBER("live_hidden", qdr_machine_software, live_hidden, 1, 0, 100),
    NUMBER("logit_memory_bytes", qdr_machine_software, logit_memory_bytes, 1, 0, 1000),
    NUMBER("bucket_MiB", qdr_machine_software, bucket_bytes, MIB, 0, 1e9),
    NUMBER("send_bytes", qdr_machine_software, send_bytes, 1, 0, 100),
    NUMBER("fixed_GiB", qdr_machine_software, fixed_bytes, GIB, 0, 1e9),
    NUMBER("fragment_share", qdr_machine_software, fragment_share, 1, 0, 10),
    END,
};

const qdri_machine_section qdri_machine_sections[QDRI_N_SECTIONS] = {
    {NULL, 0, machine_fields},
    {"f64", offsetof(qdr_machine, f64), products_fields},
    {"f32", offsetof(qdr_machine, f32), products_fields},
    {"bf16", offsetof(qdr_machine, bf16), products_fields},
    {"collectives", offsetof(qdr_machine, collectives), collectives_fields},
    {"software", offsetof(qdr_machine, software), software_fields},
};

const qdri_machine_list qdri_machine_lists[QDRI_N_LISTS] = {
    {"tiles", offsetof(qdr_machine, tiles), sizeof(qdr_machine_tile), offsetof(qdr_machine, n_tiles), 0, QDR_MAX_TILES,
     tile_fields},
    {"links", offsetof(qdr_machine, links), sizeof(qdr_machine_link), offsetof(qdr_machine, n_links), 1, QDR_MAX_LINKS,
     link_fields},
    {"protocols", offsetof(qdr_machine, collectives.protocols), sizeof(qdr_machine_protocol),
     offsetof(qdr_machine, collectives.n_protocols), 1, QDR_MAX_PROTOCOLS, protocol_fields},
};

double qdri_machine_get_number(const void *item, const qdri_machine_field *f)
{
    const char *at = (const char *)item + f->offset;
    return f->is_int ? *(const int *)at : *(const double *)at / f->unit;
}

void qdri_machine_set_number(void *item, const qdri_machine_field *f, double value)
{
    char *at = (char *)item + f->offset;
    if (f->is_int)
        *(int *)at = (int)value;
    else
        *(double *)at = value * f->unit;
}

int qdri_machine_lacks(const qdr_machine *machine, const qdri_machine_section *section)
{
    const void *item = (const char *)machine + section->offset;
    return section->fields == products_fields && ((const qdr_machine_products *)item)->peak_flops == 0;
}

/* ---- numbers by key ---- */

/* "a number from 0 to 1e+09", for messages. */
enum { RANGE_BYTES = 80 };
static const char *range_of(const qdri_machine_field *f, char text[RANGE_BYTES])
{
    if (f->least_positive > 0)
        snprintf(text, RANGE_BYTES, "0 or a number from %g to %g", f->least_positive, f->most);
    else
        snprintf(text, RANGE_BYTES, "a%s number from %g to %g", f->is_int ? " whole" : "", f->least, f->most);
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
    if (value > 0 && value < f->least_positive) return 0;
    return !f->is_int || value == (double)(int)value;
}

static int list_length(const qdr_machine *machine, const qdri_machine_list *list)
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

static int walk(qdr_machine *machine, spot_fn each, void *user)
{
    char prefix[KEY_BYTES / 2] = "";
    for (int i = 0; i < QDRI_N_SECTIONS; i++) {
        const qdri_machine_section *section = &qdri_machine_sections[i];
        const spot at = {.item = (char *)machine + section->offset, .is_unused = qdri_machine_lacks(machine, section)};
        if (section->key) snprintf(prefix, sizeof prefix, "%s.", section->key);
        if (walk_fields(at, prefix, section->fields, each, user)) return 1;
    }
    for (int i = 0; i < QDRI_N_LISTS; i++) {
        const qdri_machine_list *list = &qdri_machine_lists[i];
        for (int j = 0; j < list_length(machine, list); j++) {
            const spot at = {.item = (char *)machine + list->offset + (size_t)j * list->item_bytes};
            snprintf(prefix, sizeof prefix, "%s[%d].", list->key, j);
            if (walk_fields(at, prefix, list->fields, each, user)) return 1;
        }
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
    if (walk(machine, look, &s)) {
        *found = s.found;
        return QDR_OK;
    }
    if (!*s.nearest.key)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "machine: no key '%.64s'; docs/model.md lists the keys", key);
    return QDR_FAIL(QDR_ERR_ARGUMENT, "machine: no key '%.64s'; did you mean '%s'?", key, s.nearest.key);
}

qdr_status qdr_machine_get(const qdr_machine *machine, const char *key, double *value)
{
    spot at;
    if (!value) return QDR_FAIL(QDR_ERR_ARGUMENT, "machine: the value pointer is NULL");
    *value = 0;
    QDR_TRY(find((qdr_machine *)machine, key, &at));
    *value = qdri_machine_get_number(at.item, at.field);
    return QDR_OK;
}

qdr_status qdr_machine_set(qdr_machine *machine, const char *key, double value)
{
    spot at;
    char range[RANGE_BYTES];
    QDR_TRY(find(machine, key, &at));
    const qdri_machine_field *f = at.field;
    if (!is_in_range(f, value))
        return QDR_FAIL(QDR_ERR_ARGUMENT, "machine: key '%s' is %g; %s is needed", key, value, range_of(f, range));
    qdri_machine_set_number(at.item, f, value);
    return QDR_OK;
}

/* ---- the whole machine ---- */

static int find_bad(const spot *at, void *user)
{
    if (at->is_unused || is_in_range(at->field, qdri_machine_get_number(at->item, at->field))) return 0;
    *(spot *)user = *at;
    return 1;
}

qdr_status qdri_machine_check_numbers(const qdr_machine *machine, const char *name)
{
    spot bad;
    char range[RANGE_BYTES];
    for (int i = 0; i < QDRI_N_LISTS; i++) {
        const qdri_machine_list *list = &qdri_machine_lists[i];
        const int n = list_length(machine, list);
        if (n < list->least || n > list->most)
            return QDR_FAIL(QDR_ERR_ARGUMENT, "%s: key '%s' has %d entries; %d to %d are possible", name, list->key, n,
                            list->least, list->most);
    }
    if (!walk((qdr_machine *)machine, find_bad, &bad)) return QDR_OK; /* find_bad does not change it */
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
    telling to = {each, user};
    if (machine && each) walk((qdr_machine *)machine, tell, &to);
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

qdr_status qdr_machine_set_ranks_per_node(qdr_machine *machine, int n_ranks)
{
    if (!machine || n_ranks < 1)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "machine: %d ranks a node, or the machine is NULL; use 1 or more", n_ranks);
    qdr_machine_link *links = machine->links;
    const int before = machine->ranks_per_node;
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
    return QDR_OK;
}
