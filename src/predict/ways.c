/* SPDX-License-Identifier: Apache-2.0 */
/* The words for methods of parallelism and recomputation, and their meaning. */
#include "predict/ways.h"

#include <ctype.h>
#include <quadrille/plan.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "predict/text.h"

typedef const char *const words[];

/* ---- words ---- */

static words zero = {"zero stage", "zero", NULL};
static words optimizer = {"distributed optimizer", "distributed optimiser", NULL};
static words no_optimizer = {"no distributed optimizer", "no distributed optimiser", "distributed optimizer false",
                             "distributed optimizer off", NULL};
static words gradients = {"shard grad op", NULL};
static words sharded = {"full shard", "fully sharded", "fully shard", "fsdp2", "fsdp", NULL};
static words hybrid = {"hsdp", "hybrid sharding", "hybrid sharded", "hybrid shard", NULL};
static words no_recompute = {"no recompute",
                             "no recomputation",
                             "no activation recompute",
                             "no activation checkpoint",
                             "no activation checkpointing",
                             "no gradient checkpointing",
                             "no checkpointing",
                             "recompute none",
                             "recompute off",
                             "recompute false",
                             "activation checkpointing none",
                             "activation checkpointing off",
                             "activation checkpointing false",
                             "ckpt false",
                             NULL};
static words full_recompute = {"full recompute",
                               "full recomputation",
                               "full activation recompute",
                               "full activation recomputation",
                               "full checkpointing",
                               "full activation checkpointing",
                               "full activation checkpoint",
                               "recompute granularity full",
                               "recompute full",
                               "ckpt true",
                               NULL};
static words selective = {"selective activation checkpointing",
                          "selective activation recomputation",
                          "selective activation recompute",
                          "selective checkpointing",
                          "selective recomputation",
                          "selective recompute",
                          "recompute granularity selective",
                          "recompute selective",
                          "selective",
                          NULL};
/* Without a qualifying word, these mean full recomputation. */
static words any_recompute = {"activation checkpointing", "activation checkpoint",  "activation recomputation",
                              "activation recompute",     "gradient checkpointing", NULL};
static words micro_batch = {"micro batch size", "microbatch size", "micro batch", "microbatch", "mbs", NULL};
static words steps_of_gradients = {
    "gradient accumulation steps", "gradient accumulation", "grad accumulation", "grad accum", "grad acc", NULL};
static words interleave = {"interleave", "virtual pipeline size", "virtual pipeline", "vpp", "vp", NULL};
static words context = {"context parallel size", "context parallel", "cp", NULL};
static words experts = {"expert parallel size", "expert parallel", "ep", NULL};
static words sequence = {"sequence parallelism", "sequence parallel", "sequence", NULL};
/* Words whose meaning the model takes from other columns or does not need; fp8 makes rows be skipped. */
static words harmless = {
    "local batch",
    "interleaved 1f1b",
    "1f1b",
    "tensor parallel",
    "pipeline parallel",
    "data parallel",
    "tp",
    "pp",
    "dp",
    "ddp",
    "2d",
    "3d",
    "4d",
    "bf16",
    "fp8",
    "float8",
    "tensorwise",
    "rowwise",
    "compile",
    "vanilla",
    "async tp",
    "asynctp",
    "baseline",
    "megatron lm",
    "megatron",
    "megascale",
    "deepspeed",
    "nanotron",
    "torchtitan",
    "ptd p",
    "axonn",
    "none",
    "true",
    "on",
    "size",
    "and",
    "with",
    NULL,
};

static const char *const *const known[] = {
    zero,         optimizer,      no_optimizer, gradients,     sharded,     hybrid,
    no_recompute, full_recompute, selective,    any_recompute, micro_batch, steps_of_gradients,
    interleave,   context,        experts,      sequence,      harmless,
};

/* ---- meaning ---- */

int ways_zero(const char *text)
{
    double stage = 0;
    if (text_number_after(text, zero, &stage) && stage <= 3) return (int)stage;
    if (text_has(text, gradients)) return 2;
    if (text_has(text, sharded) || text_has(text, hybrid)) return 3;
    return text_has(text, optimizer) && !text_has(text, no_optimizer) ? 1 : -1;
}

static int rank_count(double number) { return number >= 1 && number <= INT32_MAX ? (int)number : 0; }

int ways_hybrid(const char *text, int *replicas, int *shards)
{
    double first = 0;
    *replicas = *shards = 0;
    if (!text_has(text, hybrid)) return 0;
    const char *behind = text_number_after(text, hybrid, &first);
    if (behind && *behind == 'x' && isdigit((unsigned char)behind[1])) {
        *replicas = rank_count(first);
        *shards = rank_count(strtod(behind + 1, NULL));
    } else if (behind) {
        *shards = rank_count(first);
    }
    return 1;
}

int ways_recompute(const char *text)
{
    if (text_has(text, no_recompute)) return QDR_RECOMPUTE_NONE;
    if (text_has(text, full_recompute)) return QDR_RECOMPUTE_FULL;
    if (text_has(text, selective)) return QDR_RECOMPUTE_ATTENTION;
    return text_has(text, any_recompute) ? QDR_RECOMPUTE_FULL : -1;
}

int ways_micro_batch(const char *text, double *size) { return text_number_after(text, micro_batch, size) != NULL; }

int ways_steps(const char *text, double *steps)
{
    return text_number_after(text, steps_of_gradients, steps) && *steps >= 1;
}

int ways_interleave(const char *text, double *parts)
{
    return text_number_after(text, interleave, parts) && *parts <= INT32_MAX;
}

int ways_context(const char *text, double *ranks) { return text_number_after(text, context, ranks) != NULL; }

int ways_experts(const char *text, double *ranks) { return text_number_after(text, experts, ranks) != NULL; }

int ways_sequence(const char *text) { return text_has(text, sequence); }

/* ---- unknown words ---- */

static int is_of_word(char letter) { return isalnum((unsigned char)letter) || (unsigned char)letter >= 0x80; }

/* Length of the match of a phrase at a text, whose words may also be separated by punctuation; 0: no match. */
static size_t matched(const char *text, const char *phrase)
{
    size_t n = 0;
    for (; phrase[n]; n++)
        if (phrase[n] == ' ' ? !text[n] || is_of_word(text[n]) : text[n] != phrase[n]) return 0;
    return !is_of_word(text[n]) || isdigit((unsigned char)text[n]) ? n : 0;
}

static size_t longest_phrase(const char *text)
{
    size_t longest = 0;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        for (const char *const *phrase = known[i]; *phrase; phrase++) {
            const size_t n = matched(text, *phrase);
            if (n > longest) longest = n;
        }
    return longest;
}

/* The end of "8", "8x8" or "1.5", if that is a whole word or the end of one; else the beginning. */
static const char *behind_number(const char *text)
{
    const char *end = text;
    while (isdigit((unsigned char)*end) ||
           (end > text && (*end == 'x' || *end == '.') && isdigit((unsigned char)end[1])))
        end++;
    return is_of_word(*end) ? text : end;
}

const char *ways_unknown(const char *text, char *word, size_t bytes)
{
    while (*text) {
        const size_t n = longest_phrase(text);
        const char *end = behind_number(text + n);
        if (n || end > text) {
            text = end;
            if (!n || !is_of_word(*text)) continue;
        }
        if (!is_of_word(*text)) {
            text++;
            continue;
        }
        for (end = text; is_of_word(*end);) end++;
        const size_t length = (size_t)(end - text) < bytes ? (size_t)(end - text) : bytes - 1;
        memcpy(word, text, length);
        word[length] = '\0';
        return end;
    }
    return NULL;
}
