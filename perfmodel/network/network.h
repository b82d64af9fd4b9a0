/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files that implement networks. */
#ifndef QDRI_PERFMODEL_NETWORK_NETWORK_H
#define QDRI_PERFMODEL_NETWORK_NETWORK_H

#include "core/json.h"
#include "quadrille/network.h"

/* The largest allowed size of any kind: products of two fit in 63 bits. */
#define QDRI_NETWORK_MOST INT32_MAX

/* The network described by a config.json; *network is set only if there is no error. */
QDR_NODISCARD qdr_status qdri_network_read(const qdri_json *document, const char *name, qdr_network *network);

#endif
