/* SPDX-License-Identifier: Apache-2.0 */
/* Plans as a readable table, as comma-separated values, or as JSON. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/json.h"
#include "plan/plan.h"

/* ---- why a plan is the best, or is not ---- */

/* How each term of the time appears in a sentence: "0.3 s less …". */
static const char *const phrases[QDR_N_TIME_TERMS] = {
    "in products",
    "in attention",
    "in other kernels",
    "recomputing",
    "in embedding, head and loss",
    "in the optimizer",
    "waiting for x",
    "waiting for y",
    "waiting for z",
    "waiting for d",
    "in the pipeline's bubble",
    "waiting for the host",
};

enum { MOST_TERMS = 5 };

typedef struct difference {
    int term;
    double secs;
} difference;

static int by_size(const void *a, const void *b)
{
    const difference *p = a, *q = b;
    return (fabs(p->secs) < fabs(q->secs)) - (fabs(p->secs) > fabs(q->secs));
}

/* "0.41 s less waiting for x, 0.02 s less in the optimizer, but 0.1 s more in products": the terms in which a differs
 * most from b. */
static void print_difference(FILE *file, const qdr_plan_result *a, const qdr_plan_result *b)
{
    difference all[QDR_N_TIME_TERMS];
    const int sign = a->secs > b->secs ? 1 : -1;
    for (int i = 0; i < QDR_N_TIME_TERMS; i++) all[i] = (difference){i, a->time[i] - b->time[i]};
    qsort(all, QDR_N_TIME_TERMS, sizeof *all, by_size);
    int n = 0, n_against = 0;
    for (int with = 1; with >= 0; with--)
        for (int i = 0; i < MOST_TERMS; i++) {
            const int same = all[i].secs * sign > 0;
            if (same != with || fabs(all[i].secs) < 0.02 * fabs(all[0].secs)) continue;
            const char *joint = n == 0 ? "" : !with && n_against == 0 ? ", but " : ", ";
            fprintf(file, "%s%s %s %s", joint, time_in_words(fabs(all[i].secs)).text, all[i].secs > 0 ? "more" : "less",
                    phrases[all[i].term]);
            n++;
            n_against += !with;
        }
}

static void print_choices(FILE *file, const qdr_plan *plan)
{
    fprintf(file, "%s (%s, %s, recompute %s, micro-batch %lld", grid_in_words(plan).text,
            plan->order[0] ? plan->order : "xyzd", layout_word(plan->layout), recompute_word(plan->recompute),
            (long long)plan->micro_batch);
    if (plan_has_levels(plan)) fprintf(file, ", levels %s", levels_in_words(plan).text);
    if (*codecs_in_words(plan).text) fprintf(file, ", codecs %s", codecs_in_words(plan).text);
    fputc(')', file);
}

/* The model cannot resolve smaller differences: its error is some per cent. */
#define LEAST_PERCENT 0.1

static double percent_more(double secs, double than) { return 100 * (secs / than - 1); }

/* "1x1x2x4", or "1x1x2x4 with levels 2,8 and codecs hybrid" */
static void print_grid(FILE *file, const qdr_plan *plan)
{
    const codecs_text codecs = codecs_in_words(plan);
    fputs(grid_in_words(plan).text, file);
    if (plan_has_levels(plan)) fprintf(file, " with levels %s", levels_in_words(plan).text);
    if (*codecs.text) fprintf(file, "%s codecs %s", plan_has_levels(plan) ? " and" : " with", codecs.text);
}

/* Why the best plan beats the second. */
static void print_why(FILE *file, const plan_answer *answer)
{
    const found_plans *found = &answer->found;
    const planned_grid *first = &found->best[0], *second = &found->best[1];
    print_grid(file, &first->plan);
    if (found->counts.n_best < 2) {
        const long long n_grids = (long long)found->counts.n_grids;
        if (n_grids == 1)
            fputs(" is the only grid that was looked at.", file);
        else if (answer->options->search.n_best == 1)
            fputs(" is the fastest; --top 2 says why it beats the second.", file);
        else
            fprintf(file, " is the only one of %lld grids that fits.", n_grids);
        return;
    }
    const double more = percent_more(second->result.secs, first->result.secs);
    fputs(more < LEAST_PERCENT ? " and " : " beats ", file);
    print_grid(file, &second->plan);
    if (more < LEAST_PERCENT) {
        fputs(" are equally fast according to the model.", file);
        return;
    }
    fprintf(file, " by %.2g %%: ", more);
    print_difference(file, &first->result, &second->result);
    fputc('.', file);
}

