/* SPDX-License-Identifier: Apache-2.0 */
#include "train_settings.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpt.h"

enum { NOT_GIVEN = -1 };

const settings settings_begin = {
    .how = {.layout = -1, .dtype = -1, .serial = -1, .recompute = -1},
    .n_layers = NOT_GIVEN,
    .hidden = NOT_GIVEN,
    .ffn = NOT_GIVEN,
    .n_heads = NOT_GIVEN,
    .vocab = NOT_GIVEN,
    .epsilon = NOT_GIVEN,
    .n_steps = NOT_GIVEN,
    .warmup = NOT_GIVEN,
    .seed = NOT_GIVEN,
    .lr = NOT_GIVEN,
    .weight_decay = NOT_GIVEN,
    .clip = NOT_GIVEN,
    .loss_scale = NOT_GIVEN,
    .stddev = NOT_GIVEN,
    .n_sample = 400,
    .temperature = 0.8,
    .every = 30,
};

#define AT(member) .at = offsetof(settings, member)

const option_spec settings_specs[] = {
    CHOICE_SPECS,
    {"model", .kind = OPTION_HEADING},
    {"model", 0, "NAME|FILE",
     "train this network, a name of `quadrille list models` or a config.json; without it that of the checkpoint or of "
     "the plan, else a GPT-2 of the sizes that follow, which must be those of the network where there is one",
     OPTION_TEXT, AT(model)},
    {"layers", 0, "N", "transformer blocks (default 4)", OPTION_COUNT, AT(n_layers), 1, 1024},
    {"hidden", 0, "N", "features (default 128)", OPTION_COUNT, AT(hidden), 1, 1 << 20},
    {"ffn", 0, "N", "features inside the MLP of a block (default 4 times --hidden)", OPTION_COUNT, AT(ffn), 1, 1 << 24},
    {"heads", 0, "N", "attention heads; must divide --hidden (default 4)", OPTION_COUNT, AT(n_heads), 1, 1 << 16},
    {"vocab", 0, "N", "tokens that there are; of text at least 256 (default 256)", OPTION_COUNT, AT(vocab), 1, 1 << 24},
    {"ctx", 0, "N",
     "tokens per sequence, which are bytes of a text (default 128, or fewer if the network has fewer positions)",
     OPTION_COUNT, AT(how.context), 1, 1 << 20},
    {"dtype", 0, "f32|f64|bf16|f16", "type of parameters and activations (default f32)", OPTION_DTYPE, AT(how.dtype)},
    {"epsilon", 0, "X", "what norms add to the variance (default 1e-05)", OPTION_REAL, AT(epsilon), 1e-30, 1},
    {"tie", 0, NULL, "share the embedding's weights with the head", OPTION_FLAG, AT(tied)},
    {"init", 0, "STDDEV", "standard deviation of the initial weights (default 0.08)", OPTION_REAL, AT(stddev), 0, 10},
    {"data", .kind = OPTION_HEADING},
    {"data", 0, "FILE[:WEIGHT],...",
     "in the place of the text: files of tokens, as llm.c, modded-nanogpt, NeMo, Megatron (.bin beside .idx) and NumPy "
     "write them, or texts; sources may be patterns, such as 'shards/*.bin', and have sequences in proportion to their "
     "weights (default 1 each)",
     OPTION_TEXT, AT(data)},
    {"tokens", 0, "found|uint16|uint32|int32|text",
     "what files are; found: as their first bytes say; otherwise all of a file is such numbers, or bytes of text "
     "(default found)",
     OPTION_CHOICE, AT(tokens)},
    {"documents", 0, "TOKEN|idx",
     "sequences have several documents, which do not see each other: they end after this token, or where Megatron's "
     ".idx says (default: no documents)",
     OPTION_TEXT, AT(documents)},
    {"training", .kind = OPTION_HEADING},
    {"steps", 0, "N", "optimizer steps; 0: only validate and sample (default 2000)", OPTION_COUNT, AT(n_steps), 0,
     100000000},
    {"batch", 0, "N", "sequences per optimizer step, over all ranks (default 4)", OPTION_COUNT, AT(how.batch), 1,
     1 << 24},
    {"micro-batch", 0, "N", "sequences per forward pass in each (z,d) cell (default: all)", OPTION_COUNT,
     AT(how.micro_batch), 1, 1 << 24},
    {"recompute-every", 0, "K", "with --recompute full: keep only what enters K layers (default 1)", OPTION_COUNT,
     AT(recompute_every), 1, 1024},
    {"lr", 0, "RATE", "peak learning rate (default 0.003)", OPTION_REAL, AT(lr), 0, 10},
    {"warmup", 0, "N", "warm-up steps to the peak rate, at most a quarter of all steps (default 100)", OPTION_COUNT,
     AT(warmup), 0, 100000000},
    {"weight-decay", 0, "X", "weight decay, for matrices only (default 0.3)", OPTION_REAL, AT(weight_decay), 0, 10},
    {"loss-scale", 0, "S", "loss scale in the backward pass (default 1024 for f16, else 1)", OPTION_REAL,
     AT(loss_scale), 0, 1e12},
    {"clip", 0, "NORM", "maximum gradient norm; 0: no clipping (default 1)", OPTION_REAL, AT(clip), 0, 1e9},
    {"seed", 0, "N", "seed of weights, batches and sample; it gives the same batches on every grid (default 1)",
     OPTION_COUNT, AT(seed), 0, 1e15},
    {"codec-after", 0, "N", "train N steps without codecs first", OPTION_COUNT, AT(codec_after), 0, 100000000},
    {"codec-guard", 0, "X",
     "go on with the codecs 'safe' once the mean loss of 50 steps is X nats above its least; with f16 also after a "
     "loss that is not finite, whose step is skipped",
     OPTION_REAL, AT(codec_guard), 0, 100},
    {"checkpoints", .kind = OPTION_HEADING},
    {"save", 0, "FILE",
     "save parameters, optimizer and position in the text at the end, and when SIGTERM, SIGINT or SIGUSR1 ends the "
     "run (a second one ends it at once, as the first one does without --save)",
     OPTION_TEXT, AT(save)},
    {"save-every", 0, "N", "save every N steps, too", OPTION_COUNT, AT(save_every), 1, 100000000},
    {"save-background", 0, "on|off", "train on while a copy is written (default on)", OPTION_CHOICE, AT(in_foreground)},
    {"keep", 0, "N", "older checkpoints to keep, as FILE.1, FILE.2 ... (default 0)", OPTION_COUNT, AT(keep), 0, 1000},
    {"resume", 0, "FILE|auto",
     "continue a run; sizes, type, batch, seed and schedule that are not given are taken from it; auto: from "
     "--save, or from FILE.1 ... if it is damaged or gone, or from the beginning",
     OPTION_TEXT, AT(resume)},
    {"load", 0, "FILE",
     "begin with the parameters and the network of a checkpoint, or of what quadrille ckpt convert has written (with "
     "--resume auto if there is nothing to continue); a shorter --ctx takes the first of its learned positions",
     OPTION_TEXT, AT(load)},
    {"stop-after", 0, "N", "end the run after N steps as a signal would: save, and exit", OPTION_COUNT, AT(stop_after),
     1, 100000000},
    {"output", .kind = OPTION_HEADING},
    {"log", 0, "FILE",
     "JSON Lines: a line about the run, then one per step, marked \"again\" if an older log has it; an older file is "
     "kept as FILE.1, FILE.2 ...",
     OPTION_TEXT, AT(log)},
    {"every", 0, "SECS",
     "print the step, losses, speed, time left, share of the peak (of --machine, else of the products' rate measured "
     "at the start), share of the time in which ranks waited for communication (exposed; mean over ranks) and the "
     "largest rank's memory every SECS where standard error is not a terminal; 0: with validations only (default 30)",
     OPTION_REAL, AT(every), 0, 1e6},
    {"plot", 0, "FILE", "draw the loss curve as SVG", OPTION_PICTURE, AT(plot)},
    {"val-every", 0, "N", "steps between validations (default: a tenth of --steps)", OPTION_COUNT, AT(validate_every),
     1, 1e8},
    {"val-windows", 0, "N",
     "sequences per validation, spread evenly over the validation text, the last tenth (default: at most 256, at the "
     "end as many as fit)",
     OPTION_COUNT, AT(n_windows), 1, 1 << 24},
    {"eval", 0, "FILE|val",
     "do not train: read all of FILE, or the validation text, in consecutive windows of --ctx, and print the mean "
     "loss, the perplexity and the number of tokens that were predicted (all but the first one) as JSON",
     OPTION_TEXT, AT(eval)},
    {"sample", 0, "N", "tokens to generate at the end, which are bytes of a text (default 400)", OPTION_COUNT,
     AT(n_sample), 0, 1 << 24},
    {"prompt", 0, "TEXT", "text that the sample continues (default: a newline); of tokens their numbers (default: 0)",
     OPTION_TEXT, AT(prompt)},
    {"temperature", 0, "X", "sampling temperature; 0: always the likeliest byte (default 0.8)", OPTION_REAL,
     AT(temperature), 0, 100},
    {"late", 0, "RANK:SECONDS", "diagnostic: delay one rank once, halfway through the steps", OPTION_TEXT, AT(late)},
    OPTIONS_END,
};

