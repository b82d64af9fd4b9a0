/* SPDX-License-Identifier: Apache-2.0 */
/* A machine, its ranks and the axes of a grid as text. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "topo/topo.h"

void topo_bytes_text(int64_t bytes, char text[24])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double number = (double)bytes;
    int unit = 0;
    for (; number >= 1024 && unit < 4; unit++) number /= 1024;
    if (bytes <= 0)
        snprintf(text, 24, "?");
    else
        snprintf(text, 24, number >= 100 ? "%.0f %s" : "%.3g %s", number, units[unit]);
}

void topo_rate_text(double rate, int is_assumed, char text[24])
{
    if (rate <= 0)
        snprintf(text, 24, "-");
    else
        snprintf(text, 24, "%.3g%s", 1e-9 * rate, is_assumed ? "?" : "");
}

__attribute__((format(printf, 3, 4))) static void append(char *text, size_t capacity, const char *format, ...)
{
    const size_t length = strlen(text);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text + length, capacity - length, format, arguments);
    va_end(arguments);
}

/* ---- the machine ---- */

void topo_caches_text(const qdr_topo *topo, char *text, size_t capacity)
{
    *text = '\0';
    for (int level = 1; level <= 5; level++) {
        const qdr_topo_cache *first = NULL;
        int n = 0, are_alike = 1;
        char bytes[24];
        for (int i = 0; i < topo->n_caches; i++) {
            const qdr_topo_cache *cache = qdr_topo_cache_at(topo, i);
            if (cache->level != level) continue;
            if (n++ == 0) first = cache;
            are_alike &= cache->n_cores == first->n_cores && cache->bytes == first->bytes;
        }
        if (!first) continue;
        topo_bytes_text(first->bytes, bytes);
        append(text, capacity, "%sL%d %d x %s of %d core%s%s", *text ? "; " : "caches: ", level, n, bytes,
               first->n_cores, PLURAL(first->n_cores), are_alike ? "" : " (others differ)");
    }
}

void topo_counts_text(const qdr_topo *topo, char *text, size_t capacity)
{
    char bytes[24];
    topo_bytes_text(topo->bytes, bytes);
    snprintf(text, capacity,
             "%d package%s, %d NUMA node%s of %s in all, %d core%s, %d hardware thread%s, %d "
             "GPU%s, %d network adapter%s",
             topo->n_packages, PLURAL(topo->n_packages), topo->n_numas, PLURAL(topo->n_numas), bytes, topo->n_cores,
             PLURAL(topo->n_cores), topo->n_threads, PLURAL(topo->n_threads), topo->n_gpus, PLURAL(topo->n_gpus),
             topo->n_nics, PLURAL(topo->n_nics));
}

/* ---- GPUs ---- */

qdr_link topo_pair(const qdr_topo *topo, int a, int b, double *rate, int *is_assumed)
{
    const qdr_topo_gpu *first = qdr_topo_gpu_at(topo, a), *second = qdr_topo_gpu_at(topo, b);
    const qdr_topo_place left = {0, first->package, first->numa, -1, -1, a};
    const qdr_topo_place right = {0, second->package, second->numa, -1, -1, b};
    return qdr_topo_between(topo, &left, &right, rate, is_assumed);
}

void topo_pair_text(const qdr_topo *topo, int a, int b, char text[24])
{
    static const char *const words[QDR_N_LINKS] = {
        "", "same", "cache", "XM", "NV", "XG", "SW", "PCI", "NUMA", "pkg", "node", "net",
    };
    char rate_text[24];
    double rate;
    int is_assumed;
    const qdr_link link = topo_pair(topo, a, b, &rate, &is_assumed);
    topo_rate_text(rate, is_assumed, rate_text);
    snprintf(text, 24, rate > 0 ? "%s %.16s" : "%s", words[link], rate_text);
}

int topo_has_assumed(const qdr_topo *topo)
{
    for (int i = 0; i < topo->n_gpu_links; i++)
        if (qdr_topo_gpu_link_at(topo, i)->is_assumed) return 1;
    return 0;
}

int topo_has_apart(const qdr_topo *topo)
{
    for (int i = 0; i < topo->n_gpu_links; i++)
        if (qdr_topo_gpu_link_at(topo, i)->link == QDR_LINK_NVSWITCH && qdr_topo_gpu_link_at(topo, i)->rate <= 0)
            return 1;
    return 0;
}

void topo_layout_text(const topo_layout *layout, char *text, size_t capacity)
{
    const int even = layout->n_ranks == layout->n_nodes * layout->n_on_node;
    snprintf(text, capacity, "grid %s, order %s: %d rank%s on %d node%s, ", grid_words(layout->size).text,
             layout->order, layout->n_ranks, PLURAL(layout->n_ranks), layout->n_nodes, PLURAL(layout->n_nodes));
    if (layout->n_nodes > 1) append(text, capacity, "%s%d on each, ", even ? "" : "up to ", layout->n_on_node);
    if (layout->is_live && !layout->on_gpus)
        append(text, capacity, "where these ranks run");
    else
        append(text, capacity, "in order on %s %s", layout->n_nodes > 1 ? "their" : "its",
               layout->on_gpus ? "GPUs" : "cores");
}

