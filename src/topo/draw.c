/* SPDX-License-Identifier: Apache-2.0 */
/* The picture of a machine as SVG: packages with NUMA nodes, caches, cores and devices; then links, ranks and axes. */
#include <math.h>
#include <string.h>

#include "common/svg.h"
#include "topo/topo.h"

enum { PAGE_WIDTH = 1180, PAGE_MARGIN = 20 };
#define STYLE_TINY "font-size=\"10\" text-anchor=\"middle\""

/* file NULL: the space needed is measured. Each function draws a part from `y` on and returns where it ends. */
typedef struct page {
    FILE *file;
    const topo_report *report;
} page;

/* ---- links of GPUs ---- */

enum { CELL_WIDTH = 50, CELL_HEIGHT = 24, LINKS_LEFT = PAGE_MARGIN + 52, KEY_WIDTH = 250 };

#define DARK_INK "#222222"
#define LIGHT_INK "#ffffff"
/* From green (near) to red (far); the colour of text on it; the words of the key. */
static const struct {
    const char *colour, *ink, *words;
} styles[QDR_N_LINKS] = {
    [QDR_LINK_NONE] = {"#e4e4e4", DARK_INK, NULL},
    [QDR_LINK_SAME] = {"#1b7837", LIGHT_INK, NULL},
    [QDR_LINK_CACHE] = {"#2f9247", LIGHT_INK, NULL},
    [QDR_LINK_XGMI_MODULE] = {"#2a9d6f", LIGHT_INK, "XM: XGMI between the dies of a module"},
    [QDR_LINK_NVLINK] = {"#5aae61", DARK_INK, "NV: NVLink"},
    [QDR_LINK_XGMI] = {"#8cc665", DARK_INK, "XG: XGMI"},
    [QDR_LINK_NVSWITCH] = {"#b3dd8a", DARK_INK, "SW: NVLink through switches"},
    [QDR_LINK_PCI] = {"#fee08b", DARK_INK, "PCI: one PCI switch"},
    [QDR_LINK_NUMA] = {"#fdcf75", DARK_INK, "NUMA: through the host, one NUMA node"},
    [QDR_LINK_PACKAGE] = {"#fdae61", DARK_INK, "pkg: through the host, one package"},
    [QDR_LINK_NODE] = {"#ee7a4a", DARK_INK, "node: through the host, two packages"},
    [QDR_LINK_NETWORK] = {"#cf3b2b", LIGHT_INK, NULL},
};

static void draw_cell(const page *p, double x, double y, double width, int a, int b)
{
    const qdr_topo *topo = p->report->topo;
    char style[64], text[24];
    if (a == b) {
        svg_box(p->file, x, y, width - 2, CELL_HEIGHT - 2, "#f2f2f2", "rx=\"3\"");
        return;
    }
    const qdr_link link = topo_pair(topo, a, b, NULL, NULL);
    svg_begin_tip(p->file, "GPU %d and GPU %d: %s", a, b, qdr_link_name(link));
    svg_box(p->file, x, y, width - 2, CELL_HEIGHT - 2, styles[link].colour, "rx=\"3\"");
    topo_pair_text(topo, a, b, text);
    snprintf(style, sizeof style, "font-size=\"10\" text-anchor=\"middle\" fill=\"%s\"", styles[link].ink);
    if (width >= 40) svg_text(p->file, x + width / 2 - 1, y + 15, style, "%s", text);
    svg_end_tip(p->file);
}

static int is_used(const qdr_topo *topo, qdr_link link)
{
    for (int a = 0; a < topo->n_gpus; a++)
        for (int b = a + 1; b < topo->n_gpus; b++)
            if (topo_pair(topo, a, b, NULL, NULL) == link) return 1;
    return 0;
}

