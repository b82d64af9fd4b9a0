/* SPDX-License-Identifier: Apache-2.0 */
/* Causal attention of all kinds in every type against a long double reference; the gradient also by finite
 * differences. */
#include "device.h"

/* window 0: the context; scale 0: 1/sqrt(head_size). */
typedef struct shape {
    int64_t n_sequences, context, n_heads, n_kv_heads, head_size, window;
    double scale, cap;
    int64_t rotary_columns;
    int interleaved, head_norm, one_plus, has_sinks, has_documents;
} shape;

typedef struct attention {
    qdri_kernel k;
    int64_t width, out_width;
    array qkv, y, dy, saved, dqkv, rotation;
    int32_t *first_keys; /* NULL: none */
    array parameters[3], gradients[3]; /* gammas of queries and of keys, sinks */
    ref *exact, *exact_dy; /* qkv and dy */
    ref *turned, *turned_size; /* as qkv: queries and keys, turned, and the sums of their absolute terms */
    void *work;
} attention;

/* What turns column `col` of a head in this row of a sequence: x·cosine + partner·sine. cosine 1, sine 0: nothing. */
typedef struct turn {
    int64_t partner;
    ref cosine, sine;
} turn;

static void add_parameters(attention *a, const shape *s)
{
    const int64_t n[] = {s->head_norm ? s->head_size : 0, s->head_norm ? s->head_size : 0,
                         s->has_sinks ? s->n_heads : 0};
    const void **const values[] = {&a->k.u.attention.q_gamma, &a->k.u.attention.k_gamma, &a->k.u.attention.sinks};
    void **const sums[] = {&a->k.u.attention.d_q_gamma, &a->k.u.attention.d_k_gamma, &a->k.u.attention.d_sinks};
    a->k.u.attention.head_norm = s->head_norm;
    a->k.u.attention.one_plus = s->one_plus;
    a->k.u.attention.has_sinks = s->has_sinks;
    a->k.u.attention.epsilon = 0.25;
    for (int i = 0; i < 3; i++) {
        a->parameters[i] = make_random(a->k.dtype, n[i], 1.5);
        a->gradients[i] = make(sum_type(a->k.dtype), n[i]);
        if (n[i] > 0) *values[i] = a->parameters[i].data;
        if (n[i] > 0) *sums[i] = a->gradients[i].data;
    }
}

/* A row begins another document now and then, each of a fifth of the sequence or less. */
static int32_t *documents_make(int64_t n_rows, int64_t context)
{
    int32_t *first_keys = memory_new((size_t)n_rows * sizeof *first_keys);
    for (int64_t i = 0; i < n_rows; i++) {
        const int64_t row = i % context;
        const int begins = row == 0 || row - first_keys[i - 1] > context / 5 || test_between(&seed, 0, 5) == 0;
        first_keys[i] = begins ? (int32_t)row : first_keys[i - 1];
    }
    return first_keys;
}

static turn turn_of(const attention *a, int64_t row, int64_t col)
{
    const int64_t columns = a->k.u.attention.rotary_columns, n = columns / 2;
    const int pairs = a->k.u.attention.interleaved;
    if (col >= columns) return (turn){col, 1, 0};
    const int64_t i = pairs ? col / 2 : col % n;
    const int is_second = pairs ? (int)(col % 2) : col >= n;
    const ref sine = get(&a->rotation, row * columns + n + i);
    return (turn){is_second ? (pairs ? 2 * i : i) : (pairs ? 2 * i + 1 : i + n), get(&a->rotation, row * columns + i),
                  is_second ? sine : -sine};
}

/* The elements of an array. */
static ref *exact(const array *a)
{
    ref *all = test_calloc((size_t)a->n + 1, sizeof *all);
    for (int64_t i = 0; i < a->n; i++) all[i] = get(a, i);
    return all;
}

