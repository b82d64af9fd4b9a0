/* SPDX-License-Identifier: Apache-2.0 */
/* Orders of the axes. */
#include "core/order.h"

#include <string.h>

static const char letters[] = QDRI_USUAL_ORDER;

int qdri_is_order(const char *order)
{
    int is_whole = strlen(order) == QDR_N_AXES;
    for (const char *letter = letters; *letter; letter++) is_whole &= strchr(order, *letter) != NULL;
    return is_whole;
}

int qdri_axis_of(char letter) { return (int)(strchr(letters, letter) - letters); }

void qdri_order_strides(const int size[QDR_N_AXES], const char *order, int stride[QDR_N_AXES])
{
    int step = 1;
    for (int i = 0; i < QDR_N_AXES; i++) {
        const int axis = qdri_axis_of(order[i]);
        stride[axis] = step;
        step *= size[axis];
    }
}
