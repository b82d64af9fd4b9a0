/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks and axes in the picture of a machine: one strip per axis, in which the ranks of a group have the same
 * colour. */
#include <math.h>
#include <string.h>

#include "topo/draw.h"

enum {
    MAX_DRAWN_RANKS = 64,
    CELL = 20,
    CELLS_WIDE = 32,
    FRAME = 5,
    LINK = PAGE_MARGIN + 140, /* left edge of the column with each axis' link */
    LEFT = LINK + 262 /* left edge of the nodes */
};

/* ---- running ranks ---- */

double draw_ranks(const page *p, double y)
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

static int ranks_on(const topo_layout *layout, int node)
{
    int n = 0;
    for (int rank = 0; rank < layout->n_ranks; rank++) n += layout->places[rank].node == node;
    return n;
}

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
        svg_begin_tip(p->file, "rank %d, group %d of this axis", rank, group);
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
        const int n = ranks_on(layout, node), left = MAX_DRAWN_RANKS - n_drawn;
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
    svg_box(p->file, x, y, 134, 26, link_colour(axis->link), "rx=\"3\"");
    snprintf(style, sizeof style, "text-anchor=\"middle\" font-weight=\"bold\" fill=\"%s\"", link_ink(axis->link));
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

static double draw_axis(const page *p, int index, double y)
{
    static const char *const names[] = {"x", "y", "z", "d"};
    const qdr_topo_axis *axis = &p->report->layout.axes[index];
    svg_text(p->file, PAGE_MARGIN, y + 20, SVG_TITLE, "%s", names[index]);
    svg_text(p->file, PAGE_MARGIN + 24, y + 13, "font-size=\"11\"", "%d rank%s, stride %d", axis->n_ranks,
             PLURAL(axis->n_ranks), axis->stride);
    svg_text(p->file, PAGE_MARGIN + 24, y + 27, SVG_SMALL, "over %d node%s", axis->n_nodes, PLURAL(axis->n_nodes));
    const double bottom = draw_nodes(p, axis, y);
    return fmax(bottom, draw_link(p, axis, y)) + 12;
}

double draw_layout(const page *p, double y)
{
    char text[256];
    if (!p->report->layout.size.x) return y;
    topo_layout_text(&p->report->layout, text, sizeof text);
    svg_text(p->file, PAGE_MARGIN, y + 20, SVG_HEADING, "%s", text);
    svg_text(p->file, PAGE_MARGIN, y + 37, SVG_SMALL,
             "The link of each axis: the slowest between two ranks of a group, and how many groups share "
             "it. A frame is a node, a square a rank; ranks of a group have the same colour.");
    y += 50;
    for (int axis = 0; axis < QDR_N_AXES; axis++) y = draw_axis(p, axis, y);
    return y;
}
