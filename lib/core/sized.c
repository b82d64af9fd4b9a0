/* SPDX-License-Identifier: Apache-2.0 */
#include "core/sized.h"

#include <string.h>

/* A struct that is so much larger than this library's is not a newer one: its size was never set. */
enum { MOST_NEW_BYTES = 4096 };

static size_t size_of(const void *given)
{
    size_t size;
    memcpy(&size, given, sizeof size);
    return size;
}

void *qdri_sized_item(const void *items, int i) { return (char *)items + (size_t)i * size_of(items); }

static qdr_status check(const void *given, size_t bytes, const char *type)
{
    if (!given) return QDR_FAIL(QDR_ERR_ARGUMENT, "%s: the pointer is NULL; pass one", type);
    const size_t size = size_of(given);
    if (size >= sizeof size && size <= bytes + MOST_NEW_BYTES) return QDR_OK;
    return QDR_FAIL(QDR_ERR_ARGUMENT, "%s: its size is %zu, of about %zu; begin it with QDR_INIT(%s)", type, size,
                    bytes, type);
}

qdr_status qdri_take(const void *given, void *own, size_t bytes, const char *type)
{
    QDR_TRY(check(given, bytes, type));
    const size_t size = size_of(given), common = size < bytes ? size : bytes;
    const char *from = given;
    for (size_t i = bytes; i < size; i++)
        if (from[i])
            return QDR_FAIL(QDR_ERR_UNSUPPORTED,
                            "%s: it has %zu bytes, and sets byte %zu, but this library knows %zu; leave newer members "
                            "zero, or use a newer library",
                            type, size, i, bytes);
    memset(own, 0, bytes);
    memcpy(own, given, common);
    memcpy(own, &bytes, sizeof bytes);
    return QDR_OK;
}

void qdri_give(void *given, const void *own, size_t bytes)
{
    const size_t size = size_of(given), common = size < bytes ? size : bytes;
    if (common > sizeof size)
        memcpy((char *)given + sizeof size, (const char *)own + sizeof size, common - sizeof size);
}

qdr_status qdri_clear(void *given, size_t bytes, const char *type)
{
    QDR_TRY(check(given, bytes, type));
    const size_t size = size_of(given), common = size < bytes ? size : bytes;
    memset((char *)given + sizeof size, 0, common - sizeof size);
    return QDR_OK;
}
