/* SPDX-License-Identifier: Apache-2.0 */
/* CUDA's error messages. */
#include "internal.h"

typedef struct words {
    cudaError_t error;
    const char *name, *text;
} words;

#define WORDS(error, text)                                                                                             \
    {                                                                                                                  \
        error, #error, text                                                                                            \
    }

static const words all_words[] = {
    WORDS(cudaSuccess, "no error"),
    WORDS(cudaErrorInvalidValue, "invalid argument"),
    WORDS(cudaErrorMemoryAllocation, "out of memory"),
    WORDS(cudaErrorInsufficientDriver, "CUDA driver version is insufficient for CUDA runtime version"),
    WORDS(cudaErrorNoDevice, "no CUDA-capable device is detected"),
    WORDS(cudaErrorInvalidDevice, "invalid device ordinal"),
    WORDS(cudaErrorDevicesUnavailable, "CUDA-capable device(s) is/are busy or unavailable"),
    WORDS(cudaErrorPeerAccessUnsupported, "peer access is not supported between these two devices"),
    WORDS(cudaErrorPeerAccessAlreadyEnabled, "peer access is already enabled"),
    WORDS(cudaErrorPeerAccessNotEnabled, "peer access has not been enabled"),
    WORDS(cudaErrorInvalidResourceHandle, "invalid resource handle"),
    WORDS(cudaErrorIllegalState, "the operation cannot be performed in the present state"),
    WORDS(cudaErrorNotReady, "device not ready"),
    WORDS(cudaErrorIllegalAddress, "an illegal memory access was encountered"),
    WORDS(cudaErrorLaunchOutOfResources, "too many resources requested for launch"),
    WORDS(cudaErrorLaunchFailure, "unspecified launch failure"),
    WORDS(cudaErrorNotSupported, "operation not supported"),
    WORDS(cudaErrorSymbolNotFound, "named symbol not found"),
    WORDS(cudaErrorInvalidConfiguration, "invalid configuration argument"),
    WORDS(cudaErrorHostMemoryAlreadyRegistered, "part or all of the requested memory range is already mapped"),
    WORDS(cudaErrorInvalidPitchValue, "invalid pitch argument"),
    WORDS(cudaErrorStreamCaptureUnsupported, "operation not permitted when stream is capturing"),
    WORDS(cudaErrorStreamCaptureInvalidated, "operation failed due to a previous error during capture"),
    WORDS(cudaErrorStreamCaptureMerge, "operation would result in a merge of separate capture sequences"),
    WORDS(cudaErrorStreamCaptureUnmatched, "capture was not ended in the same stream as it began"),
    WORDS(cudaErrorStreamCaptureUnjoined, "capturing stream has unjoined work"),
    WORDS(cudaErrorStreamCaptureIsolation, "dependency created on uncaptured work in another stream"),
    WORDS(cudaErrorStreamCaptureImplicit,
          "operation would make the legacy stream depend on a capturing blocking stream"),
    WORDS(cudaErrorCapturedEvent, "operation not permitted on an event last recorded in a capturing stream"),
    WORDS(cudaErrorStreamCaptureWrongThread,
          "attempt to terminate a thread-local capture sequence from another thread"),
};

static const words *find(cudaError_t error)
{
    static const words unknown = {cudaErrorUnknown, "cudaErrorUnknown", "unknown error"};
    for (size_t i = 0; i < sizeof all_words / sizeof *all_words; i++) {
        if (all_words[i].error == error) return &all_words[i];
    }
    return &unknown;
}

const char *cudaGetErrorName(cudaError_t error) { return find(error)->name; }

const char *cudaGetErrorString(cudaError_t error) { return find(error)->text; }
