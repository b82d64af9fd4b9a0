/* SPDX-License-Identifier: Apache-2.0 */
#include "services.h"

#define SHOWN __attribute__((visibility("default")))

SHOWN extern const fake_services fake_cuda_services;
const fake_services fake_cuda_services = {
    .enqueue = fake_enqueue,
    .use = fake_use,
    .stream_device = fake_stream_device,
    .current_device = cudaGetDevice,
    .take_failure = fake_take_failure,
    .region = &fake_region,
};
