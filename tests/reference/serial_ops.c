/* SPDX-License-Identifier: Apache-2.0 */
/* Plain loops with the variance of their rounding errors. A sum of n terms, in any order, has at most n + 2 roundings
 * of numbers no larger than Σ|terms|: variance (n + 2)·u²·(Σ|terms|)². The error of a function is assumed to be at most
 * 4 units in the last place (8u). */
#include "serial_ops.h"

#include <math.h>
#include <string.h>

#define U 0x1p-53
#define FUNCTION (8 * U)
#define ROOT_2_OVER_PI 0.79788456080286535588

static double sq(double x) { return x * x; }

/* Variance of n roundings of numbers up to `size`. */
static double roundings(int n, double size) { return (double)n * sq(U * size); }

/* An activation function at one point, with bounds: of its second derivative, and of the errors in computing it and its
 * slope. */
typedef struct bend {
    double value, slope, curve, e_value, e_slope;
} bend;

static bend gelu_tanh(double v)
{
    const double t = ROOT_2_OVER_PI * (v + 0.044715 * v * v * v), th = tanh(t), steep = 1 - th * th;
    const double dt = ROOT_2_OVER_PI * (1 + 3 * 0.044715 * v * v);
    return (bend){0.5 * v * (1 + th), 0.5 * (1 + th) + 0.5 * v * steep * dt, 1.2,
                  0.5 * v * (FUNCTION + 6 * U * fabs(t) * steep), 2 * FUNCTION * (1 + fabs(v) * dt)};
}

/* The curvature is that of x·Φ(x), φ(x)·(2 - x²). */
static bend gelu_erf(double v)
{
    const double below = 0.5 * erfc(-v / sqrt(2)), density = 0.5 * ROOT_2_OVER_PI * exp(-v * v / 2);
    const double e_below = FUNCTION * below + 4 * U * fabs(v) * density;
    return (bend){v * below, below + v * density, 0.8, v * e_below,
                  e_below + fabs(v) * density * (FUNCTION + U * v * v)};
}

static bend silu(double v)
{
    const double s = 1 / (1 + exp(-v)), slope = s * (1 + v * (1 - s));
    return (bend){v * s, slope, 0.5, FUNCTION * v * s, FUNCTION * s * (1 + fabs(v) * (1 - s))};
}

static bend bend_of(qdr_activation_function function, double v)
{
    const double above = fmax(v, 0);
    switch (function) {
    case QDR_GELU_ERF: return gelu_erf(v);
    case QDR_SILU: return silu(v);
    case QDR_RELU: return (bend){above, v > 0, 0, 0, 0};
    case QDR_RELU_SQUARED: return (bend){above * above, 2 * above, 2, U * above * above, 0};
    default: return gelu_tanh(v);
    }
}

void serial_activation(qdr_activation_function function, int64_t n, array x, array up, array y)
{
    for (int64_t i = 0; i < n; i++) {
        const bend f = bend_of(function, x.v[i]);
        const double factor = up.v ? up.v[i] : 1, e_factor = up.v ? up.e[i] : 0;
        const double e = sq(f.slope) * x.e[i] + sq(f.e_value) + roundings(3, f.value);
        y.v[i] = f.value * factor;
        y.e[i] = e * sq(factor) + sq(f.value) * e_factor;
    }
}

void serial_activation_backward(qdr_activation_function function, int64_t n, array x, array up, array dy, array dx,
                                array dup)
{
    for (int64_t i = 0; i < n; i++) {
        const bend f = bend_of(function, x.v[i]);
        const double factor = up.v ? up.v[i] : 1, e_factor = up.v ? up.e[i] : 0;
        const double d = dy.v[i] * factor, e_d = dy.e[i] * sq(factor) + sq(dy.v[i]) * e_factor;
        if (up.v) {
            dup.v[i] = dy.v[i] * f.value;
            dup.e[i] = dy.e[i] * sq(f.value) + sq(dy.v[i]) * (sq(f.slope) * x.e[i] + sq(f.e_value)) +
                       roundings(3, dup.v[i]);
        }
        dx.v[i] = d * f.slope;
        dx.e[i] = e_d * sq(f.slope) + sq(d) * (sq(f.curve) * x.e[i] + sq(f.e_slope)) + roundings(2, dx.v[i]);
    }
}

