/* SPDX-License-Identifier: Apache-2.0 */
/* Machines found for the texts of rows, and models that are reused for later rows. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "predict/predict.h"

/* A text, and the machine that it means; sentence: why it means none. */
typedef struct known_machine {
    const char *text;
    qdr_machine machine;
    char sentence[320];
} known_machine;

/* Everything that the model knows about a network. */
enum { N_KEYS = 18 };
typedef struct network_key {
    int64_t of[N_KEYS];
} network_key;

typedef struct known_model {
    size_t machine; /* index of the machine */
    network_key key;
    qdr_model *model;
} known_model;

static const double least_utilisation = 0.005;

/* Appends one zeroed item of `bytes_each` bytes. */
static void *add_item(void *items, size_t *n, size_t bytes_each, failure *why)
{
    char *more = realloc(items, (*n + 1) * bytes_each);
    if (!more) {
        fail(why, EXIT_NOTHING_FITS, "predict: out of memory for another model");
        return NULL;
    }
    memset(more + *n * bytes_each, 0, bytes_each);
    ++*n;
    return more;
}

/* ---- machines ---- */

/* "MACHINE:KEY" is a key of that machine only. NULL: of a different machine. */
static const char *key_for(const char *key, const qdr_machine *machine)
{
    const char *colon = strchr(key, ':');
    const size_t bytes = colon ? (size_t)(colon - key) : 0;
    if (!colon) return key;
    return strncmp(key, machine->name, bytes) == 0 && !machine->name[bytes] ? colon + 1 : NULL;
}

static int apply_settings(const predictor *all, qdr_machine *machine, failure *why)
{
    for (int i = 0; i < all->n_settings; i++) {
        const char *key = key_for(all->settings[i].key, machine);
        if (key && fail_status(why, qdr_machine_set(machine, key, all->settings[i].value))) return why->code;
    }
    return all->n_settings ? fail_status(why, qdr_machine_check(machine, machine->name)) : EXIT_OK;
}

static int is_used(const predictor *all, const char *key)
{
    for (size_t i = 0; i < all->n_machines; i++)
        if (!all->machines[i].sentence[0] && key_for(key, &all->machines[i].machine)) return 1;
    return 0;
}

/* "a, b", each once, as far as they fit. */
static void names_of_machines(const predictor *all, char *names, size_t bytes)
{
    size_t used = 0;
    *names = '\0';
    for (size_t i = 0; i < all->n_machines && used < bytes; i++) {
        size_t before = 0;
        const known_machine *known = &all->machines[i];
        while (before < i && (all->machines[before].sentence[0] ||
                              strcmp(all->machines[before].machine.name, known->machine.name) != 0))
            before++;
        if (known->sentence[0] || before < i) continue;
        used += (size_t)snprintf(names + used, bytes - used, "%s%s", used ? ", " : "", known->machine.name);
    }
}

int predictor_check_settings(const predictor *all, failure *why)
{
    char names[300];
    names_of_machines(all, names, sizeof names);
    for (int i = 0; *names && i < all->n_settings; i++)
        if (!is_used(all, all->settings[i].key))
            return fail(why, EXIT_USAGE, "--set %.80s: no row is on a machine of that name; those used are %s",
                        all->settings[i].key, names);
    return EXIT_OK;
}

static int load_machine(const predictor *all, known_machine *known, failure *why)
{
    if (all->machine_name) {
        if (fail_loading(why, qdr_machine_load(all->machine_name, &known->machine))) return why->code;
    } else if (!*known->text) {
        snprintf(known->sentence, sizeof known->sentence, "machine is missing; name one with --machine");
        return EXIT_OK;
    } else if (qdr_machine_find(known->text, &known->machine) != QDR_OK) {
        snprintf(known->sentence, sizeof known->sentence, "%s", qdr_last_error());
        return EXIT_OK;
    }
    return apply_settings(all, &known->machine, why);
}

/* NULL after a failure. */
static const known_machine *find_machine(predictor *all, const char *text, failure *why)
{
    for (size_t i = 0; i < all->n_machines; i++)
        if (all->machine_name || strcmp(all->machines[i].text, text) == 0) return &all->machines[i];
    known_machine *more = add_item(all->machines, &all->n_machines, sizeof *more, why);
    if (!more) return NULL;
    all->machines = more;
    known_machine *known = &more[all->n_machines - 1];
    known->text = text;
    return load_machine(all, known, why) ? NULL : known;
}

const qdr_machine *predictor_machine(predictor *all, const char *text, const char **why_not, failure *why)
{
    const known_machine *known = find_machine(all, text, why);
    *why_not = known ? known->sentence : "";
    return known && !known->sentence[0] ? &known->machine : NULL;
}

