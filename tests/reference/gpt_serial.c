/* SPDX-License-Identifier: Apache-2.0 */
/* A GPT on one process in f64 with plain loops and a running error analysis. See gpt_serial.h.
 *
 * Every array is a pair: v the values, e the variance of their rounding errors. A sum of n terms, in any order, makes at most
 * n + 2 roundings of numbers no larger than Σ|terms|: variance (n + 2)·u²·(Σ|terms|)². A function is assumed to be right to
 * 4 units in the last place (8u). */
#include "gpt_serial.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define U 0x1p-53
#define FUNCTION (8 * U)
#define MAX_PARAMETERS 512
#define EPSILON_NORM 1e-5
#define ROOT_2_OVER_PI 0.79788456080286535588

typedef struct array {
    double *v, *e;
} array;

typedef struct norm_state {
    array mean_free, normed; /* x - mean, and that over sigma */
    array inverse;           /* 1/sigma of each row; e is relative */
} norm_state;

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
    array last, norm, logits, d_logits, d_norm, d_stream, d_middle, d_wide, d_other;
    norm_state state;
    int norm_at, head_at, failed;
    int64_t step;
    double *sizes; /* room for sums of absolute values */
    double **owned; /* everything allocated */
};

static double sq(double x)
{
    return x * x;
}

/* Variance of n roundings of numbers up to `size`. */
static double roundings(int n, double size)
{
    return (double)n * sq(U * size);
}

static double *make(serial_gpt *gpt, int64_t n)
{
    double *memory = calloc((size_t)n + 1, sizeof *memory);
    double **more = realloc(gpt->owned, (size_t)(gpt->n_arrays + 1) * sizeof *more);
    if (more != NULL)
        gpt->owned = more;
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
    for (size_t i = 0; i < sizeof wide / sizeof wide[0]; i++)
        *wide[i] = make_array(gpt, 4 * narrow);
    for (size_t i = 0; i < sizeof thin / sizeof thin[0]; i++)
        *thin[i] = make_array(gpt, narrow);
    b->qkv = make_array(gpt, 3 * narrow);
    b->scores = make_array(gpt, (int64_t)gpt->rows * gpt->c.n_heads * gpt->c.context);
    b->state1 = make_norm(gpt);
    b->state2 = make_norm(gpt);
}

serial_gpt *serial_create(const serial_config *config)
{
    serial_gpt *gpt = calloc(1, sizeof *gpt);
    if (gpt == NULL)
        return NULL;
    gpt->c = *config;
    gpt->rows = config->n_sequences * config->context;
    gpt->blocks = calloc((size_t)config->n_layers, sizeof *gpt->blocks);
    const int64_t h = config->hidden, narrow = gpt->rows * h;
    make_parameter(gpt, config->vocab * h);
    make_parameter(gpt, config->context * h);
    for (int i = 0; gpt->blocks && i < config->n_layers; i++)
        make_block(gpt, &gpt->blocks[i]);
    gpt->norm_at = make_pair(gpt, h, 1);
    gpt->head_at = config->tied ? 0 : make_parameter(gpt, config->vocab * h);
    gpt->last = make_array(gpt, narrow);
    gpt->norm = make_array(gpt, narrow);
    gpt->state = make_norm(gpt);
    gpt->logits = make_array(gpt, (int64_t)gpt->rows * config->vocab);
    gpt->d_logits = make_array(gpt, (int64_t)gpt->rows * config->vocab);
    gpt->d_norm = make_array(gpt, narrow);
    gpt->d_stream = make_array(gpt, narrow);
    gpt->d_middle = make_array(gpt, 4 * narrow);
    gpt->d_wide = make_array(gpt, 4 * narrow);
    gpt->d_other = make_array(gpt, narrow);
    gpt->sizes = make(gpt, 2 * h);
    if (gpt->failed || gpt->blocks == NULL) {
        serial_destroy(gpt);
        return NULL;
    }
    return gpt;
}

