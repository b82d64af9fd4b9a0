/* SPDX-License-Identifier: Apache-2.0 */
/* Networks of config.json files against Hugging Face's transformers: logits, loss, its gradients and steps of AdamW
 * that tests/reference/networks/oracle.py has computed in float64, on several grids, in both layouts.
 *
 *   test_models [--type f64|f32|bf16|f16] [--grid XxYxZxD] [--load FOLDER] [CASE ...]
 *   test_models --write FOLDER [CASE ...]
 *
 * --write: what save_pretrained() would write, FOLDER/CASE/model.safetensors. --load: networks and parameters are those
 * of FOLDER/CASE.safetensors, which `quadrille ckpt convert` has made of that; one step.
 * Parameters and tokens are functions of names and indices, so that expected.json is all that is read besides the
 * config.json. Where oracle.py has just written expected.safetensors beside it, whole gradients are compared, too. */
#include <pthread.h>
#include <unistd.h>

#include "common/network_note.h"
#include "core/json.h"
#include "dist.h"
#include "narrow.h"
#include "quadrille/safetensors.h"
#include "reference/model_tensors.h"
#include "reference/network_serial.h"

enum { N_SEQUENCES = 3, CONTEXT = 22, VOCAB = 67, N_STEPS = 20, N_ROWS = N_SEQUENCES * CONTEXT, N_SHORT = 4 };

enum { MOST_TENSORS = 100 };
/* How far results may be off: the loss, a gradient relative to its norm, losses of later steps; absolute, each tensor's
 * gradient, three to a parameter. */
typedef struct tolerance {
    double loss, gradient, later;
    double gradients[3 * MOST_TENSORS];
} tolerance;

typedef struct run {
    const char *name;
    qdr_network network;
    qdr_dtype dtype;
    int size[QDR_N_AXES];
    qdr_layout layout;
    tolerance may_be_off;
    const qdri_json_node *expected;
    const char *file; /* of parameters; "": made here */
    qdr_safetensors *elements; /* of whole gradients, or NULL */
    double logits[N_ROWS * VOCAB]; /* of all ranks */
    pthread_mutex_t lock;
    int n_bad;
} run;

/* Gradients of the mean over the valid targets of all ranks. */
static const double valid_targets = N_ROWS - 4;

static _Thread_local run *at;

static void bad(const char *what, const char *name, double got, double expected, double off)
{
    fprintf(stderr, "%s, %dx%dx%dx%d %s %s: %s%s%s is %.17g, not %.17g: off by %.2g\n", at->name, at->size[0],
            at->size[1], at->size[2], at->size[3], at->layout ? "scattered" : "replicated", qdr_dtype_name(at->dtype),
            what, *name ? " of " : "", name, got, expected, off);
}

static double number(qdri_json_node node)
{
    double value = NAN;
    DIST_OK(qdri_json_number(node, -INFINITY, INFINITY, &value));
    return value;
}

/* ---- the stack ---- */

static qdr_stack *make_stack(qdr_grid *grid, qdr_edge *tokens, qdr_edge *targets)
{
    const qdr_network_desc desc = {QDR_INIT(qdr_network_desc), .context = CONTEXT, .layout = at->layout};
    qdr_stack *stack = dist_stack(grid, (qdr_stack_opts){.n_rows = N_ROWS, .row_unit = CONTEXT, .dtype = at->dtype});
    DIST_OK(qdr_stack_add_tokens(stack, "tokens", tokens));
    DIST_OK(qdr_stack_add_network(stack, &at->network, &desc, *tokens, targets));
    DIST_OK(qdr_stack_build(stack));
    return stack;
}

static int32_t token(int64_t sequence, int64_t position)
{
    return (int32_t)((tensor_number("text", sequence * (CONTEXT + 1) + position) + 1) / 2 * VOCAB);
}

