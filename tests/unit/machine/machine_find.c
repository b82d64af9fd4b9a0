/* SPDX-License-Identifier: Apache-2.0 */
/* Machines by the names used in tables, in a folder of data files that the test writes. */
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#include "qdr_test.h"
#include "quadrille/machine.h"
#include "quadrille_private/data.h"

static char folder[] = "/tmp/quadrille-machines-XXXXXX";
static char path[128];

static const char *machine_path(const char *name)
{
    snprintf(path, sizeof path, "%s/machines/%s.json", folder, name);
    return path;
}

static void write_machine(const char *name, const char *more)
{
    FILE *file = fopen(machine_path(name), "w");
    assert_non_null(file);
    fprintf(file,
            "{\"name\": \"%s\", \"ranks_per_node\": 8, \"memory_GiB\": 80, \"memory_GBps\": 2000, "
            "\"bf16\": {\"peak_TFLOPS\": 312}, \"links\": [{\"name\": \"l\", \"ranks\": 0, "
            "\"rank_GBps\": 100}]%s}",
            name, more);
    assert_int_equal(fclose(file), 0);
}

FIXTURE(make_folder)
{
    if (!mkdtemp(folder)) return -1;
    snprintf(path, sizeof path, "%s/machines", folder);
    if (mkdir(path, 0700) != 0 || setenv("QDR_DATA_PATH", folder, 1) != 0) return -1;
    write_machine("test-alpha", ", \"aliases\": [\"Quux\", \"Quux Grand 40GB\"]");
    write_machine("test-beta", ", \"aliases\": [\"Quux Grand\"]");
    write_machine("test-gamma", "");
    return 0;
}

FIXTURE(remove_folder)
{
    static const char *const names[] = {"test-alpha", "test-beta", "test-gamma", "test-wrong"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) unlink(machine_path(names[i]));
    snprintf(path, sizeof path, "%s/machines", folder);
    rmdir(path);
    return rmdir(folder);
}

static void expect(const char *text, const char *name)
{
    qdr_machine machine = {QDR_INIT(qdr_machine)};
    CHECK_OK(qdr_machine_find(text, &machine));
    assert_string_equal(machine.name, name);
}

TEST(the_longest_alias_wins)
{
    expect("Quux", "test-alpha");
    expect("Quux cluster, 8 nodes", "test-alpha");
    expect("Quux Grand", "test-beta");
    expect("quux grand (80GB)", "test-beta");
    expect("Quux Grand 40GB x8", "test-alpha");
    expect("test-gamma", "test-gamma");
    expect("Test-Gamma", "test-gamma");
}

TEST(unknown_machines_are_refused)
{
    qdr_machine machine = {QDR_INIT(qdr_machine)};
    memset(&machine, 1, sizeof machine);
    machine.size = sizeof machine;
    CHECK_FAILS(qdr_machine_find("Qux Grand machine", &machine), QDR_ERR_ARGUMENT, "nearest: \"Quux Grand\"");
    assert_int_equal(machine.n_links, 0);
    CHECK_FAILS(qdr_machine_find("", &machine), QDR_ERR_ARGUMENT, "\"\"");
    CHECK_FAILS(qdr_machine_find("test-gamma and more\n", &machine), QDR_ERR_ARGUMENT, "more?");
    CHECK_FAILS(qdr_machine_find(NULL, &machine), QDR_ERR_ARGUMENT, "NULL");
    CHECK_FAILS(qdr_machine_find("Quux", NULL), QDR_ERR_ARGUMENT, "NULL");
}

TEST(wrong_aliases_are_refused)
{
    qdr_machine machine = {QDR_INIT(qdr_machine)};
    write_machine("test-wrong", ", \"aliases\": [7]");
    CHECK_FAILS(qdr_machine_find("Quux", &machine), QDR_ERR_ARGUMENT, "aliases");
    unlink(machine_path("test-wrong"));
    expect("Quux", "test-alpha");
}

TEST(data_files_are_found)
{
    char found[4096], small[4];
    CHECK_OK(qdr_data_find("machines", "test-beta", found, sizeof found));
    assert_string_equal(found, machine_path("test-beta"));
    CHECK_OK(qdr_data_find("machines", "some/where", found, sizeof found));
    assert_string_equal(found, "some/where");
    CHECK_FAILS(qdr_data_find("machines", "test-bet", found, sizeof found), QDR_ERR_ARGUMENT, "test-beta");
    assert_string_equal(found, "");
    CHECK_FAILS(qdr_data_find("machines", "test-beta", small, sizeof small), QDR_ERR_ARGUMENT, "room for 3");
    CHECK_FAILS(qdr_data_find(NULL, "x", found, sizeof found), QDR_ERR_ARGUMENT, "NULL");
    CHECK_FAILS(qdr_data_find("machines", "x", NULL, 0), QDR_ERR_ARGUMENT, "NULL");
}

int main(void) { return run_all_tests(make_folder, remove_folder); }
