/* SPDX-License-Identifier: Apache-2.0 */
/* See network_serial.h. */
#include "network_serial.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Values in the order in which they were computed, parameters first; those from which value i was computed are
 * parents[begins[i] ... begins[i + 1] - 1]. */
typedef struct tape {
    int64_t n_values, n_edges, value_room, edge_room, n_parameters;
    double *values, *gradients;
    int64_t *begins;
    char *is_stored;
    int64_t *parents;
    double *slopes;
    serial_noise noise;
    int is_inside; /* an operation: what it computes is not stored */
    int layer;
    const int32_t *tokens, *targets; /* of this sequence */
} tape;

/* Values of `context` rows: (row, col) is value at + row · step + col. */
typedef struct matrix {
    int64_t at, step;
} matrix;

static void fail(const char *why)
{
    fprintf(stderr, "network_serial: %s\n", why);
    exit(1);
}

static void *grown(void *old, int64_t n, size_t size)
{
    void *memory = realloc(old, (size_t)n * size);
    if (!memory) fail("no memory");
    return memory;
}

/* ---- the tape ---- */

/* value · (1 + a share of n roundoffs) */
static double rounded(tape *t, double value, double roundoff, int n)
{
    if (roundoff == 0) return value;
    uint64_t z = t->noise.seed += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return value * (1 + n * roundoff * ((double)((z ^ (z >> 31)) >> 11) * 0x1p-52 - 1));
}

static double computed(tape *t, double value) { return rounded(t, value, t->noise.computed, 1); }

/* Libraries' functions err by at most 4 units in the last place. */
static double function(tape *t, double value) { return rounded(t, value, t->noise.computed, 8); }

static double at(const tape *t, int64_t i) { return t->values[i]; }

/* The next value has this parent. */
static void from(tape *t, int64_t parent, double slope)
{
    if (t->n_edges == t->edge_room) {
        t->edge_room = 2 * t->edge_room + 1024;
        t->parents = grown(t->parents, t->edge_room, sizeof *t->parents);
        t->slopes = grown(t->slopes, t->edge_room, sizeof *t->slopes);
    }
    t->parents[t->n_edges] = parent;
    t->slopes[t->n_edges++] = slope;
}

static int64_t add_value(tape *t, double value, int is_stored)
{
    if (t->n_values + 1 >= t->value_room) {
        t->value_room = 2 * t->value_room + 1024;
        t->values = grown(t->values, t->value_room, sizeof *t->values);
        t->gradients = grown(t->gradients, t->value_room, sizeof *t->gradients);
        t->begins = grown(t->begins, t->value_room, sizeof *t->begins);
        t->is_stored = grown(t->is_stored, t->value_room, sizeof *t->is_stored);
    }
    t->values[t->n_values] = rounded(t, value, is_stored ? t->noise.stored : t->noise.computed, 1);
    t->gradients[t->n_values] = 0;
    t->is_stored[t->n_values++] = (char)is_stored;
    t->begins[t->n_values] = t->n_edges;
    return t->n_values - 1;
}

static void store(tape *t, double value) { add_value(t, value, !t->is_inside); }

/* sum += a · b */
static void add_product(tape *t, int64_t a, int64_t b, double *sum)
{
    from(t, a, at(t, b));
    from(t, b, at(t, a));
    *sum = computed(t, *sum + at(t, a) * at(t, b));
}

/* From the last value back to the parameters, whose gradients accumulate. */
static void go_back(tape *t)
{
    for (int64_t i = t->n_values - 1; i >= t->n_parameters; i--) {
        const double gradient = rounded(t, t->gradients[i], t->is_stored[i] ? t->noise.stored : t->noise.computed, 1);
        for (int64_t e = t->begins[i]; gradient != 0 && e < t->begins[i + 1]; e++) {
            double *to = &t->gradients[t->parents[e]];
            *to = computed(t, *to + gradient * t->slopes[e]);
        }
    }
}

/* ---- parameters ---- */

serial_tensor *serial_network_tensor(const serial_network *net, const char *name)
{
    for (int i = 0; i < net->n_tensors; i++)
        if (strcmp(net->tensors[i].name, name) == 0) return &net->tensors[i];
    return NULL;
}

