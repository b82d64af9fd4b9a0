/* SPDX-License-Identifier: Apache-2.0 */
/* The picture of a machine as SVG: packages with NUMA nodes, caches, cores and devices; then links, ranks and axes. */
#include <math.h>
#include <string.h>

#include "topo/draw.h"

#define STYLE_PACKAGE "fill=\"#f4f5f7\" stroke=\"#9aa3af\""
#define STYLE_NUMA "fill=\"#ffffff\" stroke=\"#c3c9d2\""
#define STYLE_CACHE "fill=\"#e8eef7\" stroke=\"#b7c6de\""
#define STYLE_CORE "fill=\"#7d9cc9\""
#define STYLE_GPU "fill=\"#d9efd4\" stroke=\"#6aa85e\""
#define STYLE_NIC "fill=\"#f6e6d0\" stroke=\"#c69a5c\""

enum { CORE = 14, CORE_GAP = 2, CORES_WIDE = 8, PAD = 8, LABEL = 16, CHIP = 36 };
enum { LABELLED_CACHES = 4 }; /* more caches in one NUMA node leave no room for labels */

/* ---- cores ---- */

/* Cores [first, first + n) that share a cache. */
static void draw_cache(const page *p, flow *f, int first, int n, int is_labelled)
{
    const qdr_topo *topo = p->report->topo;
    const int index = topo->cores[first].cache, n_wide = n < CORES_WIDE ? n : CORES_WIDE;
    const int n_rows = (n + CORES_WIDE - 1) / CORES_WIDE, step = CORE + CORE_GAP;
    const double inside = n_wide * step - CORE_GAP, top = is_labelled ? LABEL : 4;
    const double width = fmax(inside + 8, is_labelled ? 76 : 0), height = top + n_rows * step + 2;
    double x, y;
    char bytes[24] = "";
    flow_next(f, width, height, &x, &y);
    if (index >= 0) topo_bytes_text(topo->caches[index].bytes, bytes);
    page_begin_title(p, "cores %d to %d, L%d cache of %s", first, first + n - 1,
                     index >= 0 ? topo->caches[index].level : 0, bytes);
    page_box(p, x, y, width, height, STYLE_CACHE);
    if (is_labelled)
        page_text(p, x + 5, y + 12, "font-size=\"10\" fill=\"#44536b\"", "L%d %s",
                  index >= 0 ? topo->caches[index].level : 0, bytes);
    for (int i = 0; i < n; i++) {
        const int row = i / CORES_WIDE;
        page_box(p, x + 4 + (i % CORES_WIDE) * step, y + top + row * step, CORE, CORE, STYLE_CORE);
    }
    page_end_title(p);
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
    flow f = flow_begin(x, y, width, 5);
    int n_runs = 0;
    for (int first = 0, n; (n = find_run(topo, numa, &first)) > 0; first += n) n_runs++;
    for (int first = 0, n; (n = find_run(topo, numa, &first)) > 0; first += n)
        draw_cache(p, &f, first, n, n_runs <= LABELLED_CACHES && topo->cores[first].cache >= 0);
    return f.bottom;
}

/* ---- devices ---- */

static void draw_gpu(const page *p, flow *f, int index)
{
    const qdr_topo_gpu *gpu = &p->report->topo->gpus[index];
    char bytes[24];
    double x, y;
    flow_next(f, 82, CHIP, &x, &y);
    topo_bytes_text(gpu->bytes, bytes);
    page_begin_title(p, "%s, %s, %s", gpu->model, gpu->name, gpu->bus);
    page_box(p, x, y, 82, CHIP, STYLE_GPU);
    page_text(p, x + 41, y + 15, "text-anchor=\"middle\" font-weight=\"bold\"", "GPU %d", index);
    page_text(p, x + 41, y + 29, STYLE_TINY, "%s", gpu->bytes ? bytes : gpu->name);
    page_end_title(p);
}

static void draw_nic(const page *p, flow *f, int index)
{
    const qdr_topo_nic *nic = &p->report->topo->nics[index];
    const int is_line = nic->rate > 0, has_rate = is_line || nic->pci_rate > 0;
    char rate[24];
    double x, y;
    const double width = fmax(92, 16 + 7 * (double)strlen(nic->name));
    flow_next(f, width, CHIP, &x, &y);
    topo_rate_text(is_line ? nic->rate : nic->pci_rate, 0, rate);
    page_begin_title(p, "network adapter %s, %s", nic->name, nic->bus);
    page_box(p, x, y, width, CHIP, STYLE_NIC);
    page_text(p, x + width / 2, y + (has_rate ? 15 : 22), "text-anchor=\"middle\"", "%s", nic->name);
    if (has_rate) page_text(p, x + width / 2, y + 29, STYLE_TINY, "%s%s GB/s", is_line ? "" : "PCI ", rate);
    page_end_title(p);
}

/* The devices in a NUMA node; numa -1: those of this package that are in none. */
static double draw_devices(const page *p, int package, int numa, double x, double y, double width)
{
    const qdr_topo *topo = p->report->topo;
    flow f = flow_begin(x, y, width, 6);
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
    page_box(p, x, y, width, height, STYLE_NUMA);
    page_text(p, x + PAD, y + 15, "font-size=\"12\"", "NUMA node %d: %s, %d core%s", index, bytes, numa->n_cores,
              numa->n_cores == 1 ? "" : "s");
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
    page_text(p, x + PAD, y + 18, "font-weight=\"bold\"", "package %d", index);
    page_text(p, x + PAD + 74, y + 18, STYLE_SMALL, "%.60s, %d cores", package->model, package->n_cores);
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
            page_box(p, x, y, each, bottom - y, STYLE_PACKAGE);
            draw_package(p, j, x, y, each);
        }
        y = bottom + gap;
    }
    y = draw_numas(p, -1, PAGE_MARGIN, y, room);
    const double devices = draw_devices(p, -1, -1, PAGE_MARGIN, y, room);
    return devices > y ? devices + gap : y;
}

static void draw_summary(const page *p, double y)
{
    char text[256];
    topo_counts_text(p->report->topo, text, sizeof text);
    page_text(p, PAGE_MARGIN, y, STYLE_SMALL, "%s", text);
    topo_caches_text(p->report->topo, text, sizeof text);
    page_text(p, PAGE_MARGIN, y + 16, STYLE_SMALL, "%s", text);
}

double draw_machine(const page *p, double y)
{
    const qdr_topo *topo = p->report->topo;
    page_text(p, PAGE_MARGIN, y + 20, "font-size=\"18\" font-weight=\"bold\"", "%s%s%s%s", topo->host,
              *topo->host && *topo->product ? ", " : "", topo->product, topo->is_this_machine ? "" : " (recorded)");
    draw_summary(p, y + 40);
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

int topo_draw(FILE *file, const topo_report *report)
{
    const page blank = {NULL, report}, real = {file, report};
    const double height = draw_all(&blank) + 8;
    fprintf(file,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%.0f\" viewBox=\"0 0 "
            "%d %.0f\" font-family=\"sans-serif\" font-size=\"12\" fill=\"#222222\">\n"
            "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
            PAGE_WIDTH, height, PAGE_WIDTH, height);
    draw_all(&real);
    fputs("</svg>\n", file);
    return !ferror(file);
}
