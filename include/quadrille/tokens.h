/* SPDX-License-Identifier: Apache-2.0 */
/** @file tokens.h  Tokens to train on: files of all common layouts, several of them as one source, several sources in
 * proportions, and windows of them in an order that follows from a seed alone.
 *
 * Part of libquadrille_perf: no ranks. All functions are local and blocking. Opened tokens take a few hundred bytes for
 * each file, however long that is, and hold no file open; any number of threads may read them at once.
 *
 * A file is recognised by its first bytes:
 *
 *    llm.c, modded-nanogpt  256 int32: 20240520 and 1 (uint16), or 20240801 and 7 or 1 (uint32), then their number
 *    NeMo's nanogpt         256 int32: 278895051, 1, their number, bytes of a token (2 or 4)
 *    Megatron               PATH.idx beside PATH.bin: type, and what its sequences and documents are
 *    NumPy                  integers of 1, 2, 4 or 8 bytes, little-endian, C order, one or two dimensions
 *    raw                    not recognised: all of the file is tokens of `format`
 *    text                   everything else: bytes
 *
 * What is not recognised, but has a zero byte among its first 4,096 or is called .bin or .npy, is no text: it needs a
 * `format`.
 *
 * **Parts.** The files of a source follow one another; its last tenth is for validation, the rest for training. A
 * *window* is context + 1 tokens: the first `context` are what a sequence reads, the last ones what it predicts.
 *
 * **Order.** Training windows of a source follow one another without overlap; each pass over them has another order and
 * another first token. Sequence k of a run takes the next window of one source: of any first k sequences, each source
 * has its share, less than one for each source away. So sequence k depends on seed, k, context and the sources, and not
 * on batches, ranks or where a run was stopped. */
#ifndef QUADRILLE_TOKENS_H
#define QUADRILLE_TOKENS_H

#include "status.h"

