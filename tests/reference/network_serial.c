/* SPDX-License-Identifier: Apache-2.0 */
/* See network_serial.h. */
#include "network_serial.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Values of a sequence's rows: (row, col) is value at + row · step + col. */
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

static double *zeros(int64_t n) { return memset(grown(NULL, n, sizeof(double)), 0, (size_t)n * sizeof(double)); }

/* ---- values and what they were computed from ---- */

static double rounded(serial_network *net, double value, double roundoff)
{
    if (roundoff == 0) return value;
    uint64_t z = net->noise.seed += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return value * (1 + roundoff * ((double)((z ^ (z >> 31)) >> 11) * 0x1p-52 - 1));
}

static double computed(serial_network *net, double value) { return rounded(net, value, net->noise.computed); }

/* Functions may err by 4 units in the last place. */
static double function(serial_network *net, double value) { return rounded(net, value, 8 * net->noise.computed); }

static double get(const serial_network *net, int64_t i) { return net->values[i].value; }

/* The next value was computed from this one. */
static void from(serial_network *net, int64_t i, double slope)
{
    if (net->n_edges == net->edge_room) {
        net->edge_room = 2 * net->edge_room + 1024;
        net->edges = grown(net->edges, net->edge_room, sizeof *net->edges);
    }
    net->edges[net->n_edges++] = (serial_edge){i, slope};
}

static int64_t put(serial_network *net, double value, double roundoff)
{
    if (net->n_values + 1 >= net->value_room) {
        net->value_room = 2 * net->value_room + 1024;
        net->values = grown(net->values, net->value_room, sizeof *net->values);
    }
    serial_value *v = &net->values[net->n_values++];
    const int64_t first_edge = v == net->values ? 0 : v->first_edge;
    *v = (serial_value){rounded(net, value, roundoff), 0, roundoff, first_edge};
    v[1].first_edge = net->n_edges;
    return net->n_values - 1;
}

static int64_t compute(serial_network *net, double value) { return put(net, value, net->noise.computed); }

static void store(serial_network *net, double value)
{
    put(net, value, net->is_inside ? net->noise.computed : net->noise.stored);
}

/* sum += a · b */
static void add_product(serial_network *net, int64_t a, int64_t b, double *sum)
{
    from(net, a, get(net, b));
    from(net, b, get(net, a));
    *sum = computed(net, *sum + get(net, a) * get(net, b));
}

/* From the last value back to the parameters, whose gradients accumulate. */
static void go_back(serial_network *net)
{
    for (int64_t i = net->n_values - 1; i >= net->n_parameters; i--) {
        const serial_value *v = &net->values[i];
        const double gradient = rounded(net, v->gradient, v->roundoff);
        for (int64_t e = v->first_edge; gradient != 0 && e < v[1].first_edge; e++) {
            double *to = &net->values[net->edges[e].from].gradient;
            *to = computed(net, *to + gradient * net->edges[e].slope);
        }
    }
}

/* ---- parameters ---- */

double serial_tensor_distance(const serial_tensor *tensor, const double *gradient)
{
    double squares = 0;
    for (int64_t k = 0; k < tensor->n; k++) squares += pow(gradient[k] - tensor->gradient[k], 2);
    return sqrt(squares);
}

/* The first value of a parameter of this layer, "qkv" and "weight"; a first pass, over zeros, makes it. */
static int64_t parameter(serial_network *net, const char *part, const char *what, int64_t n)
{
    serial_tensor made = {.n = n};
    if (net->layer < 0)
        snprintf(made.name, sizeof made.name, "%s.%s", part, what);
    else
        snprintf(made.name, sizeof made.name, "block%d.%s.%s", net->layer, part, what);
    for (int i = 0; i < net->n_tensors; i++) {
        if (strcmp(net->tensors[i].name, made.name) == 0) return net->tensors[i].first;
        made.first += net->tensors[i].n;
    }
    made.value = zeros(n);
    made.gradient = zeros(n);
    for (int i = 0; i < 2; i++) made.moments[i] = zeros(n);
    net->tensors = grown(net->tensors, net->n_tensors + 1, sizeof made);
    net->tensors[net->n_tensors++] = made;
    return made.first;
}

/* ---- operations, each on all rows ---- */

