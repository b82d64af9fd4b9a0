/* SPDX-License-Identifier: Apache-2.0 */
#include "core/coded.h"

#include "core/block.h"
#include "core/group.h"
#include "core/kernels.h"
#include "core/size.h"

/* Messages of so many elements, in blocks of any size and codes of any bits, fill whole QDRI_CODED_ALIGN. */
enum { WHOLE_ELEMS = 1024, WHOLE_ROWS = 16, MOST_SHARES = 8 };

qdri_coded_group qdri_coded_group_of(const int *nodes, int size, int rank)
{
    const int per_node = qdri_members_per_node(nodes, NULL, size);
    qdri_coded_group group = {size, 1, rank, 0, 1};
    if (per_node) group = (qdri_coded_group){size / per_node, per_node, rank / per_node, rank % per_node, 0};
    for (int j = 1; j < size; j++) group.is_one_node &= nodes[j] == nodes[0];
    return group;
}

/* Members of a channel, from a rank on; so many consecutive ranks are on each node. */
typedef struct rank_run {
    int n, first, stride, ranks_per_node;
} rank_run;

static int node_of(const rank_run *run, int j) { return (run->first + j * run->stride) / run->ranks_per_node; }

static qdri_coded_group group_of_run(const rank_run *run, int index)
{
    int per_node = 1, fits = 1;
    while (per_node < run->n && node_of(run, per_node) == node_of(run, 0)) per_node++;
    const int is_one_node = per_node == run->n;
    fits = per_node > 1 && !is_one_node && run->n % per_node == 0;
    for (int j = 1; j < run->n && fits; j++) fits = (node_of(run, j) == node_of(run, j - 1)) == (j % per_node != 0);
    if (!fits) return (qdri_coded_group){run->n, 1, index, 0, is_one_node};
    return (qdri_coded_group){run->n / per_node, per_node, index / per_node, index % per_node, 0};
}

void qdri_coding_place(const qdri_position *position, const int stride[QDR_N_AXES], int ranks_per_node,
                       qdri_coding *coding)
{
    int rank = 0;
    for (int axis = 0; axis < QDR_N_AXES; axis++) rank += position->coordinate[axis] * stride[axis];
    for (int channel = 0; channel < QDR_N_CHANNELS; channel++) {
        if (qdri_is_statistics((qdr_channel)channel)) continue;
        const qdri_channel_group members = qdri_channel_group_of(position, (qdr_channel)channel);
        const int axis = (int)qdr_channel_axis((qdr_channel)channel);
        const rank_run run = {members.size, rank + (members.first - position->coordinate[axis]) * stride[axis],
                              members.stride * stride[axis], ranks_per_node};
        coding->groups[channel] = group_of_run(&run, members.index);
    }
}

/* Whether a group has members between which messages may be coded. */
static int may_code(const qdri_coding *coding, const qdri_coded_group *group)
{
    return group->n_nodes * group->per_node > 1 && (!group->is_one_node || coding->codecs.inside);
}

const qdr_codec *qdri_coding_find(const qdri_coding *coding, qdr_channel channel, qdr_traffic_class class,
                                  qdr_dtype dtype, int64_t total)
{
    const qdri_coded_group *group = &coding->groups[channel];
    if (!may_code(coding, group)) return NULL;
    const int64_t size = (int64_t)group->n_nodes * group->per_node;
    const qdr_codec *codec = &coding->codecs.of[qdr_channel_axis(channel)][class];
    const int64_t least = coding->codecs.least_bytes ? coding->codecs.least_bytes : QDRI_CODED_LEAST_BYTES;
    const int64_t part = total / size * (int64_t)qdr_dtype_bytes(dtype);
    return part >= least && qdri_codec_shortens(codec, dtype) ? codec : NULL;
}

int qdri_coding_has(const qdri_coding *coding, qdr_channel channel)
{
    if (!may_code(coding, &coding->groups[channel])) return 0;
    for (int class = 0; class < QDR_N_TRAFFIC_CLASSES; class ++)
        if (coding->codecs.of[qdr_channel_axis(channel)][class].kind != QDR_CODEC_RAW) return 1;
    return 0;
}

int qdri_coded_chunk_factor(const qdr_codec *codec) { return codec->kind == QDR_CODEC_LOSSLESS ? 4 : 1; }

int64_t qdri_coded_row_bytes(const qdr_codec *codec, qdr_dtype dtype, int64_t n_elems, int64_t row_elems)
{
    const int64_t row = row_elems && row_elems < n_elems ? row_elems : n_elems;
    if (n_elems <= 0) return 0;
    return n_elems / row * qdr_codec_bytes(codec, dtype, row) + qdr_codec_bytes(codec, dtype, n_elems % row);
}

