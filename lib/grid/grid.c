/* SPDX-License-Identifier: Apache-2.0 */
/* The 4D grid: coordinates, and one communicator for each axis and direction of use. */
#include "quadrille/grid.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/group.h"
#include "core/size.h"
#include "core/sized.h"
#include "grid/internal.h"
#include "grid/shape.h"

/* Names the members of a channel. */
typedef struct channel_names {
    const qdr_grid *grid;
    qdr_axis axis;
    qdri_channel_group group;
} channel_names;

struct qdr_grid {
    qdri_life life;
    qdr_context *ctx;
    qdri_grid_shape shape;
    qdri_position position; /* of this rank */
    qdri_comm *comms[QDR_N_CHANNELS];
    channel_names names[QDR_N_CHANNELS];
    qdr_stream *streams[QDR_N_CHANNELS]; /* NULL for statistics */
    const char *label;
    qdri_retained *retained;
};

static void describe_member(const void *user, int member, char *text, size_t capacity)
{
    const channel_names *names = user;
    int at[QDR_N_AXES];
    memcpy(at, names->grid->position.coordinate, sizeof at);
    at[names->axis] = names->group.first + member * names->group.stride;
    snprintf(text, capacity, "rank %d at x=%d y=%d z=%d d=%d", qdri_shape_rank(&names->grid->shape, at), at[QDR_X],
             at[QDR_Y], at[QDR_Z], at[QDR_D]);
}

/* ---- memory that outlives the call that enqueued work on it ---- */

static void retained_free(qdri_dev *dev, qdri_retained *retained)
{
    qdri_mem_free(dev, &retained->device);
    qdri_event_destroy(&retained->done);
    free(retained->host);
    free(retained);
}

/* Frees what no work uses any more (or all). */
static void retained_sweep(qdr_grid *grid, int all)
{
    qdri_dev *dev = qdri_context_dev(grid->ctx);
    qdri_retained **link = &grid->retained;
    while (*link) {
        qdri_retained *retained = *link;
        if (all || (retained->is_released && qdri_event_reached(retained->done))) {
            *link = retained->next;
            retained_free(dev, retained);
        } else {
            link = &retained->next;
        }
    }
}

qdr_status qdri_retained_create(qdr_grid *grid, size_t host_bytes, qdri_retained **retained)
{
    qdri_dev *dev = qdri_context_dev(grid->ctx);
    qdri_retained *made = NULL;
    *retained = NULL;
    retained_sweep(grid, 0);
    QDR_TRY(qdri_context_record_needs(grid->ctx, &grid->life));
    QDR_TRY(QDRI_NEW(1, "retained memory", &made));
    qdr_status status = qdri_calloc(host_bytes, 1, "retained arrays", &made->host);
    if (status == QDR_OK) status = qdri_event_create(dev, &made->done);
    if (status != QDR_OK) {
        retained_free(dev, made);
        return status;
    }
    made->next = grid->retained;
    grid->retained = made;
    *retained = made;
    return QDR_OK;
}

void qdri_retained_release(qdr_grid *grid, qdri_retained *retained, qdr_stream *stream)
{
    /* A recorded step uses it repeatedly, and a poisoned stream runs no more work: then it is freed with the grid. */
    if (qdri_context_is_recording(grid->ctx)) return;
    retained->is_released = qdri_event_record(retained->done, stream) == QDR_OK;
}

/* ---- creating and destroying ---- */

static void grid_end(qdri_life *life)
{
    qdr_grid *grid = (qdr_grid *)life;
    qdri_life *ctx = qdri_context_life(grid->ctx);
    for (int channel = 0; channel < QDR_N_CHANNELS; channel++) qdri_stream_destroy(&grid->streams[channel]);
    retained_sweep(grid, 1);
    for (int channel = QDR_N_CHANNELS - 1; channel >= 0; channel--) qdri_comm_destroy(&grid->comms[channel]);
    free(grid);
    qdri_life_drop(ctx);
}