static matrix begin(const serial_network *net, int64_t n_cols) { return (matrix){net->n_values, n_cols}; }

static int64_t place(matrix m, int64_t row, int64_t col) { return m.at + row * m.step + col; }

/* y[n] = W[n,k]·x[k] + b[n] */
static matrix linear(serial_network *net, const char *part, int has_bias, matrix x, int64_t k, int64_t n)
{
    const int is_tied = strcmp(part, "head") == 0 && net->network.tied;
    const int64_t w = parameter(net, is_tied ? "embedding" : part, "weight", n * k),
                  b = has_bias ? parameter(net, part, "bias", n) : 0;
    const matrix y = begin(net, n);
    for (int row = 0; row < net->context; row++)
        for (int64_t i = 0; i < n; i++) {
            double sum = 0;
            for (int64_t j = 0; j < k; j++) add_product(net, w + i * k + j, place(x, row, j), &sum);
            if (has_bias) from(net, b + i, 1);
            store(net, has_bias ? sum + get(net, b + i) : sum);
        }
    return y;
}

/* Two values: the mean of n others, of an RMS norm 0, and 1 / sqrt(mean of squared deviations + epsilon). */
static void add_moments(serial_network *net, int is_rms, int64_t x, int64_t n)
{
    const double epsilon = net->network.norm_epsilon > 0 ? net->network.norm_epsilon : 1e-5, share = 1 / (double)n;
    double sum = 0, squares = 0, deviations = 0;
    for (int64_t i = 0; !is_rms && i < n; i++) {
        from(net, x + i, share);
        sum = computed(net, sum + share * get(net, x + i));
    }
    const int64_t mean = compute(net, sum);
    for (int64_t i = 0; i < n; i++) {
        const double d = computed(net, get(net, x + i) - get(net, mean));
        squares = computed(net, squares + share * d * d);
        deviations += share * d;
    }
    const double inverse = 1 / sqrt(squares + epsilon), cube = inverse * inverse * inverse;
    for (int64_t i = 0; i < n; i++) from(net, x + i, -cube * share * (get(net, x + i) - get(net, mean)));
    from(net, mean, cube * deviations);
    compute(net, inverse);
}

/* Groups of n columns, each normed by itself with the same parameters; beta -1: none. */
static matrix norm(serial_network *net, int is_rms, matrix x, int64_t n_groups, int64_t n, int64_t gamma, int64_t beta)
{
    const int64_t moments = net->n_values;
    for (int64_t i = 0; i < net->context * n_groups; i++)
        add_moments(net, is_rms, place(x, i / n_groups, i % n_groups * n), n);
    const matrix y = begin(net, n_groups * n);
    for (int64_t i = 0; i < net->context * n_groups * n; i++) {
        const int64_t in = place(x, i / y.step, i % y.step), mean = moments + i / n * 2, col = i % n;
        const double factor = get(net, gamma + col) + net->network.norm_one_plus, inverse = get(net, mean + 1),
                     d = computed(net, get(net, in) - get(net, mean));
        from(net, in, inverse * factor);
        from(net, mean, -inverse * factor);
        from(net, mean + 1, d * factor);
        from(net, gamma + col, d * inverse);
        if (beta >= 0) from(net, beta + col, 1);
        store(net, computed(net, d * inverse * factor) + (beta >= 0 ? get(net, beta + col) : 0));
    }
    return y;
}

static matrix stream_norm(serial_network *net, const char *part, matrix x)
{
    const qdr_network *n = &net->network;
    const int has_beta = n->norm == QDR_NORM_LAYER && !n->norm_no_beta;
    const int64_t gamma = parameter(net, part, "gamma", n->hidden),
                  beta = has_beta ? parameter(net, part, "beta", n->hidden) : -1;
    return norm(net, n->norm == QDR_NORM_RMS, x, 1, n->hidden, gamma, beta);
}

/* Bits of layer_kinds. */
static int kind_of(const serial_network *net)
{
    const qdr_network *n = &net->network;
    for (int i = 0; i < n->layers; i++)
        if (n->layer_kinds[i]) return n->layer_kinds[net->layer];
    return net->layer >= n->layers - n->window_layers ? QDR_LAYER_WINDOW : 0;
}

