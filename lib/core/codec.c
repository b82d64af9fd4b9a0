/* SPDX-License-Identifier: Apache-2.0 */
/* Codecs: names, presets, sizes, bounds. Pure functions. */
#include "core/codec.h"

#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/codec_format.h"
#include "core/dtype.h"
#include "core/order.h"
#include "core/size.h"
#include "quadrille_private/names.h"

enum { USUAL_BLOCK = 128, LEAST_RATE = 4, MOST_RATE = 24, WORD_BYTES = 64 };
#define MOST_LEAST_BYTES (INT64_C(1) << 40)
/* A block whose largest element is smaller is sent as zeros: its scale, and the inverse of it, would lose precision. */
#define LEAST_BLOCK_MAX 0x1p-100
/* More than any memory holds; the bytes of so many fit in 63 bits, whatever the codec. */
#define MOST_ELEMS (INT64_C(1) << 58)

typedef struct codec_traits {
    const char *name;
    int bits, flags;
} codec_traits;

/* Flags that only codecs of gradients of weights may have. */
enum { OF_GRADIENTS = QDR_CODEC_FEEDBACK | QDR_CODEC_HADAMARD };

#define TRAITS(name, kind, bits, flags) [QDR_CODEC_##kind] = {name, bits, flags},
static const codec_traits traits[QDR_N_CODECS] = {[QDR_CODEC_RAW] = {"raw", 0, 0}, QDRI_CODECS(TRAITS)};

static const struct {
    const char *name;
    int flag;
} flags[] = {{"hadamard", QDR_CODEC_HADAMARD}, {"feedback", QDR_CODEC_FEEDBACK}, {"stochastic", QDR_CODEC_STOCHASTIC}};
enum { N_FLAGS = sizeof flags / sizeof *flags };

/* ---- one codec ---- */

int qdri_codec_bits(const qdr_codec *codec) { return traits[codec->kind].bits; }

int qdri_codec_block(const qdr_codec *codec) { return codec->block ? codec->block : USUAL_BLOCK; }

int qdri_codec_shortens(const qdr_codec *codec, qdr_dtype dtype)
{
    int bits = qdri_codec_bits(codec);
    if (codec->kind == QDR_CODEC_BF16) bits = 16;
    if (codec->kind == QDR_CODEC_ZFP) bits = codec->rate;
    if (codec->kind == QDR_CODEC_LOSSLESS) return dtype == QDR_F32 || dtype == QDR_BF16;
    return qdri_is_float(dtype) && dtype != QDR_F64 && bits > 0 && bits < 8 * (int)qdr_dtype_bytes(dtype);
}

/* Of LOSSLESS: for each block the largest exponent and how it is stored, 4-bit distances, and the other bits. */
static int64_t lossless_bytes(qdr_dtype dtype, int64_t n)
{
    const int64_t whole = (int64_t)qdr_dtype_bytes(dtype) * QDRI_LOSSLESS_BLOCK;
    return qdri_ceil_div(n, QDRI_LOSSLESS_BLOCK) * (QDRI_LOSSLESS_HEADER + whole);
}

int64_t qdr_codec_bytes(const qdr_codec *codec, qdr_dtype dtype, int64_t n_elems)
{
    if (!codec || (unsigned)codec->kind >= QDR_N_CODECS || n_elems <= 0) return 0;
    if (n_elems > MOST_ELEMS) return INT64_MAX;
    const int bits = qdri_codec_bits(codec);
    if (!qdri_codec_shortens(codec, dtype)) return n_elems * (int64_t)qdr_dtype_bytes(dtype);
    if (codec->kind == QDR_CODEC_BF16) return 2 * n_elems;
    if (codec->kind == QDR_CODEC_LOSSLESS) return lossless_bytes(dtype, n_elems);
    if (codec->kind == QDR_CODEC_ZFP) return qdri_round_up(qdri_ceil_div(n_elems, 4) * 4 * codec->rate, 64) / 8;
    return 4 * qdri_ceil_div(n_elems, qdri_codec_block(codec)) + qdri_ceil_div(n_elems * bits, 8);
}