/* What the row reads, or should predict. */
static int32_t token_of(int64_t row, int is_target)
{
    const int64_t sequence = row / CONTEXT, position = row % CONTEXT;
    const int is_ignored = (sequence == 0 && position < 3) || (sequence == 2 && position == 5);
    return is_target && is_ignored ? -1 : token(sequence, position + is_target);
}

/* The rows that this rank reads, and those whose logits it has. */
static void fill(const qdr_stack *stack, qdr_edge edge, int is_target)
{
    const qdr_owned owned = dist_edge_owned(stack, edge);
    int32_t *values = dist_edge_value(stack, edge);
    for (int64_t i = 0; i < owned.n_rows; i++) values[i] = token_of(owned.rows.begin + i, is_target);
}

static void load_parameters(qdr_stack *stack, int index)
{
    const qdr_parameter p = dist_parameter(stack, index);
    void *full = malloc((size_t)p.n_global * qdr_dtype_bytes(at->dtype));
    tensor_list list;
    DIST_CHECK(full != NULL, "memory");
    DIST_CHECK(tensors_of(&at->network, p.name, &list), "%s is in no tensor of the model", p.name);
    for (int t = 0; t < list.n; t++) {
        const tensor *one = &list.of[t];
        for (int64_t i = 0; i < one->n_rows * one->n_cols; i++)
            dist_set(full, at->dtype, tensor_place(one, i), tensor_value(one, i));
    }
    DIST_OK(qdr_stack_load_parameter(stack, index, full));
    free(full);
}

static void load_file(qdr_stack *stack)
{
    const char *longer = at->network.positions ? "embedding.positions" : NULL;
    const qdr_checkpoint_load_opts cut = {QDR_INIT(qdr_checkpoint_load_opts), .first_rows = longer};
    qdr_checkpoint_loaded loaded = {QDR_INIT(qdr_checkpoint_loaded)};
    DIST_OK(qdr_checkpoint_load_with(stack, NULL, at->file, &cut, &loaded));
    qdr_checkpoint_loaded_free(&loaded);
}

/* ---- comparing ---- */

static int is_off(double got, double expected, double bound) { return !(fabs(got - expected) <= bound); }

static double may_be_off(int parameter, int t, double norm)
{
    const tolerance *bound = &at->may_be_off;
    return is_narrow(at->dtype) ? bound->gradients[3 * parameter + t] : bound->gradient * norm + 1e-15;
}

/* Gradients of activations that F16 would round to 0 become larger. */
static double loss_scale(void) { return at->dtype == QDR_F16 ? 1024 : 1; }

/* Adds a number to the squares and projections. */
static void add_number(double sums[N_SHORT], double number, int64_t i)
{
    sums[0] += number * number;
    for (int k = 1; k < N_SHORT; k++) {
        const char dot[] = {'d', 'o', 't', (char)('0' + k - 1), '\0'};
        sums[k] += number * tensor_number(dot, i);
    }
}

/* Norm and three projections of a tensor of the model in the gradient of a parameter, which is `scale` times too
 * large. */
static void measure(const tensor *one, const void *gradient, qdr_dtype type, double scale, double numbers[N_SHORT])
{
    for (int k = 0; k < N_SHORT; k++) numbers[k] = 0;
    for (int64_t i = 0; i < one->n_rows * one->n_cols; i++)
        add_number(numbers, dist_get(gradient, type, tensor_place(one, i)) / scale, i);
    numbers[0] = sqrt(numbers[0]);
}

static double norm_of(qdri_json_node node) { return number(qdri_json_at(&node, 0)); }

/* Compares a norm and three projections with those that are expected. */
static int check_numbers(const double numbers[N_SHORT], const char *name, qdri_json_node node, double bound)
{
    static const char *const names[N_SHORT] = {"the norm", "projection 0", "projection 1", "projection 2"};
    const double norm = norm_of(node);
    int n_bad = 0;
    for (int k = 0; k < N_SHORT; k++) {
        const double expected = number(qdri_json_at(&node, (size_t)k));
        if (!is_off(numbers[k], expected, bound)) continue;
        bad(names[k], name, numbers[k], expected, fabs(numbers[k] - expected) / norm);
        n_bad++;
    }
    return n_bad;
}