void serial_destroy(serial_gpt *gpt)
{
    if (gpt == NULL)
        return;
    for (int i = 0; i < gpt->n_arrays; i++)
        free(gpt->owned[i]);
    free(gpt->owned);
    free(gpt->blocks);
    free(gpt);
}

int serial_n_parameters(const serial_gpt *gpt)
{
    return gpt->n_parameters;
}

int64_t serial_n_elems(const serial_gpt *gpt, int index)
{
    return gpt->n_elems[index];
}

double *serial_parameter(serial_gpt *gpt, int index)
{
    return gpt->value[index];
}

const double *serial_gradient(const serial_gpt *gpt, int index)
{
    return gpt->gradient[index].v;
}

const double *serial_gradient_variance(const serial_gpt *gpt, int index)
{
    return gpt->gradient[index].e;
}

/* y[m,n] = x[m,k]·w[n,k]ᵀ + b[n]; b may be NULL. */
static void linear(int m, int n, int k, array x, const double *w, const double *b, array y)
{
    for (int i = 0; i < m; i++)
        for (int o = 0; o < n; o++) {
            double sum = b ? b[o] : 0, size = fabs(sum), error = 0;
            for (int j = 0; j < k; j++) {
                const double xv = x.v[i * k + j], wv = w[o * k + j];
                sum += xv * wv;
                size += fabs(xv * wv);
                error += x.e[i * k + j] * sq(wv);
            }
            y.v[i * n + o] = sum;
            y.e[i * n + o] = error + roundings(k + 2, size);
        }
}

/* dx = dy·w (overwritten) */
static void linear_dx(int m, int n, int k, array dy, const double *w, array dx)
{
    for (int i = 0; i < m; i++)
        for (int j = 0; j < k; j++) {
            double sum = 0, size = 0, error = 0;
            for (int o = 0; o < n; o++) {
                const double d = dy.v[i * n + o], wv = w[o * k + j];
                sum += d * wv;
                size += fabs(d * wv);
                error += dy.e[i * n + o] * sq(wv);
            }
            dx.v[i * k + j] = sum;
            dx.e[i * k + j] = error + roundings(n + 2, size);
        }
}

/* dw += dyᵀ·x, db += Σ rows of dy (db.v may be NULL) */
static void linear_dw(int m, int n, int k, array dy, array x, array dw, array db)
{
    for (int o = 0; o < n; o++) {
        for (int j = 0; j < k; j++) {
            double size = 0;
            for (int i = 0; i < m; i++) {
                const double d = dy.v[i * n + o], xv = x.v[i * k + j];
                dw.v[o * k + j] += d * xv;
                dw.e[o * k + j] += dy.e[i * n + o] * sq(xv) + sq(d) * x.e[i * k + j];
                size += fabs(d * xv);
            }
            dw.e[o * k + j] += roundings(m + 3, size + fabs(dw.v[o * k + j]));
        }
        double size = 0;
        for (int i = 0; db.v && i < m; i++) {
            db.v[o] += dy.v[i * n + o];
            db.e[o] += dy.e[i * n + o];
            size += fabs(dy.v[i * n + o]);
        }
        if (db.v)
            db.e[o] += roundings(m + 2, size);
    }
}

static void norm_row(int n, const double *x, const double *ex, norm_state *s, int row)
{
    double mean = 0, size = 0, e_mean = 0, var = 0, e_var = 0;
    double *d = s->mean_free.v + row * n, *ed = s->mean_free.e + row * n;
    for (int i = 0; i < n; i++) {
        mean += x[i] / n;
        size += fabs(x[i]) / n;
        e_mean += ex[i] / sq(n);
    }
    e_mean += roundings(n + 2, size);
    for (int i = 0; i < n; i++) {
        d[i] = x[i] - mean;
        ed[i] = ex[i] + e_mean + roundings(1, d[i]);
        var += sq(d[i]) / n;
        e_var += sq(2 * d[i] / n) * ed[i];
    }
    /* merged parts add (mean_a - mean_b)², whose factors are at most a few sigma and as wrong as the means */
    e_var += 16 * var * e_mean + roundings(2 * n + 8, var);
    s->inverse.v[row] = 1 / sqrt(var + EPSILON_NORM);
    s->inverse.e[row] = 0.25 * e_var / sq(var + EPSILON_NORM) + sq(4 * U);
    for (int i = 0; i < n; i++) {
        const double h = d[i] * s->inverse.v[row];
        s->normed.v[row * n + i] = h;
        s->normed.e[row * n + i] = ed[i] * sq(s->inverse.v[row]) + sq(h) * (s->inverse.e[row] + sq(2 * U));
    }
}

