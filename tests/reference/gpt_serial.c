/* SPDX-License-Identifier: Apache-2.0 */
/* A GPT on one process in f64 with plain loops and a running error analysis. See gpt_serial.h. */
#include "gpt_serial.h"

#include "serial_ops.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_PARAMETERS 512

typedef struct block {
    array in, norm1, qkv, scores, attention, proj, middle, norm2, fc, gelu, fc2;
    norm_state state1, state2;
    int norm1_at, qkv_at, proj_at, norm2_at, fc_at, fc2_at; /* first parameter of each */
} block;

struct serial_gpt {
    serial_config c;
    int rows;
    int n_parameters, n_arrays;
    int64_t n_elems[MAX_PARAMETERS];
    double *value[MAX_PARAMETERS], *first[MAX_PARAMETERS], *second[MAX_PARAMETERS]; /* and Adam's moments */
    array gradient[MAX_PARAMETERS];
    block *blocks;
    array last, norm, logits, d_logits, d_norm, d_stream, d_wide, d_other, room;
    norm_state state;
    int norm_at, head_at, failed;
    int64_t step;
    double **owned; /* everything allocated */
};

static double *make(serial_gpt *gpt, int64_t n)
{
    double *memory = calloc((size_t)n + 1, sizeof *memory);
    double **more = realloc(gpt->owned, (size_t)(gpt->n_arrays + 1) * sizeof *more);
    if (more != NULL) gpt->owned = more;
    if (memory == NULL || more == NULL) {
        free(memory);
        gpt->failed = 1;
        return NULL;
    }
    return gpt->owned[gpt->n_arrays++] = memory;
}

static array make_array(serial_gpt *gpt, int64_t n)
{
    array a = {make(gpt, n), NULL};
    a.e = make(gpt, n);
    return a;
}

static int make_parameter(serial_gpt *gpt, int64_t n)
{
    const int i = gpt->n_parameters++;
    gpt->n_elems[i] = n;
    gpt->value[i] = make(gpt, n);
    gpt->first[i] = make(gpt, n);
    gpt->second[i] = make(gpt, n);
    gpt->gradient[i] = make_array(gpt, n);
    return i;
}

/* W[n,k] and b[n]; or gamma and beta (n = k = 1 each). */
static int make_pair(serial_gpt *gpt, int64_t n, int64_t k)
{
    const int at = make_parameter(gpt, n * k);
    make_parameter(gpt, n);
    return at;
}

static norm_state make_norm(serial_gpt *gpt)
{
    const int64_t n = (int64_t)gpt->rows * gpt->c.hidden;
    norm_state state;
    state.mean_free = make_array(gpt, n);
    state.normed = make_array(gpt, n);
    state.inverse = make_array(gpt, gpt->rows);
    return state;
}

static void make_block(serial_gpt *gpt, block *b)
{
    const int64_t h = gpt->c.hidden, narrow = gpt->rows * h;
    b->norm1_at = make_pair(gpt, h, 1);
    b->qkv_at = make_pair(gpt, 3 * h, h);
    b->proj_at = make_pair(gpt, h, h);
    b->norm2_at = make_pair(gpt, h, 1);
    b->fc_at = make_pair(gpt, 4 * h, h);
    b->fc2_at = make_pair(gpt, h, 4 * h);
    array *const wide[] = {&b->fc, &b->gelu};
    array *const thin[] = {&b->in, &b->norm1, &b->attention, &b->proj, &b->middle, &b->norm2, &b->fc2};
    for (size_t i = 0; i < sizeof wide / sizeof wide[0]; i++) *wide[i] = make_array(gpt, 4 * narrow);
    for (size_t i = 0; i < sizeof thin / sizeof thin[0]; i++) *thin[i] = make_array(gpt, narrow);
    b->qkv = make_array(gpt, 3 * narrow);
    b->scores = make_array(gpt, (int64_t)gpt->rows * gpt->c.n_heads * gpt->c.context);
    b->state1 = make_norm(gpt);
    b->state2 = make_norm(gpt);
}

