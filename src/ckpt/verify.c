/* SPDX-License-Identifier: Apache-2.0 */
/* `quadrille ckpt verify`: is a file what was written? */
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ckpt/ckpt.h"
#include "common/json.h"

/* What was found. */
typedef struct verify_answer {
    const char *path;
    int n_tensors, n_checked, n_damaged;
    char first[164]; /* the first damaged one */
    json_t *damaged; /* list of {"name", "reason"}, whose name is null for the header; NULL: text is printed */
} verify_answer;

static void add_damaged(verify_answer *answer, const char *name)
{
    if (!answer->n_damaged++) snprintf(answer->first, sizeof answer->first, "%s", ckpt_show(name).text);
    if (answer->damaged)
        json_array_append_new(answer->damaged,
                              json_pack("{s:o, s:o}", "name", json_text(name), "reason", json_text(qdr_last_error())));
    else
        printf("damaged: %s\n", qdr_last_error());
}

static int check_all(const qdr_safetensors *file, verify_answer *answer, failure *why)
{
    answer->n_tensors = qdr_safetensors_count(file);
    ckpt_progress progress = ckpt_progress_begin("checked", ckpt_bytes(file, 0));
    for (int i = 0; i < answer->n_tensors && !why->code; i++) {
        const qdr_tensor *tensor = qdr_safetensors_tensor(file, i);
        const qdr_status status = qdr_safetensors_verify(file, i);
        ckpt_progress_add(&progress, tensor->bytes);
        if (status == QDR_ERR_UNSUPPORTED) continue;
        answer->n_checked++;
        if (status == QDR_OK) continue;
        ckpt_progress_end(&progress);
        if (status == QDR_ERR_IO)
            add_damaged(answer, tensor->name);
        else
            fail_status(why, status);
    }
    ckpt_progress_end(&progress);
    return why->code;
}

static void print_text(const verify_answer *answer)
{
    const int n_without = answer->n_tensors - answer->n_checked, n_sound = answer->n_checked - answer->n_damaged;
    const ckpt_text path = ckpt_show(answer->path);
    if (answer->n_tensors && !answer->n_checked)
        printf("%s has no checksums: nothing could be checked but its header (quadrille ckpt convert FILE OUT writes a "
               "copy with them)\n",
               path.text);
    else
        printf("%s: %d tensor%s: %d sound, %d damaged, %d without a checksum\n", path.text, answer->n_tensors,
               PLURAL(answer->n_tensors), n_sound, answer->n_damaged, n_without);
}

static int print_json(const verify_answer *answer, failure *why)
{
    return write_json(json_pack("{s:o, s:i, s:i, s:i, s:O}", "file", json_text(answer->path), "tensors",
                                answer->n_tensors, "checked", answer->n_checked, "unchecked",
                                answer->n_tensors - answer->n_checked, "damaged", answer->damaged),
                      JSON_INDENT(2), "ckpt verify", why);
}

static int print(const verify_answer *answer, failure *why)
{
    if (answer->damaged)
        print_json(answer, why);
    else
        print_text(answer);
    if (answer->n_damaged)
        fail(why, EXIT_MISMATCH, "%s: %d of %d tensors %s damaged: %s%s; use another copy of the file",
             ckpt_show(answer->path).text, answer->n_damaged, answer->n_tensors, answer->n_damaged == 1 ? "is" : "are",
             answer->first, answer->n_damaged > 1 ? " and others" : "");
    return why->code;
}

/* A file that is there and can be read, but is not what it should be, is damaged. */
static int open_file(const verify_answer *answer, qdr_safetensors **file, failure *why)
{
    const char *path = answer->path;
    if (!path) return fail(why, EXIT_USAGE, "ckpt verify: FILE is missing; see quadrille ckpt verify --help");
    struct stat state;
    const qdr_status status = qdr_safetensors_open(path, file);
    const int is_there = access(path, R_OK) == 0 && stat(path, &state) == 0 && S_ISREG(state.st_mode);
    if (!is_there || (status != QDR_ERR_IO && status != QDR_ERR_ARGUMENT)) return fail_loading(why, status);
    if (answer->damaged) {
        json_array_append_new(answer->damaged, json_pack("{s:n, s:o}", "name", "reason", json_text(qdr_last_error())));
        if (print_json(answer, why)) return why->code;
    }
    return fail(why, EXIT_MISMATCH, "%s", qdr_last_error());
}

static int run(int argc, char **argv)
{
    int is_json = 0;
    qdr_safetensors *file = NULL;
    verify_answer answer = {0};
    failure why = {0};
    options_read(argc, argv, json_option, &is_json, &answer.path, &why);
    if (is_json && !(answer.damaged = json_array())) fail_memory(&why, "ckpt verify: out of memory");
    if (!why.code && !open_file(&answer, &file, &why) && !check_all(file, &answer, &why)) print(&answer, &why);
    json_decref(answer.damaged);
    qdr_safetensors_discard(&file);
    return why.code ? fail_print(&why) : EXIT_OK;
}

const command ckpt_verify = {
    .name = "ckpt verify",
    .summary = "check the checksums of a file, and name the damaged tensors",
    .usage = "quadrille ckpt verify FILE [OPTION]...",
    .text = "Reads all elements of a .safetensors file, or of the several that a .safetensors.index.json names,\n"
            "and compares their checksums with those in the file. Names every damaged tensor. Exits with 4 if a\n"
            "tensor or the header is damaged, the file is cut short, or it is not a safetensors file. Files of\n"
            "other programs have no checksums: it says so, and exits with 0. In JSON, a header has the name null.",
    .options = json_option,
    .examples = "  quadrille ckpt verify run.safetensors\n"
                "  quadrille ckpt verify model.safetensors.index.json --json\n",
    .is_local = 1,
    .run = run,
};
