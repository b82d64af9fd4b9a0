/* SPDX-License-Identifier: Apache-2.0 */
/* Arbitrary bytes as a file of choices: refused with one printable message, or accepted; accepted choices can be
 * written, and read again. */
#include "schedule/tune.h"
#include "fuzz.h"

static void check_again(const qdri_tune_table *table)
{
    qdri_tune_table again = {0};
    char *text = NULL;
    size_t n_bytes = 0;
    FILE *file = open_memstream(&text, &n_bytes);
    require(file != NULL && qdri_tune_write(table, file) && fclose(file) == 0);
    require(qdri_tune_read(text, n_bytes, "written", &again) == QDR_OK);
    require(again.n == table->n);
    for (int i = 0; i < table->n; i++) {
        const qdri_tune_choice *choice = qdri_tune_find(&again, &table->choices[i].key);
        require(choice && (choice->storage == QDR_OUT_IN || choice->storage == QDR_IN_OUT));
    }
    qdri_tune_free(&again);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes)
{
    qdri_tune_table table = {0};
    qdri_set_last_error("");
    if (qdri_tune_read((const char *)bytes, n_bytes, "fuzz", &table) == QDR_OK)
        check_again(&table);
    else
        check_line(qdr_last_error());
    qdri_tune_free(&table);
    return 0;
}