serial_gpt *serial_create(const serial_config *config)
{
    serial_gpt *gpt = calloc(1, sizeof *gpt);
    if (gpt == NULL) return NULL;
    gpt->c = *config;
    gpt->rows = config->n_sequences * config->context;
    gpt->blocks = calloc((size_t)config->n_layers, sizeof *gpt->blocks);
    const int64_t h = config->hidden, narrow = gpt->rows * h;
    make_parameter(gpt, config->vocab * h);
    make_parameter(gpt, config->context * h);
    for (int i = 0; gpt->blocks && i < config->n_layers; i++) make_block(gpt, &gpt->blocks[i]);
    gpt->norm_at = make_pair(gpt, h, 1);
    gpt->head_at = config->tied ? 0 : make_parameter(gpt, config->vocab * h);
    gpt->last = make_array(gpt, narrow);
    gpt->norm = make_array(gpt, narrow);
    gpt->state = make_norm(gpt);
    gpt->logits = make_array(gpt, (int64_t)gpt->rows * config->vocab);
    gpt->d_logits = make_array(gpt, (int64_t)gpt->rows * config->vocab);
    gpt->d_norm = make_array(gpt, narrow);
    gpt->d_stream = make_array(gpt, narrow);
    gpt->room = make_array(gpt, config->context);
    gpt->d_wide = make_array(gpt, 4 * narrow);
    gpt->d_other = make_array(gpt, narrow);
    if (gpt->failed || gpt->blocks == NULL) {
        serial_destroy(gpt);
        return NULL;
    }
    return gpt;
}

void serial_destroy(serial_gpt *gpt)
{
    if (gpt == NULL) return;
    for (int i = 0; i < gpt->n_arrays; i++) free(gpt->owned[i]);
    free(gpt->owned);
    free(gpt->blocks);
    free(gpt);
}

int serial_n_parameters(const serial_gpt *gpt) { return gpt->n_parameters; }

int64_t serial_n_elems(const serial_gpt *gpt, int index) { return gpt->n_elems[index]; }

double *serial_parameter(serial_gpt *gpt, int index) { return gpt->value[index]; }

const double *serial_gradient(const serial_gpt *gpt, int index) { return gpt->gradient[index].v; }

const double *serial_gradient_variance(const serial_gpt *gpt, int index) { return gpt->gradient[index].e; }

/* The two norms of a block, and the last one. */
static void norm(const serial_gpt *gpt, int at, array x, norm_state *s, array y)
{
    serial_norm(gpt->rows, gpt->c.hidden, gpt->value[at], gpt->value[at + 1], x, s, y);
}

static void norm_backward(const serial_gpt *gpt, int at, const norm_state *s, array dy, array dx)
{
    serial_norm_backward(gpt->rows, gpt->c.hidden, gpt->value[at], s, dy, dx, gpt->gradient[at], gpt->gradient[at + 1]);
}

static attention_shape attention_of(const serial_gpt *gpt)
{
    const int heads = gpt->c.n_heads;
    return (attention_shape){.rows = gpt->rows,
                             .heads = heads,
                             .key_heads = heads,
                             .context = gpt->c.context,
                             .size = gpt->c.hidden / heads};
}

static void block_forward(serial_gpt *gpt, block *b, array out)
{
    const int m = gpt->rows, h = gpt->c.hidden;
    const attention_shape shape = attention_of(gpt);
    double **w = gpt->value;
    norm(gpt, b->norm1_at, b->in, &b->state1, b->norm1);
    serial_linear(m, 3 * h, h, b->norm1, w[b->qkv_at], w[b->qkv_at + 1], b->qkv);
    serial_attention(&shape, b->qkv, b->scores, b->attention);
    serial_linear(m, h, h, b->attention, w[b->proj_at], w[b->proj_at + 1], b->proj);
    serial_add((int64_t)m * h, b->in, b->proj, 1, b->middle);
    norm(gpt, b->norm2_at, b->middle, &b->state2, b->norm2);
    serial_linear(m, 4 * h, h, b->norm2, w[b->fc_at], w[b->fc_at + 1], b->fc);
    serial_activation(QDR_GELU_TANH, (int64_t)m * 4 * h, b->fc, (array){NULL, NULL}, b->gelu);
    serial_linear(m, h, 4 * h, b->gelu, w[b->fc2_at], w[b->fc2_at + 1], b->fc2);
    serial_add((int64_t)m * h, b->middle, b->fc2, 1, out);
}

/* gpt->d_stream holds the gradient of the block's output, then that of its input. */
static void block_backward(serial_gpt *gpt, block *b)
{
    const int m = gpt->rows, h = gpt->c.hidden;
    const attention_shape shape = attention_of(gpt);
    double **w = gpt->value;
    array *g = gpt->gradient, dx = gpt->d_stream;
    serial_linear_dw(m, h, 4 * h, dx, b->gelu, g[b->fc2_at], g[b->fc2_at + 1]);
    serial_linear_dx(m, h, 4 * h, dx, w[b->fc2_at], gpt->d_wide);
    serial_activation_backward(QDR_GELU_TANH, (int64_t)m * 4 * h, b->fc, (array){NULL, NULL}, gpt->d_wide, gpt->d_wide,
                               (array){NULL, NULL});
    serial_linear_dw(m, 4 * h, h, gpt->d_wide, b->norm2, g[b->fc_at], g[b->fc_at + 1]);
    serial_linear_dx(m, 4 * h, h, gpt->d_wide, w[b->fc_at], gpt->d_norm);
    norm_backward(gpt, b->norm2_at, &b->state2, gpt->d_norm, dx);

    serial_linear_dw(m, h, h, dx, b->attention, g[b->proj_at], g[b->proj_at + 1]);
    serial_linear_dx(m, h, h, dx, w[b->proj_at], gpt->d_other);
    serial_attention_backward(&shape, b->qkv, b->scores, gpt->d_other, gpt->d_wide, (array){NULL, NULL}, gpt->room);
    serial_linear_dw(m, 3 * h, h, gpt->d_wide, b->norm1, g[b->qkv_at], g[b->qkv_at + 1]);
    serial_linear_dx(m, 3 * h, h, gpt->d_wide, w[b->qkv_at], gpt->d_norm);
    norm_backward(gpt, b->norm1_at, &b->state1, gpt->d_norm, dx);
}

