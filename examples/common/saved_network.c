/* SPDX-License-Identifier: Apache-2.0 */
#include "saved_network.h"

#include <stdlib.h>
#include <string.h>

#include "gpt.h"
#include "src/common/network_note.h"

/* What all steps work on. */
typedef struct reading {
    const qdr_safetensors *file;
    const char *path;
    saved_network *saved;
    char *is_used; /* of each tensor: whether it is loaded */
    char *sentence;
    qdr_status status; /* of the first tensor that does not fit */
} reading;

static int begins_with(const char *text, const char *beginning)
{
    return strncmp(text, beginning, strlen(beginning)) == 0;
}

/* ---- its network ---- */

static qdr_status refuse_foreign_names(const reading *r)
{
    static const char *const foreign[] = {"model.", "transformer.", "gpt_neox.", "lm_head.", "h.0.", "wte.", "wpe."};
    for (int i = 0; i < qdr_safetensors_count(r->file); i++) {
        const char *name = qdr_safetensors_tensor(r->file, i)->name;
        for (size_t k = 0; k < sizeof foreign / sizeof *foreign; k++)
            if (begins_with(name, foreign[k]))
                return REFUSE(r->sentence,
                              "%.300s has names of Hugging Face (%.60s); convert it first, with its config.json beside "
                              "it: quadrille ckpt convert FILE OUT.safetensors",
                              r->path, name);
    }
    return QDR_OK;
}

/* Of a file by an older train_gpt, or one that was converted without a config.json. */
static qdr_network gpt_of_tensors(const qdr_safetensors *file)
{
    qdr_network sizes = network_of_tensors(file);
    sizes.heads = 1;
    sizes.context = sizes.positions;
    return gpt_network(sizes);
}

static qdr_status find_network(const reading *r, const qdr_network *model)
{
    saved_network *saved = r->saved;
    const char *base = strrchr(r->path, '/');
    char where[512];
    snprintf(where, sizeof where, "%.400s: its note", r->path);
    TRY(network_note_read(qdr_safetensors_metadata(r->file, "note"), where, &saved->network, &saved->is_whole));
    if (saved->is_whole && begins_with(where, saved->network.name)) /* it has no name of its own */
        snprintf(saved->network.name, sizeof saved->network.name, "%.63s", base ? base + 1 : r->path);
    if (saved->is_whole && saved->network.layers > QDR_NETWORK_MOST_LAYERS)
        return REFUSE(r->sentence, "%.300s has %lld layers; load a network of at most %d", r->path,
                      (long long)saved->network.layers, QDR_NETWORK_MOST_LAYERS);
    if (saved->is_whole) return QDR_OK;
    saved->is_whole = model != NULL;
    saved->network = model ? *model : gpt_of_tensors(r->file);
    return QDR_OK;
}

/* ---- its tensors ---- */

static void write_shape(int n_dims, const int64_t *shape, char *text, size_t bytes)
{
    size_t used = (size_t)snprintf(text, bytes, "[");
    for (int i = 0; i < n_dims && used < bytes; i++)
        used += (size_t)snprintf(text + used, bytes - used, "%s%lld", i ? "," : "", (long long)shape[i]);
    if (used < bytes) snprintf(text + used, bytes - used, "]");
}

/* A file may have fewer positions than its network: those of the sequences that it was trained with. */
static int has_fewer_positions(const qdr_network_parameter *wanted, const qdr_tensor *found, qdr_network *network)
{
    if (strcmp(wanted->name, "embedding.positions") != 0 || found->n_dims != 2 || found->shape[0] < 1 ||
        found->shape[0] > wanted->n_rows || found->shape[1] != wanted->n_cols)
        return 0;
    network->positions = network->context = found->shape[0];
    return 1;
}

static void check_tensor(const qdr_network_parameter *wanted, void *user)
{
    reading *r = user;
    const int index = qdr_safetensors_find(r->file, wanted->name);
    const qdr_tensor *found = qdr_safetensors_tensor(r->file, index);
    const int64_t shape[] = {wanted->n_rows, wanted->n_cols}, *extents = shape + wanted->is_vector;
    const int n_dims = wanted->is_vector ? 1 : 2;
    char here[64], there[96];
    if (r->status < 0) return;
    if (!found) {
        r->status = REFUSE(r->sentence, "%.300s does not fit its network, %.63s: %s is missing; load a whole file",
                           r->path, r->saved->network.name, wanted->name);
        return;
    }
    r->is_used[index] = 1;
    if (found->n_dims == n_dims && memcmp(found->shape, extents, (size_t)n_dims * sizeof *extents) == 0) return;
    if (has_fewer_positions(wanted, found, &r->saved->network)) return;
    write_shape(found->n_dims, found->shape, there, sizeof there);
    write_shape(n_dims, extents, here, sizeof here);
    r->status = REFUSE(r->sentence, "%.300s does not fit its network, %.63s: %s is %s, not %s; load a whole file",
                       r->path, r->saved->network.name, wanted->name, there, here);
}

/* Names those that are left; one with a name as those of the network would be a part of it. */
static qdr_status check_others(const reading *r)
{
    enum { NAMED = 3 };
    static const char *const parts[] = {"block", "embedding.", "norm.", "head."};
    char *others = r->saved->others;
    const size_t bytes = sizeof r->saved->others;
    int n = 0;
    for (int i = 0; i < qdr_safetensors_count(r->file); i++) {
        const char *name = qdr_safetensors_tensor(r->file, i)->name;
        const size_t used = strlen(others);
        if (r->is_used[i] || begins_with(name, "optimizer.")) continue;
        for (size_t k = 0; k < sizeof parts / sizeof *parts; k++)
            if (begins_with(name, parts[k]))
                return REFUSE(r->sentence,
                              "%.300s does not fit its network, %.63s, which has no tensor %.60s; load a whole file",
                              r->path, r->saved->network.name, name);
        if (n++ < NAMED) snprintf(others + used, bytes - used, "%s%.40s", used ? ", " : "", name);
    }
    const size_t used = strlen(others);
    if (n > NAMED) snprintf(others + used, bytes - used, " and %d more", n - NAMED);
    return QDR_OK;
}

qdr_status saved_network_read(const qdr_safetensors *file, const char *path, const qdr_network *model,
                              saved_network *saved, char sentence[PROBLEM_BYTES])
{
    reading r = {.file = file, .path = path, .saved = saved, .sentence = sentence};
    *saved = (saved_network){.network = {QDR_INIT(qdr_network)}};
    if (qdr_safetensors_find(file, "embedding.weight") < 0) TRY(refuse_foreign_names(&r));
    TRY(find_network(&r, model));
    const qdr_network described = saved->network;
    r.is_used = calloc((size_t)qdr_safetensors_count(file) + 1, 1);
    if (!r.is_used)
        return (void)REFUSE(sentence, "%.300s: out of memory for its names; free some", path), QDR_ERR_MEMORY;
    qdr_status status = qdr_network_parameters(&described, check_tensor, &r);
    if (status >= 0) status = r.status;
    if (status >= 0) status = check_others(&r);
    if (!saved->is_whole) saved->network.heads = 0, saved->network.norm_epsilon = 0;
    free(r.is_used);
    return status;
}
