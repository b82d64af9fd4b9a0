/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the traces of all ranks of one run, and rejects files that do not belong together. */
#include <limits.h>
#include <math.h>
#include <quadrille_private/input.h>
#include <stdlib.h>
#include <string.h>

#include "common/json.h"
#include "trace/trace.h"

enum { VERSION = 3, MAX_RANKS = 1 << 20, MAX_NAME = 4096, MAX_BYTES = 1 << 30 };
#define MOST_MICROSECS 1e15 /* about thirty years */
#define MOST 1e18 /* the same in nanoseconds; also the limit for bytes */

const char *const trace_file_kinds[] = {"copy to host", "write", "read", NULL};

const char *trace_stream_name(int stream)
{
    if (stream == TRACE_FILES) return "file";
    return stream == 0 ? "compute" : qdr_channel_name((qdr_channel)(stream - 1));
}

/* Names stay, and numbers do not: N_TRACE_STREAMS for none. */
static int stream_named(const char *name)
{
    int stream = 0;
    while (stream < N_TRACE_STREAMS && strcmp(trace_stream_name(stream), name) != 0) stream++;
    return stream;
}

int trace_stream_axis(int stream)
{
    return trace_is_channel(stream) ? (int)qdr_channel_axis((qdr_channel)(stream - 1)) : -1;
}

void trace_position(const trace_rank *rank, char *text, size_t capacity)
{
    const int *at = rank->position;
    *text = '\0';
    if (rank->grid[0]) snprintf(text, capacity, "x%d y%d z%d d%d", at[QDR_X], at[QDR_Y], at[QDR_Z], at[QDR_D]);
}

void trace_grid(const trace_rank *rank, char *text, size_t capacity)
{
    const int *size = rank->grid, n_gradient = size[QDR_Z] * rank->near, n_state = n_gradient * rank->far;
    int n = 0;
    *text = '\0';
    if (!size[0]) return;
    n = snprintf(text, capacity, ", grid %dx%dx%dx%d", size[QDR_X], size[QDR_Y], size[QDR_Z], size[QDR_D]);
    if (n_state > size[QDR_Z])
        snprintf(text + n, capacity - (size_t)n, ", levels %d,%d: near %d, far %d, copies %d", n_gradient, n_state,
                 rank->near, rank->far, size[QDR_D] / rank->near / rank->far);
}

static int is_file_kind(const char *kind)
{
    int i = 0;
    while (trace_file_kinds[i] && strcmp(trace_file_kinds[i], kind) != 0) i++;
    return trace_file_kinds[i] != NULL;
}

static int fail_content(failure *why, const char *path, const char *what)
{
    return fail(why, EXIT_USAGE, "%.300s: %s; use a file that a program wrote with QDR_TRACE set, after it has ended",
                path, what);
}

/* ---- events ---- */

/* Truncates between characters. */
static void take_text(char *text, size_t capacity, const char *from)
{
    size_t n = strlen(from);
    if (n >= capacity)
        for (n = capacity - 1; n > 0 && ((unsigned char)from[n] & 0xc0) == 0x80;) n--;
    memcpy(text, from, n);
    text[n] = '\0';
}

/* @return NULL, or what is wrong with the event, which may be in *error */
static const char *take_event(json_t *object, const trace_rank *rank, trace_event *event, json_error_t *error)
{
    const char *name, *kind, *stream;
    double ts = 0, dur = 0;
    *event = (trace_event){0};
    if (json_unpack_ex(object, error, 0, "{s:s,s:s,s:F,s:F,s:{s:s,s:i,s:i,s:F,s:F}}", "name", &name, "cat", &kind, "ts",
                       &ts, "dur", &dur, "args", "stream", &stream, "task", &event->task, "run", &event->run, "bytes",
                       &event->bytes, "flops", &event->flops))
        return error->text;
    event->plain_bytes = event->bytes;
    if (json_unpack_ex(object, error, 0, "{s:{s?F,s?F}}", "args", "plain_bytes", &event->plain_bytes, "codec_us",
                       &event->codec_secs))
        return error->text;
    event->codec_secs *= 1e-6;
    event->stream = stream_named(stream);
    if (event->stream == N_TRACE_STREAMS) return "its stream has no known name";
    if (event->stream == TRACE_FILES && !is_file_kind(kind)) return "its cat is nothing that happens to a file";
    if (event->run < 0 || event->run == INT_MAX) return "its run is not the number of a schedule";
    if (!(event->bytes >= 0 && event->bytes <= MOST)) return "invalid byte count";
    if (!(event->plain_bytes >= 0 && event->plain_bytes <= MOST)) return "invalid plain_bytes";
    if (!(fabs(event->codec_secs) <= 1e-6 * MOST_MICROSECS)) return "invalid codec_us";
    if (!(fabs(ts) <= MOST_MICROSECS && dur >= 0 && dur <= MOST_MICROSECS)) return "it has no time";
    take_text(event->name, sizeof event->name, name);
    take_text(event->kind, sizeof event->kind, kind);
    event->begin = trace_align(rank->clocks, rank->n_clocks, 1e-6 * ts);
    event->end = fmax(event->begin, trace_align(rank->clocks, rank->n_clocks, 1e-6 * (ts + dur))); /* rounding */
    return NULL;
}