/* Where a parameter begins, "qkv" and "weight" of this layer; the first pass, over no parameters, makes it. */
static int64_t parameter(serial_network *net, const char *part, const char *what, int64_t n)
{
    char name[48];
    if (net->tape->layer < 0)
        snprintf(name, sizeof name, "%s.%s", part, what);
    else
        snprintf(name, sizeof name, "block%d.%s.%s", net->tape->layer, part, what);
    const serial_tensor *known = serial_network_tensor(net, name);
    if (known) return known->first;
    const serial_tensor *last = net->n_tensors ? &net->tensors[net->n_tensors - 1] : NULL;
    serial_tensor made = {.n = n, .first = last ? last->first + last->n : 0};
    memcpy(made.name, name, sizeof name);
    made.value = memset(grown(NULL, n, sizeof(double)), 0, (size_t)n * sizeof(double));
    made.gradient = memset(grown(NULL, n, sizeof(double)), 0, (size_t)n * sizeof(double));
    net->tensors = grown(net->tensors, net->n_tensors + 1, sizeof made);
    net->tensors[net->n_tensors++] = made;
    return made.first;
}

/* ---- operations, each on all rows ---- */

static matrix begin(const tape *t, int64_t width) { return (matrix){t->n_values, width}; }

static int64_t place(matrix m, int64_t row, int64_t col) { return m.at + row * m.step + col; }

/* y[n] = W[n,k]·x[k] + b[n] */
static matrix linear(serial_network *net, const char *part, int has_bias, matrix x, int64_t k, int64_t n)
{
    tape *t = net->tape;
    const int is_tied_head = strcmp(part, "head") == 0 && net->network.tied;
    const int64_t w = parameter(net, is_tied_head ? "embedding" : part, "weight", n * k);
    const int64_t b = has_bias ? parameter(net, part, "bias", n) : 0;
    const matrix y = begin(t, n);
    for (int row = 0; row < net->context; row++)
        for (int64_t i = 0; i < n; i++) {
            double sum = 0;
            for (int64_t j = 0; j < k; j++) add_product(t, w + i * k + j, place(x, row, j), &sum);
            if (has_bias) from(t, b + i, 1);
            store(t, has_bias ? sum + at(t, b + i) : sum);
        }
    return y;
}

/* Mean and 1/sigma of n values, two values of the tape; the mean of an RMS norm is 0. */
static void add_moments(serial_network *net, int is_rms, int64_t x, int64_t n)
{
    tape *t = net->tape;
    const double epsilon = net->network.norm_epsilon > 0 ? net->network.norm_epsilon : 1e-5;
    double sum = 0, squares = 0, deviations = 0;
    for (int64_t i = 0; !is_rms && i < n; i++) {
        from(t, x + i, 1 / (double)n);
        sum = computed(t, sum + at(t, x + i) / (double)n);
    }
    const int64_t mean = add_value(t, sum, 0);
    for (int64_t i = 0; i < n; i++) {
        const double d = computed(t, at(t, x + i) - at(t, mean));
        squares = computed(t, squares + d * d / (double)n);
        deviations += d / (double)n;
    }
    const double inverse = computed(t, 1 / sqrt(squares + epsilon)), cube = inverse * inverse * inverse;
    for (int64_t i = 0; i < n; i++) from(t, x + i, -cube * (at(t, x + i) - at(t, mean)) / (double)n);
    from(t, mean, cube * deviations);
    add_value(t, inverse, 0);
}

/* Groups of n columns, each normed by itself with the same parameters; beta -1: none. */
static matrix norm(serial_network *net, int is_rms, matrix x, int64_t n_groups, int64_t n, int64_t gamma, int64_t beta)
{
    tape *t = net->tape;
    const int64_t moments = t->n_values;
    for (int row = 0; row < net->context; row++)
        for (int64_t group = 0; group < n_groups; group++) add_moments(net, is_rms, place(x, row, group * n), n);
    const matrix y = begin(t, n_groups * n);
    for (int row = 0; row < net->context; row++)
        for (int64_t col = 0; col < n_groups * n; col++) {
            const int64_t mean = moments + 2 * (row * n_groups + col / n), from_x = place(x, row, col);
            const double factor = at(t, gamma + col % n) + net->network.norm_one_plus, inverse = at(t, mean + 1),
                         d = computed(t, at(t, from_x) - at(t, mean));
            from(t, from_x, inverse * factor);
            from(t, mean, -inverse * factor);
            from(t, mean + 1, d * factor);
            from(t, gamma + col % n, d * inverse);
            if (beta >= 0) from(t, beta + col % n, 1);
            store(t, computed(t, d * inverse * factor) + (beta >= 0 ? at(t, beta + col % n) : 0));
        }
    return y;
}

