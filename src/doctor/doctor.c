/* SPDX-License-Identifier: Apache-2.0 */
/* `quadrille doctor`: what this machine has, what works, what to do next. */
#include "doctor/doctor.h"

#include <quadrille/version.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "common/command.h"

/* ---- findings ---- */

static doctor_finding *next_finding(doctor_report *report)
{
    static doctor_finding unseen;
    if (report->n == report->capacity) {
        const int capacity = report->capacity ? 2 * report->capacity : 64;
        doctor_finding *list = realloc(report->findings, (size_t)capacity * sizeof *list);
        if (!list) {
            report->is_short = 1;
            return &unseen;
        }
        report->findings = list;
        report->capacity = capacity;
    }
    return &report->findings[report->n++];
}

doctor_finding *doctor_add(doctor_report *report, const char *group, const char *name, doctor_state state,
                           const char *format, ...)
{
    doctor_finding *finding = next_finding(report);
    va_list arguments;
    *finding = (doctor_finding){.group = group, .state = state, .secs = -1};
    snprintf(finding->name, sizeof finding->name, "%s", name);
    va_start(arguments, format);
    vsnprintf(finding->text, sizeof finding->text, format, arguments);
    va_end(arguments);
    return finding;
}

doctor_finding *doctor_advise(doctor_finding *finding, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(finding->remedy, sizeof finding->remedy, format, arguments);
    va_end(arguments);
    return finding;
}

doctor_finding *doctor_add_sentence(doctor_report *report, const char *group, const char *name, doctor_state state,
                                    const char *sentence)
{
    const char *cut = strstr(sentence, "; ");
    const int length = cut ? (int)(cut - sentence) : (int)strlen(sentence);
    doctor_finding *finding = doctor_add(report, group, name, state, "%.*s", length, sentence);
    return cut ? doctor_advise(finding, "%s", cut + 2) : finding;
}

int doctor_count(const doctor_report *report, doctor_state state)
{
    int n = 0;
    for (int i = 0; i < report->n; i++) n += report->findings[i].state == state;
    return n;
}

const char *doctor_state_name(doctor_state state)
{
    static const char *const names[] = {"ok", "note", "broken"};
    return names[state];
}

void doctor_bytes_text(double bytes, char text[24])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    int unit = 0;
    for (; bytes >= 1024 && unit < 4; unit++) bytes /= 1024;
    snprintf(text, 24, bytes == (double)(int64_t)bytes ? "%.0f %s" : "%.1f %s", bytes, units[unit]);
}

/* ---- the build ---- */

static int is_none(const char *version) { return strcmp(version, "none") == 0; }

static void add_part(doctor_report *report, const char *name, const char *version, const char *without,
                     const char *remedy)
{
    if (is_none(version))
        doctor_advise(doctor_add(report, "build", name, DOCTOR_NOTE, "none: %s", without), "%s", remedy);
    else
        doctor_add(report, "build", name, DOCTOR_GOOD, "%s", version);
}

static void find_build(doctor_report *report)
{
    const qdr_versions versions = qdr_get_versions();
    doctor_add(report, "build", "quadrille", DOCTOR_GOOD, "%s, %s", versions.quadrille, versions.compiler);
    /* The thread level that the library requests and requires; what MPI grants is only known once it has started. */
    if (is_none(versions.mpi))
        add_part(report, "MPI", versions.mpi, "ranks are threads of one process",
                 "for ranks on several nodes install libmpich-dev and mpich (or name another MPI: "
                 "-Dmpi=NAME) and build again");
    else
        doctor_add(report, "build", "MPI", DOCTOR_GOOD, "%s, started with MPI_THREAD_MULTIPLE", versions.mpi);
    add_part(report, "BLAS", versions.blas, "products on the CPU are plain C, on one thread",
             "for faster products on the CPU install libopenblas-dev and build again");
    add_part(report, "oneDNN", versions.onednn, "bf16 products on the CPU are converted to f32",
             "if the processor has bf16 (AVX-512 BF16, AMX) install libdnnl-dev and build again");
    add_part(report, "hwloc", versions.hwloc, "the topology comes from /sys and NVML",
             "for recorded machines and PCI switches install libhwloc-dev and build again");
}

static void print_text(const doctor_report *report)
{
    const char *group = "";
    const int n_broken = doctor_count(report, DOCTOR_BROKEN), n_notes = doctor_count(report, DOCTOR_NOTE);
    if (report->topo) printf("%s\n", report->topo->host);
    for (int i = 0; i < report->n; i++) {
        const doctor_finding *finding = &report->findings[i];
        if (strcmp(group, finding->group) != 0) printf("\n%s\n", finding->group);
        group = finding->group;
        printf("  %-6s %-25s %s", doctor_state_name(finding->state), finding->name, finding->text);
        if (finding->secs >= 0) printf(", %.3f ms", finding->secs * 1e3);
        putchar('\n');
        if (*finding->remedy) printf("         -> %s\n", finding->remedy);
    }
    if (n_broken)
        printf("\n%d of %d findings %s broken", n_broken, report->n, n_broken == 1 ? "is" : "are");
    else
        fputs("\neverything found here works", stdout);
    printf("; %d note%s\n", n_notes, PLURAL(n_notes));
}

/* ---- the command ---- */

static int find_all(doctor_report *report, failure *why)
{
    const qdr_status status = qdr_topo_load(NULL, &report->topo);
    find_build(report);
    if (status != QDR_OK) doctor_add_sentence(report, "machine", "topology", DOCTOR_BROKEN, qdr_last_error());
    if (fail_status(why, qdr_gpu_query(&report->gpus))) return why->code;
    doctor_find_gpus(report);
    doctor_find_machine(report);
    doctor_find_environment(report);
    /* Turns off tracing and tuning, and limits waiting. */
    unsetenv("QDR_TRACE");
    unsetenv("QDR_TUNE");
    unsetenv("QDR_REPORT");
    setenv("QDR_TIMEOUT", "60", 0);
    doctor_try_all(report);
    if (report->is_short) fail(why, EXIT_NOTHING_FITS, "doctor: out of memory for the list of findings");
    return why->code;
}

static int run(int argc, char **argv)
{
    static doctor_report report; /* static because it is large */
    int is_json = 0;
    failure why = {0};
    if (options_read(argc, argv, json_option, &is_json, NULL, &why)) return fail_print(&why);
    if (!find_all(&report, &why)) {
        if (is_json)
            doctor_print_json(&report, &why);
        else
            print_text(&report);
    }
    const int n_broken = doctor_count(&report, DOCTOR_BROKEN);
    free(report.findings);
    free(report.variables);
    qdr_topo_destroy(&report.topo);
    if (why.code) return fail_print(&why);
    return n_broken ? EXIT_FAILED : EXIT_OK;
}

const command command_doctor = {
    .name = "doctor",
    .summary = "check this machine and say how to fix what does not work",
    .text = "Lists the components of this build, GPUs and the links between them, cores, memory, limits and the\n"
            "environment; then runs a small product and a sum over two ranks on the CPU, on each GPU and with NCCL,\n"
            "and checks the results. Each finding is ok, a note (it works but could be better) or broken (it exists\n"
            "but does not work), with a remedy. Exits with 1 if anything is broken; having no GPU is fine. MPI is\n"
            "not initialised: under a launcher each process reports on its own node.",
    .options = json_option,
    .examples = "  quadrille doctor\n"
                "  quadrille doctor --json > doctor.json\n"
                "  srun -N 2 --ntasks-per-node=1 quadrille doctor\n",
    .run = run,
};