/* What this rank can create alone: streams, and groups of one. */
static qdr_status create_alone(qdr_grid *grid)
{
    qdri_dev *dev = qdri_context_dev(grid->ctx);
    for (int channel = 0; channel < QDR_N_CHANNELS; channel++) {
        if (!qdri_is_statistics((qdr_channel)channel))
            QDR_TRY(qdri_stream_create(dev, QDRI_STREAM_COMM, &grid->streams[channel]));
        if (qdr_grid_channel_size(grid, (qdr_channel)channel) == 1)
            QDR_TRY(qdri_comm_create_self(dev, &grid->comms[channel]));
    }
    return QDR_OK;
}

/* Groups of several ranks. */
static int count_parts(const qdr_grid *grid)
{
    int n = 0;
    for (int channel = 0; channel < QDR_N_CHANNELS; channel++)
        n += qdr_grid_channel_size(grid, (qdr_channel)channel) > 1;
    return n;
}

static qdr_status create_checked(qdr_context *ctx, const qdri_grid_shape *shape, qdr_grid **grid)
{
    qdri_comm *world = qdri_context_world(ctx);
    qdr_grid *made = NULL;
    qdr_status status = QDRI_NEW(1, "a grid", &made);
    if (status == QDR_OK) {
        qdri_life_begin(&made->life, grid_end);
        qdri_life_keep(qdri_context_life(ctx));
        made->ctx = ctx;
        made->shape = *shape;
        qdri_shape_position(shape, qdri_comm_rank(world), &made->position);
        status = create_alone(made);
    }
    QDR_TRY_OUT(status, qdri_comm_agree(world, status));
    qdri_comm_expect_parts(world, count_parts(made)); /* NOLINT(clang-analyzer-core.NullDereference): agreed on */
    for (int channel = 0; channel < QDR_N_CHANNELS; channel++) {
        const qdr_axis axis = qdr_channel_axis((qdr_channel)channel);
        const qdri_channel_group group = qdri_channel_group_of(&made->position, (qdr_channel)channel);
        int first[QDR_N_AXES];
        memcpy(first, made->position.coordinate, sizeof first);
        first[axis] = group.first;
        /* Ranks that differ only in the channel's axis form a group, or several, ordered by that coordinate. */
        if (!made->comms[channel]) /* the same on all ranks */
            QDR_TRY_OUT(status,
                        qdri_comm_split(world, qdri_shape_rank(shape, first), group.index, &made->comms[channel]));
        made->names[channel] = (channel_names){made, axis, group};
        qdri_comm_set_names(made->comms[channel], qdr_channel_name((qdr_channel)channel), describe_member,
                            &made->names[channel]);
    }
    *grid = made; /* NOLINT(clang-analyzer-core.NullDereference): agreed on, not NULL */
    return QDR_OK;
out:
    qdr_grid_destroy(&made);
    return status;
}

qdr_status qdr_grid_create(qdr_context *ctx, const qdr_grid_opts *opts, qdr_grid **grid)
{
    qdri_grid_shape shape;
    qdr_grid_opts own;
    if (grid) *grid = NULL;
    if (!ctx) return QDR_FAIL(QDR_ERR_ARGUMENT, "grid: the context is NULL");
    QDR_TRY(qdri_dev_raise(qdri_context_dev(ctx)));
    qdri_comm *world = qdri_context_world(ctx);
    qdr_status status = QDRI_TAKE(qdr_grid_opts, opts, &own);
    if (status == QDR_OK) status = qdri_shape_read(&own, qdri_comm_size(world), &shape);
    if (status == QDR_OK && !grid) status = QDR_FAIL(QDR_ERR_ARGUMENT, "grid: the result pointer is NULL");
    QDR_TRY(qdri_comm_agree(world, status));
    qdri_grid_shape first = shape; /* all ranks must request the same grid as rank 0 */
    status = qdri_comm_broadcast(world, 0, &first, sizeof first);
    if (status == QDR_OK && memcmp(&first, &shape, sizeof first) != 0) {
        char mine[96], wanted[96];
        qdri_shape_words(&shape, mine, sizeof mine);
        qdri_shape_words(&first, wanted, sizeof wanted);
        status = QDR_FAIL(QDR_ERR_ARGUMENT, "grid: rank %d asks for %s, rank 0 for %s; all ranks must ask for the same",
                          qdri_comm_rank(world), mine, wanted);
    }
    QDR_TRY(qdri_comm_agree(world, status));
    return create_checked(ctx, &shape, grid);
}

