/* SPDX-License-Identifier: Apache-2.0 */
/* Parameters: which part of each this rank stores, and where. */
#include <string.h>

#include "core/block.h"
#include "core/group.h"
#include "core/size.h"
#include "schedule/net_parts.h"

/* Parts of a flat block that are communicated are aligned to 16 bytes. */
enum { SHARD_ALIGN_BYTES = 16 };

static const qdr_block one_row[QDR_MAX_BLOCKS] = {{1, 1}};

static int group_size(const qdri_net *net, qdr_channel channel)
{
    return qdri_channel_group_of(&net->position, channel).size;
}

/* A shard of a matrix: as many equal parts as there are levels below z. 16 bytes of the type are at least as many
 * elements as 16 bytes of the gradient's. */
static int64_t shard_elems(const qdri_net *net, int64_t elems)
{
    const int64_t align = SHARD_ALIGN_BYTES / (int64_t)qdr_dtype_bytes(net->opts.dtype);
    const int64_t n_parts = (int64_t)group_size(net, QDR_CHANNEL_D_NEAR) * group_size(net, QDR_CHANNEL_D_FAR);
    return qdri_round_up(qdri_ceil_div(elems, net->position.size[QDR_Z]), align * n_parts);
}

int64_t qdri_parameter_elems(const qdri_parameter *p, int64_t begin, int64_t n)
{
    const int64_t left = p->n_elems - begin;
    return left < 0 ? 0 : left < n ? left : n;
}

/* A shard, and the levels below it. */
static void divide(const qdri_net *net, int64_t elems, qdri_parameter *p)
{
    const qdri_channel_group near = qdri_channel_group_of(&net->position, QDR_CHANNEL_D_NEAR),
                             far = qdri_channel_group_of(&net->position, QDR_CHANNEL_D_FAR);
    p->shard_elems = shard_elems(net, elems);
    p->shard_begin = p->shard_elems * net->position.coordinate[QDR_Z];
    p->gradient_elems = p->shard_elems / near.size;
    p->gradient_begin = p->gradient_elems * near.index;
    p->state_elems = p->gradient_elems / far.size;
    p->state_begin = p->gradient_begin + p->state_elems * far.index;
    p->n_copies = net->position.size[QDR_D] / (near.size * far.size);
    p->copy = net->position.coordinate[QDR_D] / (near.size * far.size);
    p->returns = near.size * far.size > 1;
    p->n_elems = elems - p->shard_begin;
    if (p->n_elems > p->shard_elems) p->n_elems = p->shard_elems;
    if (p->n_elems < 0) p->n_elems = 0;
}

/* A small parameter, of which every rank that needs it stores all. */
static void keep_whole(const qdri_net *net, int64_t elems, qdri_parameter *p)
{
    p->shard_elems = p->gradient_elems = p->state_elems = p->n_elems = elems;
    p->n_copies = net->position.size[QDR_D];
    p->copy = net->position.coordinate[QDR_D];
}

qdr_status qdri_parameter_add(qdri_net *net, const qdri_parameter_desc *desc, int *index)
{
    size_t bytes = 0;
    QDR_TRY(qdri_list_grow((void **)&net->parameters, net->n_parameters, &net->parameter_capacity,
                           sizeof *net->parameters, "a parameter of the stack"));
    qdri_parameter *p = &net->parameters[net->n_parameters];
    const int node = net->n_nodes - 1;
    const int is_first = net->n_parameters == 0 || p[-1].node != node;
    *p = (qdri_parameter){.node = node,
                          .slot = is_first ? 0 : p[-1].slot + 1,
                          .what = desc->what,
                          .flat_over_z = desc->flat_over_z,
                          .is_vector = !desc->rows,
                          .extra_sums = desc->extra_sums,
                          .initial = desc->initial,
                          .decay = desc->flat_over_z,
                          .storage = QDR_OUT_IN,
                          .data = QDRI_NO_REF,
                          .gradient = QDRI_NO_REF,
                          .all_feedback = QDRI_NO_REF};
    for (int sum = 0; sum < QDRI_N_GRADIENT_SUMS; sum++) p->feedback[sum] = QDRI_NO_REF;
    memcpy(p->rows, desc->rows ? desc->rows : one_row, sizeof p->rows);
    memcpy(p->cols, desc->cols, sizeof p->cols);
    p->row_parts = desc->row_split ? net->position.size[desc->row_split - 1] : 1;
    p->row_part = desc->row_split ? net->position.coordinate[desc->row_split - 1] : 0;
    p->col_parts = desc->col_split ? net->position.size[desc->col_split - 1] : 1;
    p->col_part = desc->col_split ? net->position.coordinate[desc->col_split - 1] : 0;
    p->n_rows = qdri_blocks_part(p->rows, p->row_parts, p->row_part);
    p->n_cols = qdri_blocks_part(p->cols, p->col_parts, p->col_part);
    QDR_TRY(qdri_mul_elems(qdri_blocks_width(p->rows), qdri_blocks_width(p->cols), &p->n_global));
    QDR_TRY(qdri_elems_bytes(p->n_global, QDR_F64, &bytes));
    const int *at = net->position.coordinate;
    (p->flat_over_z ? divide : keep_whole)(net, p->n_rows * p->n_cols, p);
    /* Copies exist along the axes that split nothing: which copy is counted, and which is the first of all. */
    p->counted = 1;
    for (int axis = QDR_X; axis <= QDR_Z; axis++) {
        const int split = desc->row_split == 1 + axis || desc->col_split == 1 + axis ||
                          (axis == QDR_Z && desc->flat_over_z);
        if (split) p->split_axes |= 1 << axis;
        if (!split && at[axis] > 0) p->counted = 0;
    }
    p->first_copy = p->copy == 0 && (desc->flat_over_z || at[QDR_Z] == 0);
    for (int axis = QDR_X; axis <= QDR_Y; axis++)
        if (desc->extra_sums >> axis & 1 && at[axis] > 0) p->first_copy = 0;
    *index = net->n_parameters++;
    return QDR_OK;
}

