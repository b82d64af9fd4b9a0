/* SPDX-License-Identifier: Apache-2.0 */
/* Determines whether one file of a run would replace another. */
#include "files/check.h"

#include <errno.h>
#include <quadrille/data.h>
#include <quadrille/environment.h>
#include <quadrille/output.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/environment.h"
#include "core/size.h"
#include "core/status.h"
#include "files/path.h"

enum {
    MOST_NUMBERED = 1 << 20,
    MOST_FROM_ENVIRONMENT = 6, /* of the variables that name files */
    N_STANDARD = 2
};

/* Uses that are not in the caller's list. All inputs that the environment names are one use: they may be one file. */
enum { USE_STANDARD_ERROR = -5, USE_STANDARD_OUTPUT, USE_INPUTS, USE_TRACE, USE_TUNE };

/* Whether the last check refused its run. */
static atomic_int is_refused;

int qdri_files_refused(void) { return atomic_load(&is_refused); }

/* For an existing file: its device and inode, and an empty rest. Otherwise: those of the nearest existing folder above
 * it, and the rest of the path. */
typedef struct file_key {
    int is_known;
    mode_t mode; /* 0: it does not exist */
    dev_t device;
    ino_t inode;
    char rest[QDRI_PATH_BYTES];
} file_key;

typedef struct claim {
    const char *option, *path;
    int use; /* index in the list of files, or below 0 */
    int is_written, is_standard; /* is_standard: standard output or error, which the program has open */
    int numbers; /* PATH.0, PATH.1, … instead of PATH itself */
    int is_data; /* a data file: QDR_MACHINE's, or one that is written to be that */
    file_key key;
} claim;

static int is_same(const file_key *a, const file_key *b)
{
    return a->is_known && b->is_known && a->device == b->device && a->inode == b->inode &&
           strcmp(a->rest, b->rest) == 0;
}

/* ---- keys ---- */

static void set_info(file_key *key, const struct stat *info)
{
    *key = (file_key){.is_known = 1, .mode = info->st_mode, .device = info->st_dev, .inode = info->st_ino};
}

/* Prepends a component to the rest; "." and "" change nothing. */
static int put_in_front(file_key *key, const char *part)
{
    char rest[QDRI_PATH_BYTES];
    if (!*part || strcmp(part, ".") == 0) return 1;
    const int n = snprintf(rest, sizeof rest, "%s%s%.4000s", part, *key->rest ? "/" : "", key->rest);
    if (n >= (int)sizeof rest) return 0;
    memcpy(key->rest, rest, (size_t)n + 1);
    return 1;
}

/* Goes up from a folder that does not exist, such as one that the run will create. */
static void find_folder(char *folder, file_key *key)
{
    struct stat info;
    while (stat(folder, &info) != 0) {
        char *slash = strrchr(folder, '/');
        if (!put_in_front(key, slash ? slash + 1 : folder)) return;
        if (slash && slash != folder)
            *slash = '\0';
        else
            memcpy(folder, slash ? "/" : ".", 2);
        if (strcmp(folder, ".") == 0 && stat(folder, &info) != 0) return;
    }
    key->is_known = 1;
    key->device = info.st_dev;
    key->inode = info.st_ino;
}

static void find_key(const char *path, file_key *key)
{
    struct stat info;
    qdri_path resolved;
    memset(key, 0, sizeof *key);
    if (stat(path, &info) == 0) {
        set_info(key, &info);
        return;
    }
    if (qdri_path_resolve(path, &resolved) != 0) return;
    if (put_in_front(key, resolved.name)) find_folder(resolved.folder, key);
}

static void find_open_key(int number, file_key *key)
{
    struct stat info;
    memset(key, 0, sizeof *key);
    if (fstat(number, &info) == 0) set_info(key, &info);
}

/* ---- pairs ---- */

/* Whether the path is PATH.N for any N, in the same folder, whether or not such a file exists. */
static int has_number(const claim *numbered, const file_key *parent_of_numbered, const char *path)
{
    qdri_path resolved, stem;
    file_key folder = {0};
    if (qdri_path_resolve(path, &resolved) != 0 || qdri_path_resolve(numbered->path, &stem) != 0) return 0;
    const size_t bytes = strlen(stem.name);
    const char *digits = resolved.name + bytes + 1;
    if (strncmp(resolved.name, stem.name, bytes) != 0 || resolved.name[bytes] != '.' || !*digits ||
        digits[strspn(digits, "0123456789")])
        return 0;
    find_folder(resolved.folder, &folder);
    return is_same(&folder, parent_of_numbered);
}

