/* SPDX-License-Identifier: Apache-2.0 */
/* The option tables of the examples. */
#ifndef TEST_DIST_TRANSFORMER_LAYER_TABLE_H
#define TEST_DIST_TRANSFORMER_LAYER_TABLE_H

#include "common/options.h"

extern const option_spec settings_specs[]; /* of train */
extern const option_spec *const transformer_layer_table;

#endif
