/* SPDX-License-Identifier: Apache-2.0 */
#include "saved_gpt.h"

#include <jansson.h>
#include <quadrille_private/input.h>
#include <stdlib.h>
#include <string.h>

#include "train_settings.h"

/* What all steps work on. */
typedef struct reading {
    const qdr_safetensors *file;
    const char *path;
    char *sentence;
} reading;

static const qdr_tensor *tensor_of(const reading *r, const char *name)
{
    return qdr_safetensors_tensor(r->file, qdr_safetensors_find(r->file, name));
}

static int begins_with(const char *text, const char *beginning)
{
    return strncmp(text, beginning, strlen(beginning)) == 0;
}

/* ---- files of other networks ---- */

static qdr_status refuse_network(const reading *r, const char *network)
{
    return REFUSE(
        r->sentence,
        "%.300s is of a %.40s, but this program trains GPT-2's networks; others can be converted, not run yet", r->path,
        network);
}

/* A network that `quadrille ckpt convert` has noted. */
static qdr_status check_note(const reading *r)
{
    const char *note = qdr_safetensors_metadata(r->file, "note");
    const int is_object = note && note[strspn(note, " \t\n\r")] == '{';
    json_t *document = NULL;
    char name[512];
    snprintf(name, sizeof name, "%.400s: its note", r->path);
    if (is_object) TRY(qdr_json_read(note, strlen(note), name, &document));
    const char *network = json_string_value(json_object_get(document, NOTE_NETWORK));
    const int is_other = network && strcmp(network, GPT_NETWORK) != 0;
    const qdr_status status = is_other ? refuse_network(r, network) : QDR_OK;
    json_decref(document);
    return status;
}

/* Names of Hugging Face's transformers. */
static qdr_status check_names(const reading *r)
{
    static const char *const gpt2[] = {"transformer.h.", "transformer.w", "h.0.", "wte.", "wpe."};
    static const char *const others[] = {"model.", "gpt_neox.", "transformer.", "lm_head."};
    int is_gpt2 = 0;
    const char *other = NULL;
    for (int i = 0; i < qdr_safetensors_count(r->file); i++) {
        const char *name = qdr_safetensors_tensor(r->file, i)->name;
        for (size_t k = 0; k < sizeof gpt2 / sizeof *gpt2; k++) is_gpt2 |= begins_with(name, gpt2[k]);
        for (size_t k = 0; k < sizeof others / sizeof *others; k++)
            if (!other && begins_with(name, others[k])) other = name;
    }
    if (is_gpt2)
        return REFUSE(r->sentence,
                      "%.300s has the names of Hugging Face's GPT-2; convert it first, with its config.json beside it: "
                      "quadrille ckpt convert FILE OUT.safetensors",
                      r->path);
    if (other)
        return REFUSE(r->sentence,
                      "%.300s has names of Hugging Face (%.60s), but not those of a GPT-2, whose networks this program "
                      "trains; others can be converted by quadrille ckpt convert, not run yet",
                      r->path, other);
    return QDR_OK;
}

/* ---- its sizes ---- */

/* The extent of a matrix in a dimension; 0: there is none, or another number than a size may be. */
static int64_t extent(const reading *r, const char *name, int dim)
{
    const qdr_tensor *tensor = tensor_of(r, name);
    const int64_t n = tensor && tensor->n_dims == 2 ? tensor->shape[dim] : 0;
    return n <= GPT_MOST ? n : 0;
}

static gpt_sizes find_sizes(const reading *r)
{
    gpt_sizes sizes = {.vocab = extent(r, "embedding.weight", 0),
                       .hidden = extent(r, "embedding.weight", 1),
                       .context = extent(r, "embedding.positions", 0),
                       .ffn = extent(r, "block0.fc.weight", 0),
                       .tied = qdr_safetensors_find(r->file, "head.weight") < 0};
    char name[64];
    do snprintf(name, sizeof name, "block%lld.qkv.weight", (long long)sizes.layers);
    while (qdr_safetensors_find(r->file, name) >= 0 && ++sizes.layers);
    if (sizes.layers == 0) sizes.layers = 1; /* whose first tensor that is missing is named */
    return sizes;
}