static double forward(serial_gpt *gpt, const int32_t *tokens, const int32_t *targets)
{
    const int layers = gpt->c.n_layers, v = gpt->c.vocab;
    serial_embed(gpt->rows, gpt->c.hidden, gpt->c.context, tokens, 1, gpt->value[0], gpt->value[1], gpt->blocks[0].in);
    for (int i = 0; i < layers; i++)
        block_forward(gpt, &gpt->blocks[i], i + 1 < layers ? gpt->blocks[i + 1].in : gpt->last);
    norm(gpt, gpt->norm_at, gpt->last, &gpt->state, gpt->norm);
    serial_linear(gpt->rows, v, gpt->c.hidden, gpt->norm, gpt->value[gpt->head_at], NULL, gpt->logits);
    double loss = 0, valid = 0;
    for (int row = 0; row < gpt->rows; row++) valid += targets[row] >= 0;
    for (int row = 0; row < gpt->rows; row++) {
        const int64_t at = (int64_t)row * v;
        loss += serial_cross_entropy(v, gpt->logits.v + at, gpt->logits.e + at, targets[row], 1, 0, valid,
                                     gpt->d_logits.v + at, gpt->d_logits.e + at);
    }
    return loss / valid;
}

double serial_backprop(serial_gpt *gpt, const int32_t *tokens, const int32_t *targets)
{
    const int m = gpt->rows, h = gpt->c.hidden, v = gpt->c.vocab;
    for (int i = 0; i < gpt->n_parameters; i++) {
        memset(gpt->gradient[i].v, 0, (size_t)gpt->n_elems[i] * sizeof(double));
        memset(gpt->gradient[i].e, 0, (size_t)gpt->n_elems[i] * sizeof(double));
    }
    const double loss = forward(gpt, tokens, targets);
    serial_linear_dw(m, v, h, gpt->d_logits, gpt->norm, gpt->gradient[gpt->head_at], (array){NULL, NULL});
    serial_linear_dx(m, v, h, gpt->d_logits, gpt->value[gpt->head_at], gpt->d_norm);
    memset(gpt->d_stream.v, 0, (size_t)m * (size_t)h * sizeof(double));
    memset(gpt->d_stream.e, 0, (size_t)m * (size_t)h * sizeof(double));
    norm_backward(gpt, gpt->norm_at, &gpt->state, gpt->d_norm, gpt->d_stream);
    for (int i = gpt->c.n_layers - 1; i >= 0; i--) block_backward(gpt, &gpt->blocks[i]);
    serial_embed_backward(m, h, gpt->c.context, tokens, 1, gpt->d_stream, gpt->gradient[0], gpt->gradient[1]);
    return loss;
}

void serial_adamw(serial_gpt *gpt, double lr, double beta1, double beta2, double weight_decay, double clip_norm,
                  const int *decay)
{
    double squares = 0;
    for (int i = 0; i < gpt->n_parameters; i++)
        for (int64_t j = 0; j < gpt->n_elems[i]; j++) squares += gpt->gradient[i].v[j] * gpt->gradient[i].v[j];
    const double norm = sqrt(squares), factor = clip_norm > 0 && norm > clip_norm ? clip_norm / norm : 1;
    gpt->step++;
    const double first_part = 1 - pow(beta1, (double)gpt->step), second_part = 1 - pow(beta2, (double)gpt->step);
    for (int i = 0; i < gpt->n_parameters; i++)
        for (int64_t j = 0; j < gpt->n_elems[i]; j++) {
            const double g = factor * gpt->gradient[i].v[j];
            double *m = &gpt->first[i][j], *v = &gpt->second[i][j], *p = &gpt->value[i][j];
            *m = beta1 * *m + (1 - beta1) * g;
            *v = beta2 * *v + (1 - beta2) * g * g;
            *p -= lr * (*m / first_part / (sqrt(*v / second_part) + 1e-8) + (decay[i] ? weight_decay : 0) * *p);
        }
}