/* ---- completing ---- */

/* The numbers that a checkpoint has, by their keys in its note. */
static const struct {
    const char *key;
    size_t at;
    double usual;
    int is_real;
} numbers[] = {
    {"steps", offsetof(settings, n_steps), 2000, 0},
    {"warmup", offsetof(settings, warmup), 100, 0},
    {"seed", offsetof(settings, seed), 1, 0},
    {"lr", offsetof(settings, lr), 3e-3, 1},
    {"weight_decay", offsetof(settings, weight_decay), 0.3, 1},
    {"clip", offsetof(settings, clip), 1, 1},
    {"loss_scale", offsetof(settings, loss_scale), 0, 1},
    {"init", offsetof(settings, stddev), 0.08, 1},
};
enum { N_NUMBERS = sizeof numbers / sizeof *numbers };

/* The sizes that options give, by the names of these and by the keys in notes of older files. */
static const struct {
    const char *key;
    size_t at, in_network;
    double usual; /* 0: it follows from the others */
    int is_real;
} sizes[] = {
    {"layers", offsetof(settings, n_layers), offsetof(qdr_network, layers), 4, 0},
    {"hidden", offsetof(settings, hidden), offsetof(qdr_network, hidden), 128, 0},
    {"ffn", offsetof(settings, ffn), offsetof(qdr_network, ffn), 0, 0},
    {"heads", offsetof(settings, n_heads), offsetof(qdr_network, heads), 4, 0},
    {"vocab", offsetof(settings, vocab), offsetof(qdr_network, vocab), N_BYTES, 0},
    {"epsilon", offsetof(settings, epsilon), offsetof(qdr_network, norm_epsilon), 1e-5, 1},
};
enum { N_SIZES = sizeof sizes / sizeof *sizes };