static void write_shape(int n_dims, const int64_t *shape, char *text, size_t bytes)
{
    size_t used = (size_t)snprintf(text, bytes, "[");
    for (int i = 0; i < n_dims && used < bytes; i++)
        used += (size_t)snprintf(text + used, bytes - used, "%s%lld", i ? "," : "", (long long)shape[i]);
    if (used < bytes) snprintf(text + used, bytes - used, "]");
}

static qdr_status check_tensor(const reading *r, const gpt_tensor *wanted, const qdr_tensor *found)
{
    char here[48], there[96];
    if (!found)
        return REFUSE(r->sentence, "%.300s does not fit this network: %s is missing; load a whole file of a GPT-2",
                      r->path, wanted->name);
    const int is_sized = wanted->shape[0] > 0 && (wanted->n_dims == 1 || wanted->shape[1] > 0);
    const size_t bytes = (size_t)wanted->n_dims * sizeof *wanted->shape;
    if (is_sized && found->n_dims == wanted->n_dims && memcmp(found->shape, wanted->shape, bytes) == 0) return QDR_OK;
    write_shape(found->n_dims, found->shape, there, sizeof there);
    write_shape(wanted->n_dims, wanted->shape, here, sizeof here);
    if (!is_sized) snprintf(here, sizeof here, "a matrix of at most 2^30 rows and columns");
    return REFUSE(r->sentence, "%.300s does not fit this network: %s is %s, not %s; load the file of a GPT-2", r->path,
                  wanted->name, there, here);
}

/* Marks the tensors that are loaded. */
static qdr_status check_tensors(const reading *r, const gpt_sizes *sizes, char *is_used)
{
    for (int64_t i = 0; i < gpt_tensors_count(sizes); i++) {
        const gpt_tensor wanted = gpt_tensors_at(sizes, i);
        const int index = qdr_safetensors_find(r->file, wanted.name);
        TRY(check_tensor(r, &wanted, qdr_safetensors_tensor(r->file, index)));
        is_used[index] = 1;
    }
    return QDR_OK;
}

/* ---- the rest ---- */

/* Names those that are left; one with a name as those of the network would be a part of it. */
static qdr_status check_others(const reading *r, const char *is_used, char *others, size_t bytes)
{
    enum { NAMED = 3 };
    static const char *const parts[] = {"block", "embedding.", "norm.", "head."};
    int n = 0;
    for (int i = 0; i < qdr_safetensors_count(r->file); i++) {
        const char *name = qdr_safetensors_tensor(r->file, i)->name;
        const size_t used = strlen(others);
        if (is_used[i] || begins_with(name, "optimizer.")) continue;
        for (size_t k = 0; k < sizeof parts / sizeof *parts; k++)
            if (begins_with(name, parts[k]))
                return REFUSE(r->sentence,
                              "%.300s does not fit this network, which has no tensor %.60s; load the file of a GPT-2",
                              r->path, name);
        if (n++ < NAMED) snprintf(others + used, bytes - used, "%s%.40s", used ? ", " : "", name);
    }
    const size_t used = strlen(others);
    if (n > NAMED) snprintf(others + used, bytes - used, " and %d more", n - NAMED);
    return QDR_OK;
}

qdr_status saved_gpt_read(const qdr_safetensors *file, const char *path, saved_gpt *saved, char sentence[PROBLEM_BYTES])
{
    const reading r = {file, path, sentence};
    memset(saved, 0, sizeof *saved);
    TRY(check_note(&r));
    if (!tensor_of(&r, "embedding.weight")) TRY(check_names(&r));
    saved->sizes = find_sizes(&r);
    if (saved->sizes.vocab && saved->sizes.vocab != N_BYTES)
        return REFUSE(sentence,
                      "%.300s has a vocabulary of %lld, but this program reads text byte by byte, and a byte is one of "
                      "%d tokens; load a network of bytes",
                      path, (long long)saved->sizes.vocab, N_BYTES);
    char *is_used = calloc((size_t)qdr_safetensors_count(file) + 1, 1);
    if (!is_used) return (void)REFUSE(sentence, "%.300s: out of memory for its names; free some", path), QDR_ERR_MEMORY;
    qdr_status status = check_tensors(&r, &saved->sizes, is_used);
    if (status >= 0) status = check_others(&r, is_used, saved->others, sizeof saved->others);
    free(is_used);
    return status;
}
