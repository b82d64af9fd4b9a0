/* SPDX-License-Identifier: Apache-2.0 */
/* The border between who runs a list and who prices it. The model prices roles of its templates; this is the price of
 * one list of a net as it is, whatever it was described from. Declared here, below both sides, and defined by
 * perfmodel/net_price.c, so that the runtime can ask without seeing the inside of the model. */
#ifndef QDRI_CORE_NET_PRICE_H
#define QDRI_CORE_NET_PRICE_H

#include "core/net.h"
#include "quadrille/machine.h"

/* What the list takes on the machine, for the rank at the net's place: secs[i] of task i alone, and the simulated end
 * of the whole, where streams overlap and share links. order: of the grid's axes, "xyzd".
 * @retval QDR_ERR_ARGUMENT  the machine lacks something
 * @retval QDR_ERR_DTYPE     it cannot do the net's type
 * @retval QDR_ERR_MEMORY */
QDR_NODISCARD qdr_status qdri_net_price(const qdri_net *net, const char *order, const qdr_machine *machine,
                                        const qdri_schedule *schedule, double *secs, double *end_secs);

#endif