static int by_begin(const void *a, const void *b)
{
    const double x = ((const trace_event *)a)->begin, y = ((const trace_event *)b)->begin;
    return (x > y) - (x < y);
}

static int take_events(const json_t *list, const char *path, trace_file *trace, trace_rank *rank, failure *why)
{
    const size_t n = json_array_size(list);
    if (!json_is_array(list)) return fail_content(why, path, "it has no list of events");
    rank->events = calloc(n + 1, sizeof *rank->events);
    rank->work = calloc(n + 1, sizeof *rank->work);
    if (!rank->events || !rank->work) return fail_memory(why, "%.300s: out of memory for %zu events", path, n);
    for (size_t i = 0; i < n; i++) {
        json_t *object = json_array_get(list, i);
        const char *phase = json_string_value(json_object_get(object, "ph"));
        trace_event *event = &rank->events[rank->n_events];
        json_error_t error;
        if (phase && strcmp(phase, "X") != 0) continue; /* names */
        const char *wrong = phase ? take_event(object, rank, event, &error) : "it has no ph";
        if (wrong)
            return fail(why, EXIT_USAGE,
                        "%.300s: event %zu of %zu: %.150s; an event has ph, name, cat, ts, "
                        "dur, and args with stream, task, run, bytes and flops",
                        path, i + 1, n, wrong);
        if (event->run >= trace->n_runs) trace->n_runs = event->run + 1;
        rank->n_events++;
    }
    qsort(rank->events, (size_t)rank->n_events, sizeof *rank->events, by_begin);
    return EXIT_OK;
}

/* ---- the run and rank of a file ---- */

/* Levels that cut d into whole parts, or zeros if no schedule ran. */
static int are_levels(const trace_rank *rank)
{
    const int near = rank->near, far = rank->far, n_d = rank->grid[QDR_D];
    if (n_d == 0) return near == 0 && far == 0;
    return near > 0 && far > 0 && n_d % near == 0 && n_d / near % far == 0;
}

/* Sizes of a grid of all ranks and coordinates in it, or zeros if no schedule ran. */
static int is_in_grid(const trace_rank *rank, int n_ranks)
{
    int64_t product = 1;
    for (int axis = 0; axis < QDR_N_AXES; axis++) {
        const int size = rank->grid[axis], at = rank->position[axis];
        if (rank->grid[0] == 0 && (size != 0 || at != 0)) return 0;
        if (rank->grid[0] == 0) continue;
        if (size < 1 || size > n_ranks || at < 0 || at >= size) return 0;
        product *= size;
        if (product > n_ranks) return 0;
    }
    return rank->grid[0] == 0 || product == n_ranks;
}

static int take_clocks(const json_t *list, trace_rank *rank)
{
    const size_t n = json_array_size(list), most = sizeof rank->clocks / sizeof rank->clocks[0];
    if (!json_is_array(list) || n > most) return 0;
    for (size_t i = 0; i < n; i++) {
        double at = 0, ahead = 0, bound = 0;
        if (json_unpack(json_array_get(list, i), "{s:F,s:F,s:F}", "at", &at, "ahead", &ahead, "bound", &bound) ||
            fabs(at) > MOST || fabs(ahead) > MOST || !(bound >= 0 && bound <= MOST))
            return 0;
        rank->clocks[rank->n_clocks++] = (trace_clock){1e-9 * at, 1e-9 * ahead, 1e-9 * bound};
    }
    if (n < 2) return 1;
    /* Nobody's time runs backwards. */
    const trace_clock *first = &rank->clocks[0], *last = &rank->clocks[n - 1];
    return last->at <= first->at || last->ahead - first->ahead < last->at - first->at;
}

