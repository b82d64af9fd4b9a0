/* SPDX-License-Identifier: Apache-2.0 */
/** @file checkpoint.h  Checkpoints: a stack's parameters and AdamW's state in one safetensors file, which all ranks
 * write, and which can be loaded on any number of ranks, grid, levels, layout or storage, and into any type.
 *
 * A file has whole tensors, row-major: every parameter under its name, [N,K], [V,H], [context,H] or [n]; with an
 * optimizer then its moments, `optimizer.m.NAME` and `optimizer.v.NAME`. With an optimizer, parameters are F32 (F64 for
 * F64): for BF16 and F16 the master copy, of which the parameter is the rounding. Without one they are of the stack's
 * type. The metadata have `format` = "pt"; `quadrille`, the version of this layout; `optimizer`, its options and steps
 * as JSON; `note`, the caller's text; `crc32` and `header_crc32` (safetensors.h). Nothing depends on the grid, the
 * ranks, the time or the machine: the same state gives the same bytes. Error feedback of codecs is not saved.
 *
 * All ranks must see the same folder. Rank 0 makes PATH.partial, each rank writes the elements whose state it has, each
 * byte once, and rank 0 writes the header last and renames the file. Whenever a run is killed, PATH is the old file or
 * the new one; the next save removes the PATH.partial that is left. Two runs cannot save to one path at once.
 *
 * Functions are collective over the context, in the same order on all ranks, by one thread per context at a time, and
 * agree: all ranks get the same status, and the sentence of the lowest rank that failed. They block, and must not be
 * called between qdr_graph_begin() and qdr_graph_end(). */
#ifndef QUADRILLE_CHECKPOINT_H
#define QUADRILLE_CHECKPOINT_H

#include "optim.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct qdr_checkpoint_opts {
    size_t size; /**< QDR_INIT(qdr_checkpoint_opts) */
    const char *note; /**< kept word for word, in UTF-8: JSON, say, about the run and its position in the data; NULL:
                         none */
    int background; /**< 1: qdr_checkpoint_save() returns once this rank's elements have been copied to host memory, and
                       a thread writes them while training goes on */
    int keep; /**< number of older files to keep beside it: PATH.1 (the youngest), PATH.2, …; needs a file system with
                 hard links */
} qdr_checkpoint_opts;

/** A save in the background. */
typedef struct qdr_checkpoint qdr_checkpoint;

/** Sizes of a checkpoint. Local; the stack must be built.
 *  @param optimizer          NULL: parameters only
 *  @param background         1: of a save in the background
 *  @param[out] host_bytes    host memory that saving takes on this rank, in one piece: at most 16 MiB, in the
 *                            background also a copy of what it writes. In addition, lists take 16 KiB and about
 *                            300 bytes for each tensor; and, while the file's header is made, 2 KiB for each
 *  @param[out] file_bytes    of the whole file if it has no note; may be NULL, as host_bytes may
 *  @retval QDR_ERR_ARGUMENT  NULL, an optimizer of another stack, or two parameters have the same name
 *  @retval QDR_ERR_STATE     the stack is not built
 *  @retval QDR_ERR_MEMORY    out of memory */
QDR_API QDR_NODISCARD qdr_status qdr_checkpoint_size(const qdr_stack *stack, const qdr_adamw *optimizer, int background,
                                                     size_t *host_bytes, int64_t *file_bytes);

/** Saves a stack's parameters and its optimizer's state, after the work of the context's stream. A stack that shares
 * the parameters of another one can be saved without an optimizer.
 *
 *  @param optimizer     NULL: parameters only
 *  @param path          a regular file, or a name that does not exist yet. Symbolic links are followed
 *  @param opts          NULL: all 0
 *  @param[out] pending  NULL after an error, and unless opts->background: then to be passed to qdr_checkpoint_finish().
 *                       It keeps the stack and the context, also after they are destroyed. May be NULL if not in the
 *                       background
 *  @retval QDR_ERR_ARGUMENT  NULL, options, a path that is no file, or that another run is saving to; names of
 *                            parameters that are not unique, or not UTF-8; ranks pass other arguments
 *  @retval QDR_ERR_STATE     the stack has no memory, a step is being recorded, or another save of it is pending
 *  @retval QDR_ERR_IO        a disk is full or failed, or a rank does not see the file of rank 0
 *  @retval QDR_ERR_MEMORY    out of memory
 *  @retval QDR_ERR_THREAD    no thread could be started
 *
 *  After an error what was at PATH is as it was, the stack is unchanged, and training can go on. */
