/* SPDX-License-Identifier: Apache-2.0 */
/* The interface between the runtime, which executes a list, and the model, which prices it. The model prices the roles
 * of its templates; this function gives the price of one list of a given net. It is declared here, in a module below
 * both, and defined in perfmodel/price/net_price.c, so that the runtime can use it without depending on the model. */
#ifndef QDRI_SCHEDULE_NET_PRICE_H
#define QDRI_SCHEDULE_NET_PRICE_H

#include "quadrille/machine.h"
#include "schedule/net.h"

/* The price of the list on the machine, for the rank at the net's place: secs[i] for task i alone, and the simulated
 * end of the whole list, with overlapping streams and shared links. order: of the grid's axes, "xyzd".
 * @retval QDR_ERR_ARGUMENT  the machine lacks a constant
 * @retval QDR_ERR_DTYPE     the machine does not support the net's type
 * @retval QDR_ERR_MEMORY */
QDR_NODISCARD qdr_status qdri_net_price(const qdri_net *net, const char *order, const qdr_machine *machine,
                                        const qdri_schedule *schedule, double *secs, double *end_secs);

#endif
