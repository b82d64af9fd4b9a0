/* SPDX-License-Identifier: Apache-2.0 */
/* Saving and loading checkpoints while the n-th allocation, thread or call of the system fails on some rank, for every
 * n: all ranks get the same error from the same call, with a sentence; what was at the path is as it was, or the new
 * file is whole; nothing else is left; the next save gives the same bytes, and training goes on.
 *
 *   test_checkpoint --local P */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dist/dist.h"
#include "fault/inject.h"
#include "fault/trained.h"
#include "files/partial.h"
#include "quadrille_private/output.h"

enum { MOST_RANKS = 4, MOST_CALLS = 5000, PATH_BYTES = 128, WIDTH = 6 };

/* ---- between local ranks ---- */

typedef struct outcome {
    qdr_status status;
    int at_finish; /* the error is of qdr_checkpoint_finish() */
    char sentence[512];
} outcome;

/* Local ranks are threads; nothing here allocates, or opens a file. */
static struct {
    pthread_barrier_t barrier;
    int has_barrier;
    outcome outcomes[MOST_RANKS];
    long n_calls;
    int happened, n_descriptors;
    char folder[TRAINED_FOLDER_BYTES], path[PATH_BYTES];
    double whole; /* the digest of a file of the present state */
} shared;
static int n_ranks;

static void meet(void) { (void)pthread_barrier_wait(&shared.barrier); }

/* ---- files ---- */

static const char old_text[] = "what was there before";

static double digest_of(const char *name)
{
    struct stat info;
    FILE *file = fopen(name, "rb");
    DIST_CHECK(file && fstat(fileno(file), &info) == 0, "%s cannot be read", name);
    char *bytes = malloc((size_t)info.st_size + 1);
    DIST_CHECK(bytes && fread(bytes, 1, (size_t)info.st_size, file) == (size_t)info.st_size, "%s is short", name);
    const double digest = dist_digest(bytes, (size_t)info.st_size);
    free(bytes);
    fclose(file);
    return digest;
}

static void put_old(void)
{
    FILE *file = fopen(shared.path, "wb");
    DIST_CHECK(file && fwrite(old_text, 1, sizeof old_text, file) == sizeof old_text && fclose(file) == 0, "%s",
               shared.path);
}

static int is_there(const char *ending)
{
    char name[PATH_BYTES + 16];
    snprintf(name, sizeof name, "%s%s", shared.path, ending);
    return access(name, F_OK) == 0;
}

static void remove_there(const char *ending)
{
    char name[PATH_BYTES + 16];
    snprintf(name, sizeof name, "%s%s", shared.path, ending);
    (void)unlink(name);
}

/* Open files of this process. */
static int count_descriptors(void)
{
    int n = 0;
    DIR *all = opendir("/proc/self/fd");
    DIST_CHECK(all, "no /proc");
    while (readdir(all)) n++;
    (void)closedir(all);
    return n;
}

/* As any program would check it. */
static void verify(const char *name)
{
    qdr_safetensors *file;
    DIST_OK(qdr_safetensors_open(name, &file));
    DIST_CHECK(qdr_safetensors_count(file) > 0, "no tensors");
    for (int i = 0; i < qdr_safetensors_count(file); i++) DIST_OK(qdr_safetensors_verify(file, i));
    DIST_OK(qdr_safetensors_close(&file));
}

/* ---- one attempt ---- */

/* Memory of the header's JSON fails, too. Not while it is read: jansson 2.14 then loses letters, and succeeds. */
static void *allocate(size_t n_bytes) { return malloc(n_bytes); }
static void release(void *block) { free(block); }
void *__real_malloc(size_t n_bytes); /* the linker's name of malloc() itself */
static void *allocate_surely(size_t n_bytes) { return __real_malloc(n_bytes); }

typedef struct fault {
    const char *name;
    int kinds;
    inject_extent extent;
    int error;
    size_t n_bytes;
    enum { SUCCEEDS, FAILS, EITHER } then; /* what saving does if the call fails */
    int at_least; /* calls that there must be */
} fault;

typedef enum action { SAVE, SAVE_IN_BACKGROUND, LOAD, N_ACTIONS } action;
static const char *const action_names[] = {"save", "save in the background", "load"};