/* Heads of queries or keys, turned by their positions. */
static matrix turned(serial_network *net, matrix x, int64_t n_heads)
{
    const qdr_network *n = &net->network;
    const qdr_rotary *rotary = kind_of(net) & QDR_LAYER_LOCAL ? &n->local_rotary : &n->rotary;
    const int64_t size = n->head_size, pairs = rotary->columns ? (rotary->columns + 1) / 2 : size / 2;
    double magnitude, *frequencies = grown(NULL, pairs + 1, sizeof *frequencies);
    const int is_turned = !n->positions && !(kind_of(net) & QDR_LAYER_UNROTATED);
    if (is_turned && qdr_network_rotary(n, net->layer, net->context, frequencies, &magnitude) < 0)
        fail(qdr_last_error());
    const matrix y = begin(net, n_heads * size);
    for (int64_t i = 0; is_turned && i < net->context * y.step; i++) {
        const int64_t row = i / y.step, in = place(x, row, i % y.step), col = i % size;
        const int is_second = rotary->interleaved ? col % 2 == 1 : col >= pairs;
        const int64_t other = in + (is_second ? -1 : 1) * (rotary->interleaved ? 1 : pairs);
        const double angle = (double)row * frequencies[rotary->interleaved ? col / 2 % pairs : col % pairs],
                     c = magnitude * cos(angle), s = magnitude * sin(angle) * (is_second ? 1 : -1);
        const int stays = col >= 2 * pairs;
        from(net, in, stays ? 1 : c);
        if (!stays) from(net, other, s);
        store(net, stays ? get(net, in) : computed(net, c * get(net, in)) + s * get(net, other));
    }
    free(frequencies);
    return is_turned ? y : x;
}

/* n values times a factor, then with a cap cap · tanh(value / cap). @return the first */
static int64_t shaped(serial_network *net, int64_t first, int64_t n, double factor, double cap)
{
    const int64_t made = net->n_values;
    for (int64_t i = 0; i < n; i++) {
        const double v = computed(net, factor * get(net, first + i)), h = cap > 0 ? exp(-2 * fabs(v / cap)) : 0;
        from(net, first + i, cap > 0 ? function(net, factor * 4 * h / ((1 + h) * (1 + h))) : factor);
        compute(net, cap > 0 ? function(net, cap * tanh(v / cap)) : v);
    }
    return made;
}

/* log(Σ exp(value)) of n values, and of one more unless it is -1 */
static int64_t add_log_sum(serial_network *net, int64_t first, int64_t n, int64_t more)
{
    double highest = more >= 0 ? get(net, more) : -INFINITY, sum = 0;
    for (int64_t i = 0; i < n; i++) highest = fmax(highest, get(net, first + i));
    for (int64_t i = -1; i < n; i++)
        if (i >= 0 || more >= 0) sum = computed(net, sum + exp(get(net, i < 0 ? more : first + i) - highest));
    for (int64_t i = -1; i < n; i++)
        if (i >= 0 || more >= 0)
            from(net, i < 0 ? more : first + i, function(net, exp(get(net, i < 0 ? more : first + i) - highest) / sum));
    return compute(net, highest + function(net, log(sum)));
}

static int first_seen(const serial_network *net, int row)
{
    const int64_t window = kind_of(net) & QDR_LAYER_WINDOW ? net->network.window : 0;
    const int in_window = window > 0 && row >= window ? (int)(row - window + 1) : 0;
    const int given = net->first_keys ? net->first_keys[net->first_row + row] : 0;
    return given > in_window ? given : in_window;
}