/* This rank's logits, at their places; a rank's copies are equal. */
static void keep_logits(const qdr_stack *stack)
{
    const qdr_edge edge = qdr_stack_find_edge(stack, "head");
    const qdr_owned owned = dist_edge_owned(stack, edge);
    const void *value = dist_edge_value(stack, edge);
    const double factor = at->network.logits_factor > 0 ? at->network.logits_factor : 1, cap = at->network.logits_cap;
    int64_t local = 0;
    DIST_OK(qdr_stream_synchronize(qdr_context_stream(qdr_grid_context(qdr_stack_grid(stack)))));
    pthread_mutex_lock(&at->lock);
    for (int64_t row = owned.rows.begin; row < owned.rows.end; row++)
        for (int range = 0; range < owned.n_ranges; range++)
            for (int64_t col = owned.cols[range].begin; col < owned.cols[range].end; col++) {
                const double logit = factor * dist_get(value, at->dtype, local++);
                at->logits[row * VOCAB + col] = cap > 0 ? cap * tanh(logit / cap) : logit;
            }
    pthread_mutex_unlock(&at->lock);
}

static int check_logits(run *r)
{
    double sums[N_SHORT] = {0};
    at = r;
    for (int64_t i = 0; i < N_ROWS * VOCAB; i++) add_number(sums, r->logits[i], i);
    const qdri_json_node node = qdri_json_get(r->expected, "logits");
    sums[0] = sqrt(sums[0]);
    return check_numbers(sums, "logits", node, r->may_be_off.loss * norm_of(node) + 1e-15);
}

/* Compares each element of a tensor of the model in the gradient of a parameter; returns how many are off. */
static int check_elements(const tensor *one, const void *gradient, qdr_dtype type, double norm, double bound)
{
    const int64_t n = one->n_rows * one->n_cols;
    char name[sizeof one->name + sizeof "grad."], which[40];
    double *expected = malloc((size_t)n * sizeof *expected);
    int n_bad = 0;
    DIST_CHECK(expected != NULL, "memory");
    snprintf(name, sizeof name, "grad.%s", one->name);
    DIST_OK(qdr_safetensors_read(at->elements, qdr_safetensors_find(at->elements, name), 0, n, QDR_F64, expected));
    for (int64_t i = 0; i < n; i++) {
        const double got = dist_get(gradient, type, tensor_place(one, i)) / loss_scale();
        if (!is_off(got, expected[i], bound)) continue;
        snprintf(which, sizeof which, "element %d", (int)i);
        if (n_bad++ == 0) bad(which, one->name, got, expected[i], fabs(got - expected[i]) / norm);
    }
    free(expected);
    return n_bad;
}

/* Each of the model's tensors that the parameter holds. */
static int check_gradient(qdr_stack *stack, int index, const qdri_json_node *gradients)
{
    const qdr_parameter p = dist_parameter(stack, index);
    const qdr_dtype type = dist_sum_type(at->dtype);
    const int is_first = qdr_context_rank(qdr_grid_context(qdr_stack_grid(stack))) == 0;
    void *full = malloc((size_t)p.n_global * qdr_dtype_bytes(type));
    tensor_list list;
    int n_bad = 0;
    DIST_CHECK(full != NULL, "memory");
    DIST_CHECK(tensors_of(&at->network, p.name, &list), "%s is in no tensor of the model", p.name);
    DIST_OK(qdr_stack_gather_parameter(stack, index, QDR_PARAMETER_GRADIENT, full));
    for (int t = 0; t < list.n && is_first; t++) {
        const qdri_json_node node = qdri_json_get(gradients, list.of[t].name);
        double got[N_SHORT];
        measure(&list.of[t], full, type, loss_scale(), got);
        const double norm = norm_of(node), bound = may_be_off(index, t, norm);
        n_bad += check_numbers(got, list.of[t].name, node, bound);
        if (at->elements) n_bad += check_elements(&list.of[t], full, type, norm, bound);
    }
    free(full);
    return n_bad;
}

