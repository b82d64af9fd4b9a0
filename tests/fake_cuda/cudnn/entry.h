/* SPDX-License-Identifier: Apache-2.0 */
/* The entry points of the fake cuDNN, the only symbols that the library exports. */
#ifndef FAKE_CUDNN_ENTRY_H
#define FAKE_CUDNN_ENTRY_H

#include "descriptors.h"

#define SHOWN __attribute__((visibility("default")))

SHOWN size_t cudnnGetVersion(void);
SHOWN int cudnnCreate(void **handle);
SHOWN int cudnnDestroy(void *handle);
SHOWN int cudnnSetStream(void *handle, cudaStream_t stream);
SHOWN const char *cudnnGetErrorString(int status);
SHOWN int cudnnBackendCreateDescriptor(int kind, void **desc);
SHOWN int cudnnBackendDestroyDescriptor(void *desc);
SHOWN int cudnnBackendSetAttribute(void *desc, int name, int type, int64_t n, const void *values);
SHOWN int cudnnBackendGetAttribute(void *desc, int name, int type, int64_t n, int64_t *n_got, void *values);
SHOWN int cudnnBackendFinalize(void *desc);
SHOWN int cudnnBackendExecute(void *handle, void *plan, void *pack);

/* engines.c: what is special about finalising this kind; a status. */
int fake_cudnn_finish(descriptor *d);
int64_t fake_cudnn_leaks(void); /* descriptors that were not destroyed */

#endif