/* Causal. The scores of a row and head are just before their log-sum, that of the row itself last. */
static matrix attention(serial_network *net, matrix q, matrix k, matrix v)
{
    const qdr_network *n = &net->network;
    const int64_t heads = n->heads, size = n->head_size, group = heads / n->kv_heads,
                  sinks = net->sinks ? parameter(net, "attention", "sinks", heads) : -1;
    const double scale = n->attention_scale > 0 ? n->attention_scale : 1 / sqrt((double)size);
    int64_t *log_sums = grown(NULL, net->context * heads, sizeof *log_sums);
    for (int64_t i = 0; i < net->context * heads; i++) {
        const int row = (int)(i / heads), first = first_seen(net, row);
        const int64_t head = i % heads, dots = net->n_values, n_keys = row - first + 1;
        for (int key = first; key <= row; key++) {
            double dot = 0;
            for (int64_t c = 0; c < size; c++)
                add_product(net, place(q, row, head * size + c), place(k, key, head / group * size + c), &dot);
            compute(net, dot);
        }
        const int64_t scores = shaped(net, dots, n_keys, scale, n->attention_cap);
        log_sums[i] = add_log_sum(net, scores, n_keys, sinks < 0 ? -1 : sinks + head);
    }
    net->is_inside = 0;
    const matrix y = begin(net, heads * size);
    for (int64_t i = 0; i < net->context * y.step; i++) {
        const int row = (int)(i / y.step);
        const int64_t head = i % y.step / size, log_sum = log_sums[i / size];
        double mean = 0;
        for (int key = first_seen(net, row); key <= row; key++) {
            const int64_t score = log_sum - (row - key + 1), value = place(v, key, head / group * size + i % size);
            const double p = function(net, exp(get(net, score) - get(net, log_sum)));
            from(net, score, p * get(net, value));
            from(net, value, p);
            mean = computed(net, mean + p * get(net, value));
        }
        from(net, log_sum, -mean);
        store(net, mean);
    }
    free(log_sums);
    return y;
}

static matrix attention_half(serial_network *net, matrix x)
{
    const qdr_network *n = &net->network;
    const int64_t size = n->head_size, n_q = n->heads * size, n_k = n->kv_heads * size;
    const matrix qkv = linear(net, "qkv", n->qkv_bias, x, n->hidden, n_q + 2 * n_k), v = {qkv.at + n_q + n_k, qkv.step};
    matrix q = qkv, k = {qkv.at + n_q, qkv.step};
    if (n->head_norm == QDR_HEAD_NORM_ALL) {
        const int64_t gamma = parameter(net, "qk_norm", "gamma", n_q + n_k);
        q = norm(net, 1, q, 1, n_q, gamma, -1);
        k = norm(net, 1, k, 1, n_k, gamma + n_q, -1);
    }
    net->is_inside = 1;
    if (n->head_norm == QDR_HEAD_NORM_EACH) {
        q = norm(net, 1, q, n->heads, size, parameter(net, "attention", "q_gamma", size), -1);
        k = norm(net, 1, k, n->kv_heads, size, parameter(net, "attention", "k_gamma", size), -1);
    }
    q = turned(net, q, n->heads);
    k = turned(net, k, n->kv_heads);
    return linear(net, "proj", n->out_bias, attention(net, q, k, v), n_q, n->hidden);
}

/* An activation by its name in transformers, and its slope. */
static double activation(serial_network *net, const char *name, double x, double *slope)
{
    const double root = 0.79788456080286535588; /* sqrt(2/pi) */
    const double th = tanh(root * (x + 0.044715 * x * x * x)), below = erfc(-x / sqrt(2)) / 2, s = 1 / (1 + exp(-x));
    double y = 0.5 * x * (1 + th);
    *slope = 0.5 * (1 + th) + 0.5 * x * (1 - th * th) * root * (1 + 3 * 0.044715 * x * x);
    if (strcmp(name, "gelu") == 0) y = x * below, *slope = below + x * root / 2 * exp(-x * x / 2);
    if (strcmp(name, "silu") == 0) y = x * s, *slope = s * (1 + x * (1 - s));
    if (strcmp(name, "relu") == 0) y = fmax(x, 0), *slope = x > 0;
    if (strcmp(name, "relu2") == 0) y = x > 0 ? x * x : 0, *slope = 2 * fmax(x, 0);
    *slope = function(net, *slope);
    return function(net, y);
}

static matrix mlp_half(serial_network *net, matrix x)
{
    const qdr_network *n = &net->network;
    const matrix wide = linear(net, "fc", n->mlp_bias, x, n->hidden, (n->gated ? 2 : 1) * n->ffn);
    const matrix y = begin(net, n->ffn);
    for (int64_t i = 0; i < net->context * n->ffn; i++) {
        const int64_t gate = place(wide, i / n->ffn, i % n->ffn), up = gate + n->ffn;
        double slope;
        const double f = activation(net, n->activation, get(net, gate), &slope), factor = n->gated ? get(net, up) : 1;
        from(net, gate, slope * factor);
        if (n->gated) from(net, up, f);
        store(net, f * factor);
    }
    return linear(net, "fc2", n->mlp_bias, y, n->ffn, n->hidden);
}

