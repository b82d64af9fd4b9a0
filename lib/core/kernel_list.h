/* SPDX-License-Identifier: Apache-2.0 */
/* The list of kernels: each one's constant, the name by which lists, traces and reports call it, and what it computes
 * from which member of qdri_kernel. Included with a definition of KERNEL(constant, name). */
KERNEL(ADD, "add") /* binary: y = a + b; types may be mixed with `dtype2` = type of b (a and y are T) */
KERNEL(SUM_PARTS, "sum-parts") /* parts: y[i] = x[0,i] + x[1,i] + … in that order, in A, rounded once */
KERNEL(CAST, "cast") /* binary: y (dtype2) = a (T) */
KERNEL(BIAS_ADD, "bias-add") /* rows: y[r,c] += p[c] (p: T) */
KERNEL(COLUMN_SUM, "column-sum") /* rows: p[c] (A) = or += Σ_r x[r,c] */
KERNEL(GELU_FORWARD, "gelu") /* binary: y = gelu(a) */
KERNEL(GELU_BACKWARD, "gelu-backward") /* binary: y = or += b · gelu'(a) */
KERNEL(NORM_MOMENTS, "norm-moments") /* norm: per row (n, mean, M2) of the local columns -> work[r,3] (A) */
KERNEL(NORM_MERGE, "norm-merge") /* norm: n_parts of [r,3] in rank order (in work) -> stats[r,2] = mean, 1/sigma */
KERNEL(NORM_APPLY, "norm-apply") /* norm: y from x, stats, gamma, beta */
/* norm: per row Σ dŷ, Σ dŷ·x̂ (dŷ = dy·gamma) -> work[r,2]; and dgamma, dbeta unless NULL */
KERNEL(NORM_SUMS, "norm-sums")
KERNEL(NORM_BACKWARD, "norm-backward") /* norm: dx = or += from work[r,2] = sums over all n_features */
KERNEL(ATTENTION_FORWARD, "attention")
KERNEL(ATTENTION_BACKWARD, "attention-backward")
KERNEL(EMBED_FORWARD, "embed") /* embed: y[r,:] = E[token - begin] or 0 */
KERNEL(EMBED_BACKWARD, "embed-sum") /* embed: dE (A) = or += rows of dy (T) */
KERNEL(POSITION_ADD, "position-add") /* rows: y[r,c] += p[(r + row0) mod context, c] (p: T) */
KERNEL(POSITION_SUM, "position-sum") /* rows: p (A) = or += rows of x, by (r + row0) mod context */
KERNEL(CE_MAX, "loss-max") /* ce: row maxima of logits -> work[r] (A); -Inf for no columns */
KERNEL(CE_SUMS, "loss-sums") /* ce: Σ exp(l - max), and the target's l - max (0 if elsewhere) -> work2[r,2] */
KERNEL(CE_LOSS, "loss") /* ce: saved[r,2] = max, log Σexp; result[0..1] (f64) = Σ loss, number of valid rows */
KERNEL(CE_BACKWARD, "loss-backward") /* ce: dlogits = scale·(exp(l - max - log Σ) - onehot) */
KERNEL(SUM_SQUARES, "sum-squares") /* reduce: result[0] (f64) = or += Σ a² */
KERNEL(ADAMW_RATE, "adamw-rate") /* adamw: sets the rate of the following steps */
/* adamw: computes a step's numbers and counts the step, unless it is skipped. Fails with QDR_ERR_ARGUMENT if the
 * rates of `n_ranks` differ; then on GPUs, too, ADAMW does nothing */
KERNEL(ADAMW_BEGIN, "adamw-begin")
KERNEL(ADAMW, "adamw") /* adamw: the step of one parameter; nothing if the step is skipped */
/* block: copies rows of one strided matrix to another as raw bytes; dtype is ignored */
KERNEL(COPY_BLOCK, "copy-block")
KERNEL(COPY, "copy") /* block: copies row_bytes bytes; dtype is ignored */
KERNEL(ZERO, "zero") /* block: sets row_bytes bytes at y to zero; dtype is ignored */
/* gather: y[i] = x_0[i] op x_1[i] op … in that order, in A (I32 as integers, whose sums wrap), rounded once, to each
 * of the results; a NaN wins MAX and MIN. Results may be sources, whole */
KERNEL(REDUCE, "reduce")
/* gather: integers (i64 for F64, else i32) in the order of the one source's numbers; a NaN is above all for MAX,
 * below all for MIN. The one result may be the source */
KERNEL(TO_KEYS, "to-keys")
KERNEL(FROM_KEYS, "from-keys") /* gather: the numbers of such integers */
/* codec: x -> wire, in the format of quadrille/codec.h; with feedback, codes x + feedback, and leaves there what the
 * message lost of it: 0 of zeros, and of a block with NaN what was there */
KERNEL(ENCODE, "encode")
KERNEL(DECODE, "decode") /* codec: wire -> y, or added to y */
/* codec: y = Σ sources in order, in fp32; with `wire`, this sum is encoded there as by ENCODE, with feedback or
 * without, and y is what is decoded from it */
KERNEL(DECODE_SUM, "decode-sum")
KERNEL(PACK, "pack") /* codec: x -> wire without loss, F32 and BF16; on CPUs. Writes the message's bytes */
KERNEL(UNPACK, "unpack") /* codec: wire -> y, or added to y; fails if the message is damaged */