/* By how much a plan exceeds the memory, and its largest terms. */
static void print_memory(FILE *file, const plan_answer *answer, const planned_grid *planned)
{
    const double limit = answer->machine->memory_bytes;
    difference all[QDR_N_MEMORY_TERMS];
    for (int i = 0; i < QDR_N_MEMORY_TERMS; i++) all[i] = (difference){i, planned->result.memory[i]};
    qsort(all, QDR_N_MEMORY_TERMS, sizeof *all, by_size);
    print_choices(file, &planned->plan);
    fprintf(file, " needs the least memory of all plans of this grid, and still %.4g GiB too much: %.4g of %.4g GiB",
            (planned->result.memory_bytes - limit) / GIB, planned->result.memory_bytes / GIB, limit / GIB);
    const char *largest = qdr_memory_term_name((qdr_memory_term)all[0].term);
    const int is_plural = largest[strlen(largest) - 1] == 's';
    for (int i = 0; i < 3; i++)
        fprintf(file, "%s %s %.4g GiB", i ? "," : ", of which", qdr_memory_term_name((qdr_memory_term)all[i].term),
                all[i].secs / GIB);
    if (all[0].secs > limit)
        fprintf(file, "; %s alone %s %.4g GiB too large", largest, is_plural ? "are" : "is",
                (all[0].secs - limit) / GIB);
    fputc('.', file);
}

static void print_slower(FILE *file, const plan_answer *answer, const planned_grid *planned)
{
    const planned_grid *best = &answer->found.best[0];
    print_choices(file, &planned->plan);
    fprintf(file, " takes %s", time_in_words(planned->result.secs).text);
    if (answer->found.counts.n_best == 0) {
        fputs(" and fits, but the given options exclude it.", file);
        return;
    }
    if (planned->result.secs < best->result.secs) { /* its levels were not searched, or its panels not chosen */
        const why_not_question *asked = &answer->options->why_not;
        fprintf(file, ", %.3g %% less than the best of this search, which takes %s: search with ",
                100 * (1 - planned->result.secs / best->result.secs), time_in_words(best->result.secs).text);
        if (asked->has_levels)
            fprintf(file, "--levels %s.", asked->parts.words);
        else
            fprintf(file, "--fix x=%d,y=%d,z=%d,d=%d.", asked->grid.x, asked->grid.y, asked->grid.z, asked->grid.d);
        return;
    }
    if (planned->result.secs <= best->result.secs) {
        fputs(": nothing is faster.", file);
        return;
    }
    if (percent_more(planned->result.secs, best->result.secs) < LEAST_PERCENT) {
        fputs(", and according to the model nothing is faster, not even ", file);
        print_choices(file, &best->plan);
        fputc('.', file);
        return;
    }
    fprintf(file, ", %.3g %% more than ", percent_more(planned->result.secs, best->result.secs));
    print_choices(file, &best->plan);
    fprintf(file, ", which takes %s: ", time_in_words(best->result.secs).text);
    print_difference(file, &planned->result, &best->result);
    fputc('.', file);
}

int plan_print_why_not(FILE *file, plan_answer *answer, failure *why)
{
    found_plans found;
    qdr_search_opts opts = answer->options->search;
    const why_not_question *asked = &answer->options->why_not;
    const grid_size size = asked->grid;
    if (asked->has_levels) levels_search(&asked->parts, answer->machine, &opts);
    const int axes[QDR_N_AXES] = {size.x, size.y, size.z, size.d};
    memcpy(opts.ranks, axes, sizeof opts.ranks);
    opts.n_best = 1;
    if (plan_search_codecs(answer, &opts, &found, why)) return why->code;
    if (found.counts.n_candidates == 0)
        fprintf(file, "%dx%dx%dx%d has %lld cells for a batch of %lld: some would have nothing to do.", size.x, size.y,
                size.z, size.d, (long long)size.z * size.d, (long long)opts.batch);
    else if (found.counts.n_best == 0)
        print_memory(file, answer, &found.least_memory);
    else
        print_slower(file, answer, &found.best[0]);
    return EXIT_OK;
}