double qdr_codec_bound(const qdr_codec *codec, double block_max)
{
    static const double ulp = 0x1p-23, bf16_half_ulp = 0x1p-8, bf16_least = 0x1p-134;
    if (!codec || (unsigned)codec->kind >= QDR_N_CODECS || codec->kind == QDR_CODEC_ZFP) return -1;
    if (codec->kind == QDR_CODEC_BF16) return bf16_half_ulp * block_max + bf16_least;
    const int bits = qdri_codec_bits(codec);
    if (!bits) return 0;
    const double levels = (double)((1 << (bits - 1)) - 1), steps = codec->flags & QDR_CODEC_STOCHASTIC ? 1 : 0.5;
    const double roundings = codec->flags & QDR_CODEC_HADAMARD ? 16 * ulp : 4 * ulp;
    const double bound = block_max < LEAST_BLOCK_MAX ? block_max : block_max * (steps / levels + roundings);
    return codec->flags & QDR_CODEC_HADAMARD ? sqrt(qdri_codec_block(codec)) * bound : bound;
}

/* ---- text ---- */

size_t qdr_codec_text(const qdr_codec *codec, char *text, size_t capacity)
{
    char block[16] = "", rate[16] = "", suffix[64] = "";
    if (!codec || (unsigned)codec->kind >= QDR_N_CODECS) return (size_t)snprintf(text, capacity, "?");
    if (qdri_codec_bits(codec)) snprintf(block, sizeof block, "/%d", qdri_codec_block(codec));
    if (codec->kind == QDR_CODEC_ZFP) snprintf(rate, sizeof rate, ":%d", codec->rate);
    for (int i = 0; i < N_FLAGS; i++)
        if (codec->flags & flags[i].flag)
            snprintf(suffix + strlen(suffix), sizeof suffix - strlen(suffix), "+%s", flags[i].name);
    return (size_t)snprintf(text, capacity, "%s%s%s%s", traits[codec->kind].name, block, rate, suffix);
}

qdr_status qdri_codec_check(const qdr_codec *codec, const char *who)
{
    if (!codec) return QDR_FAIL(QDR_ERR_ARGUMENT, "%s: the codec is NULL; use QDR_CODEC_RAW for none", who);
    if ((unsigned)codec->kind >= QDR_N_CODECS)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "%s: codec %d; see qdr_codec_kind", who, (int)codec->kind);
    const codec_traits *of = &traits[codec->kind];
    const int block = codec->block;
    if (of->bits && block && (block < 32 || block > 256 || (block & (block - 1))))
        return QDR_FAIL(QDR_ERR_ARGUMENT, "%s: %s in blocks of %d; use 32, 64, 128 or 256", who, of->name, block);
    if (!of->bits && block)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "%s: %s has no blocks; leave /%d out", who, of->name, block);
    if (codec->kind == QDR_CODEC_ZFP && (codec->rate < LEAST_RATE || codec->rate > MOST_RATE))
        return QDR_FAIL(QDR_ERR_ARGUMENT, "%s: zfp with %d bits an element; use %d to %d, such as zfp:8", who,
                        codec->rate, LEAST_RATE, MOST_RATE);
    if (codec->kind != QDR_CODEC_ZFP && codec->rate)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "%s: %s has no rate; leave :%d out", who, of->name, codec->rate);
    for (int i = 0; i < N_FLAGS; i++)
        if (codec->flags & ~of->flags & flags[i].flag)
            return QDR_FAIL(QDR_ERR_ARGUMENT, "%s: %s has no %s; %s have it", who, of->name, flags[i].name,
                            flags[i].flag == QDR_CODEC_HADAMARD ? "only int8 and int4" : "only int16, int8 and int4");
    if (codec->flags & ~(QDR_CODEC_HADAMARD | QDR_CODEC_FEEDBACK | QDR_CODEC_STOCHASTIC))
        return QDR_FAIL(QDR_ERR_ARGUMENT, "%s: flags %d; see QDR_CODEC_HADAMARD", who, codec->flags);
    return QDR_OK;
}

