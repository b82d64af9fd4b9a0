/* SPDX-License-Identifier: Apache-2.0 */
/* Rotary positions: one table for all attentions of a net that turn by the same angles. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/size.h"
#include "schedule/net_parts.h"

static double magnitude_of(const qdr_attention_desc *desc) { return desc->magnitude > 0 ? desc->magnitude : 1; }

static int is_of(const qdri_rotation *rotation, const qdr_attention_desc *desc)
{
    const int64_t n_pairs = desc->rotary_columns / 2;
    return rotation->context == desc->context && rotation->n_pairs == n_pairs &&
           rotation->magnitude == magnitude_of(desc) &&
           memcmp(rotation->frequencies, desc->frequencies, (size_t)n_pairs * sizeof(double)) == 0;
}

qdr_status qdri_rotation_add(qdri_net *net, const qdr_attention_desc *desc, int *number)
{
    const int64_t n_pairs = desc->rotary_columns / 2;
    size_t bytes;
    for (*number = 1; *number <= net->n_rotations; ++*number)
        if (is_of(&net->rotations[*number - 1], desc)) return QDR_OK;
    QDR_TRY(qdri_block_bytes(desc->context, 2 * n_pairs, QDR_F64, &bytes));
    QDR_TRY(qdri_list_grow((void **)&net->rotations, net->n_rotations, &net->rotation_capacity, sizeof *net->rotations,
                           "rotary positions"));
    qdri_rotation *added = &net->rotations[net->n_rotations];
    *added = (qdri_rotation){desc->context, n_pairs, magnitude_of(desc), NULL, QDRI_NO_REF};
    QDR_TRY(QDRI_NEW(n_pairs, "frequencies of rotary positions", &added->frequencies));
    memcpy(added->frequencies, desc->frequencies, (size_t)n_pairs * sizeof(double));
    net->n_rotations++;
    return QDR_OK;
}

void qdri_rotations_place(qdri_net *net)
{
    for (int i = 0; i < net->n_rotations; i++) {
        qdri_rotation *r = &net->rotations[i];
        const size_t n = 2 * (size_t)(r->context * r->n_pairs);
        r->table = qdri_buffers_add(&net->buffers, QDRI_ACTIVATIONS, n * qdr_dtype_bytes(net->grad_dtype));
    }
}

void qdri_rotations_free(qdri_net *net)
{
    for (int i = 0; i < net->n_rotations; i++) free(net->rotations[i].frequencies);
    net->n_rotations = 0;
}

void qdri_rotation_fill(const qdri_rotation *rotation, qdr_dtype sum_type, void *table)
{
    const int64_t n = rotation->n_pairs;
    for (int64_t i = 0; i < rotation->context * n; i++) {
        const int64_t row = i / n, pair = i % n;
        const double angle = (double)row * rotation->frequencies[pair];
        const double both[] = {rotation->magnitude * cos(angle), rotation->magnitude * sin(angle)};
        for (int j = 0; j < 2; j++) {
            const int64_t at = (2 * row + j) * n + pair;
            if (sum_type == QDR_F64)
                ((double *)table)[at] = both[j];
            else
                ((float *)table)[at] = (float)both[j];
        }
    }
}