static const char axis_names[] = "xyzd";

static double hidden_secs(const qdr_plan_result *result, int axis)
{
    const double secs = result->busy[axis] - result->time[QDR_TIME_X + axis];
    return secs > 0 ? secs : 0;
}

static double exposed_secs(const qdr_plan_result *result, int axis) { return result->time[QDR_TIME_X + axis]; }

static double headroom(const plan_answer *answer, const plan_row *row)
{
    return answer->machine->memory_bytes - row->planned.result.memory_bytes;
}

/* @return 0: it runs here */
static int obstacle_of(const plan_answer *answer, const qdr_plan *plan, qdr_obstacle *obstacle)
{
    return !qdr_plan_runs(answer->network, plan, obstacle);
}

void plan_print_runs(const plan_answer *answer)
{
    qdr_obstacle obstacle = {QDR_INIT(qdr_obstacle)};
    if (obstacle_of(answer, &answer->rows[0].planned.plan, &obstacle))
        printf("Does not run here: %s.\n\n", obstacle.why);
    else
        puts("Runs here.\n");
}

/* A known method that --levels any would find with these options. */
static int is_found_by_any(const plan_answer *answer, const plan_row *row)
{
    const qdr_plan *plan = &row->planned.plan;
    const int size[QDR_N_AXES] = {plan->x, plan->y, plan->z, plan->d}, *fixed = answer->options->search.ranks;
    qdr_obstacle obstacle = {QDR_INIT(qdr_obstacle)};
    for (int axis = 0; axis < QDR_N_AXES; axis++)
        if (fixed[axis] && fixed[axis] != size[axis]) return 0;
    return row->is_known_method && row->has_enough && !(plan_lacks_bytes(answer, row) > 0) && plan_has_levels(plan) &&
           !(answer->options->is_runnable && obstacle_of(answer, plan, &obstacle));
}

/* Without --levels: the fastest known method that beats the best plan by its levels, if any does. */
static void tell_faster_levels(const plan_answer *answer, note_fn each, void *user)
{
    const plan_row *best = &answer->rows[0], *fastest = best;
    if (answer->options->parts.words) return;
    for (const plan_row *row = best; row < best + answer->n_rows; row++)
        if (row->planned.result.secs < fastest->planned.result.secs && is_found_by_any(answer, row)) fastest = row;
    const double more = percent_more(best->planned.result.secs, fastest->planned.result.secs);
    if (more < LEAST_PERCENT) return;
    char note[256];
    snprintf(note, sizeof note, "%s beats %s by %.2g %%; --levels any searches such plans, too", fastest->name,
             grid_in_words(&best->planned.plan).text, more);
    each(note, user);
}

/* Of the best plan. */
/* What some runs of the best plan take, whose time is the mean. */
static void tell_states(const plan_answer *answer, note_fn each, void *user)
{
    const qdr_plan_result *result = &answer->rows[0].planned.result;
    char note[QDR_MAX_STATES * 64 + 64];
    double most = 0;
    for (int i = 0; i < result->n_states; i++) most = fmax(most, result->state_secs[i]);
    if (!(most > 1.01 * result->state_secs[0])) return; /* states do not matter */
    int used = snprintf(note, sizeof note, "%.0f %% of such runs take %s", 100 * result->state_shares[0],
                        time_in_words(result->state_secs[0]).text);
    for (int i = 1; i < result->n_states; i++)
        used += snprintf(note + used, sizeof note - (size_t)used, "%s %.0f %% %s",
                         i < result->n_states - 1 ? "," : " and", 100 * result->state_shares[i],
                         time_in_words(result->state_secs[i]).text);
    each(note, user);
}

static void tell_notes(const plan_answer *answer, note_fn each, void *user)
{
    char note[LEVELS_NOTE_BYTES];
    tell_states(answer, each, user);
    plan_notes(answer->network, &answer->rows[0].planned.plan, answer->options->search.micro_batch, each, user);
    plan_levels_note(answer, note);
    if (*note) each(note, user);
    tell_faster_levels(answer, each, user);
    plan_codecs_note(&answer->options->codec, answer->machine, answer->options->search.n_ranks, each, user);
}

