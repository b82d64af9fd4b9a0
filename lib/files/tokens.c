/* SPDX-License-Identifier: Apache-2.0 */
/* Sources of tokens, and windows of them. */
#include "quadrille/tokens.h"

#include <glob.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/size.h"
#include "core/sized.h"
#include "files/shuffle.h"
#include "files/token_file.h"

#define MOST_VOCAB ((int64_t)1 << 31)

typedef struct source {
    qdri_token_file *files;
    int n_files, capacity;
    int64_t n, n_train; /* tokens; those from n_train on are for validation */
    int64_t n_windows, n_validation, n_evaluation; /* as in qdr_tokens_info */
    double weight;
    uint64_t share; /* of what the sources before it leave, in 2^-32 */
} source;

struct qdr_tokens {
    qdr_tokens_opts opts;
    int64_t limit; /* each token is less */
    source *sources;
    int n_sources;
    qdr_tokens_info info;
};

/* ---- opening ---- */

static qdr_status check_new(const qdr_tokens *t, const qdri_token_file *file)
{
    for (int s = 0; s < t->n_sources && !file->text; s++)
        for (int i = 0; i < t->sources[s].n_files; i++) {
            const qdri_token_file *other = &t->sources[s].files[i];
            if (!other->text && other->device == file->device && other->node == file->node)
                return QDR_FAIL(QDR_ERR_ARGUMENT, "%s is named twice; name it once, with the weight of both",
                                file->name);
        }
    if (t->opts.documents != QDR_DOCUMENTS_INDEX || file->n_documents) return QDR_OK;
    return QDR_FAIL(QDR_ERR_ARGUMENT, "%s %s; name the token that ends them", file->name,
                    t->opts.format > QDR_TOKENS_BY_FILE && t->opts.format < QDR_TOKENS_OR_TEXT
                        ? "is read in the format that was named, without an .idx that says where documents end"
                    : file->index ? "has an .idx that does not say where documents end"
                                  : "has no .idx of Megatron that says where documents end");
}

static qdr_status add_file(qdr_tokens *t, source *to, const qdr_token_source *from, const char *path)
{
    qdri_token_file file = {.text = from->text, .bytes = from->text_bytes, .at = to->n};
    QDR_TRY(qdri_list_grow((void **)&to->files, to->n_files, &to->capacity, sizeof file, "a list of files"));
    QDR_TRY(qdri_strdup(path, &file.path));
    qdr_status status = qdri_token_file_open(&file, t->opts.format);
    if (status == QDR_OK) status = check_new(t, &file);
    if (status != QDR_OK) return qdri_token_file_close(&file), status;
    to->files[to->n_files++] = file;
    to->n += file.n;
    return QDR_OK;
}

/* A name with the letters of a pattern may be a file all the same. */
static qdr_status add_files(qdr_tokens *t, source *to, const qdr_token_source *from)
{
    struct stat info;
    glob_t found;
    if (!from->path) return QDR_FAIL(QDR_ERR_ARGUMENT, "tokens: a source has no path");
    const int code = from->text || stat(from->path, &info) == 0 ? GLOB_NOMATCH : glob(from->path, 0, NULL, &found);
    if (code == GLOB_NOSPACE) return QDR_FAIL(QDR_ERR_MEMORY, "tokens: out of memory for a list of files");
    if (code) return add_file(t, to, from, from->path);
    qdr_status status = QDR_OK;
    for (size_t i = 0; i < found.gl_pathc && status == QDR_OK; i++) status = add_file(t, to, from, found.gl_pathv[i]);
    globfree(&found);
    return status;
}

static qdr_status add_source(qdr_tokens *t, const qdr_token_source *from)
{
    source *to = &t->sources[t->n_sources++];
    to->weight = from->weight;
    const int64_t context = t->opts.context, needed = t->opts.only_validation ? 2 : 10 * (context + 1);
    QDR_TRY(add_files(t, to, from));
    to->n_train = t->opts.only_validation ? 0 : to->n - to->n / 10;
    to->n_windows = to->n_train < 2 * context ? to->n_train > 0 : to->n_train / context - 1;
    to->n_validation = (to->n - to->n_train - 1) / context;
    to->n_evaluation = qdri_ceil_div(to->n - to->n_train - 1, context);
    if (to->n >= needed) return QDR_OK;
    return QDR_FAIL(QDR_ERR_ARGUMENT,
                    "%s has %" PRId64 " token%s, but %" PRId64 " are needed%s; use more data or a "
                    "shorter context",
                    to->files->name, to->n, to->n == 1 ? "" : "s", needed,
                    t->opts.only_validation ? ""
                                            : ", ten times a context plus one token: the last tenth is for validation");
}

