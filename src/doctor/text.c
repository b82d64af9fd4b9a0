/* SPDX-License-Identifier: Apache-2.0 */
/* Findings as text. */
#include <string.h>

#include "doctor/doctor.h"

static void print_finding(FILE *file, const doctor_finding *finding)
{
    fprintf(file, "  %-6s %-25s %s", doctor_state_name(finding->state), finding->name, finding->text);
    if (finding->secs >= 0) fprintf(file, ", %.3f ms", finding->secs * 1e3);
    fputc('\n', file);
    if (*finding->remedy) fprintf(file, "         -> %s\n", finding->remedy);
}

void doctor_print(FILE *file, const doctor_report *report)
{
    const char *group = "";
    const int n_broken = doctor_count(report, DOCTOR_BROKEN), n_notes = doctor_count(report, DOCTOR_NOTE);
    if (report->topo) fprintf(file, "%s\n", report->topo->host);
    for (int i = 0; i < report->n; i++) {
        if (strcmp(group, report->findings[i].group) != 0) fprintf(file, "\n%s\n", report->findings[i].group);
        group = report->findings[i].group;
        print_finding(file, &report->findings[i]);
    }
    if (n_broken)
        fprintf(file, "\n%d of %d findings %s broken", n_broken, report->n, n_broken == 1 ? "is" : "are");
    else
        fputs("\neverything found here works", file);
    fprintf(file, "; %d note%s\n", n_notes, PLURAL(n_notes));
}
