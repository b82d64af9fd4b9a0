/* SPDX-License-Identifier: Apache-2.0 */
/* `quadrille ckpt`: looks at checkpoints, checks, compares and converts them. */
#include "ckpt/ckpt.h"

#include <quadrille/input.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/process.h"

/* ---- text ---- */

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

ckpt_text ckpt_shape(const qdr_tensor *tensor)
{
    ckpt_text shown = {"["};
    for (int i = 0; i < tensor->n_dims; i++) {
        const size_t used = strlen(shown.text);
        snprintf(shown.text + used, sizeof shown.text - used, "%s%lld", i ? ", " : "", (long long)tensor->shape[i]);
    }
    const size_t used = strlen(shown.text);
    snprintf(shown.text + used, sizeof shown.text - used, "]");
    return shown;
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

/* ---- files ---- */

int ckpt_open(const char *path, qdr_safetensors **file, failure *why)
{
    return fail_loading(why, qdr_safetensors_open(path, file));
}

int ckpt_is_real(const qdr_tensor *tensor)
{
    return tensor->dtype == QDR_F32 || tensor->dtype == QDR_F64 || tensor->dtype == QDR_BF16 ||
           tensor->dtype == QDR_F16;
}

int ckpt_same_shape(const qdr_tensor *a, const qdr_tensor *b)
{
    return a->n_dims == b->n_dims && memcmp(a->shape, b->shape, (size_t)a->n_dims * sizeof *a->shape) == 0;
}

/* ---- progress ---- */

ckpt_progress ckpt_progress_begin(const char *what, int64_t total)
{
    return (ckpt_progress){
        .what = what, .total = total, .next_secs = process_secs() + 0.5, .is_terminal = isatty(STDERR_FILENO)};
}

void ckpt_progress_add(ckpt_progress *progress, int64_t bytes)
{
    progress->done += bytes;
    if (!progress->is_terminal || process_secs() < progress->next_secs) return;
    progress->next_secs = process_secs() + 0.2;
    progress->is_shown = 1;
    fprintf(stderr, "\r\033[K%.0f %% of %.1f GB %s", 100 * (double)progress->done / (double)progress->total,
            1e-9 * (double)progress->total, progress->what);
    fflush(stderr);
}

void ckpt_progress_end(ckpt_progress *progress)
{
    if (progress->is_shown) fputs("\r\033[K", stderr);
    progress->is_shown = 0;
}

/* ---- the command ---- */

static const option_spec specs[] = {OPTIONS_END};

static int run(int argc, char **argv)
{
    static const char *const names[] = {"ls", "verify", "diff", "convert"};
    char meant[SUGGESTION_BYTES];
    const char *words[2] = {NULL}; /* a part, and its file */
    failure why = {0};
    if (options_read_operands(argc, argv, specs, NULL, words, 2, &why)) return fail_print(&why);
    const char *word = words[0];
    suggest(word, names, sizeof names / sizeof *names, meant, sizeof meant);
    if (word)
        fail(&why, EXIT_USAGE, "ckpt: unknown part '%s'%s; use ls, verify, diff or convert", ckpt_show(word).text,
             meant);
    else
        fail(&why, EXIT_USAGE, "ckpt: say what to do: ls, verify, diff or convert (see quadrille ckpt --help)");
    return fail_print(&why);
}

static const command *const parts[] = {&ckpt_ls, &ckpt_verify, &ckpt_diff, &ckpt_convert, NULL};

const command command_ckpt = {
    .name = "ckpt",
    .summary = "list, check, compare and convert checkpoints",
    .usage = "quadrille ckpt PART FILE [OPTION]...",
    .text = "Works on files of tensors in the safetensors format: written by this library or by other programs.\n"
            "FILE is a .safetensors file, the .safetensors.index.json of several, or a folder with one of them.\n"
            "Files may be larger than memory. Starts no ranks and no MPI.",
    .parts = parts,
    .options = specs,
    .examples = "  quadrille ckpt ls model.safetensors\n"
                "  quadrille ckpt verify run.safetensors\n"
                "  quadrille ckpt diff before.safetensors after.safetensors --tolerance 1e-6\n"
                "  quadrille ckpt convert model.safetensors.index.json run.safetensors --from llama\n",
    .is_local = 1,
    .run = run,
};