static double mean_loss(qdr_stack *stack)
{
    double sum = 0;
    int64_t n_valid = 0;
    DIST_OK(qdr_stack_loss(stack, &sum, &n_valid));
    return sum / (double)n_valid;
}

static int run_rank(qdr_local_world *world, int rank, void *user)
{
    run *r = user;
    qdr_context *ctx = NULL;
    qdr_grid *grid = NULL;
    qdr_adamw *optimizer = NULL;
    qdr_edge tokens, targets;
    int n_bad = 0;
    at = r;
    const qdr_context_opts one_thread = {QDR_INIT(qdr_context_opts), .n_threads = 1};
    DIST_OK(qdr_context_create_local(world, rank, &one_thread, &ctx));
    const qdr_grid_opts shape = {QDR_INIT(qdr_grid_opts), .x = r->size[0], .y = r->size[1], .z = r->size[2],
                                 .d = r->size[3]};
    DIST_OK(qdr_grid_create(ctx, &shape, &grid));
    qdr_stack *stack = make_stack(grid, &tokens, &targets);
    const qdr_adamw_opts opts = {QDR_INIT(qdr_adamw_opts), .weight_decay = 0.1, .decay_positions = 1};
    for (int i = 0; i < qdr_stack_n_parameters(stack) && !*r->file; i++) load_parameters(stack, i);
    if (*r->file) load_file(stack);
    DIST_OK(qdr_adamw_create(stack, &opts, &optimizer));
    fill(stack, tokens, 0);
    fill(stack, targets, 1);
    const qdri_json_node losses = qdri_json_get(r->expected, "losses"),
                         gradients = qdri_json_get(r->expected, "gradients");
    for (int step = 0; step < (*r->file || is_narrow(at->dtype) ? 1 : N_STEPS); step++) {
        DIST_OK(qdr_stack_forward(stack));
        if (step == 0) keep_logits(stack);
        DIST_OK(qdr_stack_backward(stack, 0, loss_scale() / valid_targets));
        const double loss = mean_loss(stack), expected = number(qdri_json_at(&losses, (size_t)step));
        if (is_off(loss, expected, step ? r->may_be_off.later : r->may_be_off.loss)) {
            char which[20];
            snprintf(which, sizeof which, "step %d", step);
            if (rank == 0) bad("the loss", which, loss, expected, fabs(loss - expected));
            n_bad++;
            break;
        }
        for (int i = 0; step == 0 && i < qdr_stack_n_parameters(stack); i++)
            n_bad += check_gradient(stack, i, &gradients);
        DIST_OK(qdr_adamw_step(optimizer, 1e-2));
    }
    if (rank == 0) r->n_bad += n_bad;
    qdr_adamw_destroy(&optimizer);
    qdr_stack_destroy(&stack);
    qdr_grid_destroy(&grid);
    qdr_context_destroy(&ctx);
    return 0;
}

/* ---- bounds of narrow types ---- */

/* In BF16 and F16 the roundings that count are those of stored values, parameters included: each is off by up to the
 * type's roundoff v, 2^-8 or 2^-11, about evenly distributed; sums and what is inside an operation are in F32. The
 * serial network with just this noise, forward and back, has as many roundings on the way to each gradient as the
 * library, and passes errors on from layer to layer as the network does.
 *
 * The bound of a tensor's norm and projections is SIGMAS times the root mean square of the errors of all four in
 * SAMPLES passes: of 32 numbers, so that one in 10^6 would be further off (Student's distribution). Of losses there are
 * only eight, so twice as much is allowed. Where ranks sum, they round their parts first, which are about as large as
 * the sum: two or three roundings instead of one, on some of the ways. */