static void layer_norm(const serial_gpt *gpt, int at, array x, norm_state *s, array y)
{
    const int n = gpt->c.hidden;
    const double *gamma = gpt->value[at], *beta = gpt->value[at + 1];
    for (int row = 0; row < gpt->rows; row++) {
        norm_row(n, x.v + row * n, x.e + row * n, s, row);
        for (int i = 0; i < n; i++) {
            const double h = s->normed.v[row * n + i];
            y.v[row * n + i] = h * gamma[i] + beta[i];
            y.e[row * n + i] = s->normed.e[row * n + i] * sq(gamma[i]) + roundings(2, fabs(h * gamma[i]) + fabs(beta[i]));
        }
    }
}

/* dx of one row is added to: dx += inverse·(g - mean(g) - normed·mean(g·normed)), g = dy·gamma */
static void norm_row_dx(int n, const double *gamma, const norm_state *s, int row, const double *dy, const double *edy, double *dx,
                        double *edx)
{
    const double *h = s->normed.v + row * n, *eh = s->normed.e + row * n;
    const double inverse = s->inverse.v[row];
    double a = 0, ea = 0, c = 0, ec = 0, a_size = 0, c_size = 0;
    for (int i = 0; i < n; i++) {
        const double g = dy[i] * gamma[i], eg = edy[i] * sq(gamma[i]) + roundings(1, g);
        a += g / n;
        c += g * h[i] / n;
        a_size += fabs(g) / n;
        c_size += fabs(g * h[i]) / n;
        ea += eg / sq(n);
        ec += (eg * sq(h[i]) + sq(g) * eh[i]) / sq(n);
    }
    ea += roundings(n + 2, a_size);
    ec += roundings(n + 2, c_size);
    for (int i = 0; i < n; i++) {
        const double g = dy[i] * gamma[i], eg = edy[i] * sq(gamma[i]) + roundings(1, g);
        const double part = inverse * (g - a - h[i] * c), size = inverse * (fabs(g) + fabs(a) + fabs(h[i] * c));
        dx[i] += part;
        edx[i] += sq(part) * s->inverse.e[row] + sq(inverse) * (eg + ea + eh[i] * sq(c) + sq(h[i]) * ec) + roundings(6, size) +
                  roundings(1, dx[i]);
    }
}

static void layer_norm_backward(serial_gpt *gpt, int at, const norm_state *s, array dy, array dx)
{
    const int n = gpt->c.hidden;
    array dgamma = gpt->gradient[at], dbeta = gpt->gradient[at + 1];
    double *sizes = gpt->sizes;
    memset(sizes, 0, 2 * (size_t)n * sizeof *sizes);
    for (int row = 0; row < gpt->rows; row++) {
        for (int i = 0; i < n; i++) {
            const double d = dy.v[row * n + i], ed = dy.e[row * n + i], h = s->normed.v[row * n + i];
            dgamma.v[i] += d * h;
            dgamma.e[i] += ed * sq(h) + sq(d) * s->normed.e[row * n + i];
            sizes[2 * i] += fabs(d * h);
            sizes[2 * i + 1] += fabs(d);
            dbeta.v[i] += d;
            dbeta.e[i] += ed;
        }
        norm_row_dx(n, gpt->value[at], s, row, dy.v + row * n, dy.e + row * n, dx.v + row * n, dx.e + row * n);
    }
    for (int i = 0; i < n; i++) {
        dgamma.e[i] += roundings(gpt->rows + 2, sizes[2 * i]);
        dbeta.e[i] += roundings(gpt->rows + 2, sizes[2 * i + 1]);
    }
}

