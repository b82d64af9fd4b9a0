/* SPDX-License-Identifier: Apache-2.0 */
#include "common/foreign_name.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

static const char *const endings[] = {".bin",   ".ckpt",    ".csv", ".gguf", ".ggml", ".h5",  ".hdf5", ".json",
                                      ".jsonl", ".msgpack", ".npy", ".npz",  ".onnx", ".pb",  ".pkl",  ".pickle",
                                      ".pt",    ".pth",     ".svg", ".tar",  ".txt",  ".zip", ".zarr"};

int foreign_name(const char *what, const char *path, const char *shown, char *sentence, size_t n_bytes)
{
    const char *slash = strrchr(path, '/'), *ending = strrchr(slash ? slash : path, '.');
    for (size_t i = 0; ending && i < sizeof endings / sizeof *endings; i++) {
        if (strcasecmp(ending, endings[i]) != 0) continue;
        snprintf(sentence, n_bytes,
                 "%s %.300s: %s is the ending of another format than safetensors; end the name in .safetensors", what,
                 shown, ending);
        return 1;
    }
    return 0;
}