enum { SAMPLES = 8, SIGMAS = 6 };

static void load_oracle(const qdr_network *network, serial_network *oracle)
{
    tensor_list list;
    for (int i = 0; i < oracle->n_tensors; i++) {
        serial_tensor *to = &oracle->tensors[i];
        DIST_CHECK(tensors_of(network, to->name, &list), "%s is in no tensor of the model", to->name);
        for (int t = 0; t < list.n; t++)
            for (int64_t k = 0; k < list.of[t].n_rows * list.of[t].n_cols; k++)
                to->value[tensor_place(&list.of[t], k)] = tensor_value(&list.of[t], k);
    }
}

/* Adds the mean square of the errors of a tensor's four numbers, for each tensor. */
static void add_errors(const serial_network *oracle, const run *r, double squares[])
{
    const qdri_json_node gradients = qdri_json_get(r->expected, "gradients");
    tensor_list list;
    for (int i = 0; i < oracle->n_tensors; i++) {
        (void)tensors_of(&r->network, oracle->tensors[i].name, &list);
        for (int t = 0; t < list.n; t++) {
            const qdri_json_node node = qdri_json_get(&gradients, list.of[t].name);
            double got[N_SHORT];
            measure(&list.of[t], oracle->tensors[i].gradient, QDR_F64, 1, got);
            for (int k = 0; k < N_SHORT; k++)
                squares[3 * i + t] += pow(got[k] - number(qdri_json_at(&node, (size_t)k)), 2) / N_SHORT;
        }
    }
}

static double oracle_loss(serial_network *oracle, serial_noise noise)
{
    int32_t tokens[N_ROWS], targets[N_ROWS];
    for (int row = 0; row < N_ROWS; row++) {
        tokens[row] = token_of(row, 0);
        targets[row] = token_of(row, 1);
    }
    return serial_network_backprop(oracle, N_SEQUENCES, tokens, targets, 1 / valid_targets, noise) / valid_targets;
}

static tolerance narrow_tolerance(const run *r)
{
    const double loss = number(qdri_json_get(r->expected, "loss"));
    serial_network oracle = serial_network_make(&r->network, CONTEXT, 0);
    double exact[3 * MOST_TENSORS] = {0};
    tolerance bound = {0};
    DIST_CHECK(oracle.n_tensors <= MOST_TENSORS, "%d parameters", oracle.n_tensors);
    load_oracle(&r->network, &oracle);
    DIST_CHECK(!is_off(oracle_loss(&oracle, (serial_noise){0}), loss, 1e-12), "the oracle's loss");
    add_errors(&oracle, r, exact);
    for (int sample = 1; sample <= SAMPLES; sample++) {
        const serial_noise noise = {.stored = dist_roundoff(r->dtype), .seed = (uint64_t)sample};
        bound.loss += pow(oracle_loss(&oracle, noise) - loss, 2);
        add_errors(&oracle, r, bound.gradients);
    }
    bound.loss = 2 * SIGMAS * sqrt(bound.loss / SAMPLES);
    for (int i = 0; i < 3 * MOST_TENSORS; i++) {
        bound.gradients[i] = SIGMAS * sqrt(bound.gradients[i] / SAMPLES);
        DIST_CHECK(exact[i] < 1e-24, "the oracle's gradient %d is off by %.2g", i, sqrt(exact[i]));
    }
    serial_network_free(&oracle);
    return bound;
}

/* ---- cases ---- */

static const char *const cases[] = {"cohere2",
                                    "gemma",
                                    "gemma2",
                                    "gemma3",
                                    "glm4",
                                    "gpt2",
                                    "gpt_neox",
                                    "gpt_neox-serial",
                                    "granite",
                                    "llama",
                                    "llama-dynamic",
                                    "llama-linear",
                                    "llama-llama3",
                                    "llama-one-key-head",
                                    "llama-tied-biases",
                                    "llama-yarn",
                                    "mistral",
                                    "olmo2",
                                    "olmo3",
                                    "phi3",
                                    "phi3-long",
                                    "qwen2",
                                    "qwen2-window",
                                    "qwen3",
                                    "smollm3",
                                    "starcoder2"};