/* Whether any row has collectives along an axis: others have no column. */
static int has_column(const plan_answer *answer, int axis)
{
    for (const plan_row *row = answer->rows; row < answer->rows + answer->n_rows; row++)
        if (row->planned.result.busy[axis] > 0 || exposed_secs(&row->planned.result, axis) > 0) return 1;
    return 0;
}

static void print_title(const plan_answer *answer, time_unit unit)
{
    const qdr_search_opts *asked = &answer->options->search;
    const qdr_plan *best = &answer->rows[0].planned.plan;
    printf("# %s on %d rank%s of %s, %d a node: %lld sequence%s of %lld tokens a step, %s, %.4g GiB a rank\n",
           answer->network->name, asked->n_ranks, PLURAL(asked->n_ranks), answer->machine->name,
           answer->machine->ranks_per_node, (long long)best->batch, PLURAL(best->batch),
           (long long)plan_sequence(answer->network, best), qdr_dtype_name(asked->dtype),
           answer->machine->memory_bytes / GIB);
    printf("# levels: numbers of ranks that gradients and optimizer state are split over\n");
    printf("# x, y, z, d: collectives over each axis, hidden by computation + exposed%s\n",
           asked->overlap == QDR_OVERLAP_NONE ? "; nothing overlaps (--overlap off)" : "");
    char step[16];
    snprintf(step, sizeof step, "step (%s)", unit.name);
    printf("%-11s %-12s %-9s %-5s %-10s %-9s %5s %6s %5s %9s %7s %9s", "plan", "grid", "levels", "order", "layout",
           "recompute", "micro", "panels", "parts", step, "of peak", "tokens/s");
    for (int axis = 0; axis < QDR_N_AXES; axis++)
        if (has_column(answer, axis))
            printf(" %8c (%s)%*s", axis_names[axis], unit.name, 2 - (int)strlen(unit.name), "");
    printf(" %7s  %s\n", "GiB", "runs here");
}

static void print_row(const plan_answer *answer, const plan_row *row, time_unit unit)
{
    const qdr_plan *plan = &row->planned.plan;
    const qdr_plan_result *result = &row->planned.result;
    printf("%-11s %-12s %-9s %-5s %-10s %-9s %5lld %6d %5d %9.*f %6.1f%% %9.0f", row->name, grid_in_words(plan).text,
           levels_in_words(plan).text, plan->order, layout_word(plan->layout), recompute_word(plan->recompute),
           (long long)plan->micro_batch, result->panels, result->batch_parts, unit.n_digits, result->secs / unit.secs,
           100 * result->peak_share, result->tokens_per_sec);
    for (int axis = 0; axis < QDR_N_AXES; axis++) {
        const double hidden = hidden_secs(result, axis), exposed = exposed_secs(result, axis);
        if (hidden + exposed > 0)
            printf(" %6.*f+%-6.*f", unit.n_digits, hidden / unit.secs, unit.n_digits, exposed / unit.secs);
        else if (has_column(answer, axis))
            printf(" %6s %-6s", "-", "");
    }
    qdr_obstacle obstacle = {QDR_INIT(qdr_obstacle)};
    const int is_stopped = obstacle_of(answer, plan, &obstacle);
    printf(" %7.2f  %s%s", result->memory_bytes / GIB, is_stopped ? "no: " : "yes", is_stopped ? obstacle.what : "");
    const double lacks = plan_lacks_bytes(answer, row);
    if (lacks > 0) printf("  lacks %.2f GiB", lacks / GIB);
    puts(row->has_enough ? "" : "  batch too small");
}

/* The plan that -o has written. */
static void print_written(const plan_options *options, const planned_grid *best)
{
    const int pick = options->pick ? options->pick : 1;
    if (!options->out) return;
    printf("plan %d, ", pick);
    print_choices(stdout, &best[pick - 1].plan);
    printf(" in %d panel%s: written to %s\n", best[pick - 1].result.panels, PLURAL(best[pick - 1].result.panels),
           options->out);
}

