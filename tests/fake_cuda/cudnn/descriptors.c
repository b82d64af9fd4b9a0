/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors: created, set, finalised, destroyed; each step is checked. */
#include "descriptors.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "attributes.h"
#include "entry.h"

#define COUNT(table) ((int)(sizeof(table) / sizeof *(table)))

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of the list */
static descriptor *all;

int64_t fake_cudnn_leaks(void)
{
    int64_t n = 0;
    for (const descriptor *d = all; d; d = d->next) n += !d->is_destroyed;
    return n;
}

descriptor *fake_cudnn_check(const void *handle, int kind, const char *call)
{
    descriptor *d;
    pthread_mutex_lock(&lock);
    for (d = all; d && d != handle; d = d->next) {}
    pthread_mutex_unlock(&lock);
    if (!d) fake_cudnn_wrong("%s: %p is no descriptor", call, handle);
    if (d->is_destroyed) fake_cudnn_wrong("%s: %p is destroyed", call, handle);
    if (kind >= 0 && d->kind != kind) fake_cudnn_wrong("%s: a descriptor of kind %d, not %d", call, d->kind, kind);
    return d;
}

const attribute *fake_cudnn_find(const descriptor *d, int name)
{
    for (int i = 0; i < ATTRIBUTES_MOST; i++)
        if (d->set[i].n && d->set[i].name == name) return &d->set[i];
    return NULL;
}

static int size_of(int type)
{
    switch (type) {
    case QDRI_CUDNN_OF_BOOL: return 1;
    case QDRI_CUDNN_OF_DATA_TYPE:
    case QDRI_CUDNN_OF_MODE:
    case QDRI_CUDNN_OF_REDUCTION:
    case QDRI_CUDNN_OF_HEURISTIC: return 4;
    default: return 8;
    }
}

int64_t fake_cudnn_word(const descriptor *d, int name, int otherwise)
{
    const attribute *a = fake_cudnn_find(d, name);
    int value;
    if (!a) return otherwise;
    memcpy(&value, a->values, sizeof value); /* a bool is padded by zeros */
    return value;
}

int64_t fake_cudnn_long(const descriptor *d, int name)
{
    const attribute *a = fake_cudnn_find(d, name);
    int64_t value;
    if (!a) fake_cudnn_wrong("attribute %d is not set", name);
    memcpy(&value, a->values, sizeof value);
    return value;
}

descriptor *fake_cudnn_desc(const descriptor *d, int name)
{
    const attribute *a = fake_cudnn_find(d, name);
    void *value;
    if (!a) return NULL;
    memcpy(&value, a->values, sizeof value);
    return fake_cudnn_check(value, -1, "an attribute's descriptor");
}

int cudnnBackendCreateDescriptor(int kind, void **desc)
{
    descriptor *made = calloc(1, sizeof *made);
    if (!made) fake_cudnn_wrong("there is no memory for a descriptor");
    made->kind = kind;
    pthread_mutex_lock(&lock);
    made->next = all;
    all = made;
    pthread_mutex_unlock(&lock);
    *desc = made;
    return QDRI_CUDNN_SUCCESS;
}

int cudnnBackendDestroyDescriptor(void *desc)
{
    fake_cudnn_check(desc, -1, "cudnnBackendDestroyDescriptor")->is_destroyed = 1;
    return QDRI_CUDNN_SUCCESS;
}

static void check_values(int type, int64_t n, const void *values)
{
    void *const *descs = values;
    if (type != QDRI_CUDNN_OF_DESCRIPTOR) return;
    for (int64_t i = 0; i < n; i++) {
        const descriptor *d = fake_cudnn_check(descs[i], -1, "a descriptor as a value");
        if (!d->is_final) fake_cudnn_wrong("a descriptor of kind %d is not final", d->kind);
    }
}

int cudnnBackendSetAttribute(void *desc, int name, int type, int64_t n, const void *values)
{
    descriptor *d = fake_cudnn_check(desc, -1, "cudnnBackendSetAttribute");
    int i = 0, at = 0;
    if (d->is_final) fake_cudnn_wrong("attribute %d is set of a final descriptor", name);
    while (i < COUNT(attributes) && (attributes[i].kind != d->kind || attributes[i].name != name)) i++;
    if (i == COUNT(attributes)) fake_cudnn_wrong("a descriptor of kind %d has no attribute %d", d->kind, name);
    if (type != attributes[i].type)
        fake_cudnn_wrong("attribute %d has type %d, not %d", name, attributes[i].type, type);
    if (n < 1 || n > attributes[i].most) fake_cudnn_wrong("attribute %d of %lld values", name, (long long)n);
    check_values(type, n, values);
    while (at < ATTRIBUTES_MOST && d->set[at].n) at++;
    if (at == ATTRIBUTES_MOST || fake_cudnn_find(d, name)) fake_cudnn_wrong("attribute %d is set a second time", name);
    d->set[at].name = name;
    d->set[at].n = n;
    memcpy(d->set[at].values, values, (size_t)(n * size_of(type)));
    return QDRI_CUDNN_SUCCESS;
}

int cudnnBackendFinalize(void *desc)
{
    descriptor *d = fake_cudnn_check(desc, -1, "cudnnBackendFinalize");
    if (d->is_final) fake_cudnn_wrong("a descriptor of kind %d is finalised twice", d->kind);
    for (int i = 0; i < COUNT(attributes); i++) {
        const attribute *a = fake_cudnn_find(d, attributes[i].name);
        if (attributes[i].kind == d->kind && (a ? a->n : 0) < attributes[i].least)
            fake_cudnn_wrong("a descriptor of kind %d lacks attribute %d", d->kind, attributes[i].name);
    }
    const int status = fake_cudnn_finish(d);
    d->is_final = status == QDRI_CUDNN_SUCCESS;
    return status;
}