static const int grids[][QDR_N_AXES] = {{1, 1, 1, 1}, {2, 1, 1, 1}, {1, 2, 1, 1}, {1, 3, 1, 2},
                                        {1, 1, 2, 1}, {1, 1, 1, 2}, {2, 2, 2, 1}};

/* What `quadrille ckpt convert` has noted. */
static void read_note(const char *path, qdr_network *network)
{
    qdr_safetensors *file;
    int has_network;
    DIST_OK(qdr_safetensors_open(path, &file));
    DIST_OK(network_note_read(qdr_safetensors_metadata(file, "note"), path, network, &has_network));
    DIST_CHECK(has_network, "%s has no network in its note", path);
    DIST_OK(qdr_safetensors_close(&file));
}

static int run_case(const char *name, qdr_dtype dtype, const int *only, const char *folder)
{
    char path[600], file[600] = "";
    qdri_json *document;
    qdri_json_node root;
    run r = {.name = name, .dtype = dtype, .network = {QDR_INIT(qdr_network)}, .expected = &root, .file = file};
    r.may_be_off = dtype == QDR_F64 ? (tolerance){1e-12, 1e-10, 1e-9, {0}} : (tolerance){1e-5, 1e-4, 1e-4, {0}};
    /* AdamW moves an element whose gradient is smaller than F32's errors by the whole rate, either way. */
    if (dtype == QDR_F32 && (strcmp(name, "llama-dynamic") == 0 || strcmp(name, "gemma3") == 0))
        r.may_be_off.later = 1e-3;
    snprintf(path, sizeof path, "%s/%s/config.json", getenv("QDR_TEST_NETWORKS"), name);
    if (folder) snprintf(file, sizeof file, "%s/%s.safetensors", folder, name);
    if (folder)
        read_note(file, &r.network);
    else
        DIST_OK(qdr_network_load(path, &r.network));
    if (r.network.positions) r.network.positions = CONTEXT; /* the others are not learned from these tokens */
    snprintf(path, sizeof path, "%s/%s/expected.json", getenv("QDR_TEST_NETWORKS"), name);
    DIST_OK(qdri_json_load(path, &document));
    DIST_OK(qdri_json_root(document, &root));
    snprintf(path, sizeof path, "%s/%s/expected.safetensors", getenv("QDR_TEST_NETWORKS"), name);
    if (access(path, F_OK) == 0) DIST_OK(qdr_safetensors_open(path, &r.elements));
    pthread_mutex_init(&r.lock, NULL);
    if (is_narrow(dtype)) r.may_be_off = narrow_tolerance(&r);
    for (size_t g = 0; g < sizeof grids / sizeof *grids; g++)
        for (int layout = 0; layout < 2; layout++) {
            int failed = 0;
            memcpy(r.size, grids[g], sizeof r.size);
            r.layout = (qdr_layout)layout;
            if (is_narrow(dtype) && g % 3 != 0) continue; /* one, and those that cut most */
            if (only && memcmp(only, r.size, sizeof r.size) != 0) continue;
            DIST_OK(qdr_local_run(r.size[0] * r.size[1] * r.size[2] * r.size[3], run_rank, &r, &failed));
            if (!is_narrow(dtype)) r.n_bad += check_logits(&r);
        }
    pthread_mutex_destroy(&r.lock);
    printf("%s %s: %s%s\n", name, qdr_dtype_name(dtype), r.n_bad ? "differs" : "as transformers",
           r.elements ? ", element by element" : "");
    DIST_OK(qdr_safetensors_close(&r.elements));
    qdri_json_free(&document);
    return r.n_bad > 0;
}

/* ---- files ---- */

