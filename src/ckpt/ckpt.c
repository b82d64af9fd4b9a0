/* SPDX-License-Identifier: Apache-2.0 */
/* `quadrille ckpt`: looks at checkpoints, checks, compares and converts them. */
#include "ckpt/ckpt.h"

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
                "  quadrille ckpt convert Qwen3-0.6B run.safetensors\n",
    .is_local = 1,
    .run = run,
};