static void add(int64_t n, array a, array b, array y)
{
    for (int64_t i = 0; i < n; i++) {
        y.v[i] = a.v[i] + b.v[i];
        y.e[i] = a.e[i] + b.e[i] + roundings(1, y.v[i]);
    }
}

static void gelu(int64_t n, array x, array y)
{
    for (int64_t i = 0; i < n; i++) {
        const double v = x.v[i], t = ROOT_2_OVER_PI * (v + 0.044715 * v * v * v), th = tanh(t), steep = 1 - th * th;
        const double slope = 0.5 * (1 + th) + 0.5 * v * steep * ROOT_2_OVER_PI * (1 + 3 * 0.044715 * v * v);
        y.v[i] = 0.5 * v * (1 + th);
        y.e[i] = sq(slope) * x.e[i] + sq(0.5 * v * (FUNCTION + 6 * U * fabs(t) * steep)) + roundings(3, y.v[i]);
    }
}

/* dy is overwritten by dx. |gelu''| < 1.2 everywhere. */
static void gelu_backward(int64_t n, array x, array dy)
{
    for (int64_t i = 0; i < n; i++) {
        const double v = x.v[i], t = ROOT_2_OVER_PI * (v + 0.044715 * v * v * v), th = tanh(t);
        const double dt = ROOT_2_OVER_PI * (1 + 3 * 0.044715 * v * v);
        const double slope = 0.5 * (1 + th) + 0.5 * v * (1 - th * th) * dt, d = dy.v[i];
        dy.e[i] = dy.e[i] * sq(slope) + sq(d) * (sq(1.2) * x.e[i] + sq(2 * FUNCTION * (1 + fabs(v) * dt)));
        dy.v[i] = d * slope;
        dy.e[i] += roundings(1, dy.v[i]);
    }
}

/* p = softmax of n scores, in place. The error of a probability is relative: its own score's, and the mean score's. */
static void softmax(int n, double *p, double *e)
{
    double highest = p[0], sum = 0, mean_error = 0;
    for (int j = 1; j < n; j++)
        highest = fmax(highest, p[j]);
    for (int j = 0; j < n; j++) {
        e[j] += roundings(4, fabs(p[j]) + fabs(highest));
        p[j] = exp(p[j] - highest);
        sum += p[j];
    }
    for (int j = 0; j < n; j++)
        mean_error += sq(p[j] / sum) * e[j];
    for (int j = 0; j < n; j++) {
        p[j] /= sum;
        e[j] = sq(p[j]) * (e[j] + mean_error + sq(3 * FUNCTION) + roundings(n + 4, 1));
    }
}

/* One head's view of a row of qkv: q, k or v of that row. */
typedef struct head_view {
    array qkv;
    int hidden, size, at, context;
} head_view;

static int64_t place(const head_view *view, int row, int which)
{
    return (int64_t)row * 3 * view->hidden + which * view->hidden + view->at;
}

/* Σ a·b over the head's features with its bounds; size: Σ |a·b| */
static void dot(const double *a, const double *ea, const double *b, const double *eb, int n, double *sum, double *error,
                double *size)
{
    *sum = *error = *size = 0;
    for (int i = 0; i < n; i++) {
        *sum += a[i] * b[i];
        *size += fabs(a[i] * b[i]);
        *error += ea[i] * sq(b[i]) + sq(a[i]) * eb[i];
    }
    *error += roundings(n + 2, *size);
}