static double get(const void *all, size_t at, int is_real)
{
    const char *member = (const char *)all + at;
    return is_real ? *(const double *)(const void *)member : (double)*(const int64_t *)(const void *)member;
}

static void put(void *all, size_t at, int is_real, double value)
{
    char *member = (char *)all + at;
    if (is_real)
        *(double *)(void *)member = value;
    else
        *(int64_t *)(void *)member = (int64_t)value;
}

/* The option that sets a member: its range is also that of what a file says. */
static const option_spec *spec_of(size_t at)
{
    const option_spec *spec = settings_specs;
    while (spec->at != at || (spec->kind != OPTION_COUNT && spec->kind != OPTION_REAL)) spec++;
    return spec;
}

static qdr_status take_number(const saved_run *saved, const char *key, size_t at, double *value,
                              char sentence[PROBLEM_BYTES])
{
    char remedy[32];
    const option_spec *spec = spec_of(at);
    snprintf(remedy, sizeof remedy, "give --%s", spec->name);
    const saved_range range = {spec->min, spec->max, spec->kind == OPTION_COUNT, remedy};
    return saved_run_number(saved, key, &range, value, sentence);
}

/* What the note of an older file says of its GPT-2, beside what its tensors do. */
static qdr_status take_noted(settings *set, int i, const saved_run *saved, char sentence[PROBLEM_BYTES])
{
    const double stored = get(&set->network, sizes[i].in_network, sizes[i].is_real);
    double noted = stored;
    TRY(take_number(saved, sizes[i].key, sizes[i].at, &noted, sentence));
    if (stored > 0 && (noted < stored || noted > stored))
        return REFUSE(sentence, "%.300s: its note has \"%s\": %g, but its tensors %g; use another copy of the file",
                      saved->path, sizes[i].key, noted, stored);
    put(&set->network, sizes[i].in_network, sizes[i].is_real, noted);
    if (noted <= 0 && set->n_heads < 0 && strcmp(sizes[i].key, "heads") == 0)
        return REFUSE(sentence,
                      "%.300s does not say how many heads it has; give --heads, or convert it again with its "
                      "config.json beside it",
                      saved->path);
    return QDR_OK;
}