static outcome act(const trained *net, action what, int keep)
{
    const qdr_checkpoint_opts opts = {QDR_INIT(qdr_checkpoint_opts), .note = "a note", .keep = keep,
                                      .background = what == SAVE_IN_BACKGROUND};
    outcome mine = {.status = QDR_OK};
    qdr_checkpoint *pending = NULL;
    if (what == LOAD) {
        qdr_checkpoint_loaded loaded = {QDR_INIT(qdr_checkpoint_loaded)};
        mine.status = qdr_checkpoint_load(net->stack, net->optimizer, shared.path, &loaded);
        DIST_CHECK(mine.status != QDR_OK || strcmp(loaded.note, "a note") == 0, "another note");
        qdr_checkpoint_loaded_free(&loaded);
    } else {
        mine.status = qdr_checkpoint_save(net->stack, net->optimizer, shared.path, &opts, &pending);
        DIST_CHECK(mine.status == QDR_OK || !pending, "pending after an error");
    }
    if (pending) {
        (void)!qdr_checkpoint_poll(pending);
        mine.at_finish = 1;
        mine.status = qdr_checkpoint_finish(&pending);
    }
    if (mine.status != QDR_OK) snprintf(mine.sentence, sizeof mine.sentence, "%s", qdr_last_error());
    return mine;
}

static qdr_status try_once(const trained *net, int rank, const fault *f, long n, action what, int keep)
{
    meet();
    if (rank == 0) {
        json_set_alloc_funcs(what == LOAD ? allocate_surely : allocate, release);
        inject_file_error(f->error, f->n_bytes);
        inject_begin(f->kinds, n, f->extent);
    }
    meet();
    inject_use use = {0};
    inject_track(&use);
    shared.outcomes[rank] = act(net, what, keep);
    DIST_CHECK(use.now == 0, "%s, %s, call %ld: %zu bytes are left", action_names[what], f->name, n, use.now);
    inject_track(NULL);
    meet();
    if (rank == 0) {
        shared.happened = inject_happened();
        shared.n_calls = inject_end();
    }
    meet();
    return shared.outcomes[0].status;
}

/* On rank 0: what all ranks got. */
static void check_outcomes(const fault *f, action what, long n)
{
    const outcome *first = &shared.outcomes[0];
    for (int rank = 0; rank < n_ranks; rank++) {
        const outcome *mine = &shared.outcomes[rank];
        DIST_CHECK(mine->status == first->status && strcmp(mine->sentence, first->sentence) == 0 &&
                       mine->at_finish == first->at_finish,
                   "%s, %s, call %ld, rank %d: %d \"%s\"; rank 0: %d \"%s\"", action_names[what], f->name, n, rank,
                   (int)mine->status, mine->sentence, (int)first->status, first->sentence);
    }
    const int failed = first->status != QDR_OK;
    DIST_CHECK(shared.happened || !failed, "%s, %s: %s", action_names[what], f->name, first->sentence);
    DIST_CHECK(!shared.happened || f->then == EITHER || failed == (f->then == FAILS), "%s, %s, call %ld of %ld: \"%s\"",
               action_names[what], f->name, n, shared.n_calls, first->sentence);
    if (!failed) return;
    const qdr_status want = f->kinds == INJECT_MEMORY   ? QDR_ERR_MEMORY
                            : f->kinds == INJECT_THREAD ? QDR_ERR_THREAD
                                                        : QDR_ERR_IO;
    DIST_CHECK(first->status == want, "%s, %s, call %ld: %s \"%s\"", action_names[what], f->name, n,
               qdr_status_name(first->status), first->sentence);
    DIST_CHECK(want == QDR_ERR_MEMORY || (strstr(first->sentence, shared.path) && strchr(first->sentence, ';')),
               "%s, %s: no file or remedy: \"%s\"", action_names[what], f->name, first->sentence);
}

/* ---- every call ---- */