static matrix stream_norm(serial_network *net, const char *part, matrix x)
{
    const qdr_network *n = &net->network;
    const int has_beta = n->norm == QDR_NORM_LAYER && !n->norm_no_beta;
    const int64_t gamma = parameter(net, part, "gamma", n->hidden);
    return norm(net, n->norm == QDR_NORM_RMS, x, 1, n->hidden, gamma,
                has_beta ? parameter(net, part, "beta", n->hidden) : -1);
}

/* What the file says of this layer: bits of layer_kinds. */
static int kind_of(const serial_network *net)
{
    const qdr_network *n = &net->network;
    const int layer = net->tape->layer;
    for (int i = 0; i < n->layers; i++)
        if (n->layer_kinds[i]) return n->layer_kinds[layer];
    return layer >= n->layers - n->window_layers ? QDR_LAYER_WINDOW : 0;
}

/* Heads of queries or keys turned by their positions. */
static matrix turned(serial_network *net, matrix x, int64_t n_heads)
{
    tape *t = net->tape;
    const qdr_network *n = &net->network;
    const int kind = kind_of(net);
    const qdr_rotary *rotary = kind & QDR_LAYER_LOCAL ? &n->local_rotary : &n->rotary;
    const int64_t pairs = rotary->columns ? (rotary->columns + 1) / 2 : n->head_size / 2;
    double magnitude, *frequencies;
    if (n->positions || kind & QDR_LAYER_UNROTATED) return x;
    frequencies = grown(NULL, pairs, sizeof *frequencies);
    if (qdr_network_rotary(n, t->layer, net->context, frequencies, &magnitude) < 0) fail(qdr_last_error());
    const matrix y = begin(t, n_heads * n->head_size);
    for (int row = 0; row < net->context; row++)
        for (int64_t col = 0; col < n_heads * n->head_size; col++) {
            const int64_t i = col % n->head_size, pair = rotary->interleaved ? i / 2 : i % pairs;
            const int is_second = rotary->interleaved ? i % 2 == 1 : i >= pairs;
            const int64_t other = place(x, row, col + (is_second ? -1 : 1) * (rotary->interleaved ? 1 : pairs));
            const int is_turned = i < 2 * pairs;
            const double angle = is_turned ? row * frequencies[pair] : 0;
            const double c = is_turned ? magnitude * cos(angle) : 1;
            const double s = is_turned ? magnitude * sin(angle) * (is_second ? 1 : -1) : 0;
            from(t, place(x, row, col), c);
            if (is_turned) from(t, other, s);
            store(t, computed(t, c * at(t, place(x, row, col))) + (is_turned ? s * at(t, other) : 0));
        }
    free(frequencies);
    return y;
}

/* cap · tanh(x / cap), or x without a cap, and the slope. */
static double capped(tape *t, double x, double cap, double *slope)
{
    *slope = 1;
    if (!(cap > 0)) return x;
    const double h = exp(-2 * fabs(x / cap));
    *slope = function(t, 4 * h / ((1 + h) * (1 + h)));
    return function(t, cap * tanh(x / cap));
}

static double exponential(tape *t, double x) { return function(t, exp(x)); }

/* Scores of one row of a head over the keys that it sees, and the sum of their exponentials, which are relative to the
 * largest. @return the sum's place: the scores are before it */
