/* SPDX-License-Identifier: Apache-2.0 */
/* The list of findings. */
#include <stdarg.h>
#include <string.h>

#include "common/grow.h"
#include "doctor/doctor.h"

doctor_finding *doctor_add(doctor_report *report, const char *group, const char *name, doctor_state state,
                           const char *format, ...)
{
    static doctor_finding unseen;
    va_list arguments;
    const int fits = grow((void **)&report->findings, report->n, &report->capacity, 64, sizeof *report->findings);
    doctor_finding *finding = fits ? &report->findings[report->n++] : &unseen;
    report->is_short |= !fits;
    *finding = (doctor_finding){.group = group, .state = state, .secs = -1};
    snprintf(finding->name, sizeof finding->name, "%s", name);
    va_start(arguments, format);
    vsnprintf(finding->text, sizeof finding->text, format, arguments);
    va_end(arguments);
    return finding;
}

void doctor_advise(doctor_finding *finding, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(finding->remedy, sizeof finding->remedy, format, arguments);
    va_end(arguments);
}

void doctor_add_sentence(doctor_report *report, const char *group, const char *name, doctor_state state,
                         const char *sentence)
{
    const char *cut = strstr(sentence, "; ");
    const int length = cut ? (int)(cut - sentence) : (int)strlen(sentence);
    doctor_finding *finding = doctor_add(report, group, name, state, "%.*s", length, sentence);
    if (cut) doctor_advise(finding, "%s", cut + 2);
}

int doctor_count(const doctor_report *report, doctor_state state)
{
    int n = 0;
    for (int i = 0; i < report->n; i++) n += report->findings[i].state == state;
    return n;
}
