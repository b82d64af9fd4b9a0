/* SPDX-License-Identifier: Apache-2.0 */
/* Element-wise kernels: what a device computes in addition to products. Matrices are row-major and dense; T is the
 * kernel's dtype (F32, F64, BF16, F16), A its accumulation type (F64 for F64, else F32). BF16 and F16 are converted to
 * fp32 on load, and rounded to nearest even on store. NaN and Inf propagate. Tokens and targets of `vocab` or more (0:
 * unknown) fail the kernel with QDR_ERR_ARGUMENT, and so poison the device; negative ones are ignored. */
#ifndef QDRI_CORE_KERNELS_H
#define QDRI_CORE_KERNELS_H

#include "quadrille/codec.h"
#include "quadrille/stack.h"

/* operands.h says what each reads and writes. */
typedef enum qdri_kernel_kind {
#define KERNEL(constant, name, family, function) QDRI_K_##constant,
#include "core/kernel_list.h"
#undef KERNEL
    QDRI_N_KERNELS
} qdri_kernel_kind;

/* Those with operands in the same member of qdri_kernel, which are checked and launched alike. Before BLOCK: of one of
 * the types of layers. */
typedef enum qdri_kernel_family {
    QDRI_OF_BINARY,
    QDRI_OF_PARTS,
    QDRI_OF_ROWS,
    QDRI_OF_ACTIVATION,
    QDRI_OF_NORM,
    QDRI_OF_ATTENTION,
    QDRI_OF_EMBED,
    QDRI_OF_CE,
    QDRI_OF_REDUCE,
    QDRI_OF_ADAMW,
    QDRI_OF_BLOCK,
    QDRI_OF_GATHER,
    QDRI_OF_CODEC,
    QDRI_OF_PACK, /* codec's member */
    QDRI_N_FAMILIES
} qdri_kernel_family;

static inline qdri_kernel_family qdri_family_of(qdri_kernel_kind kind)
{
    static const unsigned char families[] = {
#define KERNEL(constant, name, family, function) QDRI_OF_##family,
#include "core/kernel_list.h"
#undef KERNEL
    };
    return (qdri_kernel_family)families[kind];
}

#define QDRI_N_ACTIVATIONS ((int)QDR_RELU_SQUARED + 1)
#define QDRI_ATTENTION_BLOCK 64 /* rows of queries that are processed together */
#define QDRI_RATE_PIECES 4
#define QDRI_STEP_SUMS (1 + 2 * QDRI_RATE_PIECES) /* of the norm, and of the rate */

/* The numbers of one step of AdamW that apply to all parameters, in device memory. */
typedef struct qdri_adamw_numbers {
    double norm_squared; /* Σg² of all gradients as stored; input */
    /* Follow norm_squared, so that one message sums them all. RATE and BEGIN leave this rank's here; input: sums. */
    double rate[QDRI_RATE_PIECES], rate_squared[QDRI_RATE_PIECES];
    double n_begun, n_steps; /* all steps, and those that were not skipped; kept from step to step */
    double lr; /* also kept */
    double factor; /* for gradients: clipping / grad_scale */
    double correction1, correction2; /* 1/(1-β^t); 0 in a step that is skipped */
} qdri_adamw_numbers;

#define QDRI_REDUCE_MOST 64 /* sources, and results, of one reduction */
#define QDRI_CODE_PARTS_MOST 32 /* messages of one ENCODE or DECODE */

/* One message of several, with what the kernel's description has of a single one. */
typedef struct qdri_code_part {
    int64_t n;
    uint64_t seed;
    const void *x;
    void *wire, *y;
    float *feedback;
} qdri_code_part;