static void turn_all(attention *a, const shape *s)
{
    const int64_t n_heads = s->n_heads + s->n_kv_heads;
    a->turned = exact(&a->qkv);
    a->turned_size = exact(&a->qkv);
    for (int64_t i = 0; i < s->n_sequences * s->context * n_heads; i++) {
        const int64_t row = i / n_heads, begin = row * a->width + i % n_heads * s->head_size;
        for (int64_t c = 0; c < s->head_size; c++) {
            const turn t = turn_of(a, row % s->context, c);
            const ref x = t.cosine * a->exact[begin + c], y = t.sine * a->exact[begin + t.partner];
            a->turned[begin + c] = x + y;
            a->turned_size[begin + c] = fabsl(x) + fabsl(y);
        }
    }
}

static attention attention_make(qdr_dtype dtype, const shape *s)
{
    attention a = {.k = {.kind = QDRI_K_ATTENTION_FORWARD, .dtype = dtype}};
    const int64_t n_rows = s->n_sequences * s->context;
    a.width = (s->n_heads + 2 * s->n_kv_heads) * s->head_size;
    a.out_width = s->n_heads * s->head_size;
    a.qkv = make_random(dtype, n_rows * a.width, 1.5);
    a.y = make(dtype, n_rows * a.out_width);
    a.dy = make_random(dtype, n_rows * a.out_width, 1);
    a.saved = make(sum_type(dtype), n_rows * s->n_heads);
    a.dqkv = make(dtype, n_rows * a.width);
    a.k.u.attention.n_rows = n_rows;
    a.k.u.attention.context = s->context;
    a.k.u.attention.n_heads = s->n_heads;
    a.k.u.attention.n_kv_heads = s->n_kv_heads;
    a.k.u.attention.head_size = s->head_size;
    a.k.u.attention.window = s->window ? s->window : s->context;
    a.k.u.attention.scale = s->scale > 0 ? s->scale : 1 / sqrt((double)s->head_size);
    a.k.u.attention.cap = s->cap;
    a.k.u.attention.rotary_columns = s->rotary_columns;
    a.k.u.attention.interleaved = s->interleaved;
    a.rotation = make_random(sum_type(dtype), s->context * s->rotary_columns, 1.1); /* any linear map of pairs */
    a.k.u.attention.rotation = a.rotation.data;
    if (s->has_documents) a.k.u.attention.first_keys = a.first_keys = documents_make(n_rows, s->context);
    a.exact = exact(&a.qkv);
    a.exact_dy = exact(&a.dy);
    turn_all(&a, s);
    add_parameters(&a, s);
    a.k.u.attention.qkv = a.qkv.data;
    a.k.u.attention.y = a.y.data;
    a.k.u.attention.dy = a.dy.data;
    a.k.u.attention.saved = a.saved.data;
    a.work = memory_new(qdri_attention_work_bytes(&a.k));
    if (!on_cuda()) qdri_reserve_kernel(stream, qdri_kernel_bytes(stream, &a.k));
    memset(a.work, 0xff, qdri_attention_work_bytes(&a.k)); /* NaN */
    a.k.u.attention.work = a.work;
    return a;
}

static void attention_drop(attention *a)
{
    array *all[] = {&a->qkv, &a->y, &a->dy, &a->saved, &a->dqkv, &a->rotation};
    for (int i = 0; i < 6; i++) drop(all[i]);
    for (int i = 0; i < 3; i++) drop(&a->parameters[i]);
    for (int i = 0; i < 3; i++) drop(&a->gradients[i]);
    ref *const exacts[] = {a->exact, a->exact_dy, a->turned, a->turned_size};
    for (int i = 0; i < 4; i++) test_free(exacts[i]);
    memory_drop(a->work);
    if (a->first_keys) memory_drop(a->first_keys);
}

static void attention_run(attention *a, qdri_kernel_kind kind)
{
    a->k.kind = kind;
    a->k.u.attention.out = kind == QDRI_K_ATTENTION_FORWARD ? a->y.data : a->dqkv.data;
    run(&a->k);
}

/* One head of one sequence: where its parts begin. */
typedef struct head {
    const attention *a;
    int64_t row, index, q, k, v, o;
} head;

static head head_of(const attention *a, int64_t sequence, int64_t index)
{
    const int64_t n_heads = a->k.u.attention.n_heads;
    const int64_t n_kv = a->k.u.attention.n_kv_heads;
    const int64_t size = a->k.u.attention.head_size;
    const int64_t kv = index / (n_heads / n_kv);
    return (head){a,
                  sequence * a->k.u.attention.context,
                  index,
                  index * size,
                  (n_heads + kv) * size,
                  (n_heads + n_kv + kv) * size,
                  index * size};
}

