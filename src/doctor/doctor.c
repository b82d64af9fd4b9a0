/* SPDX-License-Identifier: Apache-2.0 */
/* `quadrille doctor`: what this machine has, what works, what to do next. */
#define _DEFAULT_SOURCE 1 /* RLIMIT_MEMLOCK, RLIMIT_NPROC */
#include "doctor/doctor.h"

#include <math.h>
#include <quadrille/version.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>

#include "common/command.h"
#include "common/json.h"
#include "common/ranks.h"
#include "doctor/nodes.h"

/* ---- the build ---- */

static void add_part(doctor_report *report, const char *name, const char *version, const char *with,
                     const char *without, const char *remedy)
{
    if (strcmp(version, "none") == 0)
        doctor_advise(doctor_add(report, "build", name, DOCTOR_NOTE, "none: %s", without), "%s", remedy);
    else
        doctor_add(report, "build", name, DOCTOR_GOOD, "%s%s", version, with);
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

/* ---- the machine and the limits of this process ---- */

#define KIB 1024.0
#define GIB (KIB * KIB * KIB)
#define SHM "/dev/shm"
#define SHM_LEAST GIB

/* A resource limit of this process. */
typedef struct known_limit {
    const char *name, *text; /* JSON key; descriptive text */
    int resource; /* for getrlimit() */
    double unit; /* the unit of `ulimit`; 1: a count */
    double least; /* a smaller limit gets a remedy */
    const char *remedy;
} known_limit;
static const known_limit limits[] = {
    {"memory_lock", "locked memory (ulimit -l)", RLIMIT_MEMLOCK, KIB, GIB,
     "adapters that read memory by themselves (InfiniBand, RoCE, Slingshot) need it locked: ulimit -l unlimited, or "
     "'memlock unlimited' in /etc/security/limits.conf"},
    {"open_files", "open files (ulimit -n)", RLIMIT_NOFILE, 1, 1024,
     "each connection and each shared buffer is a file: ulimit -n 65536"},
    {"threads", "threads (ulimit -u)", RLIMIT_NPROC, 1, 4096,
     "each local rank has three threads and those of BLAS: ulimit -u 65536"},
    {"address_space", "address space (ulimit -v)", RLIMIT_AS, KIB, INFINITY,
     "BLAS, threads and CUDA take addresses far beyond what they use: ulimit -v unlimited, and limit memory by a "
     "control group"},
    {"stack", "stack (ulimit -s)", RLIMIT_STACK, KIB, KIB *KIB, "threads get stacks of this size: ulimit -s 8192"},
    {NULL, NULL, 0, 0, 0, NULL},
};

static double limit_now(const known_limit *limit)
{
    struct rlimit now;
    if (getrlimit(limit->resource, &now) != 0) return -1;
    return now.rlim_cur == RLIM_INFINITY ? (double)INFINITY : (double)now.rlim_cur;
}

static void add_shm(doctor_report *report)
{
    static const char remedy[] = "ranks of one node share memory there: mount -o remount,size=50% " SHM
                                 ", or docker run --shm-size=8g";
    struct statvfs is;
    char all[24], left[24];
    if (statvfs(SHM, &is) != 0) {
        doctor_advise(doctor_add(report, "limits", SHM, DOCTOR_NOTE, "there is none"), "%s", remedy);
        return;
    }
    const double unit = (double)is.f_frsize;
    doctor_bytes_text(unit * (double)is.f_blocks, all);
    doctor_bytes_text(unit * (double)is.f_bavail, left);
    const int is_small = unit * (double)is.f_bavail < SHM_LEAST;
    doctor_finding *finding = doctor_add(report, "limits", SHM, is_small ? DOCTOR_NOTE : DOCTOR_GOOD, "%s, %s free",
                                         all, left);
    if (is_small) doctor_advise(finding, "%s", remedy);
}

static void find_machine(doctor_report *report)
{
    const qdr_topo *topo = report->topo;
    if (topo) {
        const char *model = topo->n_packages && *qdr_topo_package_at(topo, 0)->model
                                ? qdr_topo_package_at(topo, 0)->model
                                : "unknown processor";
        char bytes[24];
        doctor_bytes_text((double)topo->bytes, bytes);
        doctor_add(report, "machine", "processors", DOCTOR_GOOD,
                   "%d package%s (%s), %d NUMA node%s, %d core%s, %d hardware thread%s, %s", topo->n_packages,
                   PLURAL(topo->n_packages), model, topo->n_numas, PLURAL(topo->n_numas), topo->n_cores,
                   PLURAL(topo->n_cores), topo->n_threads, PLURAL(topo->n_threads), bytes);
        /* A launcher that binds all ranks to one core is a frequent mistake. */
        const int is_narrow = topo->here.core >= 0 && topo->n_cores > 1;
        doctor_finding *finding = doctor_add(report, "machine", "binding", is_narrow ? DOCTOR_NOTE : DOCTOR_GOOD,
                                             "may run on hardware thread%s %s", strpbrk(topo->cpus, "-,") ? "s" : "",
                                             *topo->cpus ? topo->cpus : "?");
        if (is_narrow)
            doctor_advise(finding, "a rank's threads share this one core; bind each rank to several "
                                   "(srun --cpus-per-task, mpiexec -bind-to), or not at all");
        for (int i = 0; i < topo->n_nics; i++) {
            const qdr_topo_nic *nic = qdr_topo_nic_at(topo, i);
            char rate[32] = "unknown rate";
            if (nic->rate > 0) snprintf(rate, sizeof rate, "%.1f GB/s", nic->rate / 1e9);
            doctor_add(report, "machine", "adapter", DOCTOR_GOOD, "%s, %s%s%s", nic->name, rate,
                       *nic->bus ? ", PCI " : "", nic->bus);
        }
    }
    for (const known_limit *limit = limits; limit->name; limit++) {
        const double now = limit_now(limit);
        char text[24] = "unlimited";
        if (now < 0) continue;
        if (now < (double)INFINITY && limit->unit > 1) doctor_bytes_text(now, text);
        if (now < (double)INFINITY && limit->unit <= 1) snprintf(text, sizeof text, "%.0f", now);
        doctor_finding *finding = doctor_add(report, "limits", limit->text,
                                             now < limit->least ? DOCTOR_NOTE : DOCTOR_GOOD, "%s", text);
        if (now < limit->least) doctor_advise(finding, "%s", limit->remedy);
    }
    add_shm(report);
}

/* ---- environment variables ---- */

extern char **environ;

/* Names, and prefixes of names, which end in '_'. */
static const char *const wanted[] = {
    "QDR_",          "NCCL_", "MPICH_", "MPIR_CVAR_", "CUDA_",     "CUBLAS_", "CUBLASLT_",
    "HWLOC_",        "UCX_",  "FI_",    "OMP_",       "OPENBLAS_", "GOTO_",   "NVIDIA_VISIBLE_DEVICES",
    "SLURM_CPU_BIND"};
enum { N_WANTED = sizeof wanted / sizeof *wanted };

static int matters(const char *variable)
{
    for (int i = 0; i < N_WANTED; i++) {
        const size_t length = strlen(wanted[i]);
        if (strncmp(variable, wanted[i], length) != 0) continue;
        if (wanted[i][length - 1] == '_' || variable[length] == '=') return 1;
    }
    return 0;
}

static int by_name(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

/* Keeps pointers only: nothing that the doctor sets or unsets later overwrites the strings. */
static void keep_variables(doctor_report *report)
{
    size_t n = 0;
    while (environ[n]) n++;
    report->variables = calloc(n + 1, sizeof *report->variables);
    if (!report->variables) {
        report->is_short = 1;
        return;
    }
    memcpy(report->variables, environ, n * sizeof *report->variables);
    qsort(report->variables, n, sizeof *report->variables, by_name);
}

/* Calls `see` for each relevant variable that was found, in alphabetical order. */
static void for_variables(const doctor_report *report, void (*see)(const char *name, const char *value, void *user),
                          void *user)
{
    char name[128];
    for (char **variable = report->variables; variable && *variable; variable++) {
        const char *value = strchr(*variable, '=');
        if (!value || !matters(*variable)) continue;
        snprintf(name, sizeof name, "%.*s", (int)(value - *variable), *variable);
        see(name, value + 1, user);
    }
}

typedef struct known_trouble {
    const char *name, *value; /* value NULL: any */
    const char *remedy;
} known_trouble;

static const known_trouble troubles[] = {
    {"CUDA_LAUNCH_BLOCKING", "1", "the host waits for each kernel: unset it except to find a fault"},
    {"MPICH_ASYNC_PROGRESS", "1",
     "its threads take cores from products, and the library makes progress without them: unset it"},
    {"NCCL_P2P_DISABLE", "1", "data between GPUs goes through the host instead of NVLink: unset it"},
    {"NCCL_IB_DISABLE", "1", "data between nodes goes over sockets instead of InfiniBand: unset it"},
    {"NCCL_LAUNCH_ORDER_IMPLICIT", "0",
     "NCCL's kernels start in any order, and may wait for each other forever: unset it"},
    {"NCCL_LAUNCH_RACE_FATAL", "0",
     "threads that launch NCCL's kernels on one GPU are not stopped, and may wait for each other forever: unset it "
     "unless other libraries of the program launch, too"},
    {"NCCL_MAX_CTAS", NULL,
     "it overrides the library, whose communicators may then not fit on a GPU together, and wait for each other "
     "forever: unset it, or use QDR_NCCL_MAX_CTAS"},
    {"NCCL_MIN_CTAS", NULL,
     "it overrides the library, whose communicators may then not fit on a GPU together, and wait for each other "
     "forever: unset it"},
    {"NCCL_CGA_CLUSTER_SIZE", NULL,
     "it overrides the library's 1: clusters need neighbouring multiprocessors, which products do not leave free: "
     "unset it"},
    {"NCCL_LOCAL_REGISTER", "0", "NCCL copies what it could read in place: unset it"},
    {"NCCL_CUMEM_ENABLE", "0", "NCCL copies what it could read in place: unset it"},
    {"QDR_NCCL_REGISTER", "0", "NCCL copies what it could read in place: unset it for timings"},
    {"QDR_CHECK", "1", "each collective is preceded by another: unset it for timings"},
    {"QDR_CUDA_MEMORY", "managed", "it is for tests, and slow: unset it for timings"},
    {"HWLOC_XMLFILE", NULL, "another machine is described instead of this one: unset it"},
    {"HWLOC_SYNTHETIC", NULL, "another machine is described instead of this one: unset it"},
};
enum { N_TROUBLES = sizeof troubles / sizeof *troubles };

/* Values for which contexts are refused, and variables without effect. */
static void add_trouble(doctor_finding *finding, const char *name)
{
    char sentence[256];
    for (int i = 0; i < qdr_environment_size(); i++) {
        qdr_variable variable = {QDR_INIT(qdr_variable)};
        if (qdr_environment_variable(i, &variable) != QDR_OK || strcmp(variable.name, name) != 0) continue;
        if (variable.is_understood) return;
        finding->state = DOCTOR_BROKEN;
        doctor_advise(finding, "use %s, or unset it", variable.values);
    }
    for (int i = 0; qdr_environment_unknown(i, sentence, sizeof sentence); i++) {
        const size_t length = strcspn(sentence, " ");
        if (strlen(name) != length || strncmp(name, sentence, length) != 0) continue;
        finding->state = DOCTOR_NOTE;
        doctor_advise(finding, "%s", sentence);
    }
}

static void add_variable(const char *name, const char *value, void *user)
{
    doctor_finding *finding = doctor_add(user, "environment", name, DOCTOR_GOOD, "%s", *value ? value : "(empty)");
    add_trouble(finding, name);
    for (int i = 0; i < N_TROUBLES; i++) {
        if (strcmp(name, troubles[i].name) != 0) continue;
        if (troubles[i].value && strcmp(value, troubles[i].value) != 0) continue;
        finding->state = DOCTOR_NOTE;
        doctor_advise(finding, "%s", troubles[i].remedy);
    }
}

/* ---- JSON: null for what is unknown or unlimited ---- */

static json_t *version_or_null(int version) { return version ? json_integer(version) : json_null(); }

static json_t *findings(const doctor_report *report)
{
    json_t *list = json_array();
    for (int i = 0; i < report->n; i++) {
        const doctor_finding *f = &report->findings[i];
        json_array_append_new(list,
                              json_pack("{s:s, s:o, s:s, s:o, s:o, s:o}", "group", f->group, "name", json_text(f->name),
                                        "state", doctor_state_name(f->state), "text", json_text(f->text), "remedy",
                                        *f->remedy ? json_text(f->remedy) : json_null(), "secs",
                                        f->secs < 0 ? json_null() : json_real(f->secs)));
    }
    return list;
}

static json_t *gpus(const doctor_report *report)
{
    json_t *list = json_array();
    for (int i = 0; i < report->gpus.n_gpus; i++) {
        const qdr_gpu *gpu = &report->gpu[i];
        json_array_append_new(list,
                              json_pack("{s:i, s:s, s:o, s:s, s:[i,i], s:i, s:I, s:I}", "number", gpu->number, "status",
                                        qdr_status_name(gpu->status), "name", json_text(gpu->name), "bus", gpu->bus,
                                        "capability", gpu->major, gpu->minor, "multiprocessors", gpu->n_sms, "bytes",
                                        (json_int_t)gpu->bytes, "bytes_free", (json_int_t)gpu->bytes_free));
    }
    return list;
}

static json_t *links(const qdr_topo *topo)
{
    json_t *list = json_array();
    for (int i = 0; topo && i < topo->n_gpu_links; i++) {
        const qdr_topo_gpu_link *link = qdr_topo_gpu_link_at(topo, i);
        json_array_append_new(
            list, json_pack("{s:o, s:o, s:s, s:o, s:o}", "a", json_text(qdr_topo_gpu_at(topo, link->a)->bus), "b",
                            json_text(qdr_topo_gpu_at(topo, link->b)->bus), "link", qdr_link_name(link->link), "rate",
                            link->rate > 0 ? json_real(link->rate) : json_null(), "peer",
                            link->peer < 0 ? json_null() : json_boolean(link->peer)));
    }
    return list;
}

static json_t *versions(const qdr_gpu_report *g)
{
    const qdr_versions *v = qdr_get_versions();
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:o, s:o, s:o, s:o, s:o}", "quadrille", v->quadrille,
                     "compiler", v->compiler, "mpi", v->mpi, "blas", v->blas, "onednn", v->onednn, "hwloc", v->hwloc,
                     "zfp", v->zfp, "cuda_driver", version_or_null(g->driver), "cuda", version_or_null(g->runtime),
                     "cublaslt", version_or_null(g->cublaslt), "nccl", version_or_null(g->nccl), "cudnn",
                     version_or_null(g->cudnn));
}

