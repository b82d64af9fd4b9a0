/* SPDX-License-Identifier: Apache-2.0 */
/* Orders of the axes: the fastest first, each once ("xyzd"). */
#ifndef QDRI_CORE_ORDER_H
#define QDRI_CORE_ORDER_H

#include "quadrille/types.h"

#define QDRI_USUAL_ORDER "xyzd" /* also the letters of the axes, by number */

int qdri_is_order(const char *order);
/* The axis of one of the four letters. */
int qdri_axis_of(char letter);
/* The distance in ranks between neighbours on each axis. */
void qdri_order_strides(const int size[QDR_N_AXES], const char *order, int stride[QDR_N_AXES]);

#endif
