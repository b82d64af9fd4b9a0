/* SPDX-License-Identifier: Apache-2.0 */
/* The list of kernels: each one's constant, the name by which lists, traces and reports call it, its family, which is
 * the member of qdri_kernel that has its operands, and its function on CPUs (NONE: it is elsewhere); and what it
 * computes. Included with a definition of KERNEL(constant, name, family, function). */
KERNEL(ADD, "add", BINARY, add) /* y = a + factor · b; types may be mixed with `dtype2` = type of b (a and y are T) */
KERNEL(SUM_PARTS, "sum-parts", PARTS, sum_parts) /* y[i] = x[0,i] + x[1,i] + … in that order, in A, rounded once */
KERNEL(CAST, "cast", BINARY, cast) /* y (dtype2) = a (T); of one type, factor · a */
KERNEL(BIAS_ADD, "bias-add", ROWS, bias_add) /* y[r,c] += p[c] (p: T) */
KERNEL(COLUMN_SUM, "column-sum", ROWS, column_sum) /* p[c] (A) = or += Σ_r x[r,c] */
KERNEL(ACTIVATION_FORWARD, "activation", ACTIVATION, activation_forward) /* y = f(x), or f(gate) · up, x = gate, up */
KERNEL(ACTIVATION_BACKWARD, "activation-backward", ACTIVATION, activation_backward) /* dx = or += from x and dy */
/* per row (n, mean, M2) of the local columns -> work[r,3] (A); of an RMS norm Σx²/n_features -> work[r] */
KERNEL(NORM_MOMENTS, "norm-moments", NORM, norm_moments)
/* n_parts of [r,3] in rank order (in work) -> stats[r,2] = mean, 1/sigma; of their sum [r] -> stats[r] = 1/rms */
KERNEL(NORM_MERGE, "norm-merge", NORM, norm_merge)
KERNEL(NORM_APPLY, "norm-apply", NORM, norm_apply) /* y from x, stats, gamma, beta (NULL: none) */
/* per row Σ dŷ, Σ dŷ·x̂ (dŷ = dy·gamma) -> work[r,2], of an RMS norm the second -> work[r]; and dgamma, dbeta unless
 * NULL */
KERNEL(NORM_SUMS, "norm-sums", NORM, norm_sums)
KERNEL(NORM_BACKWARD, "norm-backward", NORM, norm_backward) /* dx = or += from work[r,2] = sums over all n_features */
KERNEL(ATTENTION_FORWARD, "attention", ATTENTION, attention_forward)
KERNEL(ATTENTION_BACKWARD, "attention-backward", ATTENTION, attention_backward) /* gradients of parameters = or += */
KERNEL(EMBED_FORWARD, "embed", EMBED, embed_forward) /* y[r,:] = factor (as T) · E[token - begin] or 0 */
KERNEL(EMBED_BACKWARD, "embed-sum", EMBED, embed_backward) /* dE (A) = or += factor (as T) · rows of dy (T) */
KERNEL(POSITION_ADD, "position-add", ROWS, position_add) /* y[r,c] += p[(r + row0) mod context, c] (p: T) */
KERNEL(POSITION_SUM, "position-sum", ROWS, position_sum) /* p (A) = or += rows of x, by (r + row0) mod context */
/* row maxima of l -> work[r] (A); -Inf for no columns. l: factor · logits, or cap · tanh(factor · logits / cap) */
KERNEL(CE_MAX, "loss-max", CE, ce_max)
KERNEL(CE_SUMS, "loss-sums", CE, ce_sums) /* Σ exp(l - max), and the target's l - max (0 if elsewhere) -> work2[r,2] */
KERNEL(CE_LOSS, "loss", CE, ce_loss) /* saved[r,2] = max, log Σexp; result[0..1] (f64) = Σ loss, number of valid rows */
KERNEL(CE_BACKWARD, "loss-backward", CE, ce_backward) /* dlogits = scale·(exp(l - max - log Σ) - onehot)·dl */
KERNEL(SUM_SQUARES, "sum-squares", REDUCE, sum_squares) /* result[0] (f64) = or += Σ a² */
KERNEL(ADAMW_RATE, "adamw-rate", ADAMW, adamw_rate) /* sets the rate of the following steps */
/* computes a step's numbers and counts the step, unless it is skipped. Fails with QDR_ERR_ARGUMENT if the
 * rates of `n_ranks` differ; then on GPUs, too, ADAMW does nothing */
KERNEL(ADAMW_BEGIN, "adamw-begin", ADAMW, adamw_begin)
KERNEL(ADAMW, "adamw", ADAMW, adamw) /* the step of one parameter; nothing if the step is skipped */
/* copies rows of one strided matrix to another as raw bytes; dtype is ignored */
KERNEL(COPY_BLOCK, "copy-block", BLOCK, copy_block)
KERNEL(COPY, "copy", BLOCK, NONE) /* copies row_bytes bytes; dtype is ignored */
KERNEL(ZERO, "zero", BLOCK, NONE) /* sets row_bytes bytes at y to zero; dtype is ignored */
/* y[i] = x_0[i] op x_1[i] op … in that order, in A (I32 as integers, whose sums wrap), rounded once, to each
 * of the results; a NaN wins MAX and MIN. Results may be sources, whole */
KERNEL(REDUCE, "reduce", GATHER, NONE)
/* integers (i64 for F64, else i32) in the order of the one source's numbers; a NaN is above all for MAX,
 * below all for MIN. The one result may be the source */
KERNEL(TO_KEYS, "to-keys", GATHER, NONE)
KERNEL(FROM_KEYS, "from-keys", GATHER, NONE) /* the numbers of such integers */
/* x -> wire, in the format of quadrille/codec.h; with feedback, codes x + feedback, and leaves there what the
 * message lost of it: 0 of zeros, and of a block with NaN what was there */
KERNEL(ENCODE, "encode", CODEC, NONE)
KERNEL(DECODE, "decode", CODEC, NONE) /* wire -> y, or added to y */
/* y = Σ sources in order, in fp32; with `wire`, this sum is encoded there as by ENCODE, with feedback or
 * without, and y is what is decoded from it */
KERNEL(DECODE_SUM, "decode-sum", CODEC, NONE)
KERNEL(PACK, "pack", PACK, NONE) /* x -> wire without loss, F32 and BF16; on CPUs. Writes the message's bytes */
KERNEL(UNPACK, "unpack", PACK, NONE) /* wire -> y, or added to y; fails if the message is damaged */