static void add_up(qdr_tokens *t)
{
    t->info.is_text = 1;
    for (const source *s = t->sources; s < t->sources + t->n_sources; s++) {
        t->info.n_tokens += s->n, t->info.n_train += s->n_train, t->info.n_files += s->n_files;
        t->info.n_windows += s->n_windows;
        t->info.n_validation += s->n_validation, t->info.n_evaluation += s->n_evaluation;
        for (int i = 0; i < s->n_files; i++) t->info.is_text &= s->files[i].is_text;
    }
}

/* Each source takes its share of what those before it leave. */
static qdr_status take_weights(qdr_tokens *t)
{
    double sum = 0, left = 0;
    for (int s = 0; s < t->n_sources; s++) {
        const double weight = t->sources[s].weight;
        if (!(weight > 0 && weight <= 1e300))
            return QDR_FAIL(QDR_ERR_ARGUMENT, "%s has weight %g; give it a positive number", t->sources[s].files->name,
                            weight);
        sum += weight;
    }
    for (int s = t->n_sources - 1; s >= 0; s--) {
        const double weight = t->sources[s].weight;
        if (weight < 1e-6 * sum)
            return QDR_FAIL(QDR_ERR_ARGUMENT,
                            "%s has weight %g of %g; give each source at least a millionth of the sum",
                            t->sources[s].files->name, weight, sum);
        left += weight;
        t->sources[s].share = (uint64_t)(weight / left * 0x1p32 + 0.5);
    }
    return QDR_OK;
}

static qdr_status check_opts(const qdr_tokens_opts *opts, int n_sources, int64_t limit)
{
    if (n_sources < 1) return QDR_FAIL(QDR_ERR_ARGUMENT, "tokens: there is no source; name a file");
    if (opts->documents == QDR_DOCUMENTS_TOKEN && (opts->document_token < 0 || opts->document_token >= limit))
        return QDR_FAIL(QDR_ERR_ARGUMENT,
                        "tokens: documents end with token %" PRId64 ", but tokens are from 0 to %" PRId64
                        "; name one of these",
                        opts->document_token, limit - 1);
    const int is_bad = opts->context < 1 || opts->context > 1 << 24 || limit < 1 || limit > MOST_VOCAB ||
                       (unsigned)opts->format > QDR_TOKENS_OR_TEXT || (unsigned)opts->documents > QDR_DOCUMENTS_INDEX;
    if (!is_bad) return QDR_OK;
    return QDR_FAIL(QDR_ERR_ARGUMENT,
                    "tokens: a context of %" PRId64 ", a vocabulary of %" PRId64
                    ", format %d, documents %d: one of them is out of its range",
                    opts->context, limit, (int)opts->format, (int)opts->documents);
}

static qdr_status fill(qdr_tokens *t, const qdr_token_source *sources, int n_sources)
{
    QDR_TRY(QDRI_NEW(n_sources, "sources of tokens", &t->sources));
    for (int s = 0; s < n_sources; s++) {
        qdr_token_source own;
        QDR_TRY(QDRI_TAKE(qdr_token_source, qdri_sized_item(sources, s), &own));
        QDR_TRY(add_source(t, &own));
    }
    add_up(t);
    return take_weights(t);
}

qdr_status qdr_tokens_open(const qdr_token_source *sources, int n_sources, const qdr_tokens_opts *opts,
                           qdr_tokens **tokens)
{
    qdr_tokens_opts own;
    if (tokens) *tokens = NULL;
    if (!tokens || !sources) return QDR_FAIL(QDR_ERR_ARGUMENT, "tokens: the sources or the result pointer is NULL");
    QDR_TRY(QDRI_TAKE(qdr_tokens_opts, opts, &own));
    const int64_t limit = own.vocab ? own.vocab : MOST_VOCAB;
    QDR_TRY(check_opts(&own, n_sources, limit));
    QDR_TRY(QDRI_NEW(1, "tokens", tokens));
    **tokens = (qdr_tokens){.opts = own, .limit = limit};
    const qdr_status status = fill(*tokens, sources, n_sources);
    if (status != QDR_OK) qdr_tokens_close(tokens);
    return status;
}