void plan_print_table(const plan_answer *answer)
{
    const found_plans *found = &answer->found;
    const time_unit unit = time_unit_of(answer->rows[0].planned.result.secs);
    print_title(answer, unit);
    for (int i = 0; i < answer->n_rows; i++) print_row(answer, &answer->rows[i], unit);
    putchar('\n');
    if (found->counts.n_candidates == 1)
        printf("1 plan, which fits in %.4g GiB.\n", answer->machine->memory_bytes / GIB);
    else
        printf("%lld plans, of which at most %lld fit in %.4g GiB; %lld %s simulated, and bounds rule out the rest.\n",
               (long long)found->counts.n_candidates, (long long)found->counts.n_fitting,
               answer->machine->memory_bytes / GIB, (long long)found->counts.n_simulated,
               found->counts.n_simulated == 1 ? "was" : "were");
    print_why(stdout, answer);
    putchar('\n');
    print_written(answer->options, answer->found.best);
    plan_padding(answer->network, &answer->rows[0].planned.plan, note_print, NULL);
    tell_notes(answer, note_print, NULL);
}

void plan_print_csv(const plan_answer *answer)
{
    printf("plan,grid,order,layout,recompute,micro_batch,panels,batch_parts,gradient_parts,optimizer_parts,secs,"
           "peak_share,tokens_per_sec");
    for (int axis = 0; axis < QDR_N_AXES; axis++)
        printf(",%c_hidden_secs,%c_exposed_secs", axis_names[axis], axis_names[axis]);
    for (int i = 0; i < QDR_N_TIME_TERMS; i++)
        if (i < QDR_TIME_X || i > QDR_TIME_D) printf(",%s_secs", qdr_time_term_name((qdr_time_term)i));
    printf(",memory_bytes,headroom_bytes");
    for (int i = 0; i < QDR_N_MEMORY_TERMS; i++) printf(",%s_bytes", qdr_memory_term_name((qdr_memory_term)i));
    puts(",fits,enough_sequences,runs_here");
    for (int r = 0; r < answer->n_rows; r++) {
        const plan_row *row = &answer->rows[r];
        const qdr_plan *plan = &row->planned.plan;
        const qdr_plan_result *result = &row->planned.result;
        const levels parts = plan_levels(plan);
        printf("%s,%s,%s,%s,%s,%lld,%d,%d,%d,%d,%.9g,%.9g,%.9g", row->name, grid_in_words(plan).text, plan->order,
               layout_word(plan->layout), recompute_word(plan->recompute), (long long)plan->micro_batch, result->panels,
               result->batch_parts, parts.gradient, parts.optimizer, result->secs, result->peak_share,
               result->tokens_per_sec);
        for (int axis = 0; axis < QDR_N_AXES; axis++)
            printf(",%.9g,%.9g", hidden_secs(result, axis), exposed_secs(result, axis));
        for (int i = 0; i < QDR_N_TIME_TERMS; i++)
            if (i < QDR_TIME_X || i > QDR_TIME_D) printf(",%.9g", result->time[i]);
        printf(",%.0f,%.0f", result->memory_bytes, headroom(answer, row));
        for (int i = 0; i < QDR_N_MEMORY_TERMS; i++) printf(",%.0f", result->memory[i]);
        printf(",%d,%d,%d\n", !(plan_lacks_bytes(answer, row) > 0), row->has_enough,
               qdr_plan_runs(answer->network, plan, NULL));
    }
}

/* ---- JSON ---- */

static json_t *json_of_axes(const qdr_plan_result *result, double (*secs)(const qdr_plan_result *, int))
{
    return json_pack("{s:f, s:f, s:f, s:f}", "x", secs(result, QDR_X), "y", secs(result, QDR_Y), "z",
                     secs(result, QDR_Z), "d", secs(result, QDR_D));
}

static json_t *json_of_memory(const qdr_plan_result *result)
{
    json_t *object = json_object();
    for (int i = 0; i < QDR_N_MEMORY_TERMS; i++)
        json_object_set_new(object, qdr_memory_term_name((qdr_memory_term)i), json_real(result->memory[i]));
    return object;
}