int64_t qdri_coded_bytes(const qdr_codec *codec, qdr_dtype dtype, int64_t n_elems, int64_t row_elems)
{
    return qdri_round_up(qdri_coded_row_bytes(codec, dtype, n_elems, row_elems), QDRI_CODED_ALIGN);
}

static int64_t part_of(int64_t total, int64_t unit, int n_parts, int j)
{
    int64_t begin, end;
    qdri_split(total, unit, n_parts, j, &begin, &end);
    return end - begin;
}

static int64_t bytes_of(const qdri_coded_coll *coll, int64_t n_elems)
{
    return qdri_coded_bytes(coll->codec, coll->dtype, n_elems, coll->row_elems);
}

/* A slice of the members of a node; its parts are of counterparts. Of two counterparts each sends all of it. */
static int64_t all_reduce_sent(const qdri_coded_group *group, const qdri_coded_coll *coll)
{
    const int64_t unit = coll->row_elems ? coll->row_elems : 1, each = (int64_t)qdr_dtype_bytes(coll->dtype);
    const int64_t slice = part_of(coll->total, unit, group->per_node, group->index);
    const int64_t own = part_of(slice, unit, group->n_nodes, group->node);
    int64_t sent = (coll->total - slice + (group->per_node - 1) * slice) * each;
    if (group->n_nodes == 2) return sent + bytes_of(coll, slice);
    for (int k = 0; k < group->n_nodes; k++)
        if (k != group->node) sent += bytes_of(coll, part_of(slice, unit, group->n_nodes, k)) + bytes_of(coll, own);
    return sent;
}

/* Between two counterparts each sends the other everything. */
static int is_exchange(const qdri_coded_coll *coll, int n_parts)
{
    return coll->kind == QDR_ALL_REDUCE && n_parts == 2;
}

int64_t qdri_coded_chunk_elems(const qdri_coded_coll *coll, int n_parts, int64_t chunk_bytes)
{
    const int64_t each = (int64_t)qdr_dtype_bytes(coll->dtype), row = coll->row_elems;
    const int shares = is_exchange(coll, n_parts) ? 1 : n_parts < MOST_SHARES ? n_parts : MOST_SHARES;
    const int64_t bytes = qdri_coded_chunk_factor(coll->codec) * chunk_bytes;
    return qdri_round_up(qdri_ceil_div(bytes, each * shares), row ? WHOLE_ROWS * row : WHOLE_ELEMS);
}

static int64_t launches_of_chunk(const qdri_coded_coll *coll, int n_parts)
{
    const int64_t codes_others = qdri_ceil_div(n_parts - 1, QDRI_CODE_PARTS_MOST);
    if (coll->kind == QDR_ALL_GATHER) return 1 + 1 + qdri_ceil_div(n_parts, QDRI_CODE_PARTS_MOST);
    if (coll->kind == QDR_REDUCE_SCATTER) return codes_others + 1 + 1;
    return is_exchange(coll, n_parts) ? 1 + 1 + 1 : codes_others + 1 + 1 + 1 + codes_others;
}

int64_t qdri_coded_launches(const qdri_coded_coll *coll, int n_parts, int64_t chunk_bytes)
{
    const int64_t unit = coll->kind != QDR_ALL_REDUCE ? coll->unit : coll->row_elems ? coll->row_elems : 1;
    const int64_t most = is_exchange(coll, n_parts) ? coll->total : part_of(coll->total, unit, n_parts, 0);
    const int64_t n_chunks = qdri_ceil_div(most, qdri_coded_chunk_elems(coll, n_parts, chunk_bytes));
    return n_chunks * launches_of_chunk(coll, n_parts);
}

int64_t qdri_coded_sent(const qdri_coded_group *group, const qdri_coded_coll *coll)
{
    const int size = group->n_nodes * group->per_node;
    const int64_t each = (int64_t)qdr_dtype_bytes(coll->dtype);
    int64_t sent = 0;
    if (coll->kind == QDR_ALL_REDUCE) return all_reduce_sent(group, coll);
    for (int j = 0; j < size; j++) {
        const int node = j / group->per_node, is_counterpart = j % group->per_node == group->index;
        const int64_t n = part_of(coll->total, coll->unit, size, j);
        if (coll->kind == QDR_REDUCE_SCATTER && !is_counterpart) sent += n * each;
        if (coll->kind == QDR_REDUCE_SCATTER && is_counterpart && node != group->node) sent += bytes_of(coll, n);
        if (coll->kind == QDR_ALL_GATHER && is_counterpart) sent += (group->per_node - 1) * n * each;
        if (coll->kind == QDR_ALL_GATHER && is_counterpart && node == group->node)
            sent += (group->n_nodes - 1) * bytes_of(coll, n);
    }
    return sent;
}