static int take_header(json_t *root, const char *path, int number, trace_file *trace, failure *why)
{
    trace_rank found = {0};
    int version = 0, n_ranks = 0, its_rank = -1, *g = found.grid, *p = found.position;
    const char *id = "";
    json_t *clocks = NULL, *header = json_object_get(root, "quadrille");
    json_int_t n_lost = 0;
    if (!header || json_unpack(header, "{s:i}", "version", &version))
        return fail_content(why, path, "it is not a Quadrille trace");
    if (version != VERSION)
        return fail(why, EXIT_USAGE,
                    "%.300s: it is a trace of version %d, this command reads version %d; use the "
                    "command that came with the library",
                    path, version, VERSION);
    if (json_unpack(header, "{s:s,s:i,s:i,s:[i,i,i,i],s:[i,i],s:[i,i,i,i],s:o,s:I}", "id", &id, "rank", &its_rank,
                    "ranks", &n_ranks, "grid", &g[0], &g[1], &g[2], &g[3], "levels", &found.near, &found.far, "place",
                    &p[0], &p[1], &p[2], &p[3], "clock", &clocks, "lost", &n_lost) ||
        !take_clocks(clocks, &found))
        return fail_content(why, path, "its description of the run is damaged");
    if (number == 0) { /* its description applies to all files */
        if (n_ranks < 1 || n_ranks > MAX_RANKS) return fail_content(why, path, "invalid rank count");
        trace->n_ranks = n_ranks;
        take_text(trace->id, sizeof trace->id, id);
        trace->ranks = calloc((size_t)n_ranks, sizeof *trace->ranks);
        if (!trace->ranks) return fail_memory(why, "%.300s: out of memory for %d ranks", path, n_ranks);
    }
    if (!is_in_grid(&found, n_ranks))
        return fail_content(why, path, "its coordinates are outside the grid of its ranks");
    if (!are_levels(&found)) return fail_content(why, path, "its levels do not divide d");
    if (n_ranks != trace->n_ranks || its_rank != number)
        return fail(why, EXIT_USAGE,
                    "%.300s: it belongs to rank %d of %d, not to rank %d of %d; files of different runs are mixed: "
                    "trace again into another folder",
                    path, its_rank, n_ranks, number, trace->n_ranks);
    if (strcmp(id, trace->id) != 0)
        return fail(why, EXIT_USAGE,
                    "%.300s: it belongs to run %.24s, rank 0's file to run %.24s; files of different runs are mixed: "
                    "trace again into another folder",
                    path, id, trace->id);
    found.n_lost = n_lost;
    trace->ranks[number] = found;
    return EXIT_OK;
}

/* ---- which ranks waited for others ---- */

/* One rank's part in a collective; the other members of its group have the same numbers. */
typedef struct share {
    int stream, group, run, number; /* number: of the collective on its stream in that schedule */
    trace_event *event;
} share;

/* Kinds in which each member needs data from each other member. */
static int meets(const trace_event *event)
{
    static const qdr_coll_kind kinds[] = {QDR_ALL_GATHER, QDR_REDUCE_SCATTER, QDR_ALL_REDUCE};
    for (size_t i = 0; trace_is_channel(event->stream) && i < sizeof kinds / sizeof kinds[0]; i++)
        if (strcmp(event->kind, qdr_coll_kind_name(kinds[i])) == 0) return 1;
    return 0;
}

/* The members of a channel: every stride-th rank of its axis, among size * stride. */
static void find_members(const trace_rank *rank, int stream, int *size, int *stride)
{
    const qdr_channel channel = (qdr_channel)(stream - 1);
    const int near = rank->near, far = rank->far;
    *size = rank->grid[qdr_channel_axis(channel)];
    *stride = 1;
    if (channel == QDR_CHANNEL_D_NEAR) *size = near;
    if (channel == QDR_CHANNEL_D_FAR) *size = far;
    if (channel == QDR_CHANNEL_D_FAR) *stride = near;
    if (channel == QDR_CHANNEL_D_COPIES) *stride = near * far;
    if (channel == QDR_CHANNEL_D_COPIES) *size /= near * far;
}

/* A number shared by the members of a channel, and by no other ranks. */
static int group_of(const trace_rank *rank, int stream)
{
    int group = 0, size, stride;
    find_members(rank, stream, &size, &stride);
    for (int axis = 0; axis < QDR_N_AXES; axis++) {
        int at = rank->position[axis];
        if (axis == trace_stream_axis(stream)) at -= at / stride % size * stride; /* the first member's */
        group = group * rank->grid[axis] + at;
    }
    return group;
}

/* Appends the shares of a rank to the list of n. */
static void add_shares(trace_rank *rank, share *list, size_t *n)
{
    int run[N_TRACE_STREAMS], number[N_TRACE_STREAMS] = {0};
    for (int stream = 0; stream < N_TRACE_STREAMS; stream++) run[stream] = -1;
    for (int64_t i = 0; i < rank->n_events; i++) {
        trace_event *event = &rank->events[i];
        const int s = event->stream;
        if (!meets(event) || !rank->grid[0]) continue;
        number[s] = event->run == run[s] ? number[s] + 1 : 0;
        run[s] = event->run;
        list[(*n)++] = (share){s, group_of(rank, s), run[s], number[s], event};
    }
}

