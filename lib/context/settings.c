/* SPDX-License-Identifier: Apache-2.0 */
/* Settings of a program, which ranks compare. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "context/internal.h"
#include "core/size.h"

static const char not_given[] = "not given";

/* Appends a setting. Facts have '?' for all control characters, so these are written as \x0a, and a backslash twice:
 * values that differ stay different, also from none. */
static qdr_status add(qdri_facts *facts, const qdr_setting *setting)
{
    const char *value = setting->value ? setting->value : not_given;
    const int is_words = setting->value && strcmp(value, not_given) == 0;
    char *text = NULL;
    QDR_TRY(qdri_calloc(4 * strlen(value) + 1, 1, "a setting", (void **)&text));
    char *to = text;
    for (const char *at = value; *at; at++) {
        const unsigned char byte = (unsigned char)*at;
        if (byte < ' ' || byte == 0x7f || (is_words && at == value)) {
            snprintf(to, 5, "\\x%02x", byte);
            to += 4;
            continue;
        }
        *to++ = *at;
        if (byte == '\\') *to++ = *at;
    }
    qdri_facts_add(facts, setting->name, "", text);
    free(text);
    return QDR_OK;
}

static qdr_status list(const qdr_setting *settings, int n, qdri_facts *facts)
{
    if (n < 0 || (n > 0 && !settings))
        return QDR_FAIL(QDR_ERR_ARGUMENT, "settings: %d settings at %s; pass a list, or 0 settings", n,
                        settings ? "a list" : "NULL");
    for (int i = 0; i < n; i++) {
        if (!settings[i].name || !*settings[i].name)
            return QDR_FAIL(QDR_ERR_ARGUMENT, "settings: number %d of %d has no name; give it one", i, n);
        QDR_TRY(add(facts, &settings[i]));
    }
    return QDR_OK;
}

qdr_status qdr_settings_compare(qdr_context *ctx, const qdr_setting *settings, int n_settings)
{
    if (!ctx) return QDR_FAIL(QDR_ERR_ARGUMENT, "settings: the context is NULL");
    qdri_facts facts = {0};
    qdr_status status = list(settings, n_settings, &facts);
    status = qdri_context_agree_same(ctx, status, &facts, "", "give every rank the same");
    qdri_facts_free(&facts);
    return status;
}
