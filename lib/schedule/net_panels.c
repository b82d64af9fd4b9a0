/* SPDX-License-Identifier: Apache-2.0 */
/* Row panels of a layer. Ranks that exchange rows must divide them in the same way, so the choice depends only on what
 * all of them know: global sizes, and how an axis crosses nodes. */
#include "schedule/panels.h"

#include "core/block.h"
#include "schedule/net_parts.h"

/* Assumptions about a machine that has not been measured: the rate of a core's products, 10 Gbit/s between nodes, and
 * the cost of one more panel (docs/benchmarks.md, "Panels over a network"). */
#define FLOPS_PER_SEC 5e10
#define WIRE_BYTES_PER_SEC 1.25e9
#define START_SECS 2e-3

/* The data sent over an axis before or after a product: `times` the n_cols columns of all rows. */
typedef struct travel {
    qdr_axis axis;
    int times; /* 0: nothing is sent; 2: a sum that all members receive */
    double n_cols;
} travel;

/* Inside a node, an exchange needs the core that the product needs, so nothing would be hidden. Between nodes, whose
 * members share a link, undivided data are sent level by level: once for all members; so are sums of copies, but slices
 * of rows that stay scattered are sent once for each member. */
static qdri_panel_cost cost_of(const qdri_net *net, double flops, const travel *what)
{
    const int g = net->place.size[what->axis], members = net->node_members[what->axis];
    const double n_elems = (double)net->cell_rows * what->n_cols * (g - 1) / g;
    const double bytes = what->times * n_elems * (double)qdr_dtype_bytes(net->opts.dtype);
    const double secs = members ? bytes / WIRE_BYTES_PER_SEC : 0;
    return (qdri_panel_cost){.product_secs = flops / FLOPS_PER_SEC,
                             .wire_secs = secs,
                             .cut_wire_secs = what->times == 1 ? secs * members : secs,
                             .start_secs = START_SECS,
                             .n_rows = net->cell_rows};
}

static int choose(const qdri_net *net, double flops, const travel *before, const travel *behind)
{
    const travel *const both[] = {before, behind};
    qdri_panel_cost costs[2];
    int n = 0;
    for (int i = 0; i < 2; i++)
        if (both[i]->times) costs[n++] = cost_of(net, flops, both[i]);
    return qdri_panels_choose(costs, n);
}

int qdri_net_batch_parts(const qdri_net *net)
{
    const int wanted = net->opts.batch_parts;
    if (net->place.size[QDR_X] == 1 && net->place.size[QDR_Y] == 1) return 1;
    for (int i = 0; i < net->n_edges; i++)
        if (qdri_edge_scattered(net, &net->edges[i])) return 1;
    return wanted > 1 ? wanted : 1;
}

void qdri_layer_set_panels(const qdri_net *net, qdri_layer *layer, int wanted)
{
    const qdri_parameter *w = &net->parameters[layer->weight];
    qdri_layer_shape *shape = &layer->shape;
    const double n = (double)qdri_blocks_width(w->rows) / net->place.size[shape->out_axis];
    const double k = (double)qdri_blocks_width(w->cols) / net->place.size[shape->in_axis];
    const double flops = 2 * (double)net->cell_rows * n * k;
    const int in = shape->in_scattered, out = shape->out_scattered;
    if (wanted == 0) wanted = net->opts.panels;
    if (wanted > shape->m) wanted = shape->m > 0 ? (int)shape->m : 1;
    shape->forward_panels = shape->backward_panels = wanted;
    if (wanted) return;
    shape->forward_panels = choose(net, flops, &(travel){shape->out_axis, in, k},
                                   &(travel){shape->in_axis, out ? 1 : 2, n});
    shape->backward_panels = choose(net, flops, &(travel){shape->in_axis, out, n},
                                    &(travel){shape->out_axis, in ? 1 : 2, k});
}