void qdr_tokens_close(qdr_tokens **tokens)
{
    qdr_tokens *t = tokens ? *tokens : NULL;
    if (!t) return;
    for (int s = 0; s < t->n_sources; s++) {
        for (int i = 0; i < t->sources[s].n_files; i++) qdri_token_file_close(&t->sources[s].files[i]);
        free(t->sources[s].files);
    }
    free(t->sources);
    free(t);
    *tokens = NULL;
}

/* ---- windows ---- */

qdr_status qdr_tokens_get_info(const qdr_tokens *t, qdr_tokens_info *info)
{
    QDR_TRY(QDRI_CLEAR(qdr_tokens_info, info));
    if (!t) return QDR_FAIL(QDR_ERR_ARGUMENT, "tokens: they are NULL");
    QDRI_GIVE(qdr_tokens_info, info, &t->info);
    return QDR_OK;
}

static qdr_status read_source(const qdr_tokens *t, const source *s, int64_t first, int64_t n, int32_t *to)
{
    for (const qdri_token_file *file = s->files; n; file++) {
        const int64_t from = first - file->at, some = qdri_least(n, file->n - from);
        if (some <= 0) continue;
        QDR_TRY(qdri_token_file_read(file, t->limit, from, some, to));
        first += some, to += some, n -= some;
    }
    return QDR_OK;
}

/* keys[i] = i where a document begins behind the first of the n tokens. */
static qdr_status find_documents(const qdr_tokens *t, const source *s, int64_t first, int64_t n, const int32_t *tokens,
                                 int32_t *keys)
{
    const qdr_token_documents kind = t->opts.documents;
    for (const qdri_token_file *file = s->files; kind && file < s->files + s->n_files; file++) {
        const int64_t row = file->at - first; /* of the file's first token */
        if (row >= n || row + file->n <= 0) continue;
        if (row > 0) keys[row] = (int32_t)row;
        for (int64_t at = row < 0 ? 1 - row : 0; kind == QDR_DOCUMENTS_INDEX; at++) {
            QDR_TRY(qdri_token_file_document(file, at, &at));
            if (at >= file->n || row + at >= n) break;
            keys[row + at] = (int32_t)(row + at);
        }
    }
    for (int64_t i = 1; i < n && kind == QDR_DOCUMENTS_TOKEN; i++)
        if (tokens[i - 1] == t->opts.document_token) keys[i] = (int32_t)i;
    return QDR_OK;
}

/* Writes the sequence at `first`, of tokens before `end`, as number i of the rows. scratch: 2·(C + 1) numbers. */
static qdr_status put_window(const qdr_tokens *t, const source *s, int64_t first, int64_t end, int32_t *scratch,
                             const qdr_token_rows *rows, int64_t i)
{
    const int64_t context = t->opts.context, n = qdri_least(context + 1, end - first);
    int32_t *tokens = scratch, *keys = scratch + context + 1, key = 0;
    memset(scratch, 0, 2 * (size_t)(context + 1) * sizeof *scratch);
    if (n > 0) QDR_TRY(read_source(t, s, first, n, tokens));
    if (n > 0) QDR_TRY(find_documents(t, s, first, n, tokens, keys));
    for (int64_t row = 0, to = i * context; row < context; row++, to++) {
        const int ends = row + 1 >= n || keys[row + 1] == row + 1;
        if (keys[row]) key = keys[row];
        rows->tokens[to] = tokens[row];
        rows->targets[to] = ends ? -1 : tokens[row + 1];
        if (rows->first_keys) rows->first_keys[to] = key;
    }
    return QDR_OK;
}

/* How many of the first k sequences a share takes. */
static int64_t taken(int64_t k, uint64_t share)
{
    const uint64_t n = (uint64_t)k;
    return (int64_t)((n >> 32) * share + ((n & UINT32_MAX) * share >> 32));
}

/* A sequence's source, where it begins, and the end of the tokens that it may have. */
typedef const source *find_fn(const qdr_tokens *t, int64_t number, int64_t n_all, int64_t *first, int64_t *end);

