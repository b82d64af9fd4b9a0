/* SPDX-License-Identifier: Apache-2.0 */
/* A machine, its ranks and the axes of a grid as one JSON object: bytes, bytes per second, null for what is unknown. */

#include "common/json.h"
#include "topo/topo.h"

static json_t *index_or_null(int index) { return index < 0 ? json_null() : json_integer(index); }
static json_t *rate_or_null(double rate) { return rate > 0 ? json_real(rate) : json_null(); }
static json_t *bytes_or_null(int64_t bytes) { return bytes > 0 ? json_integer(bytes) : json_null(); }
/* A list of n items; NULL if out of memory. Steals the items that `make` returns. */
static json_t *list(const topo_report *report, int n, json_t *(*make)(const topo_report *report, int index))
{
    json_t *items = json_array();
    for (int i = 0; items && i < n; i++)
        if (json_array_append_new(items, make(report, i)) != 0) {
            json_decref(items);
            return NULL;
        }
    return items;
}

/* ---- the machine ---- */

static json_t *package(const topo_report *report, int index)
{
    const qdr_topo_package *p = qdr_topo_package_at(report->topo, index);
    return json_pack("{s:o, s:i}", "model", json_text(p->model), "cores", p->n_cores);
}

static json_t *numa(const topo_report *report, int index)
{
    const qdr_topo_numa *n = qdr_topo_numa_at(report->topo, index);
    return json_pack("{s:i, s:o, s:i, s:o}", "os_index", n->os_index, "package", index_or_null(n->package), "cores",
                     n->n_cores, "bytes", bytes_or_null(n->bytes));
}

static json_t *cache(const topo_report *report, int index)
{
    const qdr_topo_cache *c = qdr_topo_cache_at(report->topo, index);
    return json_pack("{s:i, s:o, s:i}", "level", c->level, "bytes", bytes_or_null(c->bytes), "cores", c->n_cores);
}

static json_t *core(const topo_report *report, int index)
{
    const qdr_topo_core *c = qdr_topo_core_at(report->topo, index);
    return json_pack("{s:o, s:o, s:o, s:i, s:i}", "package", index_or_null(c->package), "numa", index_or_null(c->numa),
                     "cache", index_or_null(c->cache), "threads", c->n_threads, "first_cpu", c->first_cpu);
}

static json_t *gpu(const topo_report *report, int index)
{
    const qdr_topo_gpu *g = qdr_topo_gpu_at(report->topo, index);
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "name", json_text(g->name), "model",
                     json_text(g->model), "bus", json_text(g->bus), "module", json_text(g->module), "package",
                     index_or_null(g->package), "numa", index_or_null(g->numa), "bytes", bytes_or_null(g->bytes),
                     "pci_rate", rate_or_null(g->pci_rate), "host_rate", rate_or_null(g->host_rate));
}

static json_t *gpu_link(const topo_report *report, int index)
{
    const qdr_topo_gpu_link *l = qdr_topo_gpu_link_at(report->topo, index);
    return json_pack("{s:i, s:i, s:s, s:o, s:b, s:o, s:o}", "a", l->a, "b", l->b, "link", qdr_link_name(l->link),
                     "rate", rate_or_null(l->rate), "assumed", l->is_assumed, "hops",
                     l->n_hops ? json_integer(l->n_hops) : json_null(), "peer",
                     l->peer < 0 ? json_null() : json_boolean(l->peer));
}

static json_t *nic(const topo_report *report, int index)
{
    const qdr_topo_nic *n = qdr_topo_nic_at(report->topo, index);
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o}", "name", json_text(n->name), "bus", json_text(n->bus), "package",
                     index_or_null(n->package), "numa", index_or_null(n->numa), "rate", rate_or_null(n->rate),
                     "pci_rate", rate_or_null(n->pci_rate));
}

/* ---- ranks and axes ---- */

static json_t *place(const qdr_topo_place *p)
{
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o}", "node", index_or_null(p->node), "package",
                     index_or_null(p->package), "numa", index_or_null(p->numa), "cache", index_or_null(p->cache),
                     "core", index_or_null(p->core), "gpu", index_or_null(p->gpu));
}