/* What is given must be what the network has, or is what it lacks. */
static qdr_status take_size(settings *set, int i, char sentence[PROBLEM_BYTES])
{
    const int is_real = sizes[i].is_real;
    const double known = get(&set->network, sizes[i].in_network, is_real), given = get(set, sizes[i].at, is_real);
    if (known > 0 && given >= 0 && (given < known || given > known))
        return REFUSE(sentence, "--%s %g, but that of %.300s is %g; leave out --%s", sizes[i].key, given, set->source,
                      known, sizes[i].key);
    if (known <= 0) put(&set->network, sizes[i].in_network, is_real, given >= 0 ? given : sizes[i].usual);
    return QDR_OK;
}

static qdr_status make_gpt(settings *set, char sentence[PROBLEM_BYTES])
{
    const int64_t hidden = set->network.hidden, heads = set->network.heads;
    int64_t fits = heads < hidden ? heads : hidden;
    while (hidden % fits) fits--;
    if (hidden % heads)
        return REFUSE(sentence, "--heads %lld does not divide the %lld features of a byte; use --heads %lld",
                      (long long)heads, (long long)hidden, (long long)fits);
    set->network = gpt_network(set->network);
    return QDR_OK;
}

/* A --model beside a checkpoint, whose learned positions may be fewer. */
static qdr_status compare_model(const settings *set, const saved_run *saved, char sentence[PROBLEM_BYTES])
{
    qdr_network model = set->network;
    qdr_network_difference difference = {QDR_INIT(qdr_network_difference)};
    const qdr_network *own = &saved->own.network;
    if (model.positions && own->positions) model.context = own->context, model.positions = own->positions;
    if (!qdr_network_differ(&model, own, &difference)) return QDR_OK;
    return REFUSE(sentence, "--model %.200s has %s %s, but that of %.300s is %s; leave out --model", set->model,
                  difference.key, difference.first, saved->path, difference.second);
}

static qdr_status take_network(settings *set, const saved_run *saved, char sentence[PROBLEM_BYTES])
{
    const int is_planned = set->how.planned.plan.x != 0;
    set->source = saved ? saved->path : set->model ? set->model : is_planned ? set->how.plan : NULL;
    if (saved && set->model) TRY(compare_model(set, saved, sentence));
    if (saved)
        set->network = saved->own.network;
    else if (!set->model && is_planned)
        set->network = set->how.planned.network;
    else if (!set->model)
        set->network = (qdr_network){.context = USUAL_CONTEXT, .tied = set->tied};
    if (!*set->network.name) snprintf(set->network.name, sizeof set->network.name, "a network");
    if (set->tied && !set->network.tied)
        return REFUSE(sentence, "--tie, but %.300s has a head of its own, head.weight; leave out --tie", set->source);
    const int is_whole = saved ? saved->own.is_whole : set->source != NULL;
    if (is_whole && set->network.norm_epsilon <= 0) set->network.norm_epsilon = 1e-5;
    for (int i = 0; i < N_SIZES; i++) {
        if (!is_whole && saved) TRY(take_noted(set, i, saved, sentence));
        TRY(take_size(set, i, sentence));
    }
    if (!is_whole) TRY(make_gpt(set, sentence));
    return QDR_OK;
}

/* The context of a run is that of its learned positions, or noted; --load takes positions as far as they go. */
static qdr_status take_context(settings *set, const saved_run *saved, char sentence[PROBLEM_BYTES])
{
    double stored = (double)set->network.positions;
    if (set->resume) TRY(take_number(saved, "context", offsetof(settings, how.context), &stored, sentence));
    if (set->resume && set->how.context && set->how.context != (int64_t)stored)
        return REFUSE(sentence, "--ctx %lld, but the run of %.300s has %g; leave out --ctx, or use --load",
                      (long long)set->how.context, saved->path, stored);
    if (!set->how.context) set->how.context = (int64_t)stored;
    return QDR_OK;
}

