/* SPDX-License-Identifier: Apache-2.0 */
/* The file of choices: read as a whole, replaced as a whole. */
#include <errno.h>
#include <quadrille/output.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "core/environment.h"
#include "core/input.h"
#include "core/size.h"
#include "linear/tune.h"

enum { MOST_BYTES = 1 << 26 };

const char *qdri_tune_path(void)
{
    const char *path = qdri_environment_text(QDRI_VARIABLE_TUNE);
    return path && strcasecmp(path, "off") != 0 ? path : NULL;
}

qdr_status qdri_tune_load(const char *path, char **text, size_t *bytes)
{
    *text = NULL;
    *bytes = 0;
    if (access(path, F_OK) != 0 && errno == ENOENT) return QDR_OK;
    if (qdr_input_read(path, MOST_BYTES, text, bytes) == QDR_OK) return QDR_OK;
    char why[QDRI_ERROR_BYTES];
    snprintf(why, sizeof why, "%s", qdr_last_error());
    return QDR_FAIL(QDR_ERR_IO, "tune: %s; set QDR_TUNE to another file", why);
}

qdr_status qdri_tune_store(const char *path, const qdri_tune_table *table)
{
    qdr_output *output;
    QDR_TRY(qdr_output_open("QDR_TUNE", path, QDR_OUTPUT_REPLACE, &output));
    (void)qdri_tune_write(table, qdr_output_file(output)); /* the commit reports errors */
    return qdr_output_commit(&output);
}