QDR_API QDR_NODISCARD qdr_status qdr_checkpoint_save(qdr_stack *stack, qdr_adamw *optimizer, const char *path,
                                                     const qdr_checkpoint_opts *opts, qdr_checkpoint **pending);
/** Polls a save in the background, and completes the file once all ranks have written. To be called between steps: it
 * compares ranks once, but does not wait for a disk until all have written.
 *  @retval QDR_PENDING  some rank is still writing
 *  @retval QDR_OK       the file is complete; further calls return the same
 *  @retval others       as qdr_checkpoint_save(), of errors in the background: what was at PATH is as it was */
QDR_API QDR_NODISCARD qdr_status qdr_checkpoint_poll(qdr_checkpoint *pending);
/** Waits for a save in the background and frees it; *pending becomes NULL in any case. NULL and a pointer to NULL do
 * nothing. Returns what qdr_checkpoint_poll() would in the end. */
QDR_API QDR_NODISCARD qdr_status qdr_checkpoint_finish(qdr_checkpoint **pending);

/** What was loaded; freed by qdr_checkpoint_loaded_free(). */
typedef struct qdr_checkpoint_loaded {
    size_t size; /**< QDR_INIT(qdr_checkpoint_loaded) */
    int n_tensors; /**< loaded */
    int n_ignored; /**< tensors of the file that were not needed */
    int has_optimizer; /**< 1: the file has an optimizer's state, loaded or not */
    int64_t n_steps; /**< optimizer steps that were taken before it was saved; 0 without an optimizer */
    char *note; /**< the caller's text; NULL: none */
} qdr_checkpoint_loaded;

/** Loads parameters, and the optimizer's state, from a checkpoint or any other safetensors file with tensors of these
 * names and shapes (F32, F64, BF16 or F16, rounded to the stack's type). Rank 0 reads the header; each element is read
 * by one rank, and checked if the file has checksums. With levels, parameters are then stale (qdr_parameter) until the
 * next forward.
 *
 *  @param optimizer    NULL: parameters only. Its own options stay; its steps are counted on from the file's
 *  @param path         a file, or the `….safetensors.index.json` of several
 *  @param[out] loaded  on all ranks; NULL: not wanted
 *  @retval QDR_ERR_ARGUMENT  NULL, or the file is not one; or parameters are missing or have other shapes or types, or
 *                            moments are missing: the sentence names five. Ranks pass other arguments
 *  @retval QDR_ERR_STATE     the stack has no memory, shares its parameters, or a step is being recorded
 *  @retval QDR_ERR_IO        it cannot be read, on some rank, or is another file there than on rank 0; or a checksum
 *                            differs: the sentence names the tensor
 *  @retval QDR_ERR_MEMORY    out of memory
 *
 *  If the sentence ends with "values are undefined now", parameters and state must be set again before they are
 *  used. Otherwise nothing was changed. */
QDR_API QDR_NODISCARD qdr_status qdr_checkpoint_load(qdr_stack *stack, qdr_adamw *optimizer, const char *path,
                                                     qdr_checkpoint_loaded *loaded);

typedef struct qdr_checkpoint_load_opts {
    size_t size; /**< QDR_INIT(qdr_checkpoint_load_opts) */
    const char *first_rows; /**< NULL, or the name of a parameter that may have more rows in the file: the first are
                               loaded, as many as the stack's has. A table of positions is so cut to a shorter context.
                               Its moments are not cut. If the file has its checksum, rank 0 reads all of the tensor */
} qdr_checkpoint_load_opts;

/** qdr_checkpoint_load() with options; NULL: all 0.
 *  @retval QDR_ERR_ARGUMENT  also: options without a size, or ranks pass other options */
QDR_API QDR_NODISCARD qdr_status qdr_checkpoint_load_with(qdr_stack *stack, qdr_adamw *optimizer, const char *path,
                                                          const qdr_checkpoint_load_opts *opts,
                                                          qdr_checkpoint_loaded *loaded);
/** Frees what `loaded` owns, and sets it to zeros. NULL does nothing. Local. */
QDR_API void qdr_checkpoint_loaded_free(qdr_checkpoint_loaded *loaded);

#ifdef __cplusplus
}
#endif
#endif