static void check_saved(const fault *f, action what, long n)
{
    const int failed = shared.outcomes[0].status != QDR_OK;
    const double want = failed ? dist_digest(old_text, sizeof old_text) : shared.whole;
    DIST_CHECK(digest_of(shared.path) == want, "%s, %s, call %ld: PATH is neither the old file nor the new one",
               action_names[what], f->name, n);
    DIST_CHECK(!is_there(".partial"), "%s, %s, call %ld: PATH.partial is left", action_names[what], f->name, n);
    if (!failed) put_old();
}

/* Which call is next to fail: on several ranks not each one, where there are many. */
static long next_of(const fault *f, action what, long n, uint64_t *seed)
{
    long most = 1;
    if (f->kinds == INJECT_MEMORY && what != LOAD) most = 8L * n_ranks;
    if (f->kinds == INJECT_WRITE || f->kinds == INJECT_READ) most = n_ranks;
    return n + (n_ranks > 1 ? 1 + (long)dist_below(seed, most) : 1);
}

/* After each failure the state is that of shared.whole. */
static void fail_each(trained *net, const fault *f, action what, int keep, uint64_t seed)
{
    const int rank = qdr_context_rank(qdr_grid_context(net->grid));
    static const fault none = {.name = "nothing"};
    long n_errors = 0;
    int goes_on = 1;
    for (long n = 0; goes_on; n = next_of(f, what, n, &seed)) {
        const qdr_status status = try_once(net, rank, f, n, what, keep);
        goes_on = shared.happened && n < MOST_CALLS;
        n_errors += status != QDR_OK;
        if (rank == 0) check_outcomes(f, what, n);
        if (rank == 0 && what != LOAD) check_saved(f, what, n);
        if (what == LOAD && status != QDR_OK) { /* once more */
            if (strstr(shared.outcomes[0].sentence, "undefined")) DIST_OK(try_once(net, rank, &none, -1, LOAD, 0));
        }
        if (keep && rank == 0)
            for (int i = 1; i <= keep; i++) {
                char ending[8];
                snprintf(ending, sizeof ending, ".%d", i);
                remove_there(ending);
            }
    }
    if (rank == 0) {
        printf("%s: %s: %ld calls, %ld errors\n", action_names[what], f->name, shared.n_calls, n_errors);
        DIST_CHECK(shared.n_calls >= f->at_least && !shared.happened, "%s: %s: %ld calls", action_names[what], f->name,
                   shared.n_calls);
    }
    /* A state that was damaged would show in the bytes. */
    if (what == LOAD && rank == 0) put_old();
    DIST_OK(try_once(net, rank, &none, -1, SAVE, 0));
    if (rank == 0) DIST_CHECK(digest_of(shared.path) == shared.whole, "%s: another state after errors", f->name);
    if (what != LOAD && rank == 0) put_old();
    meet();
}

static void train_on(trained *net, uint64_t seed)
{
    const int rank = qdr_context_rank(qdr_grid_context(net->grid));
    static const fault none = {.name = "nothing"};
    trained_step(net, seed);
    DIST_OK(try_once(net, rank, &none, -1, SAVE, 0));
    if (rank == 0) {
        verify(shared.path);
        DIST_CHECK(digest_of(shared.path) != shared.whole, "training does not change the file");
        shared.whole = digest_of(shared.path);
    }
    meet();
}

/* ---- the faults ---- */

static const fault memory[] = {
    {"no memory", INJECT_MEMORY, INJECT_ONCE, 0, 0, FAILS, 10},
    {"no memory from then on", INJECT_MEMORY, INJECT_ONWARDS, 0, 0, FAILS, 10},
};
static const fault threads[] = {{"no thread", INJECT_THREAD, INJECT_ONCE, 0, 0, FAILS, 1},
                                {"no threads", INJECT_THREAD, INJECT_ONWARDS, 0, 0, FAILS, 1}};