#ifdef __cplusplus
extern "C" {
#endif

/** What files contain. */
typedef enum qdr_token_format {
    QDR_TOKENS_BY_FILE = 0, /**< as it is recognised */
    QDR_TOKENS_UINT16 = 1, /**< all of the file, little-endian, whatever it looks like */
    QDR_TOKENS_UINT32 = 2,
    QDR_TOKENS_INT32 = 3,
    QDR_TOKENS_TEXT = 4, /**< bytes */
    QDR_TOKENS_OR_TEXT = 5 /**< as it is recognised, else bytes */
} qdr_token_format;

/** Where documents end, beside the ends of files. */
typedef enum qdr_token_documents {
    QDR_DOCUMENTS_NONE = 0, /**< there are none: not at the ends of files either */
    QDR_DOCUMENTS_TOKEN = 1, /**< after each document_token */
    QDR_DOCUMENTS_INDEX = 2 /**< as the .idx of Megatron says */
} qdr_token_documents;

/** A source. */
typedef struct qdr_token_source {
    size_t size; /**< QDR_INIT(qdr_token_source) */
    const char *path; /**< a file, or a pattern of them, as in a shell: in the order of strcmp(); with `text`: a name */
    double weight; /**< its share of the sequences, relative to the others' */
    const char *text; /**< NULL, or bytes in the place of a file; the caller's, until the tokens are closed */
    int64_t text_bytes;
} qdr_token_source;

typedef struct qdr_tokens_opts {
    size_t size; /**< QDR_INIT(qdr_tokens_opts) */
    int64_t context; /**< C: tokens of a sequence */
    int64_t seed; /**< of the order */
    int64_t vocab; /**< each token is less; 0: than 2^31 */
    qdr_token_format format;
    qdr_token_documents documents;
    int64_t document_token; /**< of QDR_DOCUMENTS_TOKEN: a document's last */
    int only_validation; /**< 1: all is for validation; sources may be shorter than a window, but need two tokens */
} qdr_tokens_opts;

typedef struct qdr_tokens qdr_tokens;

/** Opens sources: looks at the headers of all files, and at all of a Megatron index, but reads no tokens.
 *  @param sources      n_sources of them, all of the first one's size; copied, but for `text`
 *  @param[out] tokens  to be closed; NULL after an error
 *  @retval QDR_ERR_ARGUMENT     NULL, no size, a number out of its range; a file that is neither regular nor one of the
 *                               above, of another length than it says, or named twice; a source with fewer than
 *                               10·(C + 1) tokens; a weight that is not positive and finite, or less than a millionth
 *                               of their sum; QDR_DOCUMENTS_INDEX without an index; no format where one is needed: the
 *                               sentence has the first tokens in each
 *  @retval QDR_ERR_UNSUPPORTED  llm.c's evaluations; elements of another type
 *  @retval QDR_ERR_IO           a file that cannot be opened or read
 *  @retval QDR_ERR_MEMORY       out of memory */
QDR_API QDR_NODISCARD qdr_status qdr_tokens_open(const qdr_token_source *sources, int n_sources,
                                                 const qdr_tokens_opts *opts, qdr_tokens **tokens);
/** Closes them; no thread may read them. NULL and a pointer to NULL do nothing. */
QDR_API void qdr_tokens_close(qdr_tokens **tokens);

typedef struct qdr_tokens_info {
    size_t size; /**< QDR_INIT(qdr_tokens_info) */
    int64_t n_tokens; /**< of all sources */
    int64_t n_train; /**< of their training parts */
    int64_t n_windows; /**< windows of a pass over the training parts */
    int64_t n_validation; /**< windows that fit into the validation parts one after the other */
    int64_t n_evaluation; /**< windows that cover them, of which the last of a source may be shorter */
    int n_files;
    int is_text; /**< 1: all tokens are bytes of texts */
} qdr_tokens_info;
/** @param[out] info  all zero after an error
 *  @retval QDR_ERR_ARGUMENT  NULL or no size */
QDR_API QDR_NODISCARD qdr_status qdr_tokens_get_info(const qdr_tokens *tokens, qdr_tokens_info *info);

/** Where rows of sequences go: n·C numbers each, of the caller. Undefined after an error. */
typedef struct qdr_token_rows {
    size_t size; /**< QDR_INIT(qdr_token_rows) */
    int32_t *tokens; /**< what each row reads */
    int32_t *targets; /**< what it predicts; -1: nothing, since its document ends here */
    int32_t *first_keys; /**< the first row of its document in the sequence; 0 without documents; NULL: not wanted */
} qdr_token_rows;

/** Sequences first … first + n - 1 of a run, counted from 0.
 *  @retval QDR_ERR_ARGUMENT  NULL, first or n < 0, only_validation; a token that is negative, or not below the
 *                            vocabulary: the sentence has file, place and token; a file whose length has changed
 *  @retval QDR_ERR_IO        a file that cannot be read
 *  @retval QDR_ERR_MEMORY    out of memory for 2·(C + 1) numbers */
QDR_API QDR_NODISCARD qdr_status qdr_tokens_train(const qdr_tokens *tokens, int64_t first, int64_t n,
                                                  const qdr_token_rows *rows);
/** Windows first … first + n - 1 of `n_all` that are evenly spread over the validation parts; n_all 0: of the
 * n_evaluation ones that cover them. Rows beyond a source's end, and those of windows beyond the last, read token 0 and
 * predict nothing.
 *  @retval  as above */
QDR_API QDR_NODISCARD qdr_status qdr_tokens_validate(const qdr_tokens *tokens, int64_t first, int64_t n, int64_t n_all,
                                                     const qdr_token_rows *rows);
/** Tokens first … first + n - 1 of all sources, one after the other, as they are.
 *  @retval  as above; QDR_ERR_ARGUMENT: they do not have so many */
QDR_API QDR_NODISCARD qdr_status qdr_tokens_read(const qdr_tokens *tokens, int64_t first, int64_t n, int32_t *to);

#ifdef __cplusplus
}
#endif
#endif