/* One of names, or an error with the nearest ones. */
static int find(const char *word, const char *const *names, int n)
{
    for (int i = 0; i < n; i++)
        if (strcmp(word, names[i]) == 0) return i;
    return -1;
}

static qdr_status unknown(const char *what, const char *word, const char *const *names, int n)
{
    char nearest[128], all[256] = "";
    const int n_near = qdr_names_nearest(word, names, n, 3, nearest, sizeof nearest);
    for (int i = 0; i < n; i++)
        if (find(names[i], names, i) < 0) /* a preset may have a codec's name */
            snprintf(all + strlen(all), sizeof all - strlen(all), "%s%s", i ? ", " : "", names[i]);
    return QDR_FAIL(QDR_ERR_ARGUMENT, "codec: no %s is named '%.40s'%s%s; known names: %s", what, word,
                    n_near ? "; nearest: " : "", nearest, all);
}

/* Words are shorter than WORD_BYTES. */
static qdr_status check_words(const char *text, const char *ends)
{
    for (size_t n; (n = strcspn(text, ends)), *text; text += n + (text[n] != 0))
        if (n >= WORD_BYTES)
            return QDR_FAIL(QDR_ERR_ARGUMENT, "codec: '%.40s...' has %zu characters; words have %d at most", text, n,
                            WORD_BYTES - 1);
    return QDR_OK;
}

/* Copies a word up to one of the characters in `ends`. @return where it ends */
static const char *next_word(const char *text, const char *ends, char word[WORD_BYTES])
{
    const size_t n = strcspn(text, ends);
    snprintf(word, WORD_BYTES, "%.*s", (int)(n < WORD_BYTES ? n : WORD_BYTES - 1), text);
    return text + n;
}

static int read_number(const char *word)
{
    char *end;
    const long n = strtol(word, &end, 10);
    return *word >= '0' && *word <= '9' && !*end && n > 0 && n < 1 << 20 ? (int)n : -1;
}

qdr_status qdr_codec_parse(const char *text, qdr_codec *codec)
{
    const char *names[QDR_N_CODECS], *flag_names[N_FLAGS];
    char word[WORD_BYTES];
    qdr_codec made = {QDR_CODEC_RAW, 0, 0, 0};
    if (codec) *codec = made;
    if (!codec || !text) return QDR_FAIL(QDR_ERR_ARGUMENT, "codec: the text or the result is NULL");
    QDR_TRY(check_words(text, "/:+"));
    for (int i = 0; i < QDR_N_CODECS; i++) names[i] = traits[i].name;
    for (int i = 0; i < N_FLAGS; i++) flag_names[i] = flags[i].name;
    text = next_word(text, "/:+", word);
    const int kind = find(word, names, QDR_N_CODECS);
    if (kind < 0) return unknown("codec", word, names, QDR_N_CODECS);
    made.kind = (qdr_codec_kind)kind;
    while (*text) {
        const char sign = *text;
        text = next_word(text + 1, "/:+", word);
        if (sign != '+') {
            const int number = read_number(word);
            if (number < 0)
                return QDR_FAIL(QDR_ERR_ARGUMENT, "codec: '%.40s' after '%c' is no number; write int8/64 or zfp:8",
                                word, sign);
            int *const kept = sign == '/' ? &made.block : &made.rate;
            if (*kept)
                return QDR_FAIL(QDR_ERR_ARGUMENT, "codec: '%c%d' and '%c%d' in one codec; leave one out", sign, *kept,
                                sign, number);
            *kept = number;
            continue;
        }
        const int flag = find(word, flag_names, N_FLAGS);
        if (flag < 0) return unknown("flag", word, flag_names, N_FLAGS);
        if (made.flags & flags[flag].flag)
            return QDR_FAIL(QDR_ERR_ARGUMENT, "codec: '+%s' stands there twice; leave one out", word);
        made.flags |= flags[flag].flag;
    }
    QDR_TRY(qdri_codec_check(&made, "codec"));
    *codec = made;
    return QDR_OK;
}