/* ---- devices ---- */

/* An index, or a dash. */
static const char *index_text(int index, char text[24])
{
    if (index < 0)
        snprintf(text, 24, "-");
    else
        snprintf(text, 24, "%d", index);
    return text;
}

static void print_gpus(const qdr_topo *topo)
{
    printf("\nGPUs: %s\n", topo->gpu_source);
    if (!topo->n_gpus) return;
    printf("%3s  %-10s %10s %8s %5s %11s  %-13s %s\n", "GPU", "name", "memory", "package", "NUMA", "PCI (GB/s)",
           "address", "model");
    for (int i = 0; i < topo->n_gpus; i++) {
        const qdr_topo_gpu *gpu = qdr_topo_gpu_at(topo, i);
        char bytes[24], rate[24], package[24], numa[24];
        topo_bytes_text(gpu->bytes, bytes);
        topo_rate_text(gpu->pci_rate, 0, rate);
        printf("%3d  %-10s %10s %8s %5s %11s  %-13s %s\n", i, gpu->name, bytes, index_text(gpu->package, package),
               index_text(gpu->numa, numa), rate, *gpu->bus ? gpu->bus : "-", gpu->model);
    }
    for (int i = 0; i < topo->n_gpus; i++) {
        const qdr_topo_gpu *gpu = qdr_topo_gpu_at(topo, i);
        char rate[24];
        if (gpu->host_rate <= 0) continue;
        topo_rate_text(gpu->host_rate, 0, rate);
        printf("GPU %d has NVLink to its package: %s GB/s\n", i, rate);
    }
    if (topo->n_gpus < 2) return;
    fputs("\nGPU links (GB/s in each direction)\n    ", stdout);
    for (int j = 0; j < topo->n_gpus; j++) printf("%8d", j);
    putchar('\n');
    for (int i = 0; i < topo->n_gpus; i++) {
        printf("%4d", i);
        for (int j = 0; j < topo->n_gpus; j++) {
            char text[24] = ".";
            if (i != j) topo_pair_text(topo, i, j, text);
            printf("%8s", text);
        }
        putchar('\n');
    }
    fputs("XM XGMI in a module, NV NVLink, XG XGMI, SW NVSwitch, PCI a PCI switch; through the "
          "host: NUMA one\nNUMA node, pkg one package, node two packages\n",
          stdout);
    if (topo_has_assumed(topo)) printf("%s\n", TOPO_ASSUMED);
    if (topo_has_apart(topo)) fputs(TOPO_APART_1 " " TOPO_APART_2 "\n", stdout);
}

static void print_nics(const qdr_topo *topo)
{
    if (!topo->n_nics) return;
    printf("\n%-12s %12s %11s %8s %5s  %s\n", "adapter", "line (GB/s)", "PCI (GB/s)", "package", "NUMA", "address");
    for (int i = 0; i < topo->n_nics; i++) {
        const qdr_topo_nic *nic = qdr_topo_nic_at(topo, i);
        char line[24], pci[24], package[24], numa[24];
        topo_rate_text(nic->rate, 0, line);
        topo_rate_text(nic->pci_rate, 0, pci);
        printf("%-12s %12s %11s %8s %5s  %s\n", nic->name, line, pci, index_text(nic->package, package),
               index_text(nic->numa, numa), *nic->bus ? nic->bus : "-");
    }
}

static void print_node(const topo_report *report, int node, int first)
{
    const topo_rank *ranks = report->ranks, *a = &ranks[first], *b = &ranks[0];
    const int is_like = strcmp(a->product, b->product) == 0 && a->n_packages == b->n_packages &&
                        a->n_numas == b->n_numas && a->n_cores == b->n_cores && a->n_gpus == b->n_gpus &&
                        a->n_nics == b->n_nics;
    int n = 0;
    for (int i = 0; i < report->n_ranks; i++) n += ranks[i].place.node == node;
    printf("\nnode %d: %s, %d rank%s%s\n", node, ranks[first].host, n, PLURAL(n),
           is_like ? "" : "; differs from the machine above");
    for (int i = 0; i < report->n_ranks; i++) {
        if (ranks[i].place.node != node) continue;
        printf("  rank %d: cpus %s (", i, *ranks[i].cpus ? ranks[i].cpus : "unknown");
        /* A rank is confined to a core, a cache, a NUMA node, a package, or not at all. */
        if (ranks[i].place.core >= 0)
            printf("core %d", ranks[i].place.core);
        else if (ranks[i].place.cache >= 0)
            fputs("cores of one cache", stdout);
        else if (ranks[i].place.numa >= 0)
            printf("NUMA node %d", ranks[i].place.numa);
        else if (ranks[i].place.package >= 0)
            printf("package %d", ranks[i].place.package);
        else
            fputs("several packages", stdout);
        fputs(")\n", stdout);
    }
}