/* ---- models ---- */

static network_key key_of(const qdr_network *n)
{
    return (network_key){{n->layers, n->hidden, n->heads, n->kv_heads, n->head_size, n->ffn, n->vocab, n->context,
                          n->positions, n->window, n->window_layers, n->gated, n->qkv_bias, n->out_bias, n->mlp_bias,
                          n->norm, 8 * n->norms_per_layer + n->parallel_residual, n->tied}};
}

/* NULL if the network is impossible, or after a failure. */
static qdr_model *find_model(predictor *all, const known_machine *known, measured_run *run, failure *why)
{
    const size_t place = (size_t)(known - all->machines);
    const network_key key = key_of(&run->network);
    for (size_t i = all->n_models; i-- > 0;)
        if (all->models[i].machine == place && memcmp(all->models[i].key.of, key.of, sizeof key.of) == 0)
            return all->models[i].model;
    qdr_model *model = NULL;
    if (qdr_model_create(&known->machine, &run->network, &model) != QDR_OK) {
        row_skip(run->why_skipped, "%.300s", qdr_last_error());
        return NULL;
    }
    known_model *more = add_item(all->models, &all->n_models, sizeof *more, why);
    if (!more) {
        qdr_model_destroy(&model);
        return NULL;
    }
    all->models = more;
    more[all->n_models - 1] = (known_model){place, key, model};
    return model;
}

void predictor_free(predictor *all)
{
    for (size_t i = 0; i < all->n_models; i++) qdr_model_destroy(&all->models[i].model);
    free(all->models);
    free(all->machines);
    *all = (predictor){.n_models = 0};
}

/* ---- rows ---- */

/* Runs that swap, hang or are broken. */
static void check_utilisation(const qdr_machine *machine, measured_run *run)
{
    qdr_network_counts counts;
    if (run->why_skipped[0] || qdr_network_params(&run->network, &counts) != QDR_OK) return;
    const double params = run->params > 0 ? run->params : (double)counts.total;
    const double tokens = (double)run->plan.batch * (double)run->plan.sequence;
    const double share = 6 * params * tokens / (run->n_gpus * run->secs * machine->bf16.peak_flops);
    if (share < least_utilisation)
        row_skip(run->why_skipped, "utilisation below %.1f %%: a broken run", 100 * least_utilisation);
}

/* Values that depend on the machine: its peak, and the number of ranks per node. */
static void complete(const qdr_machine *machine, measured_run *run)
{
    qdr_plan *plan = &run->plan;
    if (run->peak_share > 0 && !(run->secs > 0)) {
        run->tflops = 1e-12 * run->peak_share * machine->bf16.peak_flops;
        run->secs = run_flops(run) / (1e12 * run->tflops * run->n_gpus);
        if (!(run->secs > 0)) row_skip(run->why_skipped, "only pct_peak is given, and the flops cannot be counted");
    }
    if (!run->shards_in_node) return;
    const int cells = plan->z * plan->d,
              left = machine->ranks_per_node > plan->y ? machine->ranks_per_node / plan->y : 1;
    plan->z = cells < left ? cells : left;
    plan->d = cells / plan->z;
    if (plan->z * plan->d != cells)
        row_skip(run->why_skipped,
                 "HSDP: the %d ranks that tp leaves of a node do not divide dp = %d; write "
                 "HSDP COPIESxSHARDS",
                 left, cells);
}

static void predict(const qdr_machine *machine, qdr_model *model, measured_run *run)
{
    qdr_plan_result result;
    if (qdr_model_predict(model, &run->plan, &result) != QDR_OK) {
        row_skip(run->why_skipped, "%.300s", qdr_last_error());
        return;
    }
    run->predicted_secs = result.secs;
    run->predicted_bytes = result.memory_bytes;
    run->predicted_tflops = 1e-12 * run_flops(run) / (result.secs * run->n_gpus);
    run->machine_bytes = machine->memory_bytes;
}

int predictor_run(predictor *all, measured_run *run, failure *why)
{
    if (run->why_skipped[0]) return EXIT_OK;
    const known_machine *known = find_machine(all, run->machine, why);
    if (!known) return why->code;
    if (known->sentence[0])
        row_skip(run->why_skipped, "%s", known->sentence);
    else
        complete(&known->machine, run);
    check_utilisation(&known->machine, run);
    if (run->why_skipped[0]) return EXIT_OK;
    qdr_model *model = find_model(all, known, run, why);
    if (model) predict(&known->machine, model, run);
    return why->code;
}