static ref in(const head *h, int64_t row, int64_t col) { return h->a->exact[(h->row + row) * h->a->width + col]; }

/* Column i of the head that begins at `begin`, turned; *size: the sum of the absolute terms. */
static ref turned(const head *h, int64_t row, int64_t begin, int64_t i, ref *size)
{
    const int64_t at = (h->row + row) * h->a->width + begin + i;
    *size = h->a->turned_size[at];
    return h->a->turned[at];
}

/* How far it may be off, relative to its size. A GPU rounds it to the type. */
static ref turning_error(const attention *a)
{
    if (a->k.u.attention.rotary_columns == 0) return 0;
    return gamma_of(a->k.dtype, 3) + (on_cuda() && is_narrow(a->k.dtype) ? roundoff(a->k.dtype) : 0);
}

static ref out_gradient(const head *h, int64_t row, int64_t col)
{
    return h->a->exact_dy[(h->row + row) * h->a->out_width + h->o + col];
}

/* The probabilities of a query row and how far each may be off, relatively: its score by γ(size + 2)·Σ|q·k|·scale, as
 * may those that it is divided by; exp, sum and quotient add their roundings. */
typedef struct probabilities {
    ref p[160], slope[160]; /* slope: of the capped score, over that before */
    ref relative, log_sum;
    int64_t first; /* key that the row sees */
} probabilities;

/* cuDNN rounds them to the type, and their gradients, and what each query head gives its key head; and takes a row's Σ
 * P·dP from y, which was rounded. */
static ref of_narrow_weights(qdr_dtype dtype)
{
    const char *choice = getenv("QDR_ATTENTION");
    return choice && strcmp(choice, "cudnn") == 0 && is_narrow(dtype) ? 4 * roundoff(dtype) : 0;
}

static probabilities probabilities_of(const head *h, int64_t row)
{
    const int64_t size = h->a->k.u.attention.head_size, window = h->a->k.u.attention.window;
    const ref scale = (ref)h->a->k.u.attention.scale, cap = (ref)h->a->k.u.attention.cap;
    const int64_t given = h->a->first_keys ? h->a->first_keys[h->row + row] : 0;
    const int64_t in_window = row < window ? 0 : row - window + 1;
    probabilities result = {.first = given > in_window ? given : in_window};
    ref most_size = 0;
    ref sum = 0;
    for (int64_t c = result.first; c <= row; c++) {
        ref score = 0;
        ref score_size = 0;
        for (int64_t i = 0; i < size; i++) {
            ref q_size, k_size;
            score += scale * turned(h, row, h->q, i, &q_size) * turned(h, c, h->k, i, &k_size);
            score_size += scale * q_size * k_size;
        }
        result.slope[c] = cap > 0 ? 1 - powl(tanhl(score / cap), 2) : 1;
        if (cap > 0) score = cap * tanhl(score / cap);
        result.p[c] = expl(score);
        sum += result.p[c];
        most_size = fmaxl(most_size, score_size);
    }
    for (int64_t c = result.first; c <= row; c++) result.p[c] /= sum;
    result.log_sum = logl(sum);
    result.relative = 4 * (gamma_of(h->a->k.dtype, size + 4) + turning_error(h->a)) * most_size +
                      gamma_of(h->a->k.dtype, row + 16) + of_narrow_weights(h->a->k.dtype);
    return result;
}

static void check_forward(const head *h)
{
    const int64_t size = h->a->k.u.attention.head_size;
    const qdr_dtype dtype = h->a->k.dtype;
    for (int64_t r = 0; r < h->a->k.u.attention.context; r++) {
        const probabilities p = probabilities_of(h, r);
        for (int64_t i = 0; i < size; i++) {
            ref want = 0;
            ref total = 0;
            for (int64_t c = p.first; c <= r; c++) want += p.p[c] * in(h, c, h->v + i);
            for (int64_t c = p.first; c <= r; c++) total += p.p[c] * fabsl(in(h, c, h->v + i));
            check_near(&h->a->y, (h->row + r) * h->a->out_width + h->o + i, want,
                       total * (p.relative + gamma_of(dtype, r + 2)), "attention");
        }
        const int64_t at = h->row * h->a->k.u.attention.n_heads + h->index * h->a->k.u.attention.context + r;
        check_near(&h->a->saved, at, p.log_sum,
                   p.relative - of_narrow_weights(dtype) + gamma_of(dtype, 2) * (1 + fabsl(p.log_sum)), "log-sum-exp");
    }
}

