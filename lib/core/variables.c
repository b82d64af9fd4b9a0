/* SPDX-License-Identifier: Apache-2.0 */
/* The table of environment variables, and reading them. */
#define _GNU_SOURCE /* secure_getenv */
#include "core/variables.h"

#include <stdio.h>
#include <stdlib.h>

#define TEXT QDRI_VARIABLE_IS_TEXT
#define WORD QDRI_VARIABLE_IS_WORD
#define INTEGER QDRI_VARIABLE_IS_INTEGER
#define NUMBER QDRI_VARIABLE_IS_NUMBER
#define DEVICE QDRI_VARIABLE_IS_DEVICE
#define FLAG WORD, "0 or 1", .words = {"0", "1"}

const qdri_variable_entry qdri_variables[QDRI_N_VARIABLES] = {
    [QDRI_VARIABLE_ATTENTION] = {"QDR_ATTENTION", "auto", "GPU",
                                 "the kernels that compute attention; auto is cuDNN where records show it to be faster",
                                 WORD, "auto, own or cudnn", .words = {"auto", "own", "cudnn"}},
    [QDRI_VARIABLE_CHECK] = {"QDR_CHECK", "0", "context",
                             "ranks compare each collective before it runs; rank 0's value applies", FLAG},
    [QDRI_VARIABLE_CODEC] = {"QDR_CODEC", "none", "stack",
                             "how stacks whose options name no codecs shorten messages between nodes; rank 0's value "
                             "applies",
                             TEXT, .values = "a preset or codecs, as for qdr_codecs_parse()"},
    [QDRI_VARIABLE_CODEC_CHECK] = {"QDR_CODEC_CHECK", "0", "stack",
                                   "on CPUs, what codecs send is decoded and compared with their bounds, and members "
                                   "compare what they receive; applies where any rank sets it; GPUs refuse codecs then",
                                   FLAG},
    [QDRI_VARIABLE_CUDA_COMM] = {"QDR_CUDA_COMM", "auto", "GPU",
                                 "how the GPUs of a context communicate; rank 0's value applies", WORD,
                                 "auto, nccl, mpi or local", .words = {"auto", "nccl", "mpi", "local"}},
    [QDRI_VARIABLE_CUDA_MEMORY] = {"QDR_CUDA_MEMORY", "device", "GPU",
                                   "managed: the host can read a GPU's memory too; slower, for tests", WORD,
                                   "device or managed", .words = {"device", "managed"}},
    [QDRI_VARIABLE_CUDA_PLUGIN] = {"QDR_CUDA_PLUGIN", "", "GPU",
                                   "the CUDA plugin; if not set, libquadrille_cuda.so is searched for", TEXT,
                                   .values = "a file"},
    [QDRI_VARIABLE_CUDNN] = {"QDR_CUDNN", "", "GPU", "cuDNN's library; if not set, libcudnn.so.9 is searched for", TEXT,
                             .values = "a file"},
    [QDRI_VARIABLE_DATA_PATH] = {"QDR_DATA_PATH", "", "model",
                                 "searched for models, machines and maps before the installed ones", TEXT,
                                 .values = "folders separated by colons"},
    [QDRI_VARIABLE_DEBUG] = {"QDR_DEBUG", "1", "log",
                             "the highest level that is logged: 0 errors, 1 warnings, 2 information, 3 details",
                             INTEGER, "a whole number from 0 to 3", .most = 3},
    [QDRI_VARIABLE_DEVICE] = {"QDR_DEVICE", "cpu", "context", "the device of contexts whose options name none", DEVICE,
                              .values = "cpu, cuda, or cuda:N for GPU N"},
    [QDRI_VARIABLE_FUSE_GELU] = {"QDR_FUSE_GELU", "1", "GPU", "products compute the GELU that follows them", FLAG},
    [QDRI_VARIABLE_KERNELS] =
        {"QDR_KERNELS", "best", "CPU",
         "the highest instruction set that the library's CPU kernels may use (not those of BLAS); results "
         "may differ in their last bits",
         WORD, "best, avx2 or base", .words = {"best", "avx2", "base"}},
    [QDRI_VARIABLE_MACHINE] = {"QDR_MACHINE", "here", "model",
                               "the machine for which grids and panels are chosen and QDR_REPORT predicts; rank 0's "
                               "value applies; here is what quadrille calibrate left for this host, else laptop",
                               TEXT, .values = "a machine's name or file"},
    [QDRI_VARIABLE_NCCL_MAX_CTAS] =
        {"QDR_NCCL_MAX_CTAS", "", "GPU",
         "thread blocks of each NCCL communicator; if not set, as many as fit; rank 0's value applies", INTEGER,
         "a whole number from 1 to 64", .least = 1, .most = 64},
    [QDRI_VARIABLE_NCCL_REGISTER] = {"QDR_NCCL_REGISTER", "1", "GPU",
                                     "NCCL allocates and registers the memory of stacks", FLAG},
    [QDRI_VARIABLE_NVTX] = {"QDR_NVTX", "0", "GPU", "named ranges for profilers, even if none is attached", FLAG},
    [QDRI_VARIABLE_REPORT] = {"QDR_REPORT", "0", "stack", "rank 0 prints predicted and measured times of each stack",
                              FLAG},
    [QDRI_VARIABLE_TF32] = {"QDR_TF32", "0", "GPU", "products of f32 may round their operands to TF32", FLAG},
    [QDRI_VARIABLE_TIMEOUT] = {"QDR_TIMEOUT", "0", "context",
                               "how long a rank waits for others; 0: no limit; rank 0's value applies; quadrille and "
                               "its examples wait 600 s if it is not set",
                               NUMBER, "seconds from 0 to 1000000", .most = 1e6},
    [QDRI_VARIABLE_TRACE] = {"QDR_TRACE", "", "context",
                             "each rank writes FILE.RANK with the times of its tasks; rank 0's value applies", TEXT,
                             .values = "a file"},
    [QDRI_VARIABLE_TUNE] = {"QDR_TUNE", "off", "stack",
                            "the file of measured choices of weight storage; rank 0's value applies", TEXT,
                            .values = "a file, or off"},
};

const char *qdri_environment_text(qdri_variable variable)
{
    const char *text = secure_getenv(qdri_variables[variable].name);
    return text && *text ? text : NULL;
}

int qdri_environment_user_data(char *folder, size_t bytes)
{
    const char *data = secure_getenv("XDG_DATA_HOME"), *home = secure_getenv("HOME");
    int n = 0;
    if (data && data[0] == '/') /* a relative one is to be ignored, says its specification */
        n = snprintf(folder, bytes, "%s/quadrille", data);
    else if (home && home[0] == '/')
        n = snprintf(folder, bytes, "%s/.local/share/quadrille", home);
    return n > 0 && (size_t)n < bytes;
}
