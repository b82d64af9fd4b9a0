/* SPDX-License-Identifier: Apache-2.0 */
/* Plans from files and from the model. */
#include "choice.h"

#include <stdio.h>
#include <string.h>

#include "src/common/codecs_note.h"
#include "src/common/levels.h"

/* ---- levels ---- */

/* The words that mean the same on every grid; the search finds the grid. */
static qdr_status search_levels(const char *words, qdr_search_opts *opts, char sentence[PROBLEM_BYTES])
{
    levels parts;
    failure why = {0};
    if (!words) return QDR_OK;
    if (read_levels("levels", words, words, 1, &parts, &why) || parts.is_zero3 || levels_have_units(&parts))
        return REFUSE(sentence,
                      "--levels %.100s: --grid auto knows any, none, zero1, zero2 and GP,OP, each a number or all; for "
                      "other words give the grid",
                      words);
    opts->gradient_parts = parts.gradient;
    opts->optimizer_parts = parts.optimizer;
    opts->any_levels = parts.is_any;
    return QDR_OK;
}

static qdr_status check_given(const choice *given, char sentence[PROBLEM_BYTES])
{
    if (given->plan && (given->grid.x || given->order))
        return REFUSE(sentence, given->order ? "--plan and --order both give the axis order; leave one of them out"
                                             : "--plan and --grid both give the grid; leave one of them out");
    if (given->plan && given->levels)
        return REFUSE(sentence, "--plan and --levels both give the levels; leave one of them out");
    if (given->grid.x < 0) return search_levels(given->levels, &(qdr_search_opts){QDR_INIT(qdr_search_opts)}, sentence);
    if (given->levels && strcmp(given->levels, "any") == 0)
        return REFUSE(sentence, "--levels any is only used by --grid auto; give both, or levels such as node,all");
    return QDR_OK;
}

/* Takes what was not given from `other`. */
static void complete(choice *made, const choice *other)
{
    if (made->grid.x == 0) made->grid = other->grid;
    if (!made->order) made->order = other->order;
    if (made->layout < 0) made->layout = other->layout;
    if (made->dtype < 0) made->dtype = other->dtype;
    if (made->serial < 0) made->serial = other->serial;
    if (made->recompute < 0) made->recompute = other->recompute;
    if (!made->context) made->context = other->context;
    if (!made->batch) made->batch = other->batch;
    if (!made->micro_batch) made->micro_batch = other->micro_batch;
    if (!made->n_panels) made->n_panels = other->n_panels;
    if (!made->n_batch_parts) made->n_batch_parts = other->n_batch_parts;
}

static void take(choice *made, const qdr_plan *plan)
{
    memcpy(made->order_text, plan->order[0] ? plan->order : "xyzd", 5);
    if (made->serial < 0) made->overlap = plan->overlap;
    const qdr_recompute own[] = {[QDR_RECOMPUTE_ATTENTION] = QDR_RECOMPUTE_NONE,
                                 [QDR_RECOMPUTE_FULL] = QDR_RECOMPUTE_FULL,
                                 [QDR_RECOMPUTE_OPERATIONS] = QDR_RECOMPUTE_OPERATIONS,
                                 [QDR_RECOMPUTE_LAYERS] = QDR_RECOMPUTE_FULL}; /* of a stack, as in stack.h */
    const choice planned = {.grid = {plan->x, plan->y, plan->z, plan->d},
                            .order = made->order_text,
                            .layout = plan->layout == QDR_SCATTERED,
                            .dtype = (int)plan->dtype,
                            .serial = plan->overlap == QDR_OVERLAP_NONE,
                            .recompute = (int)own[plan->recompute],
                            .context = plan->sequence,
                            .batch = plan->batch,
                            .micro_batch = plan->micro_batch,
                            .n_panels = plan->panels,
                            .n_batch_parts = plan->batch_parts};
    made->levels = NULL;
    if (!made->codec) made->codecs = plan->codecs;
    made->gradient_parts = plan->gradient_parts;
    made->optimizer_parts = plan->optimizer_parts;
    if (made->grid.x < 0) made->grid.x = 0;
    complete(made, &planned);
}