static int includes(const claim *numbered, const claim *other)
{
    qdri_path resolved;
    file_key key = {0};
    char path[QDRI_PATH_BYTES];
    if (qdri_path_resolve(numbered->path, &resolved) != 0) return 0;
    find_folder(resolved.folder, &key);
    if (!other->is_standard && has_number(numbered, &key, other->path)) return 1;
    for (int i = 0; other->key.mode && i < MOST_NUMBERED; i++) {
        if (snprintf(path, sizeof path, "%s.%d", numbered->path, i) >= (int)sizeof path) return 0;
        find_key(path, &key);
        if (!key.mode && i > 0) break;
        if (key.mode && is_same(&key, &other->key)) return 1;
    }
    return 0;
}

/* Writing to a device replaces no other bytes; nor does writing two outputs to one FIFO. */
static int may_share(const claim *a, const claim *b)
{
    const mode_t mode = a->key.mode;
    if (!a->is_written && !b->is_written) return 1;
    if (a->is_standard && b->is_standard) return 1;
    if (a->is_data && b->is_data) return 1;
    if (a->numbers || b->numbers) return 0;
    if (S_ISCHR(mode)) return 1;
    return (S_ISFIFO(mode) || S_ISSOCK(mode)) && ((a->is_written && b->is_written) || a->is_standard || b->is_standard);
}

static qdr_status check_pair(const claim *a, const claim *b)
{
    if (may_share(a, b)) return QDR_OK;
    const int is_one = a->numbers == b->numbers ? is_same(&a->key, &b->key) /* or the same base name */
                       : a->numbers             ? includes(a, b)
                                                : includes(b, a);
    if (!is_one) return QDR_OK;
    const claim *lost = a->is_written ? b : a, *writer = a->is_written ? a : b;
    if (writer->is_standard) {
        lost = writer;
        writer = writer == a ? b : a;
    }
    return QDR_FAIL(QDR_ERR_ARGUMENT, "%s %.150s%s and %s%s%.150s%s name the same file; change one of them",
                    writer->option, writer->path, writer->numbers ? ".N" : "", lost->option, *lost->path ? " " : "",
                    lost->path, lost->numbers ? ".N" : "");
}

/* ---- the list ---- */

static void add(claim *claims, int *n, int use, const char *option, const char *path, qdr_file_access access)
{
    claim *made = &claims[(*n)++];
    *made = (claim){.use = use,
                    .option = option,
                    .path = path,
                    .is_written = access != QDR_FILE_READ && access != QDR_FILE_READ_RANKS,
                    .is_data = access == QDR_FILE_WRITTEN_DATA,
                    .numbers = access == QDR_FILE_READ_RANKS || access == QDR_FILE_WRITTEN_RANKS};
    if (access == QDR_FILE_READ && strcmp(path, "-") == 0)
        find_open_key(STDIN_FILENO, &made->key);
    else
        find_key(path, &made->key);
}

/* hwloc reads the file named by HWLOC_XMLFILE. */
static void add_environment(claim *claims, int *n, const char *machine)
{
    const char *tune = qdri_environment_text(QDRI_VARIABLE_TUNE), *trace = qdri_environment_text(QDRI_VARIABLE_TRACE);
    const char *topology = getenv("HWLOC_XMLFILE");
    if (tune && strcasecmp(tune, "off") != 0) add(claims, n, USE_TUNE, "QDR_TUNE", tune, QDR_FILE_WRITTEN);
    if (trace) add(claims, n, USE_TRACE, "QDR_TRACE", trace, QDR_FILE_WRITTEN_RANKS);
    if (topology && *topology) add(claims, n, USE_INPUTS, "HWLOC_XMLFILE", topology, QDR_FILE_READ);
    /* Libraries for the loader, which looks for names without a slash in its own folders. */
    const char *plugin = qdri_environment_text(QDRI_VARIABLE_CUDA_PLUGIN);
    const char *cudnn = qdri_environment_text(QDRI_VARIABLE_CUDNN);
    if (plugin && strchr(plugin, '/')) add(claims, n, USE_INPUTS, "QDR_CUDA_PLUGIN", plugin, QDR_FILE_READ);
    if (cudnn && strchr(cudnn, '/')) add(claims, n, USE_INPUTS, "QDR_CUDNN", cudnn, QDR_FILE_READ);
    if (!*machine) return;
    add(claims, n, USE_INPUTS, "QDR_MACHINE", machine, QDR_FILE_READ);
    claims[*n - 1].is_data = 1;
}

