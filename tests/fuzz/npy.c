/* SPDX-License-Identifier: Apache-2.0 */
/* Arbitrary bytes as a NumPy file: the reader accepts them or refuses them with one message, and never reads beyond
 * them. */
#include "common/npy.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes)
{
    npy_array array;
    failure why = {0};
    const int code = npy_parse(bytes, n_bytes, "fuzz", &array, &why);
    require(code == why.code && (code != 0) == (why.sentence[0] != 0));
    if (code != 0) check_printable(why.sentence);
    if (code == 0) {
        size_t data_bytes = qdr_dtype_bytes(array.dtype);
        for (int i = 0; i < array.n_dims; i++) data_bytes *= (size_t)array.shape[i];
        char *copy = malloc(data_bytes + 1); /* reads all that the reader promised */
        if (copy) memcpy(copy, array.data, data_bytes);
        free(copy);
    }
    npy_close(&array);
    return 0;
}