/* Part 0 of a split is the largest. */
size_t qdri_largest_gathered_bytes(const qdri_net *net)
{
    const int gz = net->position.size[QDR_Z];
    int64_t most = 0;
    for (int i = 0; i < net->n_parameters; i++) {
        const qdri_parameter *p = &net->parameters[i];
        const int64_t elems = qdri_blocks_part(p->rows, p->row_parts, 0) * qdri_blocks_part(p->cols, p->col_parts, 0);
        const int64_t gathered = p->flat_over_z ? gz * shard_elems(net, elems) : 0;
        if (gathered > most) most = gathered;
    }
    return (size_t)most * qdr_dtype_bytes(net->opts.dtype);
}

void qdri_net_set_coding(qdri_net *net, const qdri_coding *coding)
{
    net->coding = *coding;
    net->n_codings++;
}

/* What the codec of a sum loses is kept in as many floats as this rank has elements between counterparts. */
static size_t feedback_bytes(const qdri_net *net, const qdri_coding *coding, const qdri_parameter *p,
                             qdri_gradient_sum sum)
{
    const qdr_channel channel = qdri_gradient_sum_channel(sum);
    const qdri_coded_group *group = &coding->groups[channel];
    const int64_t n_elems = qdri_gradient_sum_elems(&net->position, sum, p->shard_elems);
    const int is_without = sum == QDRI_SUM_D && qdri_has_levels(&net->position);
    const qdr_codec *codec = qdri_coding_find(coding, channel, QDR_TRAFFIC_GRADIENT, net->grad_dtype, n_elems);
    int64_t begin, end;
    if (is_without || !codec || !(codec->flags & QDR_CODEC_FEEDBACK)) return 0;
    qdri_split(n_elems, 1, group->per_node, group->index, &begin, &end);
    return (size_t)(end - begin) * sizeof(float);
}

static void place_feedback(qdri_net *net, qdri_parameter *p)
{
    size_t bytes[QDRI_N_GRADIENT_SUMS], all = 0;
    for (int sum = 0; sum < QDRI_N_GRADIENT_SUMS; sum++) {
        bytes[sum] = feedback_bytes(net, &net->coding, p, (qdri_gradient_sum)sum);
        all += qdri_align_bytes(bytes[sum], QDRI_BUFFER_ALIGN);
    }
    if (all == 0) return;
    p->all_feedback = qdri_buffers_add(&net->buffers, QDRI_FEEDBACK, all);
    for (size_t sum = 0, at = 0; sum < QDRI_N_GRADIENT_SUMS; sum++) {
        if (bytes[sum]) p->feedback[sum] = (qdri_ref){p->all_feedback.buffer, at, bytes[sum]};
        at += qdri_align_bytes(bytes[sum], QDRI_BUFFER_ALIGN);
    }
}

qdr_status qdri_parameters_check_feedback(const qdri_net *net, const qdri_coding *coding)
{
    for (int i = 0; i < net->n_parameters && !net->shares_parameters; i++)
        for (int sum = 0; sum < QDRI_N_GRADIENT_SUMS; sum++) {
            const qdri_parameter *p = &net->parameters[i];
            const size_t bytes = p->flat_over_z ? feedback_bytes(net, coding, p, (qdri_gradient_sum)sum) : 0;
            if (bytes && p->feedback[sum].buffer < 0)
                return QDR_FAIL(
                    QDR_ERR_STATE,
                    "codec: the gradient of %s.%s would need %zu bytes of feedback, and the stack was built "
                    "without; build it with codecs that have feedback, then set others",
                    net->nodes[p->node].name, p->what, bytes);
        }
    return QDR_OK;
}

/* The optimizer's state begins with the numbers of a step. */
static void place_state(qdri_net *net)
{
    const size_t each = qdr_dtype_bytes(net->grad_dtype);
    net->state_bytes = QDRI_STEP_BYTES;
    for (int i = 0; i < net->n_parameters; i++) {
        qdri_parameter *p = &net->parameters[i];
        const size_t bytes = (size_t)qdri_parameter_updates(p) * each;
        for (int state = 0; state < QDRI_N_STATES; state++) {
            p->state[state] = QDRI_NO_REF;
            if (state == QDRI_STATE_MASTER && !qdri_is_narrow(net->opts.dtype)) continue;
            p->state[state] = (qdri_ref){net->caller[QDRI_CALLER_STATE].buffer, net->state_bytes, bytes};
            net->state_bytes += qdri_align_bytes(bytes, QDRI_BUFFER_ALIGN);
        }
    }
}