static double draw_key(const page *p, double x, double y)
{
    for (int link = 0; link < QDR_N_LINKS; link++) {
        if (!styles[link].words || !is_used(p->report->topo, (qdr_link)link)) continue;
        svg_box(p->file, x, y, 14, 14, styles[link].colour, "rx=\"3\"");
        svg_text(p->file, x + 20, y + 11, "font-size=\"11\"", "%s", styles[link].words);
        y += 20;
    }
    if (topo_has_apart(p->report->topo)) {
        svg_text(p->file, x, y + 11, SVG_SMALL, TOPO_APART_1);
        svg_text(p->file, x, y + 26, SVG_SMALL, TOPO_APART_2);
        y += 34;
    }
    if (!topo_has_assumed(p->report->topo)) return y;
    svg_text(p->file, x, y + 11, SVG_SMALL, "?: hwloc reports 100 GB/s for every");
    svg_text(p->file, x, y + 26, SVG_SMALL, "XGMI link, whatever its rate");
    return y + 34;
}

static double draw_links(const page *p, double y)
{
    const int n = p->report->topo->n_gpus;
    if (n < 2) return y;
    const double room = PAGE_WIDTH - LINKS_LEFT - PAGE_MARGIN - KEY_WIDTH;
    const double width = fmin(CELL_WIDTH, room / n);
    svg_text(p->file, PAGE_MARGIN, y + 20, SVG_HEADING, "GPU links");
    svg_text(p->file, PAGE_MARGIN + 126, y + 20, SVG_SMALL, "GB/s in each direction; %s", p->report->topo->gpu_source);
    for (int j = 0; j < n; j++) svg_text(p->file, LINKS_LEFT + (j + 0.5) * width, y + 40, STYLE_TINY, "%d", j);
    for (int i = 0; i < n; i++) {
        const double top = y + 46 + i * CELL_HEIGHT;
        svg_text(p->file, LINKS_LEFT - 8, top + 15, "text-anchor=\"end\" font-size=\"11\"", "GPU %d", i);
        for (int j = 0; j < n; j++) draw_cell(p, LINKS_LEFT + j * width, top, width, i, j);
    }
    const double key = draw_key(p, LINKS_LEFT + n * width + 20, y + 48);
    return fmax(y + 46 + n * CELL_HEIGHT, key) + 12;
}

enum {
    MAX_DRAWN_RANKS = 64,
    CELL = 20,
    CELLS_WIDE = 32,
    FRAME = 5,
    LINK = PAGE_MARGIN + 140, /* left edge of the column with each axis' link */
    LEFT = LINK + 262, /* left edge of the nodes */
    LEVEL_WIDTH = 70 /* of a level's name */
};

static double draw_ranks(const page *p, double y)
{
    const topo_report *report = p->report;
    svg_flow f = svg_flow_begin(PAGE_MARGIN, y + 32, PAGE_WIDTH - 2 * PAGE_MARGIN, 6);
    if (!report->ranks) return y;
    svg_text(p->file, PAGE_MARGIN, y + 20, SVG_HEADING, "Running ranks");
    const int n = report->n_ranks < MAX_DRAWN_RANKS ? report->n_ranks : MAX_DRAWN_RANKS;
    if (n < report->n_ranks)
        svg_text(p->file, PAGE_MARGIN + 126, y + 20, SVG_SMALL, "the first %d of %d", n, report->n_ranks);
    for (int i = 0; i < n; i++) {
        const topo_rank *rank = &report->ranks[i];
        double x, top;
        svg_flow_next(&f, 130, 36, &x, &top);
        svg_begin_tip(p->file, "rank %d on %s, cpus %s", i, rank->host, rank->cpus);
        svg_box(p->file, x, top, 130, 36, "#eef0f3", "rx=\"3\" stroke=\"#b9bfc8\"");
        svg_text(p->file, x + 65, top + 15, SVG_MIDDLE, "rank %d, node %d", i, rank->place.node);
        svg_text(p->file, x + 65, top + 29, STYLE_TINY, "cpus %.18s%s", rank->cpus,
                 strlen(rank->cpus) > 18 ? "..." : "");
        svg_end_tip(p->file);
    }
    return f.bottom + 12;
}

/* ---- strips ---- */