/* Gradients of one key head's sequence, and how far they may be off. */
typedef struct gradients {
    int64_t size, context;
    ref *value, *bound; /* [context, width of qkv] */
} gradients;

static void gradients_add(gradients *g, const head *h, int64_t row, int64_t col, ref value, ref size)
{
    const int64_t at = row * h->a->width + col;
    g->value[at] += value;
    g->bound[at] += size;
}

/* dS = P∘(dP - Σ P∘dP)·slope·scale for one query row; what it adds to dq, dk, dv. The slope, 1 - tanh², is off by at
 * most twice as much as score / cap. */
static void row_gradients(gradients *g, const head *h, int64_t r)
{
    const int64_t size = h->a->k.u.attention.head_size;
    const qdr_dtype dtype = h->a->k.dtype;
    const ref scale = (ref)h->a->k.u.attention.scale, cap = (ref)h->a->k.u.attention.cap;
    const probabilities p = probabilities_of(h, r);
    const ref relative = (cap > 0 ? 2 + 2 / cap : 2) * p.relative + gamma_of(dtype, size + 2 * r + 12);
    const ref sums = gamma_of(dtype, g->context + 4), turning = turning_error(h->a);
    ref dp[160], dp_size[160], dot = 0, dot_size = 0;
    for (int64_t c = p.first; c <= r; c++) {
        dp[c] = dp_size[c] = 0;
        for (int64_t i = 0; i < size; i++) {
            dp[c] += out_gradient(h, r, i) * in(h, c, h->v + i);
            dp_size[c] += fabsl(out_gradient(h, r, i) * in(h, c, h->v + i));
        }
        dot += p.p[c] * dp[c];
        dot_size += p.p[c] * dp_size[c];
    }
    for (int64_t c = p.first; c <= r; c++) {
        const ref ds = p.p[c] * (dp[c] - dot) * p.slope[c] * scale;
        const ref off = p.p[c] * (dp_size[c] + dot_size) * scale * (relative + sums);
        for (int64_t i = 0; i < size; i++) {
            ref q_size, k_size;
            const ref q = turned(h, r, h->q, i, &q_size), k = turned(h, c, h->k, i, &k_size);
            const ref d_o = out_gradient(h, r, i), further = fabsl(ds) * turning;
            gradients_add(g, h, r, h->q + i, ds * k, (off + further) * k_size);
            gradients_add(g, h, c, h->k + i, ds * q, (off + further) * q_size);
            gradients_add(g, h, c, h->v + i, p.p[c] * d_o, p.p[c] * fabsl(d_o) * (p.relative + sums * 4));
        }
    }
}

/* Gradients of turned heads, of queries and keys, become those of what they were. */
static void turn_back(gradients *g, const attention *a)
{
    const int64_t size = g->size, n_heads = a->k.u.attention.n_heads + a->k.u.attention.n_kv_heads;
    ref value[64], bound[64];
    for (int64_t i = 0; i < g->context * n_heads; i++) {
        const int64_t row = i / n_heads;
        ref *v = g->value + row * a->width + i % n_heads * size, *b = g->bound + row * a->width + i % n_heads * size;
        for (int64_t c = 0; c < size; c++) {
            const turn t = turn_of(a, row, c), back = turn_of(a, row, t.partner);
            const ref x = t.cosine * v[c], y = back.sine * v[t.partner];
            value[c] = t.partner == c ? v[c] : x + y;
            bound[c] = fabsl(t.cosine) * b[c] + fabsl(back.sine) * b[t.partner];
            bound[c] += turning_error(a) * (fabsl(x) + fabsl(y) + bound[c]);
        }
        memcpy(v, value, (size_t)size * sizeof *v);
        memcpy(b, bound, (size_t)size * sizeof *b);
    }
}

