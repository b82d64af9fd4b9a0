/* SPDX-License-Identifier: Apache-2.0 */
/* `quadrille env`: the environment variables that the library reads, and their current values. */
#include <quadrille/environment.h>
#include <stdio.h>

#include "common/command.h"
#include "common/json.h"

static int print_text(failure *why)
{
    char sentence[256];
    for (int i = 0; i < qdr_environment_size(); i++) {
        qdr_variable v = {QDR_INIT(qdr_variable)};
        if (fail_status(why, qdr_environment_variable(i, &v))) return why->code;
        printf("%-19s  %s  (%s)\n", v.name, *v.value ? v.value : "-",
               !v.is_set         ? "default"
               : v.is_understood ? "environment"
                                 : "environment, not understood");
        printf("%-19s  %s: %s; default %s\n", "", v.room, v.meaning, *v.initial ? v.initial : "none");
        printf("%-19s  %s\n", "", v.values);
    }
    for (int i = 0; qdr_environment_unknown(i, sentence, sizeof sentence); i++) printf("\nunknown: %s\n", sentence);
    return EXIT_OK;
}

static int print_json(failure *why)
{
    char sentence[256];
    json_t *variables = json_array(), *unknown = json_array();
    for (int i = 0; i < qdr_environment_size(); i++) {
        qdr_variable v = {QDR_INIT(qdr_variable)};
        if (fail_status(why, qdr_environment_variable(i, &v))) break;
        json_t *object = json_pack("{ss ss ss ss ss ss sb sb}", "name", v.name, "value", v.value, "default", v.initial,
                                   "values", v.values, "room", v.room, "meaning", v.meaning, "is_set", v.is_set,
                                   "is_understood", v.is_understood);
        if (json_array_append_new(variables, object) != 0)
            fail(why, EXIT_FAILED, "env: %s is \"%.40s\", which is not UTF-8, or memory ran out", v.name, v.value);
    }
    for (int i = 0; qdr_environment_unknown(i, sentence, sizeof sentence); i++)
        json_array_append_new(unknown, json_string(sentence));
    return write_json(json_pack("{so so}", "variables", variables, "unknown", unknown), JSON_INDENT(2), "env", why);
}

static int run(int argc, char **argv)
{
    int is_json = 0;
    failure why = {0};
    if (!options_read(argc, argv, json_option, &is_json, NULL, &why)) {
        if (is_json)
            print_json(&why);
        else
            print_text(&why);
    }
    if (!why.code && qdr_environment_check() != QDR_OK) fail_status(&why, QDR_ERR_ARGUMENT);
    return why.code ? fail_print(&why) : EXIT_OK;
}

const command command_env = {
    .name = "env",
    .summary = "list the environment variables that the library reads, with their values",
    .text = "Lists each environment variable: its value, whether that comes from the environment or is the\n"
            "default, the part of the library that reads it, and its meaning. Unknown variables that begin\n"
            "with QDR_ follow. Exits with 2 if a value is invalid.",
    .options = json_option,
    .examples = "  quadrille env\n"
                "  QDR_TIMEOUT=60 quadrille env --json\n",
    .run = run,
};