static json_t *json_of_row(const plan_answer *answer, const plan_row *row)
{
    const qdr_plan *plan = &row->planned.plan;
    const qdr_plan_result *result = &row->planned.result;
    const levels parts = plan_levels(plan);
    const codecs_text codecs = codecs_in_words(plan);
    json_t *times = json_object();
    for (int i = 0; i < QDR_N_TIME_TERMS; i++)
        json_object_set_new(times, qdr_time_term_name((qdr_time_term)i), json_real(result->time[i]));
    json_t *object = json_pack(
        "{s:s, s:s, s:s, s:s, s:s, s:s, s:I, s:i, s:i, s:i, s:i, s:f, s:f, s:f, s:o, s:o, s:o, s:f, s:f, "
        "s:o, s:b, s:f, s:b}",
        "codecs", *codecs.text ? codecs.text : "none", "plan", row->name, "grid", grid_in_words(plan).text, "order",
        plan->order, "layout", layout_word(plan->layout), "recompute", recompute_word(plan->recompute), "micro_batch",
        (json_int_t)plan->micro_batch, "panels", result->panels, "batch_parts", result->batch_parts, "gradient_parts",
        parts.gradient, "optimizer_parts", parts.optimizer, "secs", result->secs, "peak_share", result->peak_share,
        "tokens_per_sec", result->tokens_per_sec, "hidden_secs", json_of_axes(result, hidden_secs), "exposed_secs",
        json_of_axes(result, exposed_secs), "terms_secs", times, "memory_bytes", result->memory_bytes, "headroom_bytes",
        headroom(answer, row), "memory", json_of_memory(result), "fits", !(plan_lacks_bytes(answer, row) > 0),
        "lacks_bytes", plan_lacks_bytes(answer, row), "enough_sequences", row->has_enough);
    qdr_obstacle obstacle = {QDR_INIT(qdr_obstacle)};
    const int runs = !obstacle_of(answer, plan, &obstacle);
    if (!object) return NULL;
    json_object_set_new(object, "runs_here", json_boolean(runs));
    if (!runs) json_object_set_new(object, "runs_here_why", json_string(obstacle.why));
    return object;
}

static json_t *json_of_rows(const plan_answer *answer, int are_known_methods)
{
    json_t *list = json_array();
    for (int i = 0; i < answer->n_rows; i++)
        if (answer->rows[i].is_known_method == are_known_methods)
            json_array_append_new(list, json_of_row(answer, &answer->rows[i]));
    return list;
}

/* The output of `print` as a list with one string per line. */
static json_t *json_of_lines(char *text)
{
    json_t *list = json_array();
    for (char *line = text; line && *line;) {
        char *end = strchr(line, '\n');
        if (end) *end++ = '\0';
        json_array_append_new(list, json_string(line));
        line = end;
    }
    return list;
}

static json_int_t threads_of(const qdr_search_opts *asked) { return asked->threads ? asked->threads : 1; }

static json_t *json_of_answer(const plan_answer *answer, char *const sentences[3])
{
    const qdr_search_opts *asked = &answer->options->search;
    const found_plans *found = &answer->found;
    const qdr_plan *best = &found->best[0].plan;
    json_t *padding = json_array(), *notes = json_array();
    plan_padding(answer->network, best, note_append, padding);
    tell_notes(answer, note_append, notes);
    plan_machine_notes(&answer->options->asked, answer->machine, asked->n_ranks, note_append, notes);
    json_t *object = json_pack(
        "{s:s, s:s, s:i, s:i, s:I, s:I, s:I, s:s, s:f, s:{s:I, s:I, s:I, s:I}, s:o, s:o, s:s, s:o, s:o}", "model",
        answer->network->name, "machine", answer->machine->name, "ranks", asked->n_ranks, "ranks_per_node",
        answer->machine->ranks_per_node, "threads", threads_of(asked), "batch", (json_int_t)best->batch, "sequence",
        (json_int_t)plan_sequence(answer->network, best), "dtype", qdr_dtype_name(asked->dtype), "memory_bytes",
        answer->machine->memory_bytes, "counts", "plans", (json_int_t)found->counts.n_candidates, "fitting",
        (json_int_t)found->counts.n_fitting, "bounded", (json_int_t)found->counts.n_bounded, "simulated",
        (json_int_t)found->counts.n_simulated, "plans", json_of_rows(answer, 0), "known_methods",
        json_of_rows(answer, 1), "why", sentences[0], "padding", padding, "notes", notes);
    if (object && sentences[1]) json_object_set_new(object, "why_not", json_string(sentences[1]));
    if (object && sentences[2]) {
        qdr_plan_checkpoint saved = {QDR_INIT(qdr_plan_checkpoint)};
        json_object_set_new(object, "explain", json_of_lines(sentences[2]));
        if (qdr_model_checkpoint(answer->model, best, &saved) == QDR_OK)
            json_object_set_new(object, "checkpoint", checkpoint_json(&saved));
    }
    return object;
}

