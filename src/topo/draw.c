/* SPDX-License-Identifier: Apache-2.0 */
/* The picture of a machine as SVG: packages with NUMA nodes, caches, cores and devices; then links, ranks and axes. */
#include <math.h>
#include <string.h>

#include "topo/draw.h"

#define STYLE_PACKAGE "#f4f5f7", "rx=\"3\" stroke=\"#9aa3af\""
#define STYLE_NUMA "#ffffff", "rx=\"3\" stroke=\"#c3c9d2\""
#define STYLE_CACHE "#e8eef7", "rx=\"3\" stroke=\"#b7c6de\""
#define STYLE_CORE "#7d9cc9", "rx=\"3\""
#define STYLE_GPU "#d9efd4", "rx=\"3\" stroke=\"#6aa85e\""
#define STYLE_NIC "#f6e6d0", "rx=\"3\" stroke=\"#c69a5c\""

enum { CORE = 14, CORE_GAP = 2, CORES_WIDE = 8, PAD = 8, LABEL = 16, CHIP = 36 };
enum { LABELLED_CACHES = 4 }; /* more caches in one NUMA node leave no room for labels */

/* ---- cores ---- */

/* Cores [first, first + n) that share a cache. */
static void draw_cache(const page *p, svg_flow *f, int first, int n, int is_labelled)
{
    const qdr_topo *topo = p->report->topo;
    const int index = topo->cores[first].cache, n_wide = n < CORES_WIDE ? n : CORES_WIDE;
    const int n_rows = (n + CORES_WIDE - 1) / CORES_WIDE, step = CORE + CORE_GAP;
    const double inside = n_wide * step - CORE_GAP, top = is_labelled ? LABEL : 4;
    const double width = fmax(inside + 8, is_labelled ? 76 : 0), height = top + n_rows * step + 2;
    double x, y;
    char bytes[24] = "";
    svg_flow_next(f, width, height, &x, &y);
    if (index >= 0) topo_bytes_text(topo->caches[index].bytes, bytes);
    svg_begin_tip(p->file, "cores %d to %d, L%d cache of %s", first, first + n - 1,
                  index >= 0 ? topo->caches[index].level : 0, bytes);
    svg_box(p->file, x, y, width, height, STYLE_CACHE);
    if (is_labelled)
        svg_text(p->file, x + 5, y + 12, "font-size=\"10\" fill=\"#44536b\"", "L%d %s",
                 index >= 0 ? topo->caches[index].level : 0, bytes);
    for (int i = 0; i < n; i++) {
        const int row = i / CORES_WIDE;
        svg_box(p->file, x + 4 + (i % CORES_WIDE) * step, y + top + row * step, CORE, CORE, STYLE_CORE);
    }
    svg_end_tip(p->file);
}

/* The next cores in a NUMA node that share a cache: how many; 0: none. */
static int find_run(const qdr_topo *topo, int numa, int *first)
{
    int n = 0;
    while (*first < topo->n_cores && topo->cores[*first].numa != numa) ++*first;
    const int begin = *first;
    while (begin + n < topo->n_cores && topo->cores[begin + n].numa == numa &&
           topo->cores[begin + n].cache == topo->cores[begin].cache)
        n++;
    return n;
}

static double draw_cores(const page *p, int numa, double x, double y, double width)
{
    const qdr_topo *topo = p->report->topo;
    svg_flow f = svg_flow_begin(x, y, width, 5);
    int n_runs = 0;
    for (int first = 0, n; (n = find_run(topo, numa, &first)) > 0; first += n) n_runs++;
    for (int first = 0, n; (n = find_run(topo, numa, &first)) > 0; first += n)
        draw_cache(p, &f, first, n, n_runs <= LABELLED_CACHES && topo->cores[first].cache >= 0);
    return f.bottom;
}

/* ---- devices ---- */

static void draw_gpu(const page *p, svg_flow *f, int index)
{
    const qdr_topo_gpu *gpu = &p->report->topo->gpus[index];
    char bytes[24];
    double x, y;
    svg_flow_next(f, 82, CHIP, &x, &y);
    topo_bytes_text(gpu->bytes, bytes);
    svg_begin_tip(p->file, "%s, %s, %s", gpu->model, gpu->name, gpu->bus);
    svg_box(p->file, x, y, 82, CHIP, STYLE_GPU);
    svg_text(p->file, x + 41, y + 15, SVG_MIDDLE " " SVG_STRONG, "GPU %d", index);
    svg_text(p->file, x + 41, y + 29, STYLE_TINY, "%s", gpu->bytes ? bytes : gpu->name);
    svg_end_tip(p->file);
}

static void draw_nic(const page *p, svg_flow *f, int index)
{
    const qdr_topo_nic *nic = &p->report->topo->nics[index];
    const int is_line = nic->rate > 0, has_rate = is_line || nic->pci_rate > 0;
    char rate[24];
    double x, y;
    const double width = fmax(92, 16 + 7 * (double)strlen(nic->name));
    svg_flow_next(f, width, CHIP, &x, &y);
    topo_rate_text(is_line ? nic->rate : nic->pci_rate, 0, rate);
    svg_begin_tip(p->file, "network adapter %s, %s", nic->name, nic->bus);
    svg_box(p->file, x, y, width, CHIP, STYLE_NIC);
    svg_text(p->file, x + width / 2, y + (has_rate ? 15 : 22), SVG_MIDDLE, "%s", nic->name);
    if (has_rate) svg_text(p->file, x + width / 2, y + 29, STYLE_TINY, "%s%s GB/s", is_line ? "" : "PCI ", rate);
    svg_end_tip(p->file);
}