static void draw_node(const page *p, const qdr_topo_axis *axis, int node, int n, svg_flow *f)
{
    const topo_layout *layout = &p->report->layout;
    const int n_wide = n < CELLS_WIDE ? n : CELLS_WIDE, n_rows = (n + CELLS_WIDE - 1) / CELLS_WIDE;
    int index = 0;
    double x, y;
    svg_flow_next(f, n_wide * CELL - 2 + 2 * FRAME, n_rows * CELL - 2 + 2 * FRAME, &x, &y);
    svg_box(p->file, x, y, n_wide * CELL - 2 + 2 * FRAME, n_rows * CELL - 2 + 2 * FRAME, "#ffffff",
            "rx=\"3\" stroke=\"#9aa3af\"");
    for (int rank = 0; rank < layout->n_ranks && index < n; rank++) {
        if (layout->places[rank].node != node) continue;
        const int row = index / CELLS_WIDE;
        static const char *const colours[] = {"#9ecae1", "#fdd0a2", "#a1d99b", "#dadaeb", "#fcbba1", "#d9d98c",
                                              "#a8ddd0", "#f2b6d8", "#c7b299", "#b8c4e8", "#d0e89a", "#e3b3b3"};
        /* Groups are counted in the order of their first ranks. */
        const int group = rank / (axis->stride * axis->n_ranks) * axis->stride + rank % axis->stride;
        svg_begin_tip(p->file, "rank %d, group %d", rank, group);
        svg_box(p->file, (x + FRAME + (index % CELLS_WIDE) * CELL), (y + FRAME + row * CELL), CELL - 2, CELL - 2,
                axis->n_ranks > 1 ? colours[group % 12] : "#eeeeee", "rx=\"3\"");
        svg_text(p->file, (x + FRAME + (index % CELLS_WIDE) * CELL) + CELL / 2.0 - 1, (y + FRAME + row * CELL) + 13,
                 "font-size=\"9\" text-anchor=\"middle\"", "%d", rank);
        svg_end_tip(p->file);
        index++;
    }
}

/* Nodes one after the other, as many as fit. */
static double draw_nodes(const page *p, const qdr_topo_axis *axis, double y)
{
    const topo_layout *layout = &p->report->layout;
    svg_flow f = svg_flow_begin(LEFT, y, PAGE_WIDTH - LEFT - PAGE_MARGIN, 6);
    int n_drawn = 0;
    for (int node = 0; node < layout->n_nodes; node++) {
        const int left = MAX_DRAWN_RANKS - n_drawn;
        int n = 0;
        for (int rank = 0; rank < layout->n_ranks; rank++) n += layout->places[rank].node == node;
        if (n > left && n_drawn > 0) break;
        draw_node(p, axis, node, n < left ? n : left, &f);
        n_drawn += n < left ? n : left;
    }
    if (n_drawn == layout->n_ranks) return f.bottom;
    svg_text(p->file, LEFT, f.bottom + 15, SVG_SMALL, "... and %d more ranks", layout->n_ranks - n_drawn);
    return f.bottom + 20;
}

/* The axis' link. Returns where it ends. */
static double draw_link(const page *p, const qdr_topo_axis *axis, double y)
{
    const double x = LINK;
    char style[80], rate[24];
    svg_box(p->file, x, y, 134, 26, styles[axis->link].colour, "rx=\"3\"");
    snprintf(style, sizeof style, "text-anchor=\"middle\" font-weight=\"bold\" fill=\"%s\"", styles[axis->link].ink);
    svg_text(p->file, x + 67, y + 17, style, "%s", qdr_link_name(axis->link));
    if (axis->link == QDR_LINK_NONE) return y + 28;
    topo_rate_text(axis->rate, axis->is_assumed, rate);
    if (axis->rate > 0) svg_text(p->file, x + 142, y + 11, "font-size=\"11\"", "%s GB/s", rate);
    svg_text(p->file, x + 142, y + (axis->rate > 0 ? 24 : 17), SVG_SMALL, "%d group%s on a node", axis->n_siblings,
             PLURAL(axis->n_siblings));
    if (axis->link != QDR_LINK_NETWORK || axis->inner == QDR_LINK_NONE) return y + 28;
    svg_text(p->file, x, y + 40, SVG_SMALL, "inside a node: %s", qdr_link_name(axis->inner));
    return y + 42;
}

/* The groups' ranks and link, right of `left`. Returns where it ends. */
static double draw_groups(const page *p, const qdr_topo_axis *axis, double left, double y)
{
    svg_text(p->file, left, y + 13, "font-size=\"11\"", "%d rank%s, stride %d", axis->n_ranks, PLURAL(axis->n_ranks),
             axis->stride);
    svg_text(p->file, left, y + 27, SVG_SMALL, "over %d node%s", axis->n_nodes, PLURAL(axis->n_nodes));
    const double bottom = draw_nodes(p, axis, y);
    return fmax(bottom, draw_link(p, axis, y)) + 12;
}