/* ---- a plan from a file ---- */

/* Rank 0 reads the file, because the other ranks may be in another folder, or have no standard input. */
qdr_status choice_load_plan(qdr_context *ctx, choice *given)
{
    const int reads = given->plan && qdr_context_rank(ctx) == 0;
    if (!given->plan) return QDR_OK;
    qdr_stored_plan stored = {QDR_INIT(qdr_stored_plan), .network = &given->planned.network,
                              .plan = &given->planned.plan};
    stored.network->size = sizeof *stored.network;
    stored.plan->size = sizeof *stored.plan;
    qdr_status status = reads ? qdr_plan_load(given->plan, &stored) : QDR_OK;
    memcpy(given->planned.machine, stored.machine, sizeof stored.machine);
    given->planned.secs = stored.secs;
    if (status >= 0 && reads) status = qdr_plan_check(&given->planned.plan, 0);
    if (status == QDR_ERR_IO) status = QDR_ERR_ARGUMENT; /* the name was wrong */
    TRY(qdr_agree(ctx, status));
    return qdr_broadcast(ctx, 0, &given->planned, sizeof given->planned);
}

qdr_status choice_load_network(qdr_context *ctx, const char *name_or_path, qdr_network *network)
{
    *network = (qdr_network){QDR_INIT(qdr_network)};
    const qdr_status status = qdr_context_rank(ctx) == 0 ? qdr_network_load(name_or_path, network) : QDR_OK;
    TRY(qdr_agree(ctx, status == QDR_ERR_IO ? QDR_ERR_ARGUMENT : status)); /* the name was wrong */
    return qdr_broadcast(ctx, 0, network, sizeof *network);
}

/* A plan of another network says nothing about this one. The sequences may have any length; what counts is whether
 * positions are learned. */
static qdr_status check_network(const choice *made, const qdr_network *network, char sentence[PROBLEM_BYTES])
{
    const qdr_network *planned = &made->planned.network;
    qdr_network here = *network;
    qdr_network_difference difference = {QDR_INIT(qdr_network_difference)};
    here.context = planned->context;
    if (here.positions) here.positions = planned->positions ? planned->positions : planned->context;
    if (!qdr_network_differ(planned, &here, &difference)) return QDR_OK;
    return REFUSE(
        sentence,
        "--plan %.300s: it is for a network, %.63s, whose %s is %s, but here %s is %s; plan for this network, "
        "or leave the sizes to the plan",
        made->plan, planned->name, difference.key, difference.first, difference.key, difference.second);
}

/* What options, a checkpoint, or how many threads there are, have changed of it. What was planned is then another. */
static int tell_changes(const choice *made, int n_threads)
{
    const qdr_plan *plan = &made->planned.plan;
    const struct {
        const char *what, *here, *planned;
    } words[] = {{"type", qdr_dtype_name((qdr_dtype)made->dtype), qdr_dtype_name(plan->dtype)},
                 {"layout", layout_word((qdr_layout)made->layout), layout_word(plan->layout)},
                 {"recompute", recompute_word((qdr_recompute)made->recompute), recompute_word(plan->recompute)}};
    const struct {
        const char *what;
        int64_t here, planned;
    } numbers[] = {{"batch", made->batch, plan->batch},
                   {"context", made->context, plan->sequence},
                   {"micro-batch", made->micro_batch, plan->micro_batch},
                   {"panels", made->n_panels, plan->panels},
                   {"batch parts", made->n_batch_parts, plan->batch_parts},
                   {"threads", plan->threads ? n_threads : 0, plan->threads}};
    int n = 0;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(words[i].here, words[i].planned) != 0)
            fprintf(stderr, "%s %s is %s, not %s", n++ ? ";" : ", but here", words[i].what, words[i].here,
                    words[i].planned);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (numbers[i].here != numbers[i].planned)
            fprintf(stderr, "%s %s is %lld, not %lld", n++ ? ";" : ", but here", numbers[i].what,
                    (long long)numbers[i].here, (long long)numbers[i].planned);
    return n;
}