static json_t *rank(const topo_report *report, int index)
{
    const topo_rank *r = &report->ranks[index];
    return json_pack("{s:i, s:o, s:o, s:o}", "rank", index, "host", json_text(r->host), "cpus", json_text(r->cpus),
                     "place", place(&r->place));
}

static json_t *rank_place(const topo_report *report, int index) { return place(&report->layout.places[index]); }

static json_t *groups(const char *what, const char *name, const qdr_topo_axis *a)
{
    return json_pack("{s:s, s:i, s:i, s:i, s:i, s:i, s:s, s:o, s:b, s:s, s:o, s:b}", what, name, "ranks", a->n_ranks,
                     "stride", a->stride, "nodes", a->n_nodes, "ranks_on_node", a->n_on_node, "siblings", a->n_siblings,
                     "link", qdr_link_name(a->link), "rate", rate_or_null(a->rate), "assumed", a->is_assumed,
                     "inner_link", qdr_link_name(a->inner), "inner_rate", rate_or_null(a->inner_rate), "inner_assumed",
                     a->inner_is_assumed);
}

static json_t *axis(const topo_report *report, int index)
{
    static const char *const names[] = {"x", "y", "z", "d"};
    return groups("axis", names[index], &report->layout.axes[index]);
}

static json_t *level(const topo_report *report, int index)
{
    return groups("level", topo_level_name(index), &report->layout.levels.maps[index]);
}

static json_t *levels_or_null(const topo_report *report)
{
    const topo_levels *l = &report->layout.levels;
    if (!l->gradient_parts) return json_null();
    return json_pack(
        "{s:i, s:i, s:o, s:o, s:o, s:o}", "gradient_parts", l->gradient_parts, "optimizer_parts", l->optimizer_parts,
        "groups", list(report, TOPO_N_LEVELS, level), "note", *l->note ? json_text(l->note) : json_null(), "warning",
        *l->warning ? json_text(l->warning) : json_null(), "remedy", *l->remedy ? json_text(l->remedy) : json_null());
}

static json_t *layout(const topo_report *report)
{
    const topo_layout *l = &report->layout;
    if (!l->size.x) return json_null();
    return json_pack("{s:[i,i,i,i], s:s, s:i, s:i, s:i, s:s, s:b, s:o, s:o, s:o}", "grid", l->size.x, l->size.y,
                     l->size.z, l->size.d, "order", l->order, "ranks", l->n_ranks, "nodes", l->n_nodes,
                     "ranks_per_node", l->n_on_node, "on", l->on_gpus ? "gpus" : "cores", "running", l->is_live, "axes",
                     list(report, QDR_N_AXES, axis), "levels", levels_or_null(report), "places",
                     list(report, l->n_ranks, rank_place));
}

int topo_print_json(const topo_report *report, failure *why)
{
    const qdr_topo *t = report->topo;
    json_t *object = json_pack("{s:o, s:o, s:b, s:o, s:i, s:i, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}",
                               "host", json_text(t->host), "product", json_text(t->product), "this_machine",
                               t->is_this_machine, "bytes", bytes_or_null(t->bytes), "cores_in_all", t->n_cores,
                               "threads", t->n_threads, "gpu_source", json_text(t->gpu_source), "packages",
                               list(report, t->n_packages, package), "numa_nodes", list(report, t->n_numas, numa),
                               "caches", list(report, t->n_caches, cache), "cores", list(report, t->n_cores, core),
                               "gpus", list(report, t->n_gpus, gpu), "gpu_links",
                               list(report, t->n_gpu_links, gpu_link), "adapters", list(report, t->n_nics, nic),
                               "ranks", report->ranks ? list(report, report->n_ranks, rank) : json_null(), "layout",
                               layout(report), "network_rate", rate_or_null(qdr_topo_network_rate(t)));
    return write_json(object, JSON_INDENT(1), "topo", why);
}