static void set_variable(const char *name, const char *value, void *object)
{
    json_object_set_new(object, name, json_text(value));
}

static int print_json(const doctor_report *report, failure *why)
{
    const int n_broken = doctor_count(report, DOCTOR_BROKEN);
    json_t *environment = json_object(), *values = json_object();
    for (const known_limit *limit = limits; limit->name; limit++) {
        const double now = limit_now(limit);
        json_object_set_new(values, limit->name, now < 0 || isinf(now) ? json_null() : json_integer((json_int_t)now));
    }
    if (environment) for_variables(report, set_variable, environment);
    json_t *object = json_pack("{s:o, s:b, s:i, s:s, s:o, s:o, s:o, s:o, s:o, s:o}", "host",
                               json_text(report->topo ? report->topo->host : ""), "works", n_broken == 0, "broken",
                               n_broken, "gpu_status", qdr_status_name(report->gpus.status), "versions",
                               versions(&report->gpus), "gpus", gpus(report), "gpu_links", links(report->topo),
                               "limits", values, "environment", environment, "findings", findings(report));
    return write_json(object, JSON_INDENT(1), "doctor", why);
}

/* ---- the command ---- */

static int find_all(doctor_report *report, failure *why)
{
    const qdr_status status = qdr_topo_load(NULL, &report->topo);
    const qdr_versions *versions = qdr_get_versions();
    char library[64];
    doctor_library_text(library, sizeof library);
    doctor_add(report, "build", "quadrille", DOCTOR_GOOD, "%s, %s", library, versions->compiler);
    /* The thread level that the library requests and requires; what MPI grants is only known once it has started. */
    add_part(report, "MPI", versions->mpi, ", started with MPI_THREAD_MULTIPLE", "ranks are threads of one process",
             "for ranks on several nodes install libmpich-dev and mpich (or name another MPI: -Dmpi=NAME) and build "
             "again");
    add_part(report, "BLAS", versions->blas, "", "products on the CPU are plain C, on one thread",
             "for faster products on the CPU install libopenblas-dev and build again");
    add_part(report, "oneDNN", versions->onednn, "", "bf16 products on the CPU are converted to f32",
             "if the processor has bf16 (AVX-512 BF16, AMX) install libdnnl-dev and build again");
    add_part(
        report, "hwloc", versions->hwloc, "", "this machine counts as one package with one NUMA node",
        "for its caches, NUMA nodes and PCI switches, and recorded machines, install libhwloc-dev and build again");
    add_part(report, "zfp", versions->zfp, "", "there are no codecs of zfp, such as zfp:8",
             "to compare them with other codecs install libzfp-dev and build again");
    if (status != QDR_OK) doctor_add_sentence(report, "machine", "topology", DOCTOR_BROKEN, qdr_last_error());
    report->gpus.size = sizeof report->gpus;
    if (fail_status(why, qdr_gpu_query(&report->gpus))) return why->code;
    for (int i = 0; i < report->gpus.n_gpus; i++) {
        report->gpu[i].size = sizeof *report->gpu;
        if (fail_status(why, qdr_gpu_describe(i, &report->gpu[i]))) return why->code;
    }
    doctor_find_gpus(report);
    find_machine(report);
    for_variables(report, add_variable, report);
    /* Turns off tracing and tuning. */
    unsetenv("QDR_TRACE");
    unsetenv("QDR_TUNE");
    unsetenv("QDR_REPORT");
    doctor_try_all(report);
    if (report->is_short) fail_memory(why, "doctor: out of memory for the list of findings");
    return why->code;
}

