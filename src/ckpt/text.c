/* SPDX-License-Identifier: Apache-2.0 */
/* Names and shapes for messages and tables. */
#include <quadrille_private/input.h>
#include <stdio.h>
#include <string.h>

#include "ckpt/ckpt.h"

/* 1: a byte inside a character of UTF-8. */
static int is_inside(char byte) { return ((unsigned char)byte & 0xc0) == 0x80; }

ckpt_text ckpt_show(const char *text)
{
    static const char dots[] = "...";
    ckpt_text shown;
    const size_t most = sizeof shown.text - sizeof dots;
    size_t n = strlen(text);
    const int is_cut = n > most;
    if (is_cut)
        for (n = most; n > 0 && is_inside(text[n]);) n--;
    memcpy(shown.text, text, n);
    memcpy(shown.text + n, dots, is_cut ? sizeof dots : 0);
    if (!is_cut) shown.text[n] = '\0';
    qdr_text_hide_controls(shown.text);
    return shown;
}

ckpt_text ckpt_list(const int64_t *numbers, int n)
{
    ckpt_text shown = {"["};
    for (int i = 0; i < n; i++) {
        const size_t used = strlen(shown.text);
        snprintf(shown.text + used, sizeof shown.text - used, "%s%lld", i ? ", " : "", (long long)numbers[i]);
    }
    const size_t used = strlen(shown.text);
    snprintf(shown.text + used, sizeof shown.text - used, "]");
    return shown;
}

ckpt_text ckpt_shape(const qdr_tensor *tensor) { return ckpt_list(tensor->shape, tensor->n_dims); }

json_t *ckpt_json_list(const int64_t *numbers, int n)
{
    json_t *list = json_array();
    for (int i = 0; i < n; i++) json_array_append_new(list, json_integer(numbers[i]));
    return list;
}

int ckpt_columns(const char *text)
{
    int n = 0;
    for (; *text; text++) n += !is_inside(*text);
    return n;
}

void ckpt_print_padded(const char *text, int columns)
{
    const int n = columns - ckpt_columns(text);
    printf("%s%*s", text, n > 0 ? n : 0, "");
}

void ckpt_names_add(ckpt_names *names, const char *name)
{
    enum { NAME_COLUMNS = 60 };
    const size_t used = strlen(names->text);
    if (names->n++ < CKPT_NAMED)
        snprintf(names->text + used, sizeof names->text - used, "%s%.*s", used ? ", " : "", NAME_COLUMNS,
                 ckpt_show(name).text);
}

const char *ckpt_names_end(ckpt_names *names)
{
    const size_t used = strlen(names->text);
    if (names->n > CKPT_NAMED)
        snprintf(names->text + used, sizeof names->text - used, " and %d more", names->n - CKPT_NAMED);
    return names->text;
}
