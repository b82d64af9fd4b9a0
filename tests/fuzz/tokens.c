/* SPDX-License-Identifier: Apache-2.0 */
/* Arbitrary bytes as a file of tokens, or, if the first one is odd, as the index of 64 bytes of Megatron: refused with
 * one printable message, or accepted; then all tokens and windows can be read, and rows have documents in order. */
#include <quadrille/tokens.h>

#include "fuzz.h"

enum { CONTEXT = 5, INDEXED_BYTES = 64 };

static char index_path[64];

static void remove_index(void) { unlink(index_path); }

static void write_index(const uint8_t *bytes, size_t n_bytes)
{
    FILE *file = fopen(index_path, "wb");
    require(file && fwrite(bytes, 1, n_bytes, file) == n_bytes && fclose(file) == 0);
}

static void read_all(const qdr_tokens *tokens)
{
    int32_t read[CONTEXT], targets[CONTEXT], keys[CONTEXT], token;
    qdr_tokens_info info = {QDR_INIT(qdr_tokens_info)};
    require(qdr_tokens_get_info(tokens, &info) == QDR_OK && info.n_tokens >= 2 && info.n_train == 0);
    for (int64_t i = 0; i < info.n_tokens && i < 1000; i++)
        require(qdr_tokens_read(tokens, i, 1, &token) == QDR_OK ? token >= 0 : qdr_last_error()[0] != 0);
    for (int64_t i = 0; i <= info.n_evaluation && i < 200; i++) {
        if (qdr_tokens_validate(tokens, i, 1, 0, &(qdr_token_rows){QDR_INIT(qdr_token_rows), read, targets, keys}) !=
            QDR_OK)
            continue;
        for (int row = 0, key = 0; row < CONTEXT; key = keys[row++])
            require(keys[row] >= key && keys[row] <= row && read[row] >= 0 && targets[row] >= -1);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes)
{
    static const uint8_t zeros[INDEXED_BYTES];
    if (n_bytes == 0) return 0;
    const int is_index = bytes[0] & 1;
    const qdr_token_source source = {QDR_INIT(qdr_token_source),
                                     .path = is_index ? fuzz_file(zeros, sizeof zeros, ".bin")
                                                      : fuzz_file(bytes + 1, n_bytes - 1, ".bin"),
                                     .weight = 1};
    if (!*index_path) atexit(remove_index);
    snprintf(index_path, sizeof index_path, "%.40s", source.path);
    memcpy(strrchr(index_path, '.'), ".idx", 4);
    if (is_index)
        write_index(bytes + 1, n_bytes - 1);
    else
        remove_index();
    const qdr_tokens_opts opts = {QDR_INIT(qdr_tokens_opts), .context = CONTEXT, .only_validation = 1,
                                  .documents = is_index ? QDR_DOCUMENTS_INDEX : QDR_DOCUMENTS_NONE};
    qdr_tokens *tokens;
    if (qdr_tokens_open(&source, 1, &opts, &tokens) == QDR_OK)
        read_all(tokens);
    else
        check_printable(qdr_last_error());
    qdr_tokens_close(&tokens);
    return 0;
}