/* One query row of one head: probabilities over the rows from `first` to `row`, then the mean of their values. */
static void attend_row(const head_view *view, int first, int row, double *p, double *ep, double *y, double *ey)
{
    const double *v = view->qkv.v, *e = view->qkv.e, scale = 1 / sqrt((double)view->size);
    const int64_t q = place(view, row, 0);
    const int n = row - first + 1;
    for (int j = 0; j < n; j++) {
        const int64_t k = place(view, first + j, 1);
        double size;
        dot(v + q, e + q, v + k, e + k, view->size, &p[j], &ep[j], &size);
        p[j] *= scale;
        ep[j] = sq(scale) * (ep[j] + roundings(4, size));
    }
    softmax(n, p, ep);
    for (int c = 0; c < view->size; c++) {
        double size = 0;
        y[c] = ey[c] = 0;
        for (int j = 0; j < n; j++) {
            const int64_t at = place(view, first + j, 2) + c;
            y[c] += p[j] * v[at];
            ey[c] += ep[j] * sq(v[at]) + sq(p[j]) * e[at];
            size += fabs(p[j] * v[at]);
        }
        ey[c] += roundings(n + 2, size);
    }
}

static void attention(const serial_gpt *gpt, block *b)
{
    const int heads = gpt->c.n_heads, context = gpt->c.context, hidden = gpt->c.hidden, size = hidden / heads;
    for (int row = 0; row < gpt->rows; row++)
        for (int head = 0; head < heads; head++) {
            const head_view view = {b->qkv, hidden, size, head * size, context};
            const int64_t p = ((int64_t)row * heads + head) * context, y = (int64_t)row * hidden + head * size;
            attend_row(&view, row - row % context, row, b->scores.v + p, b->scores.e + p, b->attention.v + y,
                       b->attention.e + y);
        }
}

/* to += factor · what, one of `terms` such additions */
static void add_times(double factor, double e_factor, const double *what, const double *e_what, int n, int terms, double *to,
                      double *e_to)
{
    for (int c = 0; c < n; c++) {
        to[c] += factor * what[c];
        /* terms·Σ|t|² bounds (Σ|t|)² from above (Cauchy, Schwarz) */
        e_to[c] += e_factor * sq(what[c]) + sq(factor) * e_what[c] + roundings((terms + 2) * terms, factor * what[c]);
    }
}

/* Gradients of one query row: of its q, and of the k and v it looked at. */
static void attend_row_backward(const head_view *view, const head_view *d_view, int first, int row, const double *p,
                                const double *ep, const double *dy, const double *edy, double *dp, double *edp)
{
    const double *v = view->qkv.v, *e = view->qkv.e, scale = 1 / sqrt((double)view->size);
    double *dv = d_view->qkv.v, *de = d_view->qkv.e, mean = 0, e_mean = 0, mean_size = 0;
    const int n = row - first + 1, size = view->size;
    for (int j = 0; j < n; j++) {
        const int64_t value = place(view, first + j, 2);
        double abs_sum;
        dot(dy, edy, v + value, e + value, size, &dp[j], &edp[j], &abs_sum);
        mean += p[j] * dp[j];
        e_mean += ep[j] * sq(abs_sum) + sq(p[j]) * edp[j];
        mean_size += p[j] * abs_sum;
        add_times(p[j], ep[j], dy, edy, size, view->context, dv + value, de + value);
    }
    e_mean += roundings(n + size + 4, mean_size);
    const int64_t q = place(view, row, 0);
    for (int j = 0; j < n; j++) {
        const int64_t k = place(view, first + j, 1);
        const double ds = scale * p[j] * (dp[j] - mean);
        const double eds = sq(scale) * (ep[j] * sq(dp[j] - mean) + sq(p[j]) * (edp[j] + e_mean) +
                                        roundings(5, p[j] * (fabs(dp[j]) + fabs(mean))));
        add_times(ds, eds, v + k, e + k, size, n, dv + q, de + q);
        add_times(ds, eds, v + q, e + q, size, view->context, dv + k, de + k);
    }
}