static void tell_plan(const choice *made, const qdr_network *network, int n_threads)
{
    fprintf(stderr, "plan %s: made for %s on %s", made->plan,
            made->planned.network.name[0] ? made->planned.network.name : "a network",
            made->planned.machine[0] ? made->planned.machine : "some machine");
    if (made->is_part)
        fprintf(stderr, ", of which this is one of %lld layers\n", (long long)network->layers);
    else if (tell_changes(made, n_threads))
        fputc('\n', stderr);
    else
        fprintf(stderr, ": %.4g s per step predicted\n", made->planned.secs);
}

static qdr_status take_plan(qdr_context *ctx, const qdr_network *network, choice *made, char sentence[PROBLEM_BYTES])
{
    TRY(check_network(made, network, sentence));
    take(made, &made->planned.plan);
    /* If there are too few or too many ranks, nothing will be run. */
    if (qdr_context_rank(ctx) == 0 && qdr_plan_check(&made->planned.plan, qdr_context_size(ctx)) == QDR_OK)
        tell_plan(made, network, qdr_context_threads(ctx));
    return QDR_OK;
}

/* ---- the model's choice ---- */

static grid_text grid_of(const qdr_plan *plan) { return grid_words((grid_size){plan->x, plan->y, plan->z, plan->d}); }

/* The term in which the second plan loses most, in words. */
static void tell_why(const qdr_auto_plan *chosen)
{
    if (chosen->n_grids < 2) {
        fputs("; no other grid is possible\n", stderr);
        return;
    }
    int most = 0;
    for (int term = 1; term < QDR_N_TIME_TERMS; term++)
        if (chosen->second_result->time[term] - chosen->result->time[term] >
            chosen->second_result->time[most] - chosen->result->time[most])
            most = term;
    const int waits = most >= QDR_TIME_X && most <= QDR_TIME_D;
    fprintf(stderr, "; %s would take %.2g %% longer, mostly in %s%s\n", grid_of(chosen->second_plan).text,
            100 * (chosen->second_result->secs / chosen->result->secs - 1), waits ? "waiting for " : "",
            qdr_time_term_name((qdr_time_term)most));
}

static void tell_choice(const qdr_auto_plan *chosen)
{
    const qdr_plan *plan = chosen->plan;
    fprintf(stderr, "grid auto: %s, order %s, %s, micro-batch %lld", grid_of(plan).text,
            plan->order[0] ? plan->order : "xyzd", layout_word(plan->layout), (long long)plan->micro_batch);
    if (plan->recompute) fprintf(stderr, ", recompute %s", recompute_word(plan->recompute));
    if (plan_has_levels(plan)) fprintf(stderr, ", levels %s", levels_in_words(plan).text);
    fprintf(stderr, ": %.4g s per step predicted on %s", chosen->result->secs, chosen->machine);
    tell_why(chosen);
}

/* The machine of --machine, on all ranks. */
static qdr_status load_machine(qdr_context *ctx, const char *name_or_path, qdr_machine *machine)
{
    const qdr_status status = qdr_context_rank(ctx) == 0 ? qdr_machine_load(name_or_path, machine) : QDR_OK;
    TRY(qdr_agree(ctx, status == QDR_ERR_IO ? QDR_ERR_ARGUMENT : status)); /* the name was wrong */
    return qdr_broadcast(ctx, 0, machine, sizeof *machine);
}

static double peak_of(const qdr_machine *machine, int dtype)
{
    return (dtype == QDR_F32 ? machine->f32 : dtype == QDR_F64 ? machine->f64 : machine->bf16).peak_flops;
}