/* stream + factor · branch */
static matrix residual(serial_network *net, matrix stream, matrix branch)
{
    const double factor = net->network.branch_factor != 0 ? net->network.branch_factor : 1;
    const matrix y = begin(net, net->network.hidden);
    for (int64_t i = 0; i < net->context * y.step; i++) {
        from(net, stream.at + i, 1);
        from(net, branch.at + i, factor);
        store(net, get(net, stream.at + i) + computed(net, factor * get(net, branch.at + i)));
    }
    return y;
}

static matrix one_layer(serial_network *net, matrix x)
{
    const qdr_network *n = &net->network;
    const int before = n->norm_place != QDR_NORM_AFTER, after = n->norm_place != QDR_NORM_BEFORE,
              is_shared = n->parallel_residual && n->norms_per_layer == 1;
    const matrix first = before ? stream_norm(net, "norm1", x) : x;
    matrix branch = attention_half(net, first);
    if (after) branch = stream_norm(net, "after1", branch);
    const matrix middle = residual(net, x, branch), second = n->parallel_residual ? x : middle;
    branch = mlp_half(net, is_shared ? first : before ? stream_norm(net, "norm2", second) : second);
    if (after) branch = stream_norm(net, "after2", branch);
    return residual(net, middle, branch);
}

/* factor · E[token] + P[position]; a token < 0 has no E */
static matrix embedding(serial_network *net, const int32_t *tokens)
{
    const qdr_network *n = &net->network;
    const int64_t table = parameter(net, "embedding", "weight", n->vocab * n->hidden),
                  positions = n->positions ? parameter(net, "embedding", "positions", net->context * n->hidden) : -1;
    const double factor = n->embedding_factor != 0 ? n->embedding_factor : 1;
    const matrix x = begin(net, n->hidden);
    for (int64_t i = 0; i < net->context * n->hidden; i++) {
        const int64_t token = tokens[i / n->hidden], entry = table + token * n->hidden + i % n->hidden;
        if (token >= 0) from(net, entry, factor);
        if (positions >= 0) from(net, positions + i, 1);
        const double sum = token >= 0 ? computed(net, factor * get(net, entry)) : 0;
        store(net, positions >= 0 ? sum + get(net, positions + i) : sum);
    }
    return x;
}

/* The sum of the losses of one sequence; begins their gradients with `scale`. */
static double forward(serial_network *net, const int32_t *tokens, const int32_t *targets, double scale)
{
    const qdr_network *n = &net->network;
    double sum = 0;
    net->layer = -1;
    matrix x = embedding(net, tokens);
    for (net->layer = 0; net->layer < n->layers; net->layer++) x = one_layer(net, x);
    net->layer = -1;
    const matrix logits = linear(net, "head", 0, stream_norm(net, "norm", x), n->hidden, n->vocab);
    for (int row = 0; row < net->context; row++) {
        if (targets[row] < 0) continue;
        const int64_t made = shaped(net, place(logits, row, 0), n->vocab, n->logits_factor != 0 ? n->logits_factor : 1,
                                    n->logits_cap),
                      log_sum = add_log_sum(net, made, n->vocab, -1);
        const double whole = get(net, log_sum);
        net->values[log_sum].gradient = scale * (1 + 2 * net->z_loss * whole);
        net->values[made + targets[row]].gradient = -scale;
        sum += whole - get(net, made + targets[row]) + net->z_loss * whole * whole;
    }
    return sum;
}

/* ---- the network ---- */

/* Its parameters, or as many zeros as there will be. */
static void begin_values(serial_network *net, int64_t n_zeros)
{
    net->n_values = net->n_edges = 0;
    for (int i = 0; i < net->n_tensors; i++)
        for (int64_t k = 0; k < net->tensors[i].n; k++) store(net, net->tensors[i].value[k]);
    for (int64_t i = 0; i < n_zeros; i++) store(net, 0);
    net->n_parameters = net->n_values;
}