/* Waits for all work, even if something that needs the grid keeps it alive. */
void qdr_grid_destroy(qdr_grid **grid)
{
    if (!grid || !*grid) return;
    qdr_grid *gone = *grid;
    *grid = NULL;
    qdri_context_end_record(gone->ctx);
    qdr_status status = qdri_stream_synchronize(qdr_context_stream(gone->ctx));
    for (int channel = 0; channel < QDR_N_CHANNELS; channel++)
        if (gone->streams[channel]) status = qdri_stream_synchronize(gone->streams[channel]);
    for (int channel = 0; channel < QDR_N_CHANNELS; channel++) qdri_comm_drain(gone->comms[channel]);
    (void)status; /* statistics, retained memory and collectives are complete, or dropped */
    qdri_life_drop(&gone->life);
}

/* ---- for higher modules ---- */

qdri_life *qdri_grid_life(qdr_grid *grid) { return &grid->life; }

qdri_comm *qdri_grid_comm(const qdr_grid *grid, qdr_channel channel) { return grid->comms[channel]; }

/* By member of a channel, the number of its node. */
static qdr_status find_nodes(const qdr_grid *grid, qdr_channel channel, int **nodes)
{
    const channel_names *names = &grid->names[channel];
    const qdri_comm *world = qdri_context_world(grid->ctx);
    int at[QDR_N_AXES];
    QDR_TRY(QDRI_NEW(names->group.size, "nodes of a channel's members", nodes));
    memcpy(at, grid->position.coordinate, sizeof at);
    for (int j = 0; j < names->group.size; j++) {
        at[names->axis] = names->group.first + j * names->group.stride;
        (*nodes)[j] = qdri_comm_node_of(world, qdri_shape_rank(&grid->shape, at));
    }
    return QDR_OK;
}

qdr_status qdri_grid_coded_group(const qdr_grid *grid, qdr_channel channel, qdri_coded_group *group)
{
    const qdri_channel_group *members = &grid->names[channel].group;
    int *nodes = NULL;
    QDR_TRY(find_nodes(grid, channel, &nodes));
    *group = qdri_coded_group_of(nodes, members->size, members->index);
    free(nodes);
    return QDR_OK;
}

qdr_status qdri_grid_compress(qdr_grid *grid, qdr_channel channel)
{
    int *nodes = NULL;
    if (grid->names[channel].group.size == 1 || qdri_comm_is_compressed(grid->comms[channel])) return QDR_OK;
    qdr_status status = qdri_comm_agree(grid->comms[channel], find_nodes(grid, channel, &nodes));
    if (status == QDR_OK) status = qdri_comm_compress(&grid->comms[channel], nodes);
    free(nodes);
    return status;
}

qdr_stream *qdri_grid_stream(const qdr_grid *grid, qdr_channel channel) { return grid->streams[channel]; }

qdr_stream *qdri_stream_or_default(const qdr_grid *grid, qdr_stream *stream)
{
    return stream ? stream : qdr_context_stream(grid->ctx);
}

const char *qdri_grid_order(const qdr_grid *grid) { return grid->shape.order; }

void qdri_grid_locate(const qdr_grid *grid, int rank, int coordinates[QDR_N_AXES])
{
    qdri_shape_locate(&grid->shape, rank, coordinates);
}

const qdri_position *qdri_grid_position(const qdr_grid *grid) { return &grid->position; }

void qdri_grid_words(const qdr_grid *grid, char *text, size_t capacity)
{
    qdri_shape_words(&grid->shape, text, capacity);
}

void qdri_grid_set_label(qdr_grid *grid, const char *label) { grid->label = label; }

const char *qdri_grid_label(const qdr_grid *grid, const char *otherwise)
{
    return grid->label ? grid->label : otherwise;
}

/* ---- queries ---- */

static int is_axis(const qdr_grid *grid, qdr_axis axis) { return grid && (unsigned)axis < QDR_N_AXES; }