/* The gradients of small parameters are stored contiguously, by class, so that one collective sums those of x, one
 * those of y, and one all. */
void qdri_parameters_place(qdri_net *net)
{
    const size_t grad_bytes = qdr_dtype_bytes(net->grad_dtype);
    for (int i = 0; i < net->n_parameters; i++) {
        qdri_parameter *p = &net->parameters[i];
        p->data = qdri_buffers_add(&net->buffers, QDRI_PARAMETERS,
                                   (size_t)p->shard_elems * qdr_dtype_bytes(net->opts.dtype));
        if (p->flat_over_z && !net->shares_parameters)
            p->gradient = qdri_buffers_add(&net->buffers, QDRI_GRADIENTS, (size_t)p->gradient_elems * grad_bytes);
        if (p->flat_over_z && !net->shares_parameters) place_feedback(net, p);
    }
    if (net->shares_parameters) return;
    place_state(net);
    for (int class = 0; class < 4; class ++) {
        static const int extra_sums[] = {0, 1 << QDR_X, 1 << QDR_X | 1 << QDR_Y, 1 << QDR_Y};
        net->small_begin[class] = net->n_small;
        for (int i = 0; i < net->n_parameters; i++) {
            qdri_parameter *p = &net->parameters[i];
            if (p->flat_over_z || p->extra_sums != extra_sums[class]) continue;
            p->gradient.offset = (size_t)net->n_small * grad_bytes;
            p->gradient.bytes = (size_t)p->n_elems * grad_bytes;
            net->n_small += p->n_elems;
        }
    }
    net->small_begin[4] = net->n_small;
    net->small_gradients = qdri_buffers_add(&net->buffers, QDRI_GRADIENTS, (size_t)net->n_small * grad_bytes);
    for (int i = 0; i < net->n_parameters; i++)
        if (!net->parameters[i].flat_over_z) net->parameters[i].gradient.buffer = net->small_gradients.buffer;
}

/* ---- sharing ---- */

static const char *node_name(const qdri_net *net, const qdri_parameter *p) { return net->nodes[p->node].name; }

/* Both nets are on the same grid. */
static qdr_status check_same(const qdri_net *net, const qdri_net *owner, int index)
{
    const qdri_parameter *p = &net->parameters[index], *q = &owner->parameters[index];
    if (strcmp(node_name(net, p), node_name(owner, q)) != 0 || strcmp(p->what, q->what) != 0)
        return QDR_FAIL(QDR_ERR_SHAPE,
                        "share parameters: number %d is %s.%s here and %s.%s in the stack that owns them; add the same "
                        "layers with the same names, in the same order",
                        index, node_name(net, p), p->what, node_name(owner, q), q->what);
    if (!qdri_blocks_equal(p->rows, q->rows) || !qdri_blocks_equal(p->cols, q->cols) || p->row_parts != q->row_parts ||
        p->row_part != q->row_part || p->col_parts != q->col_parts || p->col_part != q->col_part)
        return QDR_FAIL(QDR_ERR_SHAPE,
                        "share parameters: %s.%s is %" PRId64 "x%" PRId64 " here and %" PRId64 "x%" PRId64
                        " in the stack that owns it, or its blocks, units or axes differ; give its layer the same",
                        node_name(net, p), p->what, qdri_blocks_width(p->rows), qdri_blocks_width(p->cols),
                        qdri_blocks_width(q->rows), qdri_blocks_width(q->cols));
    if (p->storage == QDR_STORAGE_AUTO || p->storage == q->storage) return QDR_OK;
    return QDR_FAIL(QDR_ERR_SHAPE,
                    "share parameters: %s.%s is stored differently in the stack that owns it; request the same "
                    "storage, or QDR_STORAGE_AUTO, which takes the owner's",
                    node_name(net, p), p->what);
}

qdr_status qdri_net_share(qdri_net *net, const qdri_net *owner)
{
    if (net->opts.dtype != owner->opts.dtype)
        return QDR_FAIL(QDR_ERR_DTYPE, "share parameters: a stack of %s cannot use those of a stack of %s",
                        qdr_dtype_name(net->opts.dtype), qdr_dtype_name(owner->opts.dtype));
    for (int i = 0; i < net->n_parameters && i < owner->n_parameters; i++) QDR_TRY(check_same(net, owner, i));
    if (net->n_parameters != owner->n_parameters)
        return QDR_FAIL(QDR_ERR_SHAPE,
                        "share parameters: the stack has %d and the one that owns them %d; add the same layers",
                        net->n_parameters, owner->n_parameters);
    for (int i = 0; i < net->n_parameters; i++)
        if (net->parameters[i].storage == QDR_STORAGE_AUTO)
            qdri_net_set_storage(net, net->parameters[i].node, owner->parameters[i].storage);
    net->shares_parameters = 1;
    return QDR_OK;
}