serial_network serial_network_make(const qdr_network *network, int context, int sinks)
{
    serial_network net = {.network = *network, .context = context, .sinks = sinks};
    qdr_network_counts counts = {QDR_INIT(qdr_network_counts)};
    int32_t *none = grown(NULL, context, sizeof *none);
    for (int row = 0; row < context; row++) none[row] = -1;
    if (qdr_network_params(network, &counts) < 0) fail(qdr_last_error());
    begin_values(&net, counts.total + sinks * network->layers * network->heads);
    forward(&net, none, none, 0);
    free(none);
    return net;
}

void serial_network_free(serial_network *net)
{
    for (int i = 0; i < net->n_tensors; i++) {
        free(net->tensors[i].value);
        free(net->tensors[i].gradient);
        free(net->tensors[i].moments[0]);
        free(net->tensors[i].moments[1]);
    }
    free(net->tensors);
    free(net->values);
    free(net->edges);
}

double serial_network_backprop(serial_network *net, int n_sequences, const int32_t *tokens, const int32_t *targets,
                               double scale, serial_noise noise)
{
    double sum = 0;
    net->noise = noise;
    begin_values(net, 0);
    for (int i = 0; i < n_sequences; i++) {
        net->n_values = net->n_parameters;
        net->n_edges = 0;
        net->first_row = i * net->context;
        sum += forward(net, tokens + i * net->context, targets + i * net->context, scale);
        go_back(net);
    }
    for (int i = 0; i < net->n_tensors; i++)
        for (int64_t k = 0; k < net->tensors[i].n; k++)
            net->tensors[i].gradient[k] = net->values[net->tensors[i].first + k].gradient;
    return sum;
}

double serial_network_expect(serial_network *net, int n_sequences, const int32_t *tokens, const int32_t *targets,
                             double scale, double roundoff, uint64_t seed)
{
    enum { SAMPLES = 4, SIGMAS = 30 };
    /* F64's own would drown in the oracle's; to first order, errors are in proportion to the noise. */
    const double noise = fmax(roundoff, 0x1p-30), factor = SIGMAS * roundoff / noise / sqrt(SAMPLES);
    const double sum = serial_network_backprop(net, n_sequences, tokens, targets, scale, (serial_noise){0});
    double *exact = zeros(net->n_parameters), squares = 0;
    for (int i = 0; i < net->n_tensors; i++) {
        serial_tensor *t = &net->tensors[i];
        memcpy(exact + t->first, t->gradient, (size_t)t->n * sizeof *exact);
        t->off = 0;
    }
    for (int sample = 0; sample < SAMPLES; sample++) {
        const serial_noise how = {noise, noise, seed + (uint64_t)sample};
        squares += pow(serial_network_backprop(net, n_sequences, tokens, targets, scale, how) - sum, 2);
        for (int i = 0; i < net->n_tensors; i++)
            net->tensors[i].off = hypot(net->tensors[i].off,
                                        serial_tensor_distance(&net->tensors[i], exact + net->tensors[i].first));
    }
    net->loss_off = factor * sqrt(squares);
    for (int i = 0; i < net->n_tensors; i++) {
        net->tensors[i].off *= factor;
        memcpy(net->tensors[i].gradient, exact + net->tensors[i].first, (size_t)net->tensors[i].n * sizeof *exact);
    }
    free(exact);
    return sum;
}

void serial_network_adamw(serial_network *net, double rate, double beta1, double beta2, double weight_decay,
                          double clip_norm, const int *decay)
{
    double norm = 0;
    for (int i = 0; i < net->n_tensors; i++)
        for (int64_t k = 0; k < net->tensors[i].n; k++) norm = hypot(norm, net->tensors[i].gradient[k]);
    const double factor = clip_norm > 0 && norm > clip_norm ? clip_norm / norm : 1;
    net->n_steps++;
    for (int i = 0; i < net->n_tensors; i++) {
        const serial_tensor *t = &net->tensors[i];
        for (int64_t k = 0; k < t->n; k++) {
            double *m = &t->moments[0][k], *v = &t->moments[1][k];
            *m = beta1 * *m + (1 - beta1) * factor * t->gradient[k];
            *v = beta2 * *v + (1 - beta2) * pow(factor * t->gradient[k], 2);
            const double step = *m / (1 - pow(beta1, net->n_steps)) /
                                (sqrt(*v / (1 - pow(beta2, net->n_steps))) + 1e-8);
            t->value[k] -= rate * (step + (decay[i] ? weight_decay * t->value[k] : 0));
        }
    }
}
