/* SPDX-License-Identifier: Apache-2.0 */
/* The models that come with the program, found by the names used in tables of runs. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "predict/assumed.h"

/* ---- names ---- */

static int is_separator(char letter) { return letter && strchr(" -_", letter) != NULL; }

/* The next character of a name, in lower case. Separators count only between digits, where all of them are "-": "GPT-3
 * 6.7B" matches "gpt3-6.7b" but not "gpt36.7b". */
static char next_letter(const char *name, const char **at)
{
    const char *begin = *at;
    while (is_separator(**at)) ++*at;
    if (*at > begin && begin > name && isdigit((unsigned char)begin[-1]) && isdigit((unsigned char)**at)) return '-';
    return **at ? (char)tolower((unsigned char)*(*at)++) : '\0';
}

/* The part of a text that follows a name, or NULL if it does not begin with it; "" if nothing follows. */
static const char *behind_name(const char *text, const char *name)
{
    const char *in_text = text, *in_name = name;
    while (*in_name)
        if (next_letter(name, &in_name) != next_letter(text, &in_text)) return NULL;
    return in_text;
}

/* "meta-llama/Llama-2-7b-hf" is a folder, a name, and a suffix that does not change the network. */
static int is_same_name(const char *text, const char *name)
{
    static const char *const endings[] = {"", "hf", "instruct", "chat", "base"};
    const char *slash = strrchr(text, '/');
    const char *rest = behind_name(slash ? slash + 1 : text, name);
    if (!rest || (*rest && !is_separator(*rest))) return 0;
    while (is_separator(*rest)) rest++;
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++)
        if (strcasecmp(rest, endings[i]) == 0) return 1;
    return 0;
}

/* ---- the list ---- */

typedef struct lister {
    assumptions *all;
    int has_failed;
} lister;

static void add_name(const char *name, void *user)
{
    lister *list = user;
    assumptions *all = list->all;
    if (list->has_failed || strlen(name) >= QDR_MAX_NAME) return;
    char(*more)[QDR_MAX_NAME] = realloc(all->model_names, (all->n_models + 1) * sizeof *more);
    if (!more) {
        list->has_failed = 1;
        return;
    }
    all->model_names = more;
    memcpy(more[all->n_models++], name, strlen(name) + 1);
}

int assumed_load_models(assumptions *all, failure *why)
{
    lister list = {.all = all};
    if (fail_status(why, qdr_network_list(add_name, &list))) return why->code;
    all->models = calloc(all->n_models ? all->n_models : 1, sizeof *all->models);
    if (!all->models || list.has_failed)
        return fail(why, EXIT_NOTHING_FITS, "predict: out of memory for the names of models");
    return EXIT_OK;
}

static qdr_status load(assumption *entry, const char *name, const char *file)
{
    qdr_network network;
    const qdr_status status = qdr_network_load(file, &network);
    if (status != QDR_OK) return status;
    *entry = (assumption){.source = "",
                          .model = name,
                          .reason = "a model of this name",
                          .network = network,
                          .given = 1U << ASSUMED_NETWORK | 1U << ASSUMED_SEQUENCE};
    entry->numbers[ASSUMED_SEQUENCE] = (double)network.context;
    return QDR_OK;
}

assumption *assumed_model(const assumptions *all, const char *name, qdr_status *status)
{
    *status = QDR_OK;
    for (size_t i = 0; *name && i < all->n_models; i++) {
        assumption *entry = &all->models[i];
        if (!is_same_name(name, all->model_names[i])) continue;
        if (!entry->model) *status = load(entry, name, all->model_names[i]);
        return *status == QDR_OK ? entry : NULL;
    }
    return NULL;
}

void assumed_use(assumed_row *fit, assumption *entry, assumed_field field)
{
    if (!fit->n || fit->fitting[fit->n - 1] != entry) {
        fit->fitting[fit->n] = entry;
        fit->taken[fit->n++] = 0;
    }
    fit->taken[fit->n - 1] |= 1U << field;
}