/* p = softmax of n scores, in place. The error of a probability is relative: its own score's, and the mean score's. */
static void softmax(int n, double *p, double *e)
{
    double highest = p[0], sum = 0, mean_error = 0;
    for (int j = 1; j < n; j++) highest = fmax(highest, p[j]);
    for (int j = 0; j < n; j++) {
        e[j] += roundings(4, fabs(p[j]) + fabs(highest));
        p[j] = exp(p[j] - highest);
        sum += p[j];
    }
    for (int j = 0; j < n; j++) mean_error += sq(p[j] / sum) * e[j];
    for (int j = 0; j < n; j++) {
        p[j] /= sum;
        e[j] = sq(p[j]) * (e[j] + mean_error + sq(3 * FUNCTION) + roundings(n + 4, 1));
    }
}

/* One head's view of a row of qkv: where q, k or v of that row is. */
typedef struct head_view {
    array qkv;
    int width, size, at[3], context, group;
    double scale, cap;
} head_view;

static int width_of(const attention_shape *a) { return (a->heads + 2 * a->key_heads) * a->size; }

static head_view view_of(const attention_shape *a, array qkv, int head)
{
    const int size = a->size, group = a->heads / a->key_heads, key = a->heads + head / group;
    return (head_view){.qkv = qkv,
                       .width = width_of(a),
                       .size = size,
                       .at = {head * size, key * size, (key + a->key_heads) * size},
                       .context = a->context,
                       .group = group,
                       .scale = a->scale > 0 ? a->scale : 1 / sqrt((double)size),
                       .cap = a->cap};
}

static int64_t place(const head_view *view, int row, int which) { return (int64_t)row * view->width + view->at[which]; }

