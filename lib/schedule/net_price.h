/* SPDX-License-Identifier: Apache-2.0 */
/* The interface between the runtime, which executes a list, and the model, which prices it. It is declared here, in a
 * module below both, and defined in perfmodel/price/net_price.c, so that the runtime can use it without depending on
 * the model. */
#ifndef QDRI_SCHEDULE_NET_PRICE_H
#define QDRI_SCHEDULE_NET_PRICE_H

#include "quadrille/calibrate.h"
#include "schedule/net.h"

/* The price of the list on the machine, for the rank at the net's position: secs[i] for task i alone, and the simulated
 * end of the whole list, with overlapping streams and shared links. secs may be NULL. order: of the grid's axes,
 * "xyzd".
 * @retval QDR_ERR_ARGUMENT  the machine lacks a constant
 * @retval QDR_ERR_DTYPE     the machine does not support the net's type
 * @retval QDR_ERR_MEMORY */
QDR_NODISCARD qdr_status qdri_net_price(const qdri_net *net, const char *order, const qdr_machine *machine,
                                        const qdri_schedule *schedule, double *secs, double *end_secs);
/* The work of a task as a sample to be measured, without group and secs.
 * @return 0: the model gives it no time, or it is a caller's operation */
int qdri_net_sample(const qdri_net *net, const char *order, const qdri_task *task, qdr_sample *sample);
/* Sets the panels and parts of a net whose options leave them open: the fewest with which its lists, on the rank at the
 * net's position, take hardly longer than with the best ones (panel_search.h). Call it after qdri_net_place().
 * @retval as qdri_net_price() */
QDR_NODISCARD qdr_status qdri_net_choose_panels(qdri_net *net, const char *order, const qdr_machine *machine);

#endif
