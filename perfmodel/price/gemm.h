/* SPDX-License-Identifier: Apache-2.0 */
/* The time of a product, from extents, type and mode. */
#ifndef QDRI_PERFMODEL_PRICE_GEMM_H
#define QDRI_PERFMODEL_PRICE_GEMM_H

#include "quadrille/machine.h"
#include "quadrille/types.h"

/* The transposition of the operands: none, the second, the first. */
typedef enum qdri_mode { QDRI_MODE_NN, QDRI_MODE_NT, QDRI_MODE_TN } qdri_mode;

/* n_products of them at the same time (heads of attention); usually 1. Extents may be fractions: averages over
 * ranks. */
typedef struct qdri_product {
    double m, n, k, n_products;
    qdr_dtype dtype;
    qdri_mode mode;
    double out_bytes; /* per element of the result */
    int accumulate; /* the result is also read */
} qdri_product;

/* The type's constants; those of F32 for types without their own. */
const qdr_machine_products *qdri_machine_products(const qdr_machine *machine, qdr_dtype dtype);
/* Seconds without the launch. 0 if an extent is 0. */
double qdri_product_secs(const qdr_machine *machine, const qdri_product *product);

#endif
