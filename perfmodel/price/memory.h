/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of the rank, and of the stage, that needs the most. */
#ifndef QDRI_PERFMODEL_PRICE_MEMORY_H
#define QDRI_PERFMODEL_PRICE_MEMORY_H

#include "network/stages.h"
#include "price/price.h"

/* Sets memory and memory_bytes of the result. */
void qdri_memory(const qdri_pricing *pricing, const qdr_network *network, const qdri_stages *stages, double n_micro,
                 qdr_plan_result *result);

#endif
