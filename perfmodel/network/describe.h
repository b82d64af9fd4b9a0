/* SPDX-License-Identifier: Apache-2.0 */
/* A transformer as a net: the nodes whose task lists the runtime would execute for it. */
#ifndef QDRI_PERFMODEL_NETWORK_DESCRIBE_H
#define QDRI_PERFMODEL_NETWORK_DESCRIBE_H

#include "quadrille/plan.h"
#include "schedule/network.h"

/* Layers are counted from 0; embedding, last norm, head and loss are not layers. */
enum { QDRI_LAYER_FIRST = -1, QDRI_LAYER_LAST = -2 };

/* Describes embedding, n_layers layers, last norm, head and loss on the rank at `position`, with n_rows rows (whole
 * sequences) over all ranks; call qdri_net_build() afterwards. layer_of[node] is the layer to which a node belongs; it
 * has QDRI_NODES_OF(n_layers) elements. NULL: only the layers, from an input with gradient to their output. Operations
 * that the library lacks (gates, rotary positions) are described as operations with a cost. */
#define QDRI_NODES_OF(n_layers) (QDRI_NETWORK_NODES_OF_LAYER * (n_layers) + QDRI_NETWORK_NODES_OF_ENDS)
QDR_NODISCARD qdr_status qdri_describe(qdri_net *net, const qdr_network *network, const qdri_position *position,
                                       const qdr_stack_opts *opts, int64_t context, qdr_layout layout, int n_layers,
                                       int *layer_of);

#endif
