/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of networks share. */
#ifndef QDRI_PERFMODEL_NETWORK_H
#define QDRI_PERFMODEL_NETWORK_H

#include "core/json.h"
#include "quadrille/network.h"

/* Largest size of any kind: products of two fit in 63 bits. */
#define QDRI_NETWORK_MOST INT32_MAX

/* The network that a config.json describes; *network is only set if all is well. */
QDR_NODISCARD qdr_status qdri_network_read(const qdri_json *document, const char *name, qdr_network *network);

#endif