static double draw_axis(const page *p, int index, double y)
{
    svg_text(p->file, PAGE_MARGIN, y + 20, SVG_TITLE, "%c", "xyzd"[index]);
    return draw_groups(p, &p->report->layout.axes[index], PAGE_MARGIN + 24, y);
}

static double draw_level(const page *p, int index, double y)
{
    const qdr_topo_axis *groups = &p->report->layout.levels.maps[index];
    svg_text(p->file, PAGE_MARGIN, y + 13, SVG_STRONG, "%s", topo_level_name(index));
    if (groups->n_ranks > 1)
        svg_text(p->file, PAGE_MARGIN + LEVEL_WIDTH, y + 13, SVG_SMALL, "%s", topo_level_use(index));
    return draw_groups(p, groups, PAGE_MARGIN, y + 18);
}

static double draw_levels(const page *p, double y)
{
    const topo_levels *l = &p->report->layout.levels;
    char text[128];
    topo_levels_text(l, text, sizeof text);
    svg_text(p->file, PAGE_MARGIN, y + 20, SVG_HEADING, "%s", text);
    y += 32;
    if (*l->note) {
        svg_text(p->file, PAGE_MARGIN, y + 8, SVG_SMALL, "%s", l->note);
        y += 20;
    }
    if (*l->warning) {
        svg_text(p->file, PAGE_MARGIN, y + 8, SVG_STRONG " fill=\"#b00000\"", "%s:", l->warning);
        svg_text(p->file, PAGE_MARGIN, y + 24, SVG_STRONG " fill=\"#b00000\"", "%s", l->remedy);
        y += 36;
    }
    for (int i = 0; i < TOPO_N_LEVELS; i++) y = draw_level(p, i, y);
    return y;
}

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
    const int index = qdr_topo_core_at(topo, first)->cache, n_wide = n < CORES_WIDE ? n : CORES_WIDE;
    const int n_rows = (n + CORES_WIDE - 1) / CORES_WIDE, step = CORE + CORE_GAP;
    const double inside = n_wide * step - CORE_GAP, top = is_labelled ? LABEL : 4;
    const double width = fmax(inside + 8, is_labelled ? 76 : 0), height = top + n_rows * step + 2;
    double x, y;
    char bytes[24] = "";
    svg_flow_next(f, width, height, &x, &y);
    if (index >= 0) topo_bytes_text(qdr_topo_cache_at(topo, index)->bytes, bytes);
    svg_begin_tip(p->file, "cores %d to %d, L%d cache of %s", first, first + n - 1,
                  index >= 0 ? qdr_topo_cache_at(topo, index)->level : 0, bytes);
    svg_box(p->file, x, y, width, height, STYLE_CACHE);
    if (is_labelled)
        svg_text(p->file, x + 5, y + 12, "font-size=\"10\" fill=\"#44536b\"", "L%d %s",
                 index >= 0 ? qdr_topo_cache_at(topo, index)->level : 0, bytes);
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
    while (*first < topo->n_cores && qdr_topo_core_at(topo, *first)->numa != numa) ++*first;
    const int begin = *first;
    while (begin + n < topo->n_cores && qdr_topo_core_at(topo, begin + n)->numa == numa &&
           qdr_topo_core_at(topo, begin + n)->cache == qdr_topo_core_at(topo, begin)->cache)
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
        draw_cache(p, &f, first, n, n_runs <= LABELLED_CACHES && qdr_topo_core_at(topo, first)->cache >= 0);
    return f.bottom;
}

/* ---- devices ---- */

static void draw_gpu(const page *p, svg_flow *f, int index)
{
    const qdr_topo_gpu *gpu = qdr_topo_gpu_at(p->report->topo, index);
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
    const qdr_topo_nic *nic = qdr_topo_nic_at(p->report->topo, index);
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
        if (qdr_topo_gpu_at(topo, i)->numa == numa && (numa >= 0 || qdr_topo_gpu_at(topo, i)->package == package))
            draw_gpu(p, &f, i);
    for (int i = 0; i < topo->n_nics; i++)
        if (qdr_topo_nic_at(topo, i)->numa == numa && (numa >= 0 || qdr_topo_nic_at(topo, i)->package == package))
            draw_nic(p, &f, i);
    return f.bottom;
}