static int64_t add_scores(serial_network *net, matrix q, matrix k, int row, int first, int64_t sink, double *highest)
{
    tape *t = net->tape;
    const qdr_network *n = &net->network;
    const double scale = n->attention_scale > 0 ? n->attention_scale : 1 / sqrt((double)n->head_size);
    double sum = 0;
    *highest = net->sinks ? at(t, sink) : -INFINITY;
    for (int key = first; key <= row; key++) {
        double dot = 0, slope;
        const int64_t begin_edges = t->n_edges;
        for (int64_t i = 0; i < n->head_size; i++) add_product(t, place(q, row, i), place(k, key, i), &dot);
        const double score = capped(t, computed(t, scale * dot), n->attention_cap, &slope);
        for (int64_t e = begin_edges; e < t->n_edges; e++) t->slopes[e] *= scale * slope;
        add_value(t, score, 0);
        *highest = fmax(*highest, score);
    }
    for (int64_t score = t->n_values - (row - first + 1); score < t->n_values; score++) {
        const double e = exponential(t, at(t, score) - *highest);
        from(t, score, e);
        sum = computed(t, sum + e);
    }
    if (net->sinks) from(t, sink, exp(at(t, sink) - *highest));
    if (net->sinks) sum += exponential(t, at(t, sink) - *highest);
    return add_value(t, sum, 0);
}

static int first_seen(const serial_network *net, int row)
{
    const int64_t window = kind_of(net) & QDR_LAYER_WINDOW ? net->network.window : 0;
    return window > 0 && row >= window ? (int)(row - window + 1) : 0;
}

static matrix attention(serial_network *net, matrix q, matrix k, matrix v)
{
    tape *t = net->tape;
    const qdr_network *n = &net->network;
    const int64_t heads = n->heads, size = n->head_size, group = heads / n->kv_heads,
                  sinks = net->sinks ? parameter(net, "attention", "sinks", heads) : 0;
    int64_t *sums = grown(NULL, net->context * heads, sizeof *sums);
    double *highest = grown(NULL, net->context * heads, sizeof *highest);
    for (int64_t i = 0; i < net->context * heads; i++) {
        const int row = (int)(i / heads);
        const matrix query = {q.at + i % heads * size, q.step}, key = {k.at + i % heads / group * size, k.step};
        sums[i] = add_scores(net, query, key, row, first_seen(net, row), sinks + i % heads, &highest[i]);
    }
    t->is_inside = 0;
    const matrix y = begin(t, heads * size);
    for (int64_t i = 0; i < net->context * heads; i++)
        for (int64_t col = 0; col < size; col++) {
            const int row = (int)(i / heads);
            double mean = 0;
            for (int j = first_seen(net, row); j <= row; j++) {
                const int64_t score = sums[i] - (row - j + 1), value = place(v, j, i % heads / group * size + col);
                const double p = exponential(t, at(t, score) - highest[i]) / at(t, sums[i]);
                from(t, score, p * at(t, value));
                from(t, value, p);
                mean = computed(t, mean + p * at(t, value));
            }
            from(t, sums[i], -mean / at(t, sums[i]));
            store(t, mean);
        }
    free(sums);
    free(highest);
    return y;
}

static matrix attention_half(serial_network *net, matrix x)
{
    const qdr_network *n = &net->network;
    const int64_t size = n->head_size, n_q = n->heads * size, n_k = n->kv_heads * size;
    const matrix qkv = linear(net, "qkv", n->qkv_bias, x, n->hidden, n_q + 2 * n_k);
    matrix q = qkv, k = {qkv.at + n_q, qkv.step};
    const matrix v = {qkv.at + n_q + n_k, qkv.step};
    if (n->head_norm == QDR_HEAD_NORM_ALL) {
        const int64_t gamma = parameter(net, "qk_norm", "gamma", n_q + n_k);
        q = norm(net, 1, q, 1, n_q, gamma, -1);
        k = norm(net, 1, k, 1, n_k, gamma + n_q, -1);
    }
    net->tape->is_inside = 1;
    if (n->head_norm == QDR_HEAD_NORM_EACH) {
        q = norm(net, 1, q, n->heads, size, parameter(net, "attention", "q_gamma", size), -1);
        k = norm(net, 1, k, n->kv_heads, size, parameter(net, "attention", "k_gamma", size), -1);
    }
    q = turned(net, q, n->heads);
    k = turned(net, k, n->kv_heads);
    return linear(net, "proj", n->out_bias, attention(net, q, k, v), n_q, n->hidden);
}

