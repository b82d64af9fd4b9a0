/* SPDX-License-Identifier: Apache-2.0 */
/* The matrix of GPU links in the picture of a machine. */
#include <math.h>

#include "topo/draw.h"

enum { CELL_WIDTH = 50, CELL_HEIGHT = 24, LEFT = PAGE_MARGIN + 52, KEY_WIDTH = 250 };

/* From green (near) to red (far). */
const char *link_colour(qdr_link link)
{
    static const char *const colours[QDR_N_LINKS] = {
        "#e4e4e4", "#1b7837", "#2f9247", "#2a9d6f", "#5aae61", "#8cc665",
        "#b3dd8a", "#fee08b", "#fdcf75", "#fdae61", "#ee7a4a", "#cf3b2b",
    };
    return colours[link];
}

const char *link_ink(qdr_link link)
{
    const int is_dark = (link >= QDR_LINK_SAME && link <= QDR_LINK_XGMI_MODULE) || link == QDR_LINK_NETWORK;
    return is_dark ? "#ffffff" : "#222222";
}

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
    svg_box(p->file, x, y, width - 2, CELL_HEIGHT - 2, link_colour(link), "rx=\"3\"");
    topo_pair_text(topo, a, b, text);
    snprintf(style, sizeof style, "font-size=\"10\" text-anchor=\"middle\" fill=\"%s\"", link_ink(link));
    if (width >= 40) svg_text(p->file, x + width / 2 - 1, y + 15, style, "%s", text);
    svg_end_tip(p->file);
}

static double draw_matrix(const page *p, double y, double width)
{
    const int n = p->report->topo->n_gpus;
    for (int j = 0; j < n; j++) svg_text(p->file, LEFT + (j + 0.5) * width, y + 10, STYLE_TINY, "%d", j);
    y += 16;
    for (int i = 0; i < n; i++) {
        svg_text(p->file, LEFT - 8, y + 15, "text-anchor=\"end\" font-size=\"11\"", "GPU %d", i);
        for (int j = 0; j < n; j++) draw_cell(p, LEFT + j * width, y, width, i, j);
        y += CELL_HEIGHT;
    }
    return y;
}

/* ---- the legend ---- */

static int is_used(const qdr_topo *topo, qdr_link link)
{
    for (int a = 0; a < topo->n_gpus; a++)
        for (int b = a + 1; b < topo->n_gpus; b++)
            if (topo_pair(topo, a, b, NULL, NULL) == link) return 1;
    return 0;
}

static double draw_key(const page *p, double x, double y)
{
    static const char *const words[QDR_N_LINKS] = {
        [QDR_LINK_XGMI_MODULE] = "XM: XGMI between the dies of a module",
        [QDR_LINK_NVLINK] = "NV: NVLink",
        [QDR_LINK_XGMI] = "XG: XGMI",
        [QDR_LINK_NVSWITCH] = "SW: NVLink through switches",
        [QDR_LINK_PCI] = "PCI: one PCI switch",
        [QDR_LINK_NUMA] = "NUMA: through the host, one NUMA node",
        [QDR_LINK_PACKAGE] = "pkg: through the host, one package",
        [QDR_LINK_NODE] = "node: through the host, two packages",
    };
    for (int link = 0; link < QDR_N_LINKS; link++) {
        if (!words[link] || !is_used(p->report->topo, (qdr_link)link)) continue;
        svg_box(p->file, x, y, 14, 14, link_colour((qdr_link)link), "rx=\"3\"");
        svg_text(p->file, x + 20, y + 11, "font-size=\"11\"", "%s", words[link]);
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

double draw_links(const page *p, double y)
{
    const int n = p->report->topo->n_gpus;
    if (n < 2) return y;
    const double room = PAGE_WIDTH - LEFT - PAGE_MARGIN - KEY_WIDTH;
    const double width = fmin(CELL_WIDTH, room / n);
    svg_text(p->file, PAGE_MARGIN, y + 20, SVG_HEADING, "GPU links");
    svg_text(p->file, PAGE_MARGIN + 126, y + 20, SVG_SMALL, "GB/s in each direction; %s", p->report->topo->gpu_source);
    const double matrix = draw_matrix(p, y + 30, width);
    const double key = draw_key(p, LEFT + n * width + 20, y + 48);
    return fmax(matrix, key) + 12;
}
