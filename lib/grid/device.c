/* SPDX-License-Identifier: Apache-2.0 */
/* Names of devices, as options and the environment give them. */
#include "grid/device.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_GPUS = 1024 };

qdr_status qdri_device_read(const char *text, qdri_device_choice *choice)
{
    const char *from = text ? "device" : "QDR_DEVICE";
    const char *name = text ? text : getenv("QDR_DEVICE");
    char *end = NULL;
    *choice = (qdri_device_choice){.gpu = -1};
    if (!name || !*name || strcmp(name, "cpu") == 0) return QDR_OK;
    choice->is_cuda = 1;
    if (strcmp(name, "cuda") == 0) return QDR_OK;
    if (strncmp(name, "cuda:", 5) == 0 && name[5] >= '0' && name[5] <= '9') {
        const long number = strtol(name + 5, &end, 10);
        choice->gpu = (int)number;
        if (*end == '\0' && number < MOST_GPUS) return QDR_OK;
    }
    return QDR_FAIL(QDR_ERR_ARGUMENT, "context: the %s \"%.40s\" is not known; use cpu, cuda, or cuda:N for GPU N",
                    from, name);
}