/* ---- all of a stack ---- */

static const char *const class_names[QDR_N_TRAFFIC_CLASSES] = {"activation", "activation-gradient", "weight",
                                                               "gradient"};

const char *qdri_traffic_name(qdr_traffic_class class) { return class_names[class]; }

/* Of activations and their gradients on x and y; of weights and of gradients on z; of gradients on d. */
static const struct {
    const char *name, *activations, *weights, *gradients, *over_d;
} presets[] = {
    {"none", "raw", "raw", "raw", "raw"},
    {"lossless", "lossless", "lossless", "lossless", "lossless"},
    {"safe", "bf16", "bf16", "bf16", "bf16"},
    {"hybrid", "int16", "int16", "int16", "int8"},
    {"zhybrid", "zfp:16", "zfp:16", "zfp:16", "zfp:8"},
    {"mzhybrid", "lossless", "lossless", "lossless", "zfp:8"},
    {"aggressive", "int8/64", "int8", "int8", "int4+hadamard+feedback"},
    {"naive", "zfp:8", "zfp:8", "zfp:8", "zfp:8"},
};
enum { N_PRESETS = sizeof presets / sizeof *presets };

/* class < 0: all of them, of which only gradients of weights may have each flag. */
static void set(qdr_codecs *codecs, const char *axes, int class, const qdr_codec *codec)
{
    for (int c = 0; c < QDR_N_TRAFFIC_CLASSES; c++)
        for (const char *axis = axes; *axis && (class < 0 || c == class); axis++) {
            qdr_codec *one = &codecs->of[qdri_axis_of(*axis)][c];
            *one = *codec;
            if (class < 0 && c != QDR_TRAFFIC_GRADIENT) one->flags &= ~OF_GRADIENTS;
        }
}

static qdr_status set_from_text(qdr_codecs *codecs, const char *axes, int class, const char *text)
{
    qdr_codec codec;
    QDR_TRY(qdr_codec_parse(text, &codec));
    set(codecs, axes, class, &codec);
    return QDR_OK;
}

static qdr_status begin_with(const char *word, qdr_codecs *codecs)
{
    const char *names[N_PRESETS + QDR_N_CODECS];
    for (int i = 0; i < N_PRESETS; i++) names[i] = presets[i].name;
    for (int i = 0; i < QDR_N_CODECS; i++) names[N_PRESETS + i] = traits[i].name;
    const int preset = find(word, names, N_PRESETS);
    if (preset >= 0) {
        QDR_TRY(set_from_text(codecs, "xy", -1, presets[preset].activations));
        QDR_TRY(set_from_text(codecs, "z", QDR_TRAFFIC_WEIGHT, presets[preset].weights));
        QDR_TRY(set_from_text(codecs, "z", QDR_TRAFFIC_GRADIENT, presets[preset].gradients));
        return set_from_text(codecs, "d", QDR_TRAFFIC_GRADIENT, presets[preset].over_d);
    }
    char name[WORD_BYTES];
    next_word(word, "/:+", name);
    if (strcmp(name, "auto") == 0)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "codec: '%.40s' asks the model, which quadrille plan does; name the codecs",
                        word);
    if (find(name, names, N_PRESETS + QDR_N_CODECS) < 0)
        return unknown("preset or codec", name, names, N_PRESETS + QDR_N_CODECS);
    return set_from_text(codecs, "xyzd", -1, word);
}