static const char *link_text(qdr_link link) { return link == QDR_LINK_NONE ? "-" : qdr_link_name(link); }

static void print_heads(const char *first, int width)
{
    printf("%-*s %6s %7s %6s %8s %9s  %-16s %6s  %-16s %6s\n", width, first, "ranks", "stride", "nodes", "on node",
           "siblings", "slowest link", "GB/s", "inside a node", "GB/s");
}

static void print_groups(const char *name, int width, const qdr_topo_axis *axis)
{
    char rate[24], inner_rate[24];
    topo_rate_text(axis->rate, axis->is_assumed, rate);
    topo_rate_text(axis->inner_rate, axis->inner_is_assumed, inner_rate);
    printf("%-*s %6d %7d %6d %8d %9d  %-16s %6s  %-16s %6s\n", width, name, axis->n_ranks, axis->stride, axis->n_nodes,
           axis->n_on_node, axis->n_siblings, link_text(axis->link), rate, link_text(axis->inner), inner_rate);
}

static void print_levels(const topo_levels *l)
{
    const int width = 8;
    char text[128];
    topo_levels_text(l, text, sizeof text);
    printf("\n%s\n", text);
    for (int i = 0; i < TOPO_N_LEVELS; i++)
        if (l->maps[i].n_ranks > 1) printf("%-*s %s\n", width, topo_level_name(i), topo_level_use(i));
    print_heads("level", width);
    for (int i = 0; i < TOPO_N_LEVELS; i++) print_groups(topo_level_name(i), width, &l->maps[i]);
    if (*l->note) printf("note: %s\n", l->note);
    if (*l->warning) printf("warning: %s: %s\n", l->warning, l->remedy);
}

static void print_layout(const topo_report *report)
{
    static const char *const names[] = {"x", "y", "z", "d"};
    char text[256];
    topo_layout_text(&report->layout, text, sizeof text);
    printf("\n%s\n", text);
    print_heads("axis", 4);
    for (int i = 0; i < QDR_N_AXES; i++) print_groups(names[i], 4, &report->layout.axes[i]);
    fputs("ranks: in a group; stride: from one to the next; nodes: spanned by a group; on node: ranks of a group on\n"
          "one node; siblings: groups of the axis that share one node's link of that kind\n",
          stdout);
    if (topo_has_assumed(report->topo)) printf("%s\n", TOPO_ASSUMED);
    if (topo_has_apart(report->topo))
        fputs("NVSwitch without a rate: some of its GPUs share no switch, and the links between their switches are not "
              "reported\n",
              stdout);
    if (report->layout.levels.gradient_parts) print_levels(&report->layout.levels);
}

void topo_print(const topo_report *report)
{
    const qdr_topo *topo = report->topo;
    char text[256];
    printf("%s%s%s%s\n", *topo->host ? topo->host : "unnamed machine", *topo->product ? ", " : "", topo->product,
           topo->is_this_machine ? "" : " (recorded, not this machine)");
    topo_counts_text(topo, text, sizeof text);
    printf("%s\n", text);
    topo_caches_text(topo, text, sizeof text);
    printf("%s%s", text, *text ? "\n" : "");
    putchar('\n');
    for (int package = -1; package < topo->n_packages; package++) {
        if (package >= 0) {
            const qdr_topo_package *p = qdr_topo_package_at(topo, package);
            printf("package %d: %s, %d core%s\n", package, *p->model ? p->model : "unknown processor", p->n_cores,
                   PLURAL(p->n_cores));
        }
        for (int i = 0; i < topo->n_numas; i++)
            if (qdr_topo_numa_at(topo, i)->package == package) {
                const qdr_topo_numa *numa = qdr_topo_numa_at(topo, i);
                char bytes[24], gpus[512] = "", nics[512] = "";
                int n_gpus = 0, n_nics = 0;
                topo_bytes_text(numa->bytes, bytes);
                printf("  NUMA node %d: %s, %d core%s", i, bytes, numa->n_cores, PLURAL(numa->n_cores));
                for (int gpu = 0; gpu < topo->n_gpus; gpu++)
                    if (qdr_topo_gpu_at(topo, gpu)->numa == i) append(gpus, sizeof gpus, n_gpus++ ? " %d" : "%d", gpu);
                for (int nic = 0; nic < topo->n_nics; nic++)
                    if (qdr_topo_nic_at(topo, nic)->numa == i)
                        append(nics, sizeof nics, n_nics++ ? " %s" : "%s", qdr_topo_nic_at(topo, nic)->name);
                if (n_gpus) printf("; GPU%s %s", PLURAL(n_gpus), gpus);
                if (n_nics) printf("; adapter%s %s", PLURAL(n_nics), nics);
                putchar('\n');
            }
    }
    print_gpus(topo);
    print_nics(topo);
    for (int i = 0, node = 0; report->ranks && i < report->n_ranks; i++)
        if (report->ranks[i].place.node == node) print_node(report, node++, i);
    if (report->layout.size.x) print_layout(report);
}