qdr_context *qdr_grid_context(const qdr_grid *grid) { return grid ? grid->ctx : NULL; }
int qdr_grid_size(const qdr_grid *grid, qdr_axis axis) { return is_axis(grid, axis) ? grid->shape.sizes[axis] : 0; }
int qdr_grid_coordinate(const qdr_grid *grid, qdr_axis axis)
{
    return is_axis(grid, axis) ? grid->position.coordinate[axis] : -1;
}

int qdr_grid_rank_at(const qdr_grid *grid, const int coordinates[QDR_N_AXES])
{
    if (!grid || !coordinates) return -1;
    for (int axis = 0; axis < QDR_N_AXES; axis++)
        if (coordinates[axis] < 0 || coordinates[axis] >= grid->shape.sizes[axis]) return -1;
    return qdri_shape_rank(&grid->shape, coordinates);
}

qdr_status qdr_grid_coordinates_of(const qdr_grid *grid, int rank, int coordinates[QDR_N_AXES])
{
    if (coordinates) memset(coordinates, 0, QDR_N_AXES * sizeof *coordinates);
    if (!grid || !coordinates) return QDR_FAIL(QDR_ERR_ARGUMENT, "grid: the grid or the coordinates pointer is NULL");
    const int size = qdr_context_size(grid->ctx);
    if (rank < 0 || rank >= size) return QDR_FAIL(QDR_ERR_ARGUMENT, "grid: rank %d is not in 0 … %d", rank, size - 1);
    qdri_shape_locate(&grid->shape, rank, coordinates);
    return QDR_OK;
}

int qdr_grid_neighbour(const qdr_grid *grid, qdr_axis axis, int step)
{
    if (!is_axis(grid, axis)) return -1;
    const int size = grid->shape.sizes[axis];
    int coordinates[QDR_N_AXES];
    memcpy(coordinates, grid->position.coordinate, sizeof coordinates);
    coordinates[axis] = (coordinates[axis] + step % size + size) % size;
    return qdri_shape_rank(&grid->shape, coordinates);
}

size_t qdr_grid_picture(const qdr_grid *grid, char *text, size_t capacity)
{
    if (text && capacity) text[0] = '\0';
    return grid ? qdri_shape_picture(&grid->shape, text, capacity) : 0;
}

static int is_level(const qdr_grid *grid, qdr_level level) { return grid && (unsigned)level < QDR_N_LEVELS; }

int qdr_grid_parts(const qdr_grid *grid, qdr_level level)
{
    return is_level(grid, level) ? grid->shape.levels.of[level] : 0;
}

/* Those of d that cut its shard, the nearest first. */
int qdr_grid_part(const qdr_grid *grid, qdr_level level)
{
    if (!is_level(grid, level)) return -1;
    int part = grid->position.coordinate[QDR_Z];
    for (int inner = QDR_LEVEL_WEIGHTS; inner < (int)level; inner++) {
        const qdr_channel channel = inner == QDR_LEVEL_WEIGHTS ? QDR_CHANNEL_D_NEAR : QDR_CHANNEL_D_FAR;
        const qdri_channel_group group = qdri_channel_group_of(&grid->position, channel);
        part = part * group.size + group.index;
    }
    return part;
}

int qdr_grid_channel_size(const qdr_grid *grid, qdr_channel channel)
{
    if (!grid || (unsigned)channel >= QDR_N_CHANNELS) return 0;
    return qdri_channel_group_of(&grid->position, channel).size;
}

qdr_status qdr_grid_traffic(const qdr_grid *grid, qdr_channel channel, qdr_coll_kind kind, qdr_traffic *traffic)
{
    QDR_TRY(QDRI_CLEAR(qdr_traffic, traffic));
    if (!grid || (unsigned)channel >= QDR_N_CHANNELS || (unsigned)kind >= QDR_N_COLL_KINDS)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "traffic: the grid is NULL, or it has no channel %d or kind of collective %d",
                        (int)channel, (int)kind);
    const qdr_traffic own = qdri_comm_traffic(grid->comms[channel], kind);
    QDRI_GIVE(qdr_traffic, traffic, &own);
    return QDR_OK;
}

void qdr_grid_reset_traffic(qdr_grid *grid)
{
    for (int channel = 0; grid && channel < QDR_N_CHANNELS; channel++) qdri_comm_reset_traffic(grid->comms[channel]);
}