/* All boxes in a row are as high as the highest. */
static double draw_numas(const page *p, int package, double x, double y, double width)
{
    const page blank = {NULL, p->report};
    const qdr_topo *topo = p->report->topo;
    int n = 0, n_drawn = 0;
    double height = 0;
    for (int i = 0; i < topo->n_numas; i++)
        if (qdr_topo_numa_at(topo, i)->package == package) n++;
    const int n_wide = n > 1 ? 2 : 1;
    const double each = (width - (n_wide - 1) * PAD) / n_wide;
    for (int i = 0; i < topo->n_numas; i++) {
        if (qdr_topo_numa_at(topo, i)->package != package) continue;
        const double cores = draw_cores(&blank, i, 0, LABEL + 6, each - 2 * PAD);
        const double devices = draw_devices(&blank, -1, i, 0, cores + 7, each - 2 * PAD);
        height = fmax(height, (devices > cores + 7 ? devices : cores) + PAD);
    }
    for (int i = 0; i < topo->n_numas; i++) {
        if (qdr_topo_numa_at(topo, i)->package != package) continue;
        const int row = n_drawn / n_wide;
        const double left = x + (n_drawn % n_wide) * (each + PAD), top = y + row * (height + PAD);
        const qdr_topo_numa *numa = qdr_topo_numa_at(p->report->topo, i);
        char bytes[24];
        topo_bytes_text(numa->bytes, bytes);
        svg_box(p->file, left, top, each, height, STYLE_NUMA);
        svg_text(p->file, left + PAD, top + 15, "font-size=\"12\"", "NUMA node %d: %s, %d core%s", i, bytes,
                 numa->n_cores, PLURAL(numa->n_cores));
        const double cores = draw_cores(p, i, left + PAD, top + LABEL + 6, each - 2 * PAD);
        draw_devices(p, -1, i, left + PAD, cores + 7, each - 2 * PAD);
        n_drawn++;
    }
    const int n_rows = (n + n_wide - 1) / n_wide;
    return y + n_rows * (height + PAD);
}

static double draw_package(const page *p, int index, double x, double y, double width)
{
    const qdr_topo_package *package = qdr_topo_package_at(p->report->topo, index);
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

/* ---- the page ---- */

static double draw_all(const page *p)
{
    const qdr_topo *topo = p->report->topo;
    char text[256];
    svg_text(p->file, PAGE_MARGIN, 28, SVG_TITLE, "%s%s%s%s", topo->host, *topo->host && *topo->product ? ", " : "",
             topo->product, topo->is_this_machine ? "" : " (recorded)");
    topo_counts_text(topo, text, sizeof text);
    svg_text(p->file, PAGE_MARGIN, 48, SVG_SMALL, "%s", text);
    topo_caches_text(topo, text, sizeof text);
    svg_text(p->file, PAGE_MARGIN, 64, SVG_SMALL, "%s", text);
    double y = draw_packages(p, 76);
    y = draw_links(p, y);
    y = draw_ranks(p, y);
    if (!p->report->layout.size.x) return y;
    topo_layout_text(&p->report->layout, text, sizeof text);
    svg_text(p->file, PAGE_MARGIN, y + 20, SVG_HEADING, "%s", text);
    svg_text(p->file, PAGE_MARGIN, y + 37, SVG_SMALL,
             "The link of each axis: the slowest between two ranks of a group, and how many groups share "
             "it. A frame is a node, a square a rank; ranks of a group have the same colour.");
    y += 50;
    for (int axis = 0; axis < QDR_N_AXES; axis++) y = draw_axis(p, axis, y);
    return p->report->layout.levels.gradient_parts ? draw_levels(p, y + 8) : y;
}

void topo_draw(FILE *file, const void *report, failure *why)
{
    const page blank = {NULL, report}, real = {file, report};
    const double height = draw_all(&blank) + 8;
    (void)why;
    svg_begin(file, PAGE_WIDTH, height);
    draw_all(&real);
    svg_end(file);
}
