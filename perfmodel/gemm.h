/* SPDX-License-Identifier: Apache-2.0 */
/* What a product takes, by extents, type and mode. */
#ifndef QDRI_PERFMODEL_GEMM_H
#define QDRI_PERFMODEL_GEMM_H

#include "quadrille/machine.h"
#include "quadrille/types.h"

/* How the operands lie: as they are multiplied, the second turned, the first turned. */
typedef enum qdri_mode { QDRI_MODE_NN, QDRI_MODE_NT, QDRI_MODE_TN } qdri_mode;

/* n_products of them at once (heads of attention); 1 as a rule. Extents may be fractions: means over ranks. */
typedef struct qdri_product {
    double m, n, k, n_products;
    qdr_dtype dtype;
    qdri_mode mode;
    double out_bytes; /* of an element of the result */
    int accumulate; /* the result is read, too */
} qdri_product;

/* The type's constants; those of F32 for types without any of their own. */
const qdr_machine_products *qdri_machine_products(const qdr_machine *machine, qdr_dtype dtype);
/* Share of the work of whole tiles in whole waves that is wanted: in (0, 1], the best of the machine's tiles. 1 without
 * tiles. */
double qdri_tile_share(const qdr_machine *machine, double m, double n, double n_products);
/* Secs without the launch. 0 where an extent is. */
double qdri_product_secs(const qdr_machine *machine, const qdri_product *product);

#endif
