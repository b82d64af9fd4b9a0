/* SPDX-License-Identifier: Apache-2.0 */
/* What to train on: text or tokens, which rank 0 reads, one step ahead, and sends to all ranks. */
#ifndef EXAMPLES_CORPUS_H
#define EXAMPLES_CORPUS_H

#include <pthread.h>

#include "train_settings.h"

/* Some sequences, of training, or of n_all for validation as in tokens.h; n_rooms: with empty ones behind them. Of
 * training n and n_rooms stay the same. */
typedef struct corpus_part {
    int64_t first, n, n_rooms, n_all;
    int is_training;
} corpus_part;

typedef struct corpus {
    char name[96]; /* for messages */
    qdr_tokens_info info;
    uint32_t crc; /* CRC-32 of the text, that of zlib and gzip; of tokens that of some of them, and of weights and
                     documents; if it was needed */
    int64_t context;
    int has_documents;
    int64_t document_token; /* after which a document ends; -1: none */
    qdr_token_rows rows; /* of the sequences that were taken last */
    double waited_secs; /* of rank 0 for reading those of training */
    double sent_secs; /* for sending those of training; of other ranks also for what rank 0 waited */
    /* The rest is the corpus's own. */
    qdr_context *ctx;
    qdr_tokens *tokens; /* on rank 0 */
    char *text; /* in the place of a file */
    int64_t text_bytes;
    int32_t *numbers, *next; /* rows, then a status; next: those that the thread reads */
    corpus_part ahead; /* what the thread reads */
    pthread_t thread;
    int has_thread, has_ahead; /* ahead: it has read, or will have when it ends */
    char problem[PROBLEM_BYTES]; /* of what was read last */
} corpus;

/* Opens --data, --eval FILE or FILE; without them the King James Bible if the package bible-kjv is installed, else the
 * texts under /usr/share/common-licenses. Collective; ranks agree.
 * @retval QDR_ERR_ARGUMENT  `sentence` says why */
qdr_status corpus_open(qdr_context *ctx, const settings *set, corpus *text, char sentence[PROBLEM_BYTES]);
/* Makes room for this many sequences. Collective; ranks agree. */
qdr_status corpus_reserve(corpus *text, int64_t n_sequences);
void corpus_close(corpus *text);
/* Takes sequences, whose rows all ranks then have; those of training that follow are read meanwhile. Collective;
 * `sentence` says what fails. */
qdr_status corpus_take(corpus *text, corpus_part part, char sentence[PROBLEM_BYTES]);
/* A number in [0, 1) determined by two counters. */
double corpus_uniform(uint64_t seed, uint64_t counter);

#endif