static qdr_status take_batch(settings *set, const saved_run *saved, char sentence[PROBLEM_BYTES])
{
    static const qdr_dtype dtypes[] = {QDR_F32, QDR_F64, QDR_BF16, QDR_F16};
    double batch = 0;
    char word[8] = "";
    if (!set->how.batch) TRY(take_number(saved, "batch", offsetof(settings, how.batch), &batch, sentence));
    if (!set->how.batch) set->how.batch = (int64_t)batch;
    if (set->how.dtype < 0) TRY(saved_run_word(saved, "dtype", word, sizeof word, sentence));
    if (!*word) return QDR_OK;
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        if (strcmp(word, qdr_dtype_name(dtypes[i])) == 0) set->how.dtype = (int)dtypes[i];
    if (set->how.dtype >= 0) return QDR_OK;
    return REFUSE(sentence, "%.300s: the note has \"dtype\": \"%s\", which is no type of a run; give --dtype",
                  saved->path, word);
}

qdr_status settings_complete(settings *set, const saved_run *saved, char sentence[PROBLEM_BYTES])
{
    TRY(take_network(set, saved, sentence));
    if (saved) TRY(take_context(set, saved, sentence));
    if (saved && set->resume) TRY(take_batch(set, saved, sentence));
    for (int i = 0; i < N_NUMBERS; i++) {
        double value = numbers[i].usual;
        if (get(set, numbers[i].at, numbers[i].is_real) >= 0) continue;
        if (saved && set->resume) TRY(take_number(saved, numbers[i].key, numbers[i].at, &value, sentence));
        put(set, numbers[i].at, numbers[i].is_real, value);
    }
    return QDR_OK;
}

json_t *settings_note(const settings *set)
{
    json_t *note = json_pack("{s:I, s:I, s:s}", "batch", (json_int_t)set->how.batch, "context",
                             (json_int_t)set->how.context, "dtype", qdr_dtype_name((qdr_dtype)set->how.dtype));
    int bad = !note;
    for (int i = 0; i < N_NUMBERS && !bad; i++) {
        const double value = get(set, numbers[i].at, numbers[i].is_real);
        bad |= json_object_set_new(note, numbers[i].key,
                                   numbers[i].is_real ? json_real(value) : json_integer((json_int_t)value));
    }
    if (!bad) return note;
    json_decref(note);
    return NULL;
}

/* --eval reads a model and a text, and nothing else. */
static qdr_status check_eval(const settings *set, char sentence[PROBLEM_BYTES])
{
    const char *useless = set->save          ? "--save"
                          : set->log         ? "--log"
                          : set->plot        ? "--plot"
                          : set->prompt      ? "--prompt"
                          : set->n_steps > 0 ? "--steps"
                                             : NULL;
    if (useless) return REFUSE(sentence, "--eval trains nothing and only prints what it found; leave out %s", useless);
    if ((set->file || set->data) && strcmp(set->eval, "val") != 0)
        return REFUSE(sentence,
                      "--eval %.300s reads that file alone; leave out the text %.300s, or use --eval val to read the "
                      "validation part of it",
                      set->eval, set->file ? set->file : set->data);
    return QDR_OK;
}

qdr_status settings_check(const settings *set, char sentence[PROBLEM_BYTES])
{
    const char *without = set->save_every   ? "--save-every"
                          : set->keep       ? "--keep"
                          : set->stop_after ? "--stop-after"
                                            : NULL;
    const int is_auto = set->resume && strcmp(set->resume, "auto") == 0;
    if (set->eval) TRY(check_eval(set, sentence));
    if (set->file && set->data)
        return REFUSE(sentence, "--data takes the place of the text %.300s; leave one of them out", set->file);
    if (!set->save && without) return REFUSE(sentence, "%s needs a file to save to; add --save FILE", without);
    if (!set->save && is_auto)
        return REFUSE(sentence, "--resume auto continues from the file of --save; add --save FILE");
    if (set->resume && !is_auto && set->load)
        return REFUSE(sentence, "--resume continues a run, and --load begins one; leave one of them out");
    return QDR_OK;
}
