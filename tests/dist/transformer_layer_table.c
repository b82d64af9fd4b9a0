/* SPDX-License-Identifier: Apache-2.0 */
/* The program transformer_layer without its main(). */
#include "transformer_layer_table.h"

#define main transformer_layer_main
int transformer_layer_main(int argc, char **argv);
#include "examples/transformer_layer.c" /* NOLINT(bugprone-suspicious-include) */

const option_spec *const transformer_layer_table = specs;