typedef struct qdri_kernel {
    qdri_kernel_kind kind;
    qdr_dtype dtype;
    int accumulate; /* 0 overwrites results without reading them, 1 adds to them, where the list above says "or +=" */
    double factor; /* where the list says so; 0: 1 */
    struct {
        int64_t first, n;
    } only; /* of a part on CPUs: the columns of sums over rows, or the key heads, that it computes; n 0: all */
    union {
        struct {
            int64_t n;
            const void *a, *b;
            void *y;
            qdr_dtype dtype2;
        } binary;
        struct {
            int64_t n; /* of each part */
            int n_parts;
            const void *x;
            void *y;
        } parts;
        struct {
            int64_t n_rows, n_cols, row0, context;
            const void *x;
            void *y;
            void *p;
        } rows;
        struct {
            int64_t n_rows, n_cols; /* of y; a row of x and dx that is gated has two such rows, the gate first */
            qdr_activation_function function;
            int gated;
            const void *x, *dy;
            void *y, *dx; /* dx may be dy, unless it is gated */
        } activation;
        struct {
            /* stride: elements from one row of x, y, dy and dx to the next. n_features: columns of all ranks.
             * is_rms: an RMS norm, whose rows have one number where the list says more. one_plus: gamma is stored
             * less 1. */
            int64_t n_rows, n_cols, stride, n_features;
            int n_parts, is_rms, one_plus;
            double epsilon;
            const void *x, *gamma, *beta, *dy;
            void *y, *stats, *work, *dx, *dgamma, *dbeta;
        } norm;
        struct {
            int64_t n_rows, context, n_heads, n_kv_heads, head_size;
            int64_t window; /* a row sees itself and the window - 1 rows before it; 1 to context */
            double scale, cap; /* scores are scale·q·k, or cap·tanh(scale·q·k / cap); cap 0: none */
            int64_t rotary_columns; /* of each head of q and k, from its first, which are turned in pairs; 0: none */
            int interleaved; /* 1: pairs are columns 2i and 2i + 1; 0: i and i + rotary_columns / 2 */
            int head_norm, one_plus; /* RMS norm of each head of q and k, before it is turned; gammas less 1 */
            int has_sinks;
            double epsilon; /* of the norm */
            const int32_t *first_keys; /* for each row, the first row of its sequence that it sees; NULL: 0. One after
                                        * the row, or before that of the row before, fails as a token does */
            const void *qkv, *y, *dy;
            const void *rotation; /* for each row of the context, cosines and then sines of all pairs */
            const void *q_gamma, *k_gamma, *sinks; /* sinks: scores without values, one for each query head */
            void *d_q_gamma, *d_k_gamma, *d_sinks;
            void *out, *saved, *work; /* out: y or dqkv */
        } attention;
        struct {
            int64_t n_rows, n_cols, begin, end, vocab;
            const int32_t *tokens;
            const void *e, *dy;
            void *y, *de;
        } embed;
        struct {
            int64_t n_rows, n_cols, begin, vocab;
            const int32_t *targets;
            const void *logits;
            void *work, *work2, *saved, *dlogits;
            double *result;
            double scale, cap, z_loss; /* cap, z_loss 0: none */
        } ce;
        struct {
            int64_t n;
            const void *a;
            double *result;
        } reduce;
        struct {
            int64_t n_rows;
            size_t row_bytes, x_stride, y_stride;
            const void *x;
            void *y;
        } block; /* strides in bytes */
        struct {
            int64_t n;
            int n_sources, n_results; /* at least 1, at most QDRI_REDUCE_MOST each */
            qdr_reduce op;
            const void *const *sources; /* both arrays must live until the call returns */
            void *const *results;
        } gather;
        struct {
            int64_t n, run; /* blocks begin anew after each run of elements, such as a row; 0: n */
            /* Of a codec of integers: its bits; 32 to 256; as in qdr_codec. 0, 128, 0: F32 as BF16, on GPUs. */
            int bits, block, flags;
            uint64_t seed; /* of stochastic rounding: another one for each message */
            const void *x; /* ENCODE: the elements; DECODE_SUM: those of source `own` */
            void *wire, *y;
            float *feedback; /* n; NULL: none */
            const void
                *sources; /* DECODE_SUM: the messages of all sources but `own`, each `stride` bytes after the last */
            size_t stride;
            int64_t *n_bytes; /* PACK: receives those of the message; UNPACK: holds them when it runs, NULL: `stride` */
            int n_sources, own; /* own: which source is x instead of a message; -1: none */
            /* ENCODE and DECODE on GPUs: as many messages, instead of x, wire, y, feedback and seed; n: of the longest.
             * The array must live until the call returns. 0: a single one. */
            int n_parts;
            const qdri_code_part *parts;
        } codec;
        struct {
            /* p: parameter (T); master: fp32 copy for BF16 and F16, else NULL. An element of p that is not its rounded
             * master was written since the last step, and replaces it. g, m, v: type A. grad_scale: the factor by which
             * g is too large. skips: 1: a step whose norm_squared is Inf or NaN is skipped. lr: for ADAMW_RATE only.
             * n_ranks: for ADAMW_BEGIN, the ranks whose rates were summed; 0 or 1: nothing to compare. */
            int64_t n;
            void *p, *master;
            const void *g;
            void *m, *v;
            qdri_adamw_numbers *numbers;
            double lr, beta1, beta2, epsilon, weight_decay, clip_norm, grad_scale;
            int skips, n_ranks;
        } adamw;
    } u;
} qdri_kernel;

static inline double qdri_factor_of(const qdri_kernel *kernel) { return kernel->factor == 0 ? 1 : kernel->factor; }

#endif
