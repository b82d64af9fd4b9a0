/* SPDX-License-Identifier: Apache-2.0 */
/* The three products of a layer. */
#include "schedule/linear.h"

void qdri_set_product(qdri_task *task, qdri_product_kind kind, qdr_storage storage, int64_t m, int64_t n, int64_t k)
{
    const int turned = storage == QDR_IN_OUT;
    task->m = m;
    task->n = kind == QDRI_PRODUCT_Y ? n : k;
    task->k = kind == QDRI_PRODUCT_Y ? k : n;
    task->trans_b = kind == QDRI_PRODUCT_Y ? !turned : turned;
    if (kind == QDRI_PRODUCT_DW) {
        task->m = turned ? k : n;
        task->n = turned ? n : k;
        task->k = m;
        task->trans_a = 1;
        task->trans_b = 0;
    }
    task->flops = 2.0 * (double)m * (double)n * (double)k;
}

void qdri_set_rounding(qdri_task *task, qdri_product_kind kind, const qdri_layer_shape *shape)
{
    const int is_gradient_last = kind == QDRI_PRODUCT_DW && shape->storage == QDR_IN_OUT;
    if (!shape->rounds) return;
    task->round_a = kind == QDRI_PRODUCT_Y || is_gradient_last ? QDRI_E4M3 : QDRI_E5M2;
    task->round_b = is_gradient_last ? QDRI_E5M2 : QDRI_E4M3;
}