/* An activation function and its slope, by the name in transformers. */
static double bent(tape *t, const char *name, double x, double *slope)
{
    const double root = 0.79788456080286535588 /* sqrt(2/pi) */, density = root / 2 * exp(-x * x / 2);
    const double s = 1 / (1 + exp(-x));
    if (strcmp(name, "gelu") == 0 || strcmp(name, "gelu_python") == 0) {
        const double below = erfc(-x / sqrt(2)) / 2;
        *slope = function(t, below + x * density);
        return function(t, x * below);
    }
    if (strcmp(name, "silu") == 0 || strcmp(name, "swish") == 0) {
        *slope = function(t, s * (1 + x * (1 - s)));
        return function(t, x * s);
    }
    if (strncmp(name, "relu", 4) == 0) {
        const int is_squared = strcmp(name, "relu2") == 0;
        *slope = x <= 0 ? 0 : is_squared ? 2 * x : 1;
        return x <= 0 ? 0 : is_squared ? x * x : x;
    }
    const double th = tanh(root * (x + 0.044715 * x * x * x));
    *slope = function(t, 0.5 * (1 + th) + 0.5 * x * (1 - th * th) * root * (1 + 3 * 0.044715 * x * x));
    return function(t, 0.5 * x * (1 + th));
}

static matrix mlp_half(serial_network *net, matrix x)
{
    tape *t = net->tape;
    const qdr_network *n = &net->network;
    const matrix wide = linear(net, "fc", n->mlp_bias, x, n->hidden, (n->gated ? 2 : 1) * n->ffn);
    const matrix y = begin(t, n->ffn);
    for (int row = 0; row < net->context; row++)
        for (int64_t i = 0; i < n->ffn; i++) {
            const int64_t gate = place(wide, row, i), up = place(wide, row, n->ffn + i);
            double slope;
            const double f = bent(t, n->activation, at(t, gate), &slope), factor = n->gated ? at(t, up) : 1;
            from(t, gate, slope * factor);
            if (n->gated) from(t, up, f);
            store(t, f * factor);
        }
    return linear(net, "fc2", n->mlp_bias, y, n->ffn, n->hidden);
}

/* The stream and what is added to it. */
static matrix residual(serial_network *net, matrix a, matrix b)
{
    tape *t = net->tape;
    const double factor = net->network.branch_factor != 0 ? net->network.branch_factor : 1;
    const int64_t n = net->network.hidden;
    const matrix y = begin(t, n);
    for (int64_t i = 0; i < net->context * n; i++) {
        from(t, place(a, i / n, i % n), 1);
        from(t, place(b, i / n, i % n), factor);
        store(t, at(t, place(a, i / n, i % n)) + computed(t, factor * at(t, place(b, i / n, i % n))));
    }
    return y;
}

static matrix one_layer(serial_network *net, matrix x)
{
    const qdr_network *n = &net->network;
    const int before = n->norm_place != QDR_NORM_AFTER, after = n->norm_place != QDR_NORM_BEFORE;
    const matrix first = before ? stream_norm(net, "norm1", x) : x;
    matrix attended = attention_half(net, first);
    if (after) attended = stream_norm(net, "after1", attended);
    const matrix middle = residual(net, x, attended), read = n->parallel_residual ? x : middle;
    const int is_shared = n->parallel_residual && n->norms_per_layer == 1;
    matrix fed = mlp_half(net, is_shared ? first : before ? stream_norm(net, "norm2", read) : read);
    if (after) fed = stream_norm(net, "after2", fed);
    return residual(net, middle, fed);
}

static matrix embedding(serial_network *net)
{
    tape *t = net->tape;
    const int64_t n = net->network.hidden, table = parameter(net, "embedding", "weight", net->network.vocab * n);
    const int64_t positions = net->network.positions ? parameter(net, "embedding", "positions", net->context * n) : -1;
    const double factor = net->network.embedding_factor != 0 ? net->network.embedding_factor : 1;
    const matrix x = begin(t, n);
    for (int64_t i = 0; i < net->context * n; i++) {
        const int64_t token = t->tokens[i / n], entry = table + token * n + i % n;
        double sum = 0;
        if (token >= 0) from(t, entry, factor);
        if (token >= 0) sum = computed(t, factor * at(t, entry));
        if (positions >= 0) from(t, positions + i, 1);
        if (positions >= 0) sum += at(t, positions + i);
        store(t, sum);
    }
    return x;
}