/* Consecutive windows of each source, shuffled; each pass has another order, and another first token. */
static const source *find_train(const qdr_tokens *t, int64_t number, int64_t n_all, int64_t *first, int64_t *end)
{
    const source *s = t->sources;
    (void)n_all;
    for (; s < t->sources + t->n_sources - 1; s++) {
        const int64_t n = taken(number, s->share);
        const int takes = taken(number + 1, s->share) > n;
        number = takes ? n : number - n;
        if (takes) break;
    }
    const int64_t context = t->opts.context, n = s->n_windows;
    const uint64_t key = qdri_mix(qdri_mix((uint64_t)t->opts.seed) + (uint64_t)(number / n)); /* of this pass */
    *first = (int64_t)(key % (uint64_t)(s->n_train - n * context)) +
             context * (int64_t)qdri_shuffled((uint64_t)(number % n), (uint64_t)n, key);
    *end = s->n_train;
    return s;
}

/* Without a source an empty window. */
static const source *find_validation(const qdr_tokens *t, int64_t index, int64_t n_all, int64_t *first, int64_t *end)
{
    int64_t sum = 0, before = 0;
    if (index >= (n_all ? n_all : t->info.n_evaluation)) return NULL;
    for (const source *s = t->sources; s < t->sources + t->n_sources; s++) {
        sum += s->n_validation;
        const double share = (double)n_all * (double)sum / (double)(t->info.n_validation ? t->info.n_validation : 1);
        const int64_t n = n_all ? (int64_t)floor(share + 0.5) - before : s->n_evaluation;
        const int64_t i = index - before, places = s->n - s->n_train - t->opts.context;
        before += n;
        *end = s->n;
        *first = s->n_train + (!n_all ? i * t->opts.context : n > 1 ? (places - 1) * i / (n - 1) : 0);
        if (i < n) return s;
    }
    return NULL;
}

static qdr_status put_windows(const qdr_tokens *t, int64_t first, int64_t n, int64_t n_all, find_fn *find,
                              const qdr_token_rows *rows)
{
    qdr_token_rows own;
    int32_t *scratch = NULL;
    QDR_TRY(QDRI_TAKE(qdr_token_rows, rows, &own));
    if (!t || !own.tokens || !own.targets || first < 0 || n < 0 || n_all < 0 ||
        (find == find_train && t->opts.only_validation))
        return QDR_FAIL(QDR_ERR_ARGUMENT,
                        "tokens: %" PRId64 " windows from %" PRId64 " on, NULL, or training where all is for "
                        "validation",
                        n, first);
    QDR_TRY(QDRI_NEW(2 * (t->opts.context + 1), "a window of tokens", &scratch));
    qdr_status status = QDR_OK;
    for (int64_t i = 0; i < n && status == QDR_OK; i++) {
        int64_t begin = 0, end = 0;
        const source *s = find(t, first + i, n_all, &begin, &end);
        status = put_window(t, s, begin, end, scratch, &own, i);
    }
    free(scratch);
    return status;
}

qdr_status qdr_tokens_train(const qdr_tokens *t, int64_t first, int64_t n, const qdr_token_rows *rows)
{
    return put_windows(t, first, n, 0, find_train, rows);
}

qdr_status qdr_tokens_validate(const qdr_tokens *t, int64_t first, int64_t n, int64_t n_all, const qdr_token_rows *rows)
{
    return put_windows(t, first, n, n_all, find_validation, rows);
}

qdr_status qdr_tokens_read(const qdr_tokens *t, int64_t first, int64_t n, int32_t *to)
{
    const source *s = t ? t->sources : NULL;
    if (!t || !to || first < 0 || n < 0) return QDR_FAIL(QDR_ERR_ARGUMENT, "tokens: NULL, or a number below 0");
    for (; n && s < t->sources + t->n_sources; first -= s++->n) {
        const int64_t some = qdri_least(n, s->n - first);
        if (some <= 0) continue;
        QDR_TRY(read_source(t, s, first, some, to));
        to += some, n -= some, first += some;
    }
    return n ? QDR_FAIL(QDR_ERR_ARGUMENT, "tokens: there are no %" PRId64 " from %" PRId64 " on", n, first) : QDR_OK;
}