static const fault saving[] = {
    {"open EIO", INJECT_OPEN, INJECT_ONCE, EIO, 0, FAILS, 3},
    {"open EMFILE", INJECT_OPEN, INJECT_ONCE, EMFILE, 0, FAILS, 3},
    {"open EMFILE from then on", INJECT_OPEN, INJECT_ONWARDS, EMFILE, 0, FAILS, 3},
    {"pwrite EIO", INJECT_WRITE, INJECT_ONCE, EIO, 0, FAILS, 10},
    {"pwrite ENOSPC", INJECT_WRITE, INJECT_ONCE, ENOSPC, 0, FAILS, 10},
    {"pwrite ENOSPC from then on", INJECT_WRITE, INJECT_ONWARDS, ENOSPC, 0, FAILS, 10},
    {"pwrite EINTR", INJECT_WRITE, INJECT_ONCE, EINTR, 0, SUCCEEDS, 10},
    {"pwrite of 1 byte", INJECT_WRITE, INJECT_ONCE, 0, 1, SUCCEEDS, 10},
    {"pwrite of at most 3 bytes, each", INJECT_WRITE, INJECT_ONWARDS, 0, 3, SUCCEEDS, 10},
    {"pwrite of 0 bytes", INJECT_WRITE, INJECT_ONCE, 0, 0, FAILS, 10},
    {"fallocate ENOSPC", INJECT_RESERVE, INJECT_ONCE, ENOSPC, 0, FAILS, 1},
    {"fallocate EINTR", INJECT_RESERVE, INJECT_ONCE, EINTR, 0, SUCCEEDS, 1},
    {"fallocate EOPNOTSUPP", INJECT_RESERVE, INJECT_ONCE, EOPNOTSUPP, 0, SUCCEEDS, 1},
    {"fallocate ENOSYS", INJECT_RESERVE, INJECT_ONCE, ENOSYS, 0, SUCCEEDS, 1},
    {"fallocate EINVAL", INJECT_RESERVE, INJECT_ONCE, EINVAL, 0, SUCCEEDS, 1},
    {"fallocate and ftruncate EOPNOTSUPP", INJECT_RESERVE | INJECT_TRUNCATE, INJECT_ONWARDS, EOPNOTSUPP, 0, FAILS, 1},
    {"fsync EIO", INJECT_SYNC, INJECT_ONCE, EIO, 0, EITHER, 4}, /* that of the folder is a warning */
    {"fsync EIO from then on", INJECT_SYNC, INJECT_ONWARDS, EIO, 0, EITHER, 4},
    {"fsync EINTR", INJECT_SYNC, INJECT_ONCE, EINTR, 0, SUCCEEDS, 4},
    {"renameat EIO", INJECT_RENAME, INJECT_ONCE, EIO, 0, FAILS, 1},
    {"flock ENOLCK", INJECT_LOCK, INJECT_ONCE, ENOLCK, 0, SUCCEEDS, 1},
    {"close EIO", INJECT_CLOSE, INJECT_ONWARDS, EIO, 0, SUCCEEDS, 2},
};
static const fault keeping[] = {
    {"renameat EIO", INJECT_RENAME, INJECT_ONCE, EIO, 0, EITHER, 2}, /* those of older files are warnings */
    {"linkat EIO", INJECT_LINK, INJECT_ONCE, EIO, 0, FAILS, 1},
};
static const fault loading[] = {
    {"open EIO", INJECT_OPEN, INJECT_ONCE, EIO, 0, FAILS, 1},
    {"open EMFILE from then on", INJECT_OPEN, INJECT_ONWARDS, EMFILE, 0, FAILS, 1},
    {"pread EIO", INJECT_READ, INJECT_ONCE, EIO, 0, FAILS, 10},
    {"pread EIO from then on", INJECT_READ, INJECT_ONWARDS, EIO, 0, FAILS, 10},
    {"pread EINTR", INJECT_READ, INJECT_ONCE, EINTR, 0, SUCCEEDS, 10},
    {"pread of 1 byte", INJECT_READ, INJECT_ONCE, 0, 1, SUCCEEDS, 10},
    {"pread of at most 3 bytes, each", INJECT_READ, INJECT_ONWARDS, 0, 3, SUCCEEDS, 10},
    {"pread of 0 bytes", INJECT_READ, INJECT_ONCE, 0, 0, FAILS, 10},
    {"close EIO", INJECT_CLOSE, INJECT_ONWARDS, EIO, 0, SUCCEEDS, 2},
};
#define N_OF(list) (sizeof(list) / sizeof *(list))