static int by_collective(const void *a, const void *b)
{
    const share *x = a, *y = b;
    if (x->stream != y->stream) return x->stream < y->stream ? -1 : 1;
    if (x->group != y->group) return x->group < y->group ? -1 : 1;
    if (x->run != y->run) return x->run < y->run ? -1 : 1;
    return (x->number > y->number) - (x->number < y->number);
}

/* Sets `late` and `last_by` of one collective, of which these are the shares of all members. */
static void compare_begins(const share *shares, size_t n)
{
    trace_event *last = shares[0].event;
    double before = -INFINITY; /* when the last but one began */
    for (size_t i = 1; i < n; i++) {
        trace_event *event = shares[i].event;
        before = fmax(before, fmin(event->begin, last->begin));
        if (event->begin > last->begin) last = event;
    }
    if (n > 1) last->last_by = last->begin - before;
    for (size_t i = 0; i < n; i++)
        shares[i].event->late = fmin(last->begin, shares[i].event->end) - shares[i].event->begin;
}

/* Compares all collectives, if the ranks' clocks are comparable: the ranks of a group begin a collective at different
 * times, and none can end it before the last one has begun. */
static int find_late(trace_file *trace, failure *why)
{
    size_t n = 0, most = 1;
    for (int r = 0; r < trace->n_ranks; r++) {
        const trace_rank *rank = &trace->ranks[r];
        /* Times must be comparable, and all ranks in the same grid. */
        const trace_rank *other = &trace->ranks[0];
        const int is_same = memcmp(rank->grid, other->grid, sizeof rank->grid) == 0 && rank->near == other->near &&
                            rank->far == other->far;
        if (!rank->n_clocks || !is_same) return EXIT_OK;
        most += (size_t)rank->n_events;
    }
    share *list = malloc(most * sizeof *list);
    if (!list) return fail_memory(why, "trace: out of memory for %zu events", most);
    for (int r = 0; r < trace->n_ranks; r++) add_shares(&trace->ranks[r], list, &n);
    qsort(list, n, sizeof *list, by_collective);
    for (size_t begin = 0, end; begin < n; begin = end) {
        const share *first = &list[begin];
        for (end = begin + 1; end < n && by_collective(first, &list[end]) == 0;) end++;
        int n_members, stride;
        find_members(&trace->ranks[0], first->stream, &n_members, &stride);
        if ((int)(end - begin) == n_members) compare_begins(first, end - begin);
    }
    free(list);
    return EXIT_OK;
}

/* ---- files ---- */

static json_t *load(const char *path, int number, int n_ranks, failure *why)
{
    char *text;
    size_t bytes;
    const qdr_status status = qdr_input_read_text(path, MAX_BYTES, &text, &bytes);
    if (status == QDR_ERR_MEMORY)
        fail_loading(why, status);
    else if (status != QDR_OK && number == 0)
        fail(why, EXIT_USAGE, "%s; run the program with QDR_TRACE set to this name without its number, and let it end",
             qdr_last_error());
    else if (status != QDR_OK)
        fail(why, EXIT_USAGE, "%s; the run had %d ranks: bring the files of all of them into one folder",
             qdr_last_error(), n_ranks);
    if (status != QDR_OK) return NULL;
    json_t *root;
    const qdr_status parsed = qdr_json_read(text, bytes, path, &root);
    free(text);
    if (parsed == QDR_ERR_MEMORY)
        fail_loading(why, parsed);
    else if (parsed != QDR_OK)
        fail(why, EXIT_USAGE, "%s: the file is truncated or damaged: let the program end, or trace again",
             qdr_last_error());
    return root;
}

static int read_rank(const char *path, int number, trace_file *trace, failure *why)
{
    char name[MAX_NAME];
    snprintf(name, sizeof name, "%s.%d", path, number);
    json_t *root = load(name, number, trace->n_ranks, why);
    if (root && !take_header(root, name, number, trace, why))
        take_events(json_object_get(root, "traceEvents"), name, trace, &trace->ranks[number], why);
    json_decref(root);
    if (json_has_failed()) { /* whatever it was taken for */
        *why = (failure){0};
        fail_memory(why, "%.300s: out of memory", name);
    }
    return why->code;
}

int trace_read(const char *path, trace_file *trace, failure *why)
{
    *trace = (trace_file){0};
    read_rank(path, 0, trace, why);
    for (int i = 1; i < trace->n_ranks && !why->code; i++) read_rank(path, i, trace, why);
    if (why->code) return why->code;
    trace_keep_last(trace, 0);
    if (!(trace->end > trace->begin)) return fail_content(why, path, "nothing ran in it");
    return find_late(trace, why);
}

void trace_free(trace_file *trace)
{
    for (int i = 0; trace->ranks && i < trace->n_ranks; i++) {
        free(trace->ranks[i].events);
        free(trace->ranks[i].work);
    }
    free(trace->ranks);
    *trace = (trace_file){0};
}
