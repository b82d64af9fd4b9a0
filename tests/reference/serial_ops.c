/* SPDX-License-Identifier: Apache-2.0 */
/* Plain loops with the variance of their rounding errors. A sum of n terms, in any order, has at most n + 2 roundings
 * of numbers no larger than Σ|terms|: variance (n + 2)·u²·(Σ|terms|)². The error of a function is assumed to be at most
 * 4 units in the last place (8u). */
#include "serial_ops.h"

#include <math.h>
#include <string.h>

#define U 0x1p-53
#define FUNCTION (8 * U)
#define EPSILON_NORM 1e-5
#define ROOT_2_OVER_PI 0.79788456080286535588

static double sq(double x) { return x * x; }

/* Variance of n roundings of numbers up to `size`. */
static double roundings(int n, double size) { return (double)n * sq(U * size); }

/* y[m,n] = x[m,k]·w[n,k]ᵀ + b[n]; b may be NULL. */
void serial_linear(int m, int n, int k, array x, const double *w, const double *b, array y)
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
void serial_linear_dx(int m, int n, int k, array dy, const double *w, array dx)
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
void serial_linear_dw(int m, int n, int k, array dy, array x, array dw, array db)
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
        if (db.v) db.e[o] += roundings(m + 2, size);
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

void serial_norm(int rows, int n, const double *gamma, const double *beta, array x, norm_state *s, array y)
{
    for (int row = 0; row < rows; row++) {
        norm_row(n, x.v + row * n, x.e + row * n, s, row);
        for (int i = 0; i < n; i++) {
            const double h = s->normed.v[row * n + i];
            y.v[row * n + i] = h * gamma[i] + beta[i];
            y.e[row * n + i] = s->normed.e[row * n + i] * sq(gamma[i]) +
                               roundings(2, fabs(h * gamma[i]) + fabs(beta[i]));
        }
    }
}

/* dx of one row is added to: dx += inverse·(g - mean(g) - normed·mean(g·normed)), g = dy·gamma */
static void norm_row_dx(int n, const double *gamma, const norm_state *s, int row, const double *dy, const double *edy,
                        double *dx, double *edx)
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
        edx[i] += sq(part) * s->inverse.e[row] + sq(inverse) * (eg + ea + eh[i] * sq(c) + sq(h[i]) * ec) +
                  roundings(6, size) + roundings(1, dx[i]);
    }
}

/* dx is added to, as are dgamma and dbeta. */
void serial_norm_backward(int rows, int n, const double *gamma, const norm_state *s, array dy, array dx, array dgamma,
                          array dbeta)
{
    for (int i = 0; i < n; i++) {
        double size = 0, beta_size = 0;
        for (int row = 0; row < rows; row++) {
            const double d = dy.v[row * n + i], ed = dy.e[row * n + i];
            const double h = s->normed.v[row * n + i];
            dgamma.v[i] += d * h;
            dgamma.e[i] += ed * sq(h) + sq(d) * s->normed.e[row * n + i];
            size += fabs(d * h);
            dbeta.v[i] += d;
            dbeta.e[i] += ed;
            beta_size += fabs(d);
        }
        dgamma.e[i] += roundings(rows + 2, size);
        dbeta.e[i] += roundings(rows + 2, beta_size);
    }
    for (int row = 0; row < rows; row++)
        norm_row_dx(n, gamma, s, row, dy.v + row * n, dy.e + row * n, dx.v + row * n, dx.e + row * n);
}

void serial_add(int64_t n, array a, array b, array y)
{
    for (int64_t i = 0; i < n; i++) {
        y.v[i] = a.v[i] + b.v[i];
        y.e[i] = a.e[i] + b.e[i] + roundings(1, y.v[i]);
    }
}

void serial_gelu(int64_t n, array x, array y)
{
    for (int64_t i = 0; i < n; i++) {
        const double v = x.v[i], t = ROOT_2_OVER_PI * (v + 0.044715 * v * v * v), th = tanh(t), steep = 1 - th * th;
        const double slope = 0.5 * (1 + th) + 0.5 * v * steep * ROOT_2_OVER_PI * (1 + 3 * 0.044715 * v * v);
        y.v[i] = 0.5 * v * (1 + th);
        y.e[i] = sq(slope) * x.e[i] + sq(0.5 * v * (FUNCTION + 6 * U * fabs(t) * steep)) + roundings(3, y.v[i]);
    }
}

/* dy is overwritten by dx. |gelu''| < 1.2 everywhere. */
void serial_gelu_backward(int64_t n, array x, array dy)
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
void serial_softmax(int n, double *p, double *e)
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
    serial_softmax(n + (sink != NULL), p, ep);
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

/* The gradient of one row's loss over `valid` rows, from its logits; returns its loss. */
double serial_cross_entropy(int n, const double *logits, const double *e_logits, int target, double valid, double *d,
                            double *ed)
{
    memcpy(d, logits, (size_t)n * sizeof *d);
    memcpy(ed, e_logits, (size_t)n * sizeof *ed);
    serial_softmax(n, d, ed);
    const double loss = target < 0 ? 0 : -log(d[target]);
    for (int j = 0; j < n; j++) {
        d[j] = target < 0 ? 0 : (d[j] - (j == target)) / valid;
        ed[j] = target < 0 ? 0 : ed[j] / sq(valid) + roundings(3, d[j]);
    }
    return loss;
}

/* x = E[token] + P[position] */
void serial_embed(int rows, int n, int context, const int32_t *tokens, const double *e, const double *p, array x)
{
    for (int row = 0; row < rows; row++)
        for (int i = 0; i < n; i++) {
            x.v[row * n + i] = e[tokens[row] * n + i] + p[row % context * n + i];
            x.e[row * n + i] = roundings(1, x.v[row * n + i]);
        }
}

void serial_embed_backward(int rows, int n, int context, const int32_t *tokens, array dx, array de, array dp)
{
    for (int row = 0; row < rows; row++) {
        const int token = tokens[row] * n, position = row % context * n;
        add_times(1, 0, dx.v + row * n, dx.e + row * n, n, rows, de.v + token, de.e + token);
        add_times(1, 0, dx.v + row * n, dx.e + row * n, n, rows, dp.v + position, dp.e + position);
    }
}
