/* SPDX-License-Identifier: Apache-2.0 */
/* As much of a driver as cuDNN needs to load the code that it has compiled, on a machine without a driver: code is
 * accepted unchecked, and nothing runs. */
#define SHOWN __attribute__((visibility("default")))

enum { SUCCESS = 0, STUB_LIBRARY = 34 };

/* Some handle. */
#define GIVES(name)                                                                                                    \
    SHOWN int name(void **handle);                                                                                     \
    int name(void **handle)                                                                                            \
    {                                                                                                                  \
        static int one;                                                                                                \
        *handle = &one;                                                                                                \
        return SUCCESS;                                                                                                \
    }
GIVES(cuLibraryLoadData)
GIVES(cuLibraryGetKernel)

#define DOES(name, status)                                                                                             \
    SHOWN int name(void);                                                                                              \
    int name(void) { return status; }
DOES(cuLibraryUnload, SUCCESS)
DOES(cuKernelSetAttribute, SUCCESS)
DOES(cuKernelGetAttribute, SUCCESS)

/* These are looked for, and not called. */
DOES(cuCtxGetCurrent, STUB_LIBRARY)
DOES(cuCtxGetLimit, STUB_LIBRARY)
DOES(cuCtxPopCurrent, STUB_LIBRARY)
DOES(cuCtxPushCurrent, STUB_LIBRARY)
DOES(cuDeviceGet, STUB_LIBRARY)
DOES(cuDeviceGetCount, STUB_LIBRARY)
DOES(cuDriverGetVersion, STUB_LIBRARY)
DOES(cuGetErrorName, STUB_LIBRARY)
DOES(cuGetErrorString, STUB_LIBRARY)
DOES(cuLaunchCooperativeKernel, STUB_LIBRARY)
DOES(cuLaunchKernel, STUB_LIBRARY)
DOES(cuLaunchKernelEx, STUB_LIBRARY)
DOES(cuLibraryLoadFromFile, STUB_LIBRARY)
DOES(cuLinkAddData, STUB_LIBRARY)
DOES(cuLinkComplete, STUB_LIBRARY)
DOES(cuLinkCreate, STUB_LIBRARY)
DOES(cuLinkDestroy, STUB_LIBRARY)
DOES(cuOccupancyMaxPotentialClusterSize, STUB_LIBRARY)
DOES(cuStreamGetCtx, STUB_LIBRARY)