/* The first row that a row sees. */
static int first_seen(const attention_shape *a, int row)
{
    const int in_sequence = row % a->context;
    return a->window > 0 && in_sequence >= a->window ? row - a->window + 1 : row - in_sequence;
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

/* A score and the slope of its cap; *size: Σ |q·k| */
typedef struct score {
    double value, error, slope, slope_error;
} score;

static score score_of(const head_view *view, int row, int key)
{
    const double *v = view->qkv.v, *e = view->qkv.e;
    const int64_t q = place(view, row, 0), k = place(view, key, 1);
    score s = {.slope = 1};
    double size;
    dot(v + q, e + q, v + k, e + k, view->size, &s.value, &s.error, &size);
    s.value *= view->scale;
    s.error = sq(view->scale) * (s.error + roundings(4, size));
    if (!(view->cap > 0)) return s;
    const double t = tanh(s.value / view->cap);
    s.slope = 1 - t * t;
    s.slope_error = sq(2 * t * s.slope / view->cap) * s.error + sq(3 * t * FUNCTION) + roundings(4, 1);
    s.value = view->cap * t;
    s.error = sq(s.slope) * s.error + sq(s.value * FUNCTION) + roundings(3, s.value);
    return s;
}

/* One query row of one head: probabilities over the rows from `first` to `row` (and the sink), then the mean of their
 * values. */
static void attend_row(const head_view *view, int first, int row, const double *sink, double *p, double *ep, double *y,
                       double *ey)
{
    const double *v = view->qkv.v, *e = view->qkv.e;
    const int n = row - first + 1;
    for (int j = 0; j < n; j++) {
        const score s = score_of(view, row, first + j);
        p[j] = s.value;
        ep[j] = s.error;
    }
    if (sink) p[n] = *sink;
    if (sink) ep[n] = 0;
    softmax(n + (sink != NULL), p, ep);
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

/* Where the scores of a row and head are. */
static int64_t scores_at(const attention_shape *a, int row, int head)
{
    return ((int64_t)row * a->heads + head) * (a->context + (a->sinks != NULL));
}

void serial_attention(const attention_shape *a, array qkv, array scores, array y)
{
    for (int row = 0; row < a->rows; row++)
        for (int head = 0; head < a->heads; head++) {
            const head_view view = view_of(a, qkv, head);
            const int64_t p = scores_at(a, row, head), at = ((int64_t)row * a->heads + head) * a->size;
            attend_row(&view, first_seen(a, row), row, a->sinks ? a->sinks + head : NULL, scores.v + p, scores.e + p,
                       y.v + at, y.e + at);
        }
}

/* to += factor · what, one of `terms` such additions */
static void add_times(double factor, double e_factor, const double *what, const double *e_what, int n, int terms,
                      double *to, double *e_to)
{
    for (int c = 0; c < n; c++) {
        to[c] += factor * what[c];
        /* terms·Σ|t|² bounds (Σ|t|)² from above (Cauchy, Schwarz) */
        e_to[c] += e_factor * sq(what[c]) + sq(factor) * e_what[c] + roundings((terms + 2) * terms, factor * what[c]);
    }
}

/* Gradients of one query row: of its q, of the k and v it looked at, and of its sink (d_sink NULL: none). */
static void attend_row_backward(const head_view *view, const head_view *d_view, int first, int row, const double *p,
                                const double *ep, const double *dy, const double *edy, double *dp, double *edp,
                                double *d_sink, double *e_sink)
{
    const double *v = view->qkv.v, *e = view->qkv.e, scale = view->scale;
    double *dv = d_view->qkv.v, *de = d_view->qkv.e, mean = 0, e_mean = 0, mean_size = 0;
    const int n = row - first + 1, size = view->size, terms = view->context * view->group;
    for (int j = 0; j < n; j++) {
        const int64_t value = place(view, first + j, 2);
        double abs_sum;
        dot(dy, edy, v + value, e + value, size, &dp[j], &edp[j], &abs_sum);
        mean += p[j] * dp[j];
        e_mean += ep[j] * sq(abs_sum) + sq(p[j]) * edp[j];
        mean_size += p[j] * abs_sum;
        add_times(p[j], ep[j], dy, edy, size, terms, dv + value, de + value);
    }
    e_mean += roundings(n + size + 4, mean_size);
    if (d_sink) *d_sink -= p[n] * mean;
    if (d_sink) *e_sink += ep[n] * sq(mean) + sq(p[n]) * e_mean + roundings(terms, p[n] * mean_size);
    const int64_t q = place(view, row, 0);
    for (int j = 0; j < n; j++) {
        const int64_t k = place(view, first + j, 1);
        const score s = score_of(view, row, first + j);
        const double steep = scale * s.slope, ds = steep * p[j] * (dp[j] - mean);
        const double eds = sq(steep) * (ep[j] * sq(dp[j] - mean) + sq(p[j]) * (edp[j] + e_mean) +
                                        roundings(5, p[j] * (fabs(dp[j]) + fabs(mean)))) +
                           s.slope_error * sq(scale * p[j] * (dp[j] - mean));
        add_times(ds, eds, v + k, e + k, size, n, dv + q, de + q);
        add_times(ds, eds, v + q, e + q, size, terms, dv + k, de + k);
    }
}

/* d_qkv is overwritten, d_sinks are added to. room: for one row of scores. */
void serial_attention_backward(const attention_shape *a, array qkv, array scores, array dy, array d_qkv, array d_sinks,
                               array room)
{
    const size_t bytes = (size_t)a->rows * (size_t)width_of(a) * sizeof(double);
    memset(d_qkv.v, 0, bytes);
    memset(d_qkv.e, 0, bytes);
    for (int row = 0; row < a->rows; row++)
        for (int head = 0; head < a->heads; head++) {
            const head_view view = view_of(a, qkv, head), d_view = view_of(a, d_qkv, head);
            const int64_t p = scores_at(a, row, head), at = ((int64_t)row * a->heads + head) * a->size;
            attend_row_backward(&view, &d_view, first_seen(a, row), row, scores.v + p, scores.e + p, dy.v + at,
                                dy.e + at, room.v, room.e, a->sinks ? d_sinks.v + head : NULL,
                                a->sinks ? d_sinks.e + head : NULL);
        }
}

/* Turns queries and keys by their positions, or their gradients back. */
void serial_turn(const attention_shape *a, int back, array qkv)
{
    const int n = a->rotary_columns / 2, n_heads = a->heads + a->key_heads;
    const double magnitude = a->magnitude > 0 ? a->magnitude : 1;
    for (int64_t i = 0; i < (int64_t)a->rows * n_heads * n; i++) {
        const int64_t row = i / n / n_heads, pair = i % n, begin = row * width_of(a) + i / n % n_heads * a->size;
        const int64_t x = begin + (a->interleaved ? 2 * pair : pair), y = a->interleaved ? x + 1 : x + n;
        const double angle = (double)(row % a->context) * a->frequencies[pair];
        const double c = magnitude * cos(angle), s = magnitude * sin(angle) * (back ? -1 : 1);
        const double vx = qkv.v[x], vy = qkv.v[y], ex = qkv.e[x], ey = qkv.e[y];
        qkv.v[x] = vx * c - vy * s;
        qkv.v[y] = vy * c + vx * s;
        qkv.e[x] = ex * sq(c) + ey * sq(s) + roundings(3, fabs(vx * c) + fabs(vy * s));
        qkv.e[y] = ey * sq(c) + ex * sq(s) + roundings(3, fabs(vy * c) + fabs(vx * s));
    }
}

/* 1 / sqrt(mean of squares + epsilon) of a head's row; *error: relative */
static double head_scale(const attention_shape *a, const double *x, double *error)
{
    double squares = 0;
    for (int c = 0; c < a->size; c++) squares += sq(x[c]) / a->size;
    *error = roundings(a->size + 6, 1);
    return 1 / sqrt(squares + a->epsilon);
}

/* normed: a copy of qkv, which is exact, with normed queries and keys */
void serial_head_norm(const attention_shape *a, array qkv, array normed)
{
    const int n_heads = a->heads + a->key_heads, width = width_of(a);
    memcpy(normed.v, qkv.v, (size_t)a->rows * (size_t)width * sizeof *qkv.v);
    for (int64_t i = 0; a->gammas && i < (int64_t)a->rows * n_heads; i++) {
        const int64_t at = i / n_heads * width + i % n_heads * a->size;
        const double *gamma = a->gammas + (i % n_heads >= a->heads) * a->size;
        double error;
        const double scale = head_scale(a, qkv.v + at, &error);
        for (int c = 0; c < a->size; c++) {
            normed.v[at + c] = qkv.v[at + c] * scale * gamma[c];
            normed.e[at + c] = sq(normed.v[at + c]) * (error + roundings(3, 1));
        }
    }
}

/* d_qkv: of normed queries and keys, in place; d_gammas are added to. */
void serial_head_norm_backward(const attention_shape *a, array qkv, array d_qkv, array d_gammas)
{
    const int n_heads = a->heads + a->key_heads, width = width_of(a), size = a->size;
    for (int64_t i = 0; a->gammas && i < (int64_t)a->rows * n_heads; i++) {
        const int64_t at = i / n_heads * width + i % n_heads * size, first = (i % n_heads >= a->heads) * size;
        const double *gamma = a->gammas + first, *x = qkv.v + at;
        double error, dot = 0, dot_error = 0, dot_size = 0, *d = d_qkv.v + at, *e = d_qkv.e + at;
        const double scale = head_scale(a, x, &error);
        for (int c = 0; c < size; c++) {
            const double h = x[c] * scale, w = gamma[c];
            d_gammas.v[first + c] += d[c] * h;
            d_gammas.e[first + c] += e[c] * sq(h) + roundings(a->rows * n_heads, d[c] * h) + sq(d[c] * h) * error;
            dot += d[c] * w * h / size;
            dot_error += sq(w * h / size) * e[c];
            dot_size += fabs(d[c] * w * h) / size;
        }
        dot_error += roundings(size + 6, dot_size) + sq(dot_size) * error;
        for (int c = 0; c < size; c++) {
            const double h = x[c] * scale, g = d[c] * gamma[c], terms = fabs(g) + fabs(h * dot);
            d[c] = scale * (g - h * dot);
            e[c] = sq(scale) * (sq(gamma[c]) * e[c] + sq(h) * dot_error + roundings(6, terms) + sq(terms) * 4 * error);
        }
    }
}