/* The devices in a NUMA node; numa -1: those of this package that are in none. */
static double draw_devices(const page *p, int package, int numa, double x, double y, double width)
{
    const qdr_topo *topo = p->report->topo;
    svg_flow f = svg_flow_begin(x, y, width, 6);
    for (int i = 0; i < topo->n_gpus; i++)
        if (topo->gpus[i].numa == numa && (numa >= 0 || topo->gpus[i].package == package)) draw_gpu(p, &f, i);
    for (int i = 0; i < topo->n_nics; i++)
        if (topo->nics[i].numa == numa && (numa >= 0 || topo->nics[i].package == package)) draw_nic(p, &f, i);
    return f.bottom;
}

/* ---- boxes in boxes ---- */

static double numa_height(const page *p, int index, double width)
{
    const page blank = {NULL, p->report};
    const double cores = draw_cores(&blank, index, 0, LABEL + 6, width - 2 * PAD);
    const double devices = draw_devices(&blank, -1, index, 0, cores + 7, width - 2 * PAD);
    return (devices > cores + 7 ? devices : cores) + PAD;
}

static void draw_numa(const page *p, int index, double x, double y, double width, double height)
{
    const qdr_topo_numa *numa = &p->report->topo->numas[index];
    char bytes[24];
    topo_bytes_text(numa->bytes, bytes);
    svg_box(p->file, x, y, width, height, STYLE_NUMA);
    svg_text(p->file, x + PAD, y + 15, "font-size=\"12\"", "NUMA node %d: %s, %d core%s", index, bytes, numa->n_cores,
             PLURAL(numa->n_cores));
    const double cores = draw_cores(p, index, x + PAD, y + LABEL + 6, width - 2 * PAD);
    draw_devices(p, -1, index, x + PAD, cores + 7, width - 2 * PAD);
}

/* All boxes in a row are as high as the highest. */
static double draw_numas(const page *p, int package, double x, double y, double width)
{
    const qdr_topo *topo = p->report->topo;
    int n = 0, n_drawn = 0;
    double height = 0;
    for (int i = 0; i < topo->n_numas; i++)
        if (topo->numas[i].package == package) n++;
    const int n_wide = n > 1 ? 2 : 1;
    const double each = (width - (n_wide - 1) * PAD) / n_wide;
    for (int i = 0; i < topo->n_numas; i++)
        if (topo->numas[i].package == package) height = fmax(height, numa_height(p, i, each));
    for (int i = 0; i < topo->n_numas; i++) {
        if (topo->numas[i].package != package) continue;
        const int row = n_drawn / n_wide;
        draw_numa(p, i, x + (n_drawn % n_wide) * (each + PAD), y + row * (height + PAD), each, height);
        n_drawn++;
    }
    const int n_rows = (n + n_wide - 1) / n_wide;
    return y + n_rows * (height + PAD);
}

static double draw_package(const page *p, int index, double x, double y, double width)
{
    const qdr_topo_package *package = &p->report->topo->packages[index];
    svg_text(p->file, x + PAD, y + 18, SVG_STRONG, "package %d", index);
    svg_text(p->file, x + PAD + 74, y + 18, SVG_SMALL, "%.60s, %d cores", package->model, package->n_cores);
    double bottom = draw_numas(p, index, x + PAD, y + 28, width - 2 * PAD);
    const double devices = draw_devices(p, index, -1, x + PAD, bottom, width - 2 * PAD);
    if (devices > bottom) bottom = devices + PAD;
    return bottom;
}

/* Packages, two in a row, then the devices that belong to none. */
static double draw_packages(const page *p, double y)
{
    const page blank = {NULL, p->report};
    const int n = p->report->topo->n_packages, n_wide = n > 1 ? 2 : 1, gap = 12;
    const double room = PAGE_WIDTH - 2 * PAGE_MARGIN, each = (room - (n_wide - 1) * gap) / n_wide;
    for (int i = 0; i < n; i += n_wide) {
        double bottom = y;
        for (int j = i; j < n && j < i + n_wide; j++) bottom = fmax(bottom, draw_package(&blank, j, 0, y, each));
        for (int j = i; j < n && j < i + n_wide; j++) {
            const double x = PAGE_MARGIN + (j - i) * (each + gap);
            svg_box(p->file, x, y, each, bottom - y, STYLE_PACKAGE);
            draw_package(p, j, x, y, each);
        }
        y = bottom + gap;
    }
    y = draw_numas(p, -1, PAGE_MARGIN, y, room);
    const double devices = draw_devices(p, -1, -1, PAGE_MARGIN, y, room);
    return devices > y ? devices + gap : y;
}

double draw_machine(const page *p, double y)
{
    const qdr_topo *topo = p->report->topo;
    char text[256];
    svg_text(p->file, PAGE_MARGIN, y + 20, SVG_TITLE, "%s%s%s%s", topo->host, *topo->host && *topo->product ? ", " : "",
             topo->product, topo->is_this_machine ? "" : " (recorded)");
    topo_counts_text(topo, text, sizeof text);
    svg_text(p->file, PAGE_MARGIN, y + 40, SVG_SMALL, "%s", text);
    topo_caches_text(topo, text, sizeof text);
    svg_text(p->file, PAGE_MARGIN, y + 56, SVG_SMALL, "%s", text);
    return draw_packages(p, y + 68);
}

/* ---- the page ---- */

static double draw_all(const page *p)
{
    double y = draw_machine(p, 8);
    y = draw_links(p, y);
    y = draw_ranks(p, y);
    return draw_layout(p, y);
}

int topo_draw(FILE *file, const void *report)
{
    const page blank = {NULL, report}, real = {file, report};
    const double height = draw_all(&blank) + 8;
    svg_begin(file, PAGE_WIDTH, height);
    draw_all(&real);
    svg_end(file);
    return !ferror(file);
}