/* ---- JSON where nothing fits ---- */

/* Without times: they were not computed. */
static json_t *json_of_least(const planned_grid *planned)
{
    const qdr_plan *plan = &planned->plan;
    const levels parts = plan_levels(plan);
    return json_pack("{s:s, s:s, s:s, s:I, s:i, s:i, s:f, s:o}", "grid", grid_in_words(plan).text, "layout",
                     layout_word(plan->layout), "recompute", recompute_word(plan->recompute), "micro_batch",
                     (json_int_t)plan->micro_batch, "gradient_parts", parts.gradient, "optimizer_parts",
                     parts.optimizer, "memory_bytes", planned->result.memory_bytes, "memory",
                     json_of_memory(&planned->result));
}

void plan_print_none_json(plan_answer *answer, const plan_none *none, const char *sentence)
{
    failure why = {0}, unused = {0};
    const qdr_search_opts *asked = &answer->options->search;
    const qdr_plan *least = &answer->found.least_memory.plan;
    json_t *helps = json_array(), *notes = json_array();
    for (int i = 0; i < none->n_helps; i++)
        json_array_append_new(helps, json_pack("{s:s, s:o}", "change", none->helps[i].words, "plan",
                                               json_of_least(&none->helps[i].planned)));
    plan_notes(answer->network, least, asked->micro_batch, note_append, notes);
    plan_machine_notes(&answer->options->asked, answer->machine, asked->n_ranks, note_append, notes);
    plan_codecs_note(&answer->options->codec, answer->machine, asked->n_ranks, note_append, notes);
    const qdr_fewest_ranks *f = &none->fewest;
    json_t *fewest = f->n_ranks ? json_pack("{s:i, s:b, s:o}", "ranks", f->n_ranks, "none_fewer",
                                            f->tried_to >= f->n_ranks - 1, "plan", json_of_least(&none->least))
                                : json_null();
    json_t *object = json_pack(
        "{s:s, s:s, s:i, s:i, s:I, s:I, s:I, s:s, s:f, s:b, s:s, s:[], s:o, s:o, s:o, s:o}", "model",
        answer->network->name, "machine", answer->machine->name, "ranks", asked->n_ranks, "ranks_per_node",
        answer->machine->ranks_per_node, "threads", threads_of(asked), "batch", (json_int_t)asked->batch, "sequence",
        (json_int_t)plan_sequence(answer->network, least), "dtype", qdr_dtype_name(asked->dtype), "memory_bytes",
        answer->machine->memory_bytes, "fits", 0, "why_nothing_fits", sentence, "plans", "least_memory",
        json_of_least(&answer->found.least_memory), "fewest_ranks", fewest, "helps", helps, "notes", notes);
    char *text = NULL;
    size_t bytes;
    FILE *file = object && answer->options->why_not.grid.x ? open_memstream(&text, &bytes) : NULL;
    if (file) {
        plan_print_why_not(file, answer, &why);
        fclose(file);
        json_object_set_new(object, "why_not", json_string(why.code ? why.sentence : text));
        free(text);
    }
    write_json(object, JSON_INDENT(2), "plan", &unused);
}

int plan_print_json(plan_answer *answer, failure *why)
{
    char *sentences[3] = {NULL}; /* that the text output prints */
    const int are_wanted[] = {1, answer->options->why_not.grid.x > 0, answer->options->explains};
    for (int i = 0; i < 3 && !why->code; i++) {
        size_t bytes;
        FILE *file = are_wanted[i] ? open_memstream(&sentences[i], &bytes) : NULL;
        if (are_wanted[i] && !file) fail_memory(why, "plan: out of memory for a sentence");
        if (!file) continue;
        if (i == 0) print_why(file, answer);
        if (i == 1) plan_print_why_not(file, answer, why);
        if (i == 2) fail_status(why, qdr_model_explain(answer->model, &answer->found.best[0].plan, file));
        fclose(file);
    }
    if (!why->code) write_json(json_of_answer(answer, sentences), JSON_INDENT(2), "plan", why);
    for (int i = 0; i < 3; i++) free(sentences[i]);
    return why->code;
}
