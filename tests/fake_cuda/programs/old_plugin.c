/* SPDX-License-Identifier: Apache-2.0 */
/* A plugin from a different build, of which nothing else may be used. */
#include "dev/plugin.h"

QDR_API extern const qdri_plugin qdr_cuda_plugin;
const qdri_plugin qdr_cuda_plugin = {.build = "0.0.0 of a test"};
