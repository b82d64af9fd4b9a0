/* SPDX-License-Identifier: Apache-2.0 */
/* The list of subcommands. */
#include "common/command.h"

const command *const commands[N_COMMANDS] = {&command_bench, &command_calibrate, &command_ckpt, &command_doctor,
                                             &command_env,   &command_linear,    &command_list, &command_mem,
                                             &command_plan,  &command_predict,   &command_topo, &command_trace,
                                             &command_verify};