typedef struct doctor_options {
    int is_each, is_json;
} doctor_options;
#define AT(member) .at = offsetof(doctor_options, member)

static const option_spec specs[] = {
    {"each", 0, NULL, "under a launcher: each process reports alone, without MPI", OPTION_FLAG, AT(is_each)},
    {"json", 0, NULL, "print one JSON object", OPTION_FLAG, AT(is_json)},
    {"timeout", 0, "SECS", "give up waiting for other ranks after this; 0: never (default: $QDR_TIMEOUT, else 60)",
     .kind = OPTION_TIMEOUT, .max = 1e6},
    OPTIONS_END,
};

static int run(int argc, char **argv)
{
    static doctor_report report; /* static because it is large */
    doctor_options options = {0};
    failure why = {0};
    const int is_launched = qdr_launched() != 1;
    keep_variables(&report);
    setenv("QDR_TIMEOUT", "60", 0); /* before the options, which take precedence */
    const int is_refused = options_read(argc, argv, specs, &options, NULL, &why);
    if (is_launched && !options.is_each) {
        free(report.variables);
        return is_refused ? fail_print_once(&why) : doctor_run_nodes(options.is_json);
    }
    if (!is_refused && !find_all(&report, &why)) {
        if (options.is_json)
            print_json(&report, &why);
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
            "environment; then runs a small product and a sum over two ranks on the CPU, on each GPU and with\n"
            "NCCL, and checks the results. Each finding is ok, none (not here, or not tried), a note (it\n"
            "works but could be better) or broken (it exists but does not work), the last two with a remedy.\n"
            "Exits with 1 if anything is broken; having no GPU is fine.\n"
            "\n"
            "Under a launcher, the ranks compare their nodes instead, and rank 0 prints one table: ranks,\n"
            "hardware threads to which they are bound, memory, /dev/shm, clock, adapters, GPUs, driver, the\n"
            "versions of library, MPI and NCCL, and where models and machines are read from; then a line with a\n"
            "remedy for each fact in which a node differs from most others. With --each MPI is not initialised,\n"
            "and each process reports on its own node as above.",
    .options = specs,
    .examples = "  quadrille doctor\n"
                "  quadrille doctor --json > doctor.json\n"
                "  srun -N 16 --ntasks-per-node=8 --mpi=pmi2 quadrille doctor\n"
                "  mpiexec -f hosts -ppn 8 quadrille doctor --json > nodes.json\n"
                "  srun -N 2 --ntasks-per-node=1 --mpi=none quadrille doctor --each\n",
    .run = run,
};
