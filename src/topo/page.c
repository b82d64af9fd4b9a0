/* SPDX-License-Identifier: Apache-2.0 */
/* Places and colours in the picture of a machine. */
#include <math.h>

#include "topo/draw.h"

flow flow_begin(double left, double top, double width, double gap)
{
    return (flow){left, top, width, gap, left, top, top};
}

void flow_next(flow *f, double width, double height, double *x, double *y)
{
    if (f->x > f->left && f->x + width > f->left + f->width) {
        f->x = f->left;
        f->row_top = f->bottom + f->gap;
    }
    *x = f->x;
    *y = f->row_top;
    f->x += width + f->gap;
    f->bottom = fmax(f->bottom, f->row_top + height);
}

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
