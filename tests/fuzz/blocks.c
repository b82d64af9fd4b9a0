/* SPDX-License-Identifier: Apache-2.0 */
/* Arbitrary bytes as a list of blocks: refused with a message, or divided into parts that cover the width and whose
 * columns can be found again. Bytes: width and unit of four blocks, then the number of parts. */
#include "core/block.h"
#include "fuzz.h"

enum { MAX_RUNS = 64 };

/* Walks the runs of a part, or the first of them where units are many. */
static void check_part(const qdr_block *blocks, int n_parts, int part, int64_t width)
{
    const int64_t n_cols = qdri_blocks_part(blocks, n_parts, part);
    int64_t local = 0, last = -1;
    require(n_cols >= 0 && n_cols <= width);
    for (int i = 0; i < MAX_RUNS && local < n_cols; i++) {
        int64_t run = 0;
        const int64_t global = qdri_blocks_global(blocks, n_parts, part, local, &run);
        require(run > 0 && run <= n_cols - local);
        require(global > last && global <= width - run);
        last = global + run - 1;
        local += run;
    }
    require(local == n_cols); /* a part has one run per block */
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes)
{
    qdr_block blocks[QDR_MAX_BLOCKS] = {{0, 0}};
    uint16_t n_parts = 0;
    memcpy(blocks, bytes, n_bytes < sizeof blocks ? n_bytes : sizeof blocks);
    if (n_bytes >= sizeof blocks + sizeof n_parts) memcpy(&n_parts, bytes + sizeof blocks, sizeof n_parts);
    n_parts = (uint16_t)(n_parts % 64 + 1);
    qdri_set_last_error("");
    if (qdri_blocks_check(blocks, "fuzz") != QDR_OK) {
        require(strncmp(qdr_last_error(), "fuzz: ", 6) == 0);
        return 0;
    }
    const int64_t width = qdri_blocks_width(blocks);
    int64_t sum = 0;
    for (int part = 0; part < n_parts; part++) {
        check_part(blocks, n_parts, part, width);
        sum += qdri_blocks_part(blocks, n_parts, part);
    }
    require(sum == width);
    require(qdri_blocks_equal(blocks, blocks));
    return 0;
}