/* d_qkv is overwritten; d_y is the gradient of the attention's output. */
static void attention_backward(const serial_gpt *gpt, const block *b, array d_y, array d_qkv, double *dp, double *edp)
{
    const int heads = gpt->c.n_heads, context = gpt->c.context, hidden = gpt->c.hidden, size = hidden / heads;
    memset(d_qkv.v, 0, (size_t)gpt->rows * 3 * (size_t)hidden * sizeof(double));
    memset(d_qkv.e, 0, (size_t)gpt->rows * 3 * (size_t)hidden * sizeof(double));
    for (int row = 0; row < gpt->rows; row++)
        for (int head = 0; head < heads; head++) {
            const head_view view = {b->qkv, hidden, size, head * size, context};
            const head_view d_view = {d_qkv, hidden, size, head * size, context};
            const int64_t p = ((int64_t)row * heads + head) * context, y = (int64_t)row * hidden + head * size;
            attend_row_backward(&view, &d_view, row - row % context, row, b->scores.v + p, b->scores.e + p, d_y.v + y,
                                d_y.e + y, dp, edp);
        }
}

static void embed(const serial_gpt *gpt, const int32_t *tokens, array x)
{
    const int h = gpt->c.hidden;
    for (int row = 0; row < gpt->rows; row++)
        for (int i = 0; i < h; i++) {
            x.v[row * h + i] = gpt->value[0][tokens[row] * h + i] + gpt->value[1][row % gpt->c.context * h + i];
            x.e[row * h + i] = roundings(1, x.v[row * h + i]);
        }
}

static void embed_backward(serial_gpt *gpt, const int32_t *tokens, array dx)
{
    const int h = gpt->c.hidden;
    for (int row = 0; row < gpt->rows; row++)
        for (int i = 0; i < h; i++) {
            const double d = dx.v[row * h + i];
            const double e = dx.e[row * h + i] + roundings((gpt->rows + 2) * gpt->rows, d); /* as in add_times() */
            const int at[2] = {tokens[row] * h + i, row % gpt->c.context * h + i};
            for (int which = 0; which < 2; which++) {
                gpt->gradient[which].v[at[which]] += d;
                gpt->gradient[which].e[at[which]] += e;
            }
        }
}

static void block_forward(serial_gpt *gpt, block *b, array out)
{
    const int m = gpt->rows, h = gpt->c.hidden;
    double **w = gpt->value;
    layer_norm(gpt, b->norm1_at, b->in, &b->state1, b->norm1);
    linear(m, 3 * h, h, b->norm1, w[b->qkv_at], w[b->qkv_at + 1], b->qkv);
    attention(gpt, b);
    linear(m, h, h, b->attention, w[b->proj_at], w[b->proj_at + 1], b->proj);
    add((int64_t)m * h, b->in, b->proj, b->middle);
    layer_norm(gpt, b->norm2_at, b->middle, &b->state2, b->norm2);
    linear(m, 4 * h, h, b->norm2, w[b->fc_at], w[b->fc_at + 1], b->fc);
    gelu((int64_t)m * 4 * h, b->fc, b->gelu);
    linear(m, h, 4 * h, b->gelu, w[b->fc2_at], w[b->fc2_at + 1], b->fc2);
    add((int64_t)m * h, b->middle, b->fc2, out);
}

/* gpt->d_stream holds the gradient of the block's output, then that of its input. */
static void block_backward(serial_gpt *gpt, block *b)
{
    const int m = gpt->rows, h = gpt->c.hidden;
    double **w = gpt->value;
    array *g = gpt->gradient, dx = gpt->d_stream;
    linear_dw(m, h, 4 * h, dx, b->gelu, g[b->fc2_at], g[b->fc2_at + 1]);
    linear_dx(m, h, 4 * h, dx, w[b->fc2_at], gpt->d_wide);
    gelu_backward((int64_t)m * 4 * h, b->fc, gpt->d_wide);
    linear_dw(m, 4 * h, h, gpt->d_wide, b->norm2, g[b->fc_at], g[b->fc_at + 1]);
    linear_dx(m, 4 * h, h, gpt->d_wide, w[b->fc_at], gpt->d_norm);
    layer_norm_backward(gpt, b->norm2_at, &b->state2, gpt->d_norm, dx);

    linear_dw(m, h, h, dx, b->attention, g[b->proj_at], g[b->proj_at + 1]);
    linear_dx(m, h, h, dx, w[b->proj_at], gpt->d_other);
    attention_backward(gpt, b, gpt->d_other, gpt->d_wide, gpt->d_middle.v, gpt->d_middle.e);
    linear_dw(m, 3 * h, h, gpt->d_wide, b->norm1, g[b->qkv_at], g[b->qkv_at + 1]);
    linear_dx(m, 3 * h, h, gpt->d_wide, w[b->qkv_at], gpt->d_norm);
    layer_norm_backward(gpt, b->norm1_at, &b->state1, gpt->d_norm, dx);
}

