/* SPDX-License-Identifier: Apache-2.0 */
/* Words and numbers shared by the text and the picture of a machine. */
#include <stdarg.h>
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
            const qdr_topo_cache *cache = &topo->caches[i];
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
    const qdr_topo_gpu *gpus = topo->gpus;
    const qdr_topo_place left = {0, gpus[a].package, gpus[a].numa, -1, -1, a};
    const qdr_topo_place right = {0, gpus[b].package, gpus[b].numa, -1, -1, b};
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
        if (topo->gpu_links[i].is_assumed) return 1;
    return 0;
}

int topo_has_apart(const qdr_topo *topo)
{
    for (int i = 0; i < topo->n_gpu_links; i++)
        if (topo->gpu_links[i].link == QDR_LINK_NVSWITCH && topo->gpu_links[i].rate <= 0) return 1;
    return 0;
}

/* ---- lists ---- */

int topo_list_gpus(const qdr_topo *topo, int numa, char *text, size_t capacity)
{
    int n = 0;
    *text = '\0';
    for (int i = 0; i < topo->n_gpus; i++)
        if (topo->gpus[i].numa == numa) append(text, capacity, n++ ? " %d" : "%d", i);
    return n;
}

int topo_list_nics(const qdr_topo *topo, int numa, char *text, size_t capacity)
{
    int n = 0;
    *text = '\0';
    for (int i = 0; i < topo->n_nics; i++)
        if (topo->nics[i].numa == numa) append(text, capacity, n++ ? " %s" : "%s", topo->nics[i].name);
    return n;
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