static trained begin(qdr_context *ctx)
{
    trained net = trained_create(ctx, 2, WIDTH, QDR_BF16);
    if (qdr_context_rank(ctx) == 0) {
        n_ranks = qdr_context_size(ctx);
        if (!shared.has_barrier) pthread_barrier_init(&shared.barrier, NULL, (unsigned)n_ranks);
        shared.has_barrier = 1;
        trained_folder(shared.folder);
        snprintf(shared.path, sizeof shared.path, "%s/a", shared.folder);
        shared.whole = 0;
    }
    DIST_OK(qdr_barrier(ctx));
    train_on(&net, 5);
    if (qdr_context_rank(ctx) == 0) {
        put_old();
        shared.n_descriptors = count_descriptors();
    }
    meet();
    return net;
}

static void end(trained *net)
{
    const int rank = qdr_context_rank(qdr_grid_context(net->grid));
    train_on(net, 9);
    if (rank == 0) {
        DIST_CHECK(count_descriptors() == shared.n_descriptors, "%d files are open, not %d", count_descriptors(),
                   shared.n_descriptors);
        remove_there("");
        DIST_CHECK(rmdir(shared.folder) == 0, "%s holds other files", shared.folder);
    }
    meet();
    trained_destroy(net);
}

DIST_TEST(saves_fail)
{
    trained net = begin(ctx);
    for (action what = SAVE; what <= SAVE_IN_BACKGROUND; what++) {
        for (size_t i = 0; i < N_OF(memory); i++) fail_each(&net, &memory[i], what, 0, seed);
        for (size_t i = 0; i < N_OF(saving); i++) fail_each(&net, &saving[i], what, 0, seed);
    }
    for (size_t i = 0; i < N_OF(threads); i++) fail_each(&net, &threads[i], SAVE_IN_BACKGROUND, 0, seed);
    end(&net);
}

DIST_TEST(loads_fail)
{
    static const fault none = {.name = "nothing"};
    trained net = begin(ctx);
    const int rank = qdr_context_rank(ctx);
    DIST_OK(try_once(&net, rank, &none, -1, SAVE, 0));
    for (size_t i = 0; i < N_OF(memory); i++) fail_each(&net, &memory[i], LOAD, 0, seed);
    for (size_t i = 0; i < N_OF(loading); i++) fail_each(&net, &loading[i], LOAD, 0, seed);
    end(&net);
}

/* ---- older files ---- */

static void check_ending(const char *ending, double want)
{
    char name[PATH_BYTES + 16];
    snprintf(name, sizeof name, "%s%s", shared.path, ending);
    DIST_CHECK(digest_of(name) == want, "%s is another file", name);
}

/* However often the rename fails, no older file goes. */
DIST_TEST(older_files_stay)
{
    static const fault none = {.name = "nothing"},
                       last = {"renameat EIO", INJECT_RENAME, INJECT_ONCE, EIO, 0, FAILS, 1};
    trained net = begin(ctx);
    const int rank = qdr_context_rank(ctx);
    double digests[3] = {0};
    for (size_t i = 0; i < N_OF(keeping); i++) fail_each(&net, &keeping[i], SAVE, 2, seed);
    for (int i = 0; i < 3; i++) {
        trained_step(&net, 20 + (uint64_t)i);
        DIST_OK(try_once(&net, rank, &none, -1, SAVE, 2));
        if (rank == 0) digests[i] = digest_of(shared.path);
    }
    for (int i = 0; i < 3; i++) {
        DIST_CHECK(try_once(&net, rank, &last, 0, i % 2 ? SAVE_IN_BACKGROUND : SAVE, 2) != QDR_OK, "no error");
        if (rank == 0) check_outcomes(&last, SAVE, i);
        if (rank == 0) check_ending("", digests[2]);
        if (rank == 0) check_ending(".1", digests[1]);
        if (rank == 0) check_ending(".2", digests[0]);
    }
    trained_step(&net, 30);
    DIST_OK(try_once(&net, rank, &none, -1, SAVE, 2));
    if (rank == 0) {
        verify(shared.path);
        check_ending(".1", digests[2]);
        check_ending(".2", digests[1]);
        remove_there(".1");
        remove_there(".2");
        shared.whole = digest_of(shared.path);
    }
    end(&net);
}