/* "d.gradient=int4", "xy=bf16". */
static qdr_status set_some(const char *left, const char *codec, qdr_codecs *codecs)
{
    char axes[WORD_BYTES];
    int class = -1;
    const char *dot = next_word(left, ".", axes);
    if (*dot) class = find(dot + 1, class_names, QDR_N_TRAFFIC_CLASSES);
    if (*dot && class < 0) return unknown("class of traffic", dot + 1, class_names, QDR_N_TRAFFIC_CLASSES);
    if (!*axes || strspn(axes, "xyzd") != strlen(axes))
        return QDR_FAIL(QDR_ERR_ARGUMENT,
                        "codec: '%.40s' names no axes; give one or more of x, y, z and d, a class of traffic and a "
                        "codec, such as d.gradient=int8",
                        left);
    return set_from_text(codecs, axes, class, codec);
}

/* "64K", "1M", "4096". @return -1: none of these */
static int64_t read_bytes(const char *word)
{
    char *end;
    const int64_t n = strtoll(word, &end, 10);
    if (*word < '0' || *word > '9' || n < 1 || n > MOST_LEAST_BYTES) return -1;
    const int64_t unit = *end == 'K' ? 1 << 10 : *end == 'M' ? 1 << 20 : 1;
    return end[unit > 1] || n > MOST_LEAST_BYTES / unit ? -1 : n * unit;
}

static qdr_status read_item(const char *item, qdr_codecs *codecs)
{
    char left[WORD_BYTES];
    const char *right = next_word(item, "=", left);
    if (strcmp(item, "inside") == 0 && !codecs->inside) {
        codecs->inside = 1;
        return QDR_OK;
    }
    if (strcmp(item, "inside") == 0 || (strcmp(left, "least") == 0 && codecs->least_bytes))
        return QDR_FAIL(QDR_ERR_ARGUMENT, "codec: '%s' stands there twice; leave one out", left);
    if (!*right)
        return QDR_FAIL(QDR_ERR_ARGUMENT,
                        "codec: '%.40s' does not follow a comma; what does is AXES.CLASS=CODEC, least=BYTES or inside",
                        item);
    if (strcmp(left, "least") != 0) return set_some(left, right + 1, codecs);
    codecs->least_bytes = read_bytes(right + 1);
    if (codecs->least_bytes > 0) return QDR_OK;
    return QDR_FAIL(QDR_ERR_ARGUMENT, "codec: least is '%.40s'; give bytes, such as 16K or 1M", right + 1);
}

qdr_status qdri_codecs_check(const qdr_codecs *codecs, const char *who)
{
    for (int axis = 0; axis < QDR_N_AXES; axis++)
        for (int class = 0; class < QDR_N_TRAFFIC_CLASSES; class ++) {
            const qdr_codec *codec = &codecs->of[axis][class];
            QDR_TRY(qdri_codec_check(codec, who));
            if (class == QDR_TRAFFIC_GRADIENT || !(codec->flags & OF_GRADIENTS)) continue;
            return QDR_FAIL(QDR_ERR_ARGUMENT, "%s: %c.%s has %s, which only gradients of weights may have; use %s", who,
                            QDRI_USUAL_ORDER[axis], class_names[class],
                            codec->flags & QDR_CODEC_FEEDBACK ? "feedback" : "hadamard", traits[codec->kind].name);
        }
    if (codecs->least_bytes < 0)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "%s: least_bytes is %lld; use 0, which is 16 KiB, or more", who,
                        (long long)codecs->least_bytes);
    return qdri_check_switch(who, "inside", codecs->inside);
}

qdr_status qdri_codecs_check_for(const qdr_codecs *codecs, qdr_dtype dtype, const char *who)
{
    QDR_TRY(qdri_codecs_check(codecs, who));
    if (dtype != QDR_F64 || qdri_codecs_are_none(codecs)) return QDR_OK;
    return QDR_FAIL(QDR_ERR_ARGUMENT, "%s: f64 is never coded; use f32, bf16 or f16, or no codecs", who);
}

static qdr_status read_all(const char *text, qdr_codecs *codecs)
{
    char item[WORD_BYTES];
    QDR_TRY(check_words(text, ","));
    text = next_word(text, ",", item);
    QDR_TRY(begin_with(item, codecs));
    while (*text) {
        text = next_word(text + 1, ",", item);
        QDR_TRY(read_item(item, codecs));
    }
    return qdri_codecs_check(codecs, "codec");
}