/* ---- data files ---- */

/* Looks a name up without a trace in the thread's last error: that a name is unknown is reported by its reader. */
static int find_data(const char *kind, const char *name, char path[QDRI_PATH_BYTES])
{
    qdri_kept_error kept;
    qdri_keep_last_error(&kept);
    const int is_found = qdr_data_find(kind, name, path, QDRI_PATH_BYTES) == QDR_OK;
    qdri_restore_last_error(&kept);
    return is_found;
}

/* A run finds models, machines and tables by names that also stand in tables, plans and other machines' files. So none
 * that a name leads to is an output, whether or not this run reads it. */
static qdr_status check_data(const claim *output)
{
    static const char *const kinds[] = {"machines", "models", "data"};
    char path[QDRI_PATH_BYTES];
    qdri_path resolved;
    if (!output->is_written || output->is_data || output->numbers || !S_ISREG(output->key.mode)) return QDR_OK;
    if (qdri_path_resolve(output->path, &resolved) != 0) return QDR_OK;
    char *ending = strrchr(resolved.name, '.');
    if (!ending || strcmp(ending, ".json") != 0) return QDR_OK;
    *ending = '\0';
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        claim data = {.option = "the data file", .path = path};
        if (!find_data(kinds[i], resolved.name, path)) continue;
        find_key(path, &data.key);
        QDR_TRY(check_pair(output, &data));
    }
    return QDR_OK;
}

/* ---- the check ---- */

static qdr_status check_uses(const qdr_file_use *uses, int n_uses, int n_ranks)
{
    claim *claims;
    int n = 0;
    char machine[QDRI_PATH_BYTES] = "";
    if (n_uses < 0 || n_ranks < 0 || (n_uses > 0 && !uses))
        return QDR_FAIL(QDR_ERR_ARGUMENT,
                        "files: %d uses of files and %d ranks; the list is NULL, or a number negative", n_uses,
                        n_ranks);
    for (int i = 0; i < n_uses; i++)
        if ((unsigned)uses[i].access > QDR_FILE_WRITTEN_DATA || !uses[i].option)
            return QDR_FAIL(QDR_ERR_ARGUMENT, "files: entry %d has no option, or the unknown access %d", i,
                            (int)uses[i].access);
    QDR_TRY(QDRI_NEW(2 * n_uses + MOST_FROM_ENVIRONMENT + N_STANDARD, "the files of a run", &claims));
    for (int i = 0; i < n_uses; i++) {
        if (!uses[i].path || !*uses[i].path) continue;
        add(claims, &n, i, uses[i].option, uses[i].path, uses[i].access);
        if (uses[i].access == QDR_FILE_LOG) /* older logs are kept */
            add(claims, &n, i, uses[i].option, uses[i].path, QDR_FILE_WRITTEN_RANKS);
    }
    if (n_ranks > 0 && !find_data("machines", qdr_environment_value("QDR_MACHINE"), machine)) machine[0] = '\0';
    if (n_ranks > 0) add_environment(claims, &n, machine);
    /* Standard output and error if they are regular files; terminals and pipes lose nothing. */
    for (int i = 0; i < N_STANDARD; i++) {
        claims[n] = (claim){.option = i ? "standard error" : "standard output",
                            .path = "",
                            .use = USE_STANDARD_OUTPUT - i,
                            .is_written = 1,
                            .is_standard = 1};
        find_open_key(i ? STDERR_FILENO : STDOUT_FILENO, &claims[n].key);
        n += S_ISREG(claims[n].key.mode);
    }
    qdr_status status = QDR_OK;
    for (int i = 0; i < n; i++)
        for (int j = i + 1; j < n && status == QDR_OK; j++)
            if (claims[i].use != claims[j].use) /* an option has no conflict with the names of its own older files */
                status = check_pair(&claims[i], &claims[j]);
    for (int i = 0; i < n && status == QDR_OK; i++)
        if (!claims[i].is_standard) status = check_data(&claims[i]);
    free(claims);
    return status;
}

qdr_status qdr_files_check(const qdr_file_use *uses, int n_uses, int n_ranks)
{
    const qdr_status status = check_uses(uses, n_uses, n_ranks);
    atomic_store(&is_refused, status != QDR_OK);
    return status;
}