/* ---- power failures ---- */

static void check_synced(const char *what)
{
    const inject_unsynced left = inject_unsynced_now();
    DIST_CHECK(left.files == 0 && left.folders == 0, "%s: %d files and %d folders were not synced", what, left.files,
               left.folders);
}

/* Every rank syncs what it has written before the file gets its name, and rank 0 syncs the folder after that. */
DIST_TEST(files_are_synced_before_they_are_named)
{
    static const fault none = {.name = "nothing"};
    const int rank = qdr_context_rank(ctx);
    trained net = begin(ctx);
    for (action what = SAVE; what <= SAVE_IN_BACKGROUND; what++)
        for (int keep = 0; keep <= 1; keep++) {
            meet();
            if (rank == 0) inject_unsynced_begin();
            DIST_OK(try_once(&net, rank, &none, -1, what, keep));
            if (rank == 0) check_synced(action_names[what]);
        }
    if (rank == 0) {
        static const qdr_tensor tensor = {.name = "t", .type = "F32", .n_dims = 1, .shape = {2}};
        static const float values[2] = {1, 2};
        qdr_safetensors *file;
        remove_there(".1");
        inject_unsynced_begin();
        DIST_OK(qdr_safetensors_create(shared.path, &tensor, 1, NULL, &file));
        DIST_OK(qdr_safetensors_write(file, 0, 0, 2, values));
        DIST_OK(qdr_safetensors_close(&file));
        DIST_CHECK(inject_unsynced_now().files == 0, "tensors were not synced");
        for (qdr_output_kind kind = QDR_OUTPUT_REPLACE; kind <= QDR_OUTPUT_LOG; kind++) {
            qdr_output *output;
            remove_there("");
            DIST_OK(qdr_output_open("a file", shared.path, kind, &output));
            DIST_CHECK(fputs(old_text, qdr_output_file(output)) >= 0, "not written");
            DIST_OK(qdr_output_commit(&output));
            DIST_CHECK(inject_unsynced_now().files == 0, "kind %d: was not synced", (int)kind);
        }
    }
    end(&net);
}

/* ---- large files ---- */

#define G (INT64_C(1) << 30)

/* The only file of the folder beside PATH. */
static int open_draft(void)
{
    int number = -1;
    DIR *folder = opendir(shared.folder);
    DIST_CHECK(folder, "%s", shared.folder);
    for (const struct dirent *entry; (entry = readdir(folder));)
        if (strstr(entry->d_name, ".part")) number = openat(dirfd(folder), entry->d_name, O_RDONLY | O_CLOEXEC);
    (void)closedir(folder);
    DIST_CHECK(number >= 0, "no draft");
    return number;
}

/* Where no room can be reserved, the file has holes, and takes none. Elements are where 32 bits cannot count. */
DIST_TEST(large_tensors_are_in_their_places)
{
    static const qdr_tensor tensors[] = {{.name = "large", .type = "U8", .n_dims = 1, .shape = {5 * G}},
                                         {.name = "small", .type = "U8", .n_dims = 1, .shape = {8}}};
    static const int64_t at[] = {3, 2 * G - 4, 4 * G + 5, 5 * G - 8, 5 * G};
    trained net = begin(ctx);
    if (qdr_context_rank(ctx) == 0) {
        qdr_safetensors *file;
        struct stat info;
        inject_file_error(EOPNOTSUPP, 0);
        inject_begin(INJECT_RESERVE, 0, INJECT_ONWARDS);
        DIST_OK(qdr_safetensors_create(shared.path, tensors, 2, NULL, &file));
        DIST_CHECK(inject_happened(), "no room is reserved");
        (void)inject_end();
        const int number = open_draft();
        DIST_CHECK(fstat(number, &info) == 0 && info.st_size > 5 * G, "a draft of %lld bytes", (long long)info.st_size);
        for (int i = 0; i < 5; i++)
            DIST_OK(qdr_safetensors_write(file, i == 4, i == 4 ? 0 : at[i], sizeof *at, &at[i]));
        DIST_FAILS(qdr_safetensors_write(file, 0, 4 * G + 12, 1, at), QDR_ERR_ARGUMENT, "written before");
        const int64_t data_at = info.st_size - 5 * G - 8;
        DIST_CHECK(data_at > 0 && data_at % 4096 == 0 && data_at <= 1 << 16, "elements begin at %" PRId64, data_at);
        for (int i = 0; i < 5; i++) {
            int64_t found = -1;
            DIST_CHECK(pread(number, &found, sizeof found, data_at + at[i]) == sizeof found && found == at[i],
                       "byte %" PRId64 " has %" PRId64, at[i], found);
        }
        close(number);
        DIST_FAILS(qdr_safetensors_close(&file), QDR_ERR_STATE, "of the 5368709120 bytes of tensor large, 32 were");
    }
    end(&net);
}

