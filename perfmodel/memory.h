/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of the rank, and of the stage, that needs the most. */
#ifndef QDRI_PERFMODEL_MEMORY_H
#define QDRI_PERFMODEL_MEMORY_H

#include "price.h"
#include "stages.h"

/* Sets memory and memory_bytes of the result. */
void qdri_memory(const qdri_pricing *pricing, const qdr_network *network, const qdri_stages *stages, double n_micro,
                 qdr_plan_result *result);

#endif