typedef struct model {
    const qdr_network *network;
    tensor tensors[128];
    int n;
} model;

static void add_tensors(const qdr_network_parameter *parameter, void *user)
{
    model *m = user;
    tensor_list list;
    DIST_CHECK(tensors_of(m->network, parameter->name, &list), "%s is in no tensor of the model", parameter->name);
    DIST_CHECK(m->n + list.n <= (int)(sizeof m->tensors / sizeof *m->tensors), "%d tensors", m->n);
    for (int i = 0; i < list.n; i++) m->tensors[m->n++] = list.of[i];
}

/* GPT-NeoX calls its head embed_out in files, and lm_head in transformers 5. */
static const char *stored_name(const model *m, const tensor *t)
{
    const int is_renamed = strcmp(m->network->architecture, "gpt_neox") == 0 && strcmp(t->name, "lm_head.weight") == 0;
    return is_renamed ? "embed_out.weight" : t->name;
}

static void write_model(const char *name, const char *folder)
{
    char path[600];
    qdr_network network = {QDR_INIT(qdr_network)};
    static model m;
    qdr_tensor stored[sizeof m.tensors / sizeof *m.tensors];
    qdr_safetensors *file;
    snprintf(path, sizeof path, "%s/%s/config.json", getenv("QDR_TEST_NETWORKS"), name);
    DIST_OK(qdr_network_load(path, &network));
    m = (model){.network = &network};
    DIST_OK(qdr_network_parameters(&network, add_tensors, &m));
    for (int i = 0; i < m.n; i++) {
        const tensor *t = &m.tensors[i];
        stored[i] = (qdr_tensor){.name = stored_name(&m, t),
                                 .dtype = QDR_F64,
                                 .n_dims = 1 + t->is_matrix,
                                 .shape = {t->is_matrix ? t->n_rows : t->n_cols, t->is_matrix ? t->n_cols : 0}};
    }
    snprintf(path, sizeof path, "%s/%s/model.safetensors", folder, name);
    DIST_OK(qdr_safetensors_create(path, stored, m.n, NULL, &file));
    for (int i = 0; i < m.n; i++) {
        const tensor *t = &m.tensors[i];
        double *values = malloc((size_t)(t->n_rows * t->n_cols) * sizeof *values);
        DIST_CHECK(values != NULL, "memory");
        for (int64_t k = 0; k < t->n_rows * t->n_cols; k++) values[k] = tensor_value(t, k);
        DIST_OK(qdr_safetensors_write(file, i, 0, t->n_rows * t->n_cols, values));
        free(values);
    }
    DIST_OK(qdr_safetensors_close(&file));
}

int main(int argc, char **argv)
{
    int grid[QDR_N_AXES], *only = NULL, n_bad = 0, first = 1;
    qdr_dtype dtype = QDR_F64;
    const char *from = NULL, *to = NULL;
    for (; first + 1 < argc && strncmp(argv[first], "--", 2) == 0; first += 2) {
        for (int type = QDR_F32; type <= QDR_F16; type++)
            if (strcmp(argv[first], "--type") == 0 && strcmp(argv[first + 1], qdr_dtype_name((qdr_dtype)type)) == 0)
                dtype = (qdr_dtype)type;
        if (strcmp(argv[first], "--load") == 0) from = argv[first + 1];
        if (strcmp(argv[first], "--write") == 0) to = argv[first + 1];
        if (strcmp(argv[first], "--grid") == 0 &&
            sscanf(argv[first + 1], "%dx%dx%dx%d", &grid[0], &grid[1], &grid[2], &grid[3]) == QDR_N_AXES)
            only = grid;
    }
    const int n = first < argc ? argc - first : (int)(sizeof cases / sizeof *cases);
    for (int i = 0; i < n; i++) {
        const char *name = first < argc ? argv[first + i] : cases[i];
        if (to)
            write_model(name, to);
        else
            n_bad += run_case(name, dtype, only, from);
    }
    return n_bad > 0;
}