/* ---- limits, locks ---- */

/* A limit on the size of files is an error of all ranks, not a signal that ends the process. */
DIST_TEST(files_have_a_limit)
{
    static const fault none = {.name = "nothing"};
    const int rank = qdr_context_rank(ctx);
    trained net = begin(ctx);
    struct rlimit old, low;
    DIST_CHECK(getrlimit(RLIMIT_FSIZE, &old) == 0, "no limits");
    low = (struct rlimit){.rlim_cur = 4096, .rlim_max = old.rlim_max};
    for (action what = SAVE; what <= SAVE_IN_BACKGROUND; what++)
        for (int reserves = 0; reserves < 2; reserves++) {
            static const fault no_room = {
                "fallocate EOPNOTSUPP", INJECT_RESERVE, INJECT_ONCE, EOPNOTSUPP, 0, EITHER, 1};
            if (rank == 0) DIST_CHECK(setrlimit(RLIMIT_FSIZE, &low) == 0, "not limited");
            (void)!try_once(&net, rank, reserves ? &none : &no_room, reserves ? -1 : 0, what, 0);
            if (rank == 0) DIST_CHECK(setrlimit(RLIMIT_FSIZE, &old) == 0, "still limited");
            meet();
            const outcome *mine = &shared.outcomes[rank];
            DIST_CHECK(mine->status == QDR_ERR_IO && strstr(mine->sentence, "ulimit -f") &&
                           strcmp(mine->sentence, shared.outcomes[0].sentence) == 0,
                       "%d \"%s\"", (int)mine->status, mine->sentence);
            if (rank == 0) check_saved(&none, what, 0);
            meet();
        }
    end(&net);
}

/* Where a file system has no locks, a run may take another one's draft for one that was left. The later run's file is
 * the one that counts, and the other run must not remove it. */
DIST_TEST(the_later_run_wins_without_locks)
{
    const int rank = qdr_context_rank(ctx);
    trained net = begin(ctx);
    if (rank == 0) {
        qdri_partial *first, *second;
        inject_file_error(ENOLCK, 0);
        inject_begin(INJECT_LOCK, 0, INJECT_ONWARDS);
        DIST_OK(qdri_partial_create(shared.path, &first));
        DIST_OK(qdri_partial_create(shared.path, &second));
        DIST_CHECK(inject_happened(), "no locks are asked for");
        (void)inject_end();
        DIST_CHECK(pwrite(qdri_partial_descriptor(second), "later", 5, 0) == 5 &&
                       ftruncate(qdri_partial_descriptor(second), 5) == 0,
                   "not written");
        DIST_FAILS(qdri_partial_commit(&first, 0), QDR_ERR_ARGUMENT, "another run is writing");
        DIST_CHECK(digest_of(shared.path) == dist_digest(old_text, sizeof old_text), "PATH has changed");
        DIST_OK(qdri_partial_commit(&second, 0));
        DIST_CHECK(digest_of(shared.path) == dist_digest("later", 5), "not the later file");
        DIST_CHECK(!is_there(".partial"), "PATH.partial is left");
    }
    end(&net);
}

/* ---- main ---- */

int main(int argc, char **argv)
{
    qdr_set_log(NULL, NULL); /* warnings of what a power failure may undo */
    return dist_main(argc, argv, NULL);
}
