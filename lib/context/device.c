/* SPDX-License-Identifier: Apache-2.0 */
/* Device names in options and in the environment. */
#include "context/device.h"

#include "core/device_name.h"
#include "core/environment.h"

qdr_status qdri_device_read(const char *text, qdri_device_choice *choice)
{
    const char *name = text ? text : qdri_environment_text(QDRI_VARIABLE_DEVICE);
    const qdri_device_kind kind = name && *name ? qdri_device_name_read(name, &choice->gpu) : QDRI_DEVICE_CPU;
    choice->is_cuda = kind == QDRI_DEVICE_CUDA;
    if (!choice->is_cuda) choice->gpu = -1;
    if (kind != QDRI_DEVICE_UNKNOWN) return QDR_OK;
    return QDR_FAIL(QDR_ERR_ARGUMENT, "context: the %s \"%.40s\" is not known; use cpu, cuda, or cuda:N for GPU N",
                    text ? "device" : "QDR_DEVICE", name);
}