static qdr_status take_best(qdr_context *ctx, const choice *usual, const qdr_network *network,
                            const qdr_machine *machine, choice *made, char sentence[PROBLEM_BYTES])
{
    qdr_network long_enough = *network;
    qdr_plan plans[] = {{QDR_INIT(qdr_plan)}, {QDR_INIT(qdr_plan)}};
    qdr_plan_result results[] = {{QDR_INIT(qdr_plan_result)}, {QDR_INIT(qdr_plan_result)}};
    qdr_auto_plan chosen = {QDR_INIT(qdr_auto_plan), .plan = &plans[0], .second_plan = &plans[1], .result = &results[0],
                            .second_result = &results[1]};
    const int talks = qdr_context_rank(ctx) == 0;
    long_enough.context = made->context;
    if (network->positions) long_enough.positions = made->context;
    qdr_search_opts opts = {QDR_INIT(qdr_search_opts),
                            .order = made->order,
                            .layouts = made->layout < 0 ? 0 : 1 << made->layout,
                            .recomputes = made->recompute < 0 ? 0 : 1 << made->recompute,
                            .micro_batch = made->micro_batch ? made->micro_batch : usual->micro_batch,
                            .batch = made->batch,
                            .sequence = made->context,
                            .dtype = (qdr_dtype)made->dtype,
                            .codecs = made->codec ? &made->codecs : NULL,
                            .panels = (int)made->n_panels,
                            .batch_parts = (int)made->n_batch_parts};
    TRY(search_levels(made->levels, &opts, sentence));
    TRY(qdr_plan_auto(ctx, &long_enough, talks && made->machine ? machine : NULL, &opts, &chosen));
    take(made, chosen.plan);
    if (talks) tell_choice(&chosen);
    return QDR_OK;
}

qdr_status choice_make(qdr_context *ctx, const choice *given, const choice *usual, const qdr_network *network,
                       choice *made, char sentence[PROBLEM_BYTES])
{
    qdr_machine machine = {QDR_INIT(qdr_machine)};
    *made = *given;
    TRY(check_given(given, sentence));
    if (given->machine) TRY(load_machine(ctx, given->machine, &machine));
    if (given->codec && qdr_codecs_parse(given->codec, &made->codecs) != QDR_OK)
        return REFUSE(sentence, "--codec %.100s: %s", given->codec, qdr_last_error());
    if (given->plan) TRY(take_plan(ctx, network, made, sentence));
    if (given->grid.x < 0) {
        const choice sizes = {.layout = -1,
                              .serial = -1,
                              .recompute = -1,
                              .dtype = usual->dtype,
                              .context = usual->context,
                              .batch = usual->batch};
        complete(made, &sizes); /* the sizes that the model needs */
        TRY(take_best(ctx, usual, network, &machine, made, sentence));
    }
    complete(made, usual);
    made->peak_flops = peak_of(&machine, made->dtype);
    return QDR_OK;
}

qdr_status choice_make_grid(qdr_context *ctx, choice *made, char sentence[PROBLEM_BYTES], qdr_grid **grid)
{
    const int p = qdr_context_size(ctx);
    if (!made->grid.x) made->grid = (grid_size){1, 1, 1, p};
    const grid_size size = made->grid;
    qdr_grid_opts opts = {QDR_INIT(qdr_grid_opts),
                          .x = size.x,
                          .y = size.y,
                          .z = size.z,
                          .d = size.d,
                          .order = made->order,
                          .gradient_parts = made->gradient_parts,
                          .optimizer_parts = made->optimizer_parts};
    failure why = {0};
    if (grid_check_ranks("", size, p, &why)) return REFUSE(sentence, "%s", why.sentence);
    if (made->levels) TRY(qdr_levels_read(ctx, made->levels, &opts));
    return qdr_grid_create(ctx, &opts, grid);
}

void choice_tell_codecs(const qdr_context *ctx, const qdr_codecs *codecs)
{
    char note[CODECS_NOTE_BYTES];
    int is_one_node = 1;
    for (int rank = 1; rank < qdr_context_size(ctx); rank++)
        is_one_node &= qdr_context_node(ctx, rank) == qdr_context_node(ctx, 0);
    codecs_note(codecs, qdr_context_size(ctx), is_one_node, note);
    if (*note && qdr_context_rank(ctx) == 0) fprintf(stderr, "%s\n", note);
}