/* One row's loss, a value. */
static int64_t add_loss(serial_network *net, int64_t logits, int target)
{
    tape *t = net->tape;
    const qdr_network *n = &net->network;
    const double factor = n->logits_factor != 0 ? n->logits_factor : 1;
    double highest = -INFINITY, sum = 0, slope;
    double *shaped = grown(NULL, n->vocab, sizeof *shaped);
    for (int64_t i = 0; i < n->vocab; i++) {
        shaped[i] = capped(t, computed(t, factor * at(t, logits + i)), n->logits_cap, &slope);
        highest = fmax(highest, shaped[i]);
    }
    for (int64_t i = 0; i < n->vocab; i++) sum = computed(t, sum + exponential(t, shaped[i] - highest));
    for (int64_t i = 0; i < n->vocab; i++) {
        (void)capped(t, factor * at(t, logits + i), n->logits_cap, &slope);
        from(t, logits + i, (function(t, exp(shaped[i] - highest) / sum) - (i == target)) * factor * slope);
    }
    const double loss = function(t, log(sum)) + highest - shaped[target];
    free(shaped);
    return add_value(t, loss, 0);
}

/* The sum of the losses of one sequence; seeds the gradients of the losses with `scale`. */
static double forward(serial_network *net, double scale)
{
    tape *t = net->tape;
    double sum = 0;
    t->layer = -1;
    matrix x = embedding(net);
    for (t->layer = 0; t->layer < net->network.layers; t->layer++) x = one_layer(net, x);
    t->layer = -1;
    x = stream_norm(net, "norm", x);
    const matrix logits = linear(net, "head", 0, x, net->network.hidden, net->network.vocab);
    for (int row = 0; row < net->context; row++) {
        if (t->targets[row] < 0) continue;
        const int64_t loss = add_loss(net, place(logits, row, 0), t->targets[row]);
        t->gradients[loss] = scale;
        sum += at(t, loss);
    }
    return sum;
}

/* ---- the network ---- */

/* Of these values, or as many zeros as there will be parameters. */
static void begin_tape(serial_network *net, int64_t n_zeros)
{
    tape *t = net->tape;
    t->n_values = t->n_edges = 0;
    for (int i = 0; i < net->n_tensors; i++)
        for (int64_t k = 0; k < net->tensors[i].n; k++) add_value(t, net->tensors[i].value[k], 1);
    for (int64_t i = 0; i < n_zeros; i++) add_value(t, 0, 1);
    t->n_parameters = t->n_values;
}

serial_network serial_network_make(const qdr_network *network, int context, int sinks)
{
    serial_network net = {.network = *network, .context = context, .sinks = sinks};
    qdr_network_counts counts = {QDR_INIT(qdr_network_counts)};
    int32_t *none = grown(NULL, context, sizeof *none);
    for (int row = 0; row < context; row++) none[row] = -1;
    if (qdr_network_params(network, &counts) < 0) fail(qdr_last_error());
    net.tape = memset(grown(NULL, 1, sizeof *net.tape), 0, sizeof *net.tape);
    net.tape->tokens = net.tape->targets = none;
    begin_tape(&net, counts.total + sinks * network->layers * network->heads);
    forward(&net, 0);
    free(none);
    return net;
}

void serial_network_free(serial_network *net)
{
    tape *t = net->tape;
    void *const all[] = {t->values, t->gradients, t->begins, t->is_stored, t->parents, t->slopes, t, net->tensors};
    for (int i = 0; i < net->n_tensors; i++) {
        free(net->tensors[i].value);
        free(net->tensors[i].gradient);
    }
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
}

double serial_network_backprop(serial_network *net, int n_sequences, const int32_t *tokens, const int32_t *targets,
                               double scale, serial_noise noise)
{
    tape *t = net->tape;
    double sum = 0;
    t->noise = noise;
    begin_tape(net, 0);
    for (int i = 0; i < n_sequences; i++) {
        t->n_values = t->n_parameters;
        t->n_edges = 0;
        t->tokens = tokens + i * net->context;
        t->targets = targets + i * net->context;
        sum += forward(net, scale);
        go_back(t);
    }
    for (int i = 0; i < net->n_tensors; i++)
        for (int64_t k = 0; k < net->tensors[i].n; k++)
            net->tensors[i].gradient[k] += t->gradients[net->tensors[i].first + k];
    return sum;
}

void serial_network_clear_gradients(serial_network *net)
{
    for (int i = 0; i < net->n_tensors; i++)
        memset(net->tensors[i].gradient, 0, (size_t)net->tensors[i].n * sizeof(double));
}