static void check_backward(const attention *a, int64_t sequence)
{
    const int64_t context = a->k.u.attention.context;
    const size_t n = (size_t)(context * a->width);
    gradients g = {a->k.u.attention.head_size, context, test_calloc(n, sizeof(ref)), test_calloc(n, sizeof(ref))};
    for (int64_t i = 0; i < a->k.u.attention.n_heads; i++) {
        const head h = head_of(a, sequence, i);
        for (int64_t r = 0; r < context; r++) row_gradients(&g, &h, r);
    }
    turn_back(&g, a);
    for (size_t i = 0; i < n; i++) {
        check_near(&a->dqkv, sequence * (int64_t)n + (int64_t)i, g.value[i], g.bound[i], "dqkv");
    }
    test_free(g.value);
    test_free(g.bound);
}

static void run_kind(shape wanted)
{
    for (int t = 0; t < N_TYPES; t++) {
        attention a = attention_make(float_types[t], &wanted);
        attention_run(&a, QDRI_K_ATTENTION_FORWARD);
        for (int64_t s = 0; s < wanted.n_sequences; s++) {
            for (int64_t i = 0; i < wanted.n_heads; i++) {
                const head h = head_of(&a, s, i);
                check_forward(&h);
            }
        }
        attention_run(&a, QDRI_K_ATTENTION_BACKWARD);
        for (int64_t s = 0; s < wanted.n_sequences; s++) check_backward(&a, s);
        attention_drop(&a);
    }
}

static void run_shape(int64_t n_sequences, int64_t context, int64_t n_heads, int64_t n_kv_heads, int64_t head_size)
{
    run_kind((shape){n_sequences, context, n_heads, n_kv_heads, head_size, .window = 0});
}

TEST(shapes_of_all_kinds)
{
    run_shape(1, 1, 1, 1, 1);
    run_shape(2, 5, 2, 2, 3);
    run_shape(2, 17, 4, 2, 8); /* grouped queries */
    run_shape(1, 33, 3, 1, 7);
    run_shape(1, 64, 1, 1, 16); /* exactly one block of rows */
    run_shape(1, 129, 2, 1, 5); /* three, the last of one row */
    run_shape(3, 19, 6, 2, 24);
    run_shape(2, 40, 2, 2, 16);
    run_shape(0, 7, 2, 2, 4); /* no rows */
}

TEST(scores_of_all_kinds)
{
    run_kind((shape){2, 17, 4, 2, 8, .scale = 0.7});
    run_kind((shape){2, 19, 2, 1, 5, .cap = 1.5});
    run_kind((shape){1, 9, 2, 1, 4, .window = 1}); /* itself */
    run_kind((shape){2, 130, 2, 2, 3, .window = 64});
    run_kind((shape){1, 150, 2, 1, 5, .window = 65, .scale = 0.4, .cap = 3});
    run_kind((shape){1, 150, 3, 1, 32, .window = 3}); /* whole blocks and tiles are not seen */
}

TEST(documents)
{
    run_kind((shape){2, 17, 4, 2, 8, .has_documents = 1});
    run_kind((shape){2, 70, 2, 1, 5, .has_documents = 1, .window = 4});
    run_kind((shape){1, 140, 1, 1, 6, .has_documents = 1, .window = 30, .rotary_columns = 4});
    run_kind((shape){1, 150, 1, 1, 3, .has_documents = 1, .cap = 2}); /* whole blocks and tiles are not seen */
}

TEST(turned_heads)
{
    run_kind((shape){2, 17, 4, 2, 8, .rotary_columns = 8});
    run_kind((shape){2, 17, 4, 2, 8, .rotary_columns = 8, .interleaved = 1});
    run_kind((shape){1, 70, 3, 1, 7, .rotary_columns = 4}); /* a part of the columns */
    run_kind((shape){1, 70, 2, 2, 32, .rotary_columns = 6, .interleaved = 1, .window = 9, .cap = 4});
    run_kind((shape){1, 130, 2, 1, 32, .rotary_columns = 32});
}