/* The mean loss, and its gradient by the logits. */
static double cross_entropy(serial_gpt *gpt, const int32_t *targets)
{
    const int n = gpt->c.vocab;
    double loss = 0, valid = 0;
    for (int row = 0; row < gpt->rows; row++)
        valid += targets[row] >= 0;
    for (int row = 0; row < gpt->rows; row++) {
        double *p = gpt->d_logits.v + row * n, *e = gpt->d_logits.e + row * n;
        memcpy(p, gpt->logits.v + row * n, (size_t)n * sizeof *p);
        memcpy(e, gpt->logits.e + row * n, (size_t)n * sizeof *e);
        softmax(n, p, e);
        if (targets[row] >= 0)
            loss -= log(p[targets[row]]);
        for (int j = 0; j < n; j++) {
            p[j] = targets[row] < 0 ? 0 : (p[j] - (j == targets[row])) / valid;
            e[j] = targets[row] < 0 ? 0 : e[j] / sq(valid) + roundings(3, p[j]);
        }
    }
    return loss / valid;
}

static double forward(serial_gpt *gpt, const int32_t *tokens, const int32_t *targets)
{
    const int layers = gpt->c.n_layers;
    embed(gpt, tokens, gpt->blocks[0].in);
    for (int i = 0; i < layers; i++)
        block_forward(gpt, &gpt->blocks[i], i + 1 < layers ? gpt->blocks[i + 1].in : gpt->last);
    layer_norm(gpt, gpt->norm_at, gpt->last, &gpt->state, gpt->norm);
    linear(gpt->rows, gpt->c.vocab, gpt->c.hidden, gpt->norm, gpt->value[gpt->head_at], NULL, gpt->logits);
    return cross_entropy(gpt, targets);
}

double serial_backprop(serial_gpt *gpt, const int32_t *tokens, const int32_t *targets)
{
    const int m = gpt->rows, h = gpt->c.hidden, v = gpt->c.vocab;
    for (int i = 0; i < gpt->n_parameters; i++) {
        memset(gpt->gradient[i].v, 0, (size_t)gpt->n_elems[i] * sizeof(double));
        memset(gpt->gradient[i].e, 0, (size_t)gpt->n_elems[i] * sizeof(double));
    }
    const double loss = forward(gpt, tokens, targets);
    linear_dw(m, v, h, gpt->d_logits, gpt->norm, gpt->gradient[gpt->head_at], (array){NULL, NULL});
    linear_dx(m, v, h, gpt->d_logits, gpt->value[gpt->head_at], gpt->d_norm);
    memset(gpt->d_stream.v, 0, (size_t)m * (size_t)h * sizeof(double));
    memset(gpt->d_stream.e, 0, (size_t)m * (size_t)h * sizeof(double));
    layer_norm_backward(gpt, gpt->norm_at, &gpt->state, gpt->d_norm, gpt->d_stream);
    for (int i = gpt->c.n_layers - 1; i >= 0; i--)
        block_backward(gpt, &gpt->blocks[i]);
    embed_backward(gpt, tokens, gpt->d_stream);
    return loss;
}

void serial_adamw(serial_gpt *gpt, double lr, double beta1, double beta2, double weight_decay, double clip_norm,
                  const int *decay)
{
    double squares = 0;
    for (int i = 0; i < gpt->n_parameters; i++)
        for (int64_t j = 0; j < gpt->n_elems[i]; j++)
            squares += gpt->gradient[i].v[j] * gpt->gradient[i].v[j];
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