qdr_status qdr_codecs_parse(const char *text, qdr_codecs *codecs)
{
    qdr_codecs made = {QDR_INIT(qdr_codecs)};
    if (codecs) *codecs = made;
    if (!codecs || !text) return QDR_FAIL(QDR_ERR_ARGUMENT, "codec: the text or the result is NULL");
    QDR_TRY(read_all(text, &made));
    *codecs = made;
    return QDR_OK;
}

/* ---- and back ---- */

static int is_same(const qdr_codec *a, const qdr_codec *b)
{
    return a->kind == b->kind && a->rate == b->rate && a->flags == b->flags &&
           qdri_codec_block(a) == qdri_codec_block(b);
}

static int n_different(const qdr_codecs *a, const qdr_codecs *b)
{
    int n = 0;
    for (int axis = 0; axis < QDR_N_AXES; axis++)
        for (int class = 0; class < QDR_N_TRAFFIC_CLASSES; class ++)
            n += !is_same(&a->of[axis][class], &b->of[axis][class]);
    return n;
}

int qdri_codecs_are_same(const qdr_codecs *a, const qdr_codecs *b)
{
    return n_different(a, b) == 0 && a->least_bytes == b->least_bytes && a->inside == b->inside;
}

int qdri_codecs_are_none(const qdr_codecs *codecs)
{
    static const qdr_codecs none = {.size = 0};
    return n_different(codecs, &none) == 0;
}

/* A list of words that are separated by commas. */
typedef struct word_list {
    char *text;
    size_t capacity, n;
} word_list;

static void add_word(word_list *list, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void add_word(word_list *list, const char *format, ...)
{
    va_list arguments;
    const size_t at = list->n < list->capacity ? list->n : list->capacity;
    va_start(arguments, format);
    list->n += (size_t)vsnprintf(list->text ? list->text + at : NULL, list->capacity - at, format, arguments);
    va_end(arguments);
}

/* The preset, or the codec for everything, from which codecs differ least. */
static void find_nearest(const qdr_codecs *codecs, char name[WORD_BYTES], qdr_codecs *nearest)
{
    const qdr_codec *all = &codecs->of[QDR_D][QDR_TRAFFIC_GRADIENT];
    int fewest = INT_MAX;
    for (int i = 0; i <= N_PRESETS; i++) {
        qdr_codecs made = {QDR_INIT(qdr_codecs)};
        if (i == N_PRESETS) set(&made, "xyzd", -1, all);
        if (i < N_PRESETS && qdr_codecs_parse(presets[i].name, &made) != QDR_OK) continue;
        if (n_different(codecs, &made) >= fewest) continue;
        fewest = n_different(codecs, &made);
        *nearest = made;
        if (i < N_PRESETS)
            snprintf(name, WORD_BYTES, "%s", presets[i].name);
        else
            qdr_codec_text(all, name, WORD_BYTES);
    }
}

size_t qdr_codecs_text(const qdr_codecs *codecs, char *text, size_t capacity)
{
    word_list list = {text, capacity, 0};
    char name[WORD_BYTES];
    qdr_codecs nearest;
    if (!codecs) return (size_t)snprintf(text, capacity, "?");
    find_nearest(codecs, name, &nearest);
    add_word(&list, "%s", name);
    for (int axis = 0; axis < QDR_N_AXES; axis++)
        for (int class = 0; class < QDR_N_TRAFFIC_CLASSES; class ++) {
            char codec[WORD_BYTES];
            if (is_same(&codecs->of[axis][class], &nearest.of[axis][class])) continue;
            qdr_codec_text(&codecs->of[axis][class], codec, sizeof codec);
            add_word(&list, ",%c.%s=%s", QDRI_USUAL_ORDER[axis], class_names[class], codec);
        }
    if (codecs->least_bytes) add_word(&list, ",least=%lld", (long long)codecs->least_bytes);
    if (codecs->inside) add_word(&list, ",inside");
    return list.n;
}