/* No query heads: nothing comes out, and keys get no gradient. */
TEST(no_heads)
{
    attention a = attention_make(QDR_F32, &(shape){2, 3, 0, 1, 4, .window = 0});
    attention_run(&a, QDRI_K_ATTENTION_FORWARD);
    attention_run(&a, QDRI_K_ATTENTION_BACKWARD);
    for (int64_t i = 0; i < a.dqkv.n; i++) assert_true(get(&a.dqkv, i) == 0);
    attention_drop(&a);
}

static ref loss_of(attention *a)
{
    ref sum = 0;
    attention_run(a, QDRI_K_ATTENTION_FORWARD);
    for (int64_t i = 0; i < a->y.n; i++) sum += get(&a->y, i) * get(&a->dy, i);
    return sum;
}

static void compare_array(attention *a, array *values, const array *computed, const char *what)
{
    const ref h = 1e-5L;
    for (int64_t i = 0; i < values->n; i++) {
        const double x = (double)get(values, i);
        set(values, i, x + (double)h);
        const ref above = loss_of(a);
        set(values, i, x - (double)h);
        const ref slope = (above - loss_of(a)) / (2 * h);
        set(values, i, x);
        check_near(computed, i, slope, 1e-7L, what);
    }
}

static void compare_with_differences(shape s)
{
    attention a = attention_make(QDR_F64, &s);
    attention_run(&a, QDRI_K_ATTENTION_FORWARD);
    attention_run(&a, QDRI_K_ATTENTION_BACKWARD);
    compare_array(&a, &a.qkv, &a.dqkv, "dqkv by differences");
    for (int i = 0; i < 3; i++) compare_array(&a, &a.parameters[i], &a.gradients[i], "parameters by differences");
    attention_drop(&a);
}

TEST(gradient_is_the_difference)
{
    compare_with_differences((shape){1, 9, 4, 2, 3, .window = 0});
    compare_with_differences((shape){1, 9, 2, 1, 3, .window = 4, .scale = 0.8, .cap = 2});
    compare_with_differences((shape){1, 7, 4, 2, 5, .rotary_columns = 4});
    compare_with_differences((shape){1, 7, 2, 2, 4, .rotary_columns = 2, .interleaved = 1, .window = 3});
    compare_with_differences((shape){2, 5, 4, 2, 5, .rotary_columns = 4, .head_norm = 1});
    compare_with_differences((shape){2, 5, 2, 1, 3, .cap = 2, .head_norm = 1, .one_plus = 1, .has_sinks = 1});
    compare_with_differences((shape){2, 9, 2, 1, 3, .window = 4, .has_sinks = 1, .has_documents = 1});
}

TEST(bad_shapes_are_refused)
{
    attention a = attention_make(QDR_F32, &(shape){2, 3, 4, 2, 4, .window = 0});
    a.k.u.attention.out = a.y.data;
    a.k.u.attention.n_rows = 5;
    CHECK_FAILS(qdri_kernel_run(stream, &a.k), QDR_ERR_SHAPE, "5 rows");
    a.k.u.attention.n_rows = 6;
    a.k.u.attention.n_kv_heads = 3;
    CHECK_FAILS(qdri_kernel_run(stream, &a.k), QDR_ERR_SHAPE, "over 3 key heads");
    a.k.u.attention.n_kv_heads = 2;
    a.k.u.attention.window = 4;
    CHECK_FAILS(qdri_kernel_run(stream, &a.k), QDR_ERR_SHAPE, "a window of 4");
    a.k.u.attention.window = 3;
    a.k.u.attention.rotary_columns = 3;
    CHECK_FAILS(qdri_kernel_run(stream, &a.k), QDR_ERR_SHAPE, "3 rotary columns");
    a.k.u.attention.rotary_columns = 2;
    a.k.u.attention.rotation = NULL;
    CHECK_FAILS(qdri_kernel_run(stream, &a.k), QDR_ERR_ARGUMENT, "rotation is NULL, but has 6 elements");
    a.k.u.attention.rotary_columns = 0;
    a.k.u.attention.work = NULL;
    CHECK_FAILS(qdri_kernel_run(stream, &a.k), QDR_ERR_ARGUMENT, "work is NULL");
    attention_drop(&a);
}

int main(void) { return run_each_set(); }
