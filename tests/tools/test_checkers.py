#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Each checker is run on planted errors: a check that cannot fail checks nothing."""
import json
import os
import shutil
import subprocess
import tempfile
import unittest

import check_abi
import check_changelog
import check_collective
import check_duplicates
import check_figures
import check_layers
import check_records
import check_style
import check_symbols
import check_tidy

REPOSITORY = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
SPDX = "/* SPDX-License-Identifier: Apache-2.0 */\n"


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)
        shutil.copy(os.path.join(REPOSITORY, ".clang-format"), self.folder)

    def plant(self, path, text):
        full = os.path.join(self.folder, path)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, "w", encoding="utf-8") as file:
            file.write(text)
        return full


class Records(Case):
    """Of the repository's page and records, with one figure changed."""
    PLACE = "docs/benchmarks/gpu"

    def check(self, old, new):
        shutil.copytree(os.path.join(REPOSITORY, self.PLACE), os.path.join(self.folder, self.PLACE), dirs_exist_ok=True)
        with open(os.path.join(REPOSITORY, self.PLACE, "README.md"), encoding="utf-8") as file:
            text = file.read()
        self.assertIn(old, text)
        self.plant(f"{self.PLACE}/README.md", text.replace(old, new, 1))
        return list(check_records.problems(self.folder))

    def test_repository(self):
        self.assertEqual(list(check_records.problems(REPOSITORY)), [])

    def test_planted(self):
        for old, new, words in (("1.20 to 1.44", "1.21 to 1.44", "1.2046 to 1.4"),
                                ("1.20 to 1.44", "1.20", "1.2046 to 1.4"),
                                ("3.2e-8 to 3.8e-8", "3.2e-8 to 3.7e-8", "3.7516e-08"), ("`int8+feedback`", "", "0.60"),
                                ("2 of 3", "1 of 3", "2 of 3"), ("| 4 of 4 |", "| none |", "4 of 4"),
                                ("| `graph` | `hidden 4096` | `enqueued/replayed` | 2 of 3 |\n", "", "has no row"),
                                ("0.80 to 0.94 | 2026-11-26 02:54", "0.80 to 0.94 |", "0.26"),
                                ("6.5 to 8.2", "about 7", "no range"), ("`layer, ms`", "`layer`", "no record")):
            with self.subTest(new=new):
                self.assertIn(words, "; ".join(self.check(old, new)))

    def test_no_table(self):
        self.assertIn("0 figures", "; ".join(self.check("| what |", "| why |")))


class Figures(Case):
    PAGE = ("# Pages\n\n## Sums\n\n`sh sums.sh`:\n\n| a | 2.5 |\n| b | 4 |\n\n"
            "In 1 to 3 minutes, 90 % of 1,200 tokens/s, 12 GB.\n\n"
            "## Else\n\n    build/else\n\n7.5\n\n## Bare\n\n7.5 times\n\n## Gone\n\n`sh gone.sh`: 7.5\n")

    def check(self, readme):
        self.plant("docs/benchmarks.md", self.PAGE)
        self.plant("docs/other.md", self.PAGE)
        self.plant("sums.sh", "")
        self.plant("README.md", readme)
        return list(check_figures.problems(self.folder))

    def test_repository(self):
        self.assertEqual(list(check_figures.problems(REPOSITORY)), [])

    def test_clean(self):
        for text in ("4 to 2.5 times as fast ([how](docs/benchmarks.md#sums)).\n", "Nothing.\n\nversion 1.5\n",
                     "Measured ([how](docs/benchmarks.md#sums)):\n\n| x | 2.5 times |\n",
                     "90 %, 1,200\ntokens/s, at most 3\nminutes, 12 GB ([how](docs/benchmarks.md#sums))\n",
                     "    sh a.sh    # 3 minutes\n\nSee [how](docs/benchmarks.md#sums).\n",
                     "```sh\na    # 3 minutes\n```\n\nSee [how](docs/benchmarks.md#sums).\n",
                     "7.5 times ([how](docs/benchmarks.md#else))\n", "[how](docs/other.md#sums), grid 2x2x1x1\n"):
            with self.subTest(text=text):
                self.assertEqual(self.check(text), [])

    def test_faults(self):
        linked = " ([how](docs/benchmarks.md#sums))\n"
        for text in ("2.5 times as fast\n", "2.6 times" + linked, "2.5 to 7.5 times" + linked, "2 times" + linked,
                     "2.5\ntimes as fast\n", "2.5 to\n2.6 times" + linked, "2.6\nto 2.5 times" + linked,
                     "2.6 and 2.5 times" + linked, "2.6x as fast" + linked, "90 % of it\n", "91 %" + linked,
                     "(91%)" + linked, "90\n%\n", "4 %" + linked, "3 minutes\n", "4 minutes" + linked,
                     "at most 8\nminutes" + linked, "2 to 3 minutes" + linked, "3 seconds" + linked,
                     "1,300 tokens/s" + linked, "12 MB" + linked, "12 GB/s" + linked, "11 GiB\n", "200 Mbit/s" + linked,
                     "    sh a.sh    # 3 minutes\n\nSee.\n", "    sh a.sh    # 4 minutes\n\nSee" + linked,
                     "2.5 times ([how](docs/other.md#sums))\n", "7.5 times ([how](docs/benchmarks.md#bare))\n",
                     "7.5 times ([how](docs/benchmarks.md#gone))\n", "[how](docs/benchmarks.md#sum)\n",
                     "[how](docs/page.md#sums)\n", "See" + linked + "\n2.5 times\n"):
            with self.subTest(text=text):
                self.assertEqual(len(self.check(text)), 1)


class Layers(Case):
    def check(self, path, line):
        self.plant(path, line + "\n")
        return list(check_layers.problems(self.folder))

    def test_clean(self):
        for path, line in (("lib/grid/a.c", '#include "comm/comm.h"'), ("lib/dev/cpu/b.c", "#include <cblas.h>"),
                           ("lib/comm/mpi/send.c", "#include <mpi.h>"), ("src/c.c", "#include <quadrille/grid.h>"),
                           ("perfmodel/d.c", '#include "core/status.h"'), ("tests/e.c", "#include <cmocka.h>"),
                           ("lib/dev/f.c", "#include <pthread.h>"), ("lib/dev/g.c", '#include "dev/dev.h"'),
                           ("lib/grid/h.c", 'x = getenv("PMI_RANK");'), ("tests/i.c", 'x = getenv("QDR_TEST_SEED");'),
                           ("lib/core/variables.c", "x = secure_getenv(name);"),
                           ("src/plan/j.c", '#include "common/options.h"'),
                           ("examples/o.c", '#include "src/common/svg.h"'),
                           ("lib/schedule/k.c", "#include <jansson.h>"),
                           ("perfmodel/price/l.c", '#include "files/data.h"'),
                           ("lib/comm/mpi/m.c", '#include "comm/comm.h"'), ("lib/dev/n.cuh", "#include <utility>"),
                           ("src/common/p.c", "#include <quadrille_private/output.h>"),
                           ("include/quadrille_private/q.h", '#include "../quadrille/status.h"')):
            self.assertEqual(self.check(path, line), [], line)

    def test_faults(self):
        for path, line in (("lib/core/a.c", '#include "grid/internal.h"'),
                           ("lib/comm/b.c", '#include "linear/internal.h"'),
                           ("lib/grid/c.c", "#include <mpi.h>"), ("lib/grid/d.c", '#include "quadrille/mpi.h"'),
                           ("lib/dev/e.c", "#include <cblas.h>"), ("lib/ops/f.c", "#  include <hwloc.h>"),
                           ("lib/dev/g.c", "#include <dnnl_types.h>"), ("src/h.c", '#include "core/status.h"'),
                           ("examples/i.c", '#include "../lib/core/status.h"'),
                           ("perfmodel/j.c", '#include "dev/dev.h"'),
                           ("perfmodel/k.c", "#include <time.h>"), ("lib/core/l.c", "#include <pthread.h>"),
                           ("lib/ops/m.c", "#include <boost.h>"), ("include/quadrille/n.h", "#include <pthread.h>"),
                           ("lib/core/o.c", '#include "../grid/internal.h"'),
                           ("lib/linear/p.c", "#include <jansson.h>"), ("lib/grid/q.c", 'x = getenv("QDR_CHECK");'),
                           ("src/r.c", 'x = secure_getenv( "QDR_CHECK");'), ("examples/s.c", "x = getenv(name);"),
                           ("perfmodel/t.c", "x = getenv (NAME);"),
                           ("src/common/u.c", '#include "plan/plan.h"'), ("src/topo/v.c", '#include "trace/trace.h"'),
                           ("perfmodel/machine/w.c", '#include "price/price.h"'),
                           ("lib/comm/x.c", '#include "comm/nccl/internal.h"'),
                           ("lib/comm/mpi/y.c", '#include "comm/nccl/internal.h"'),
                           ("lib/context/z.c", '#include "grid/internal.h"'),
                           ("lib/core/za.c", '#include "schedule/net.h"'), ("src/new/zb.c", '#include "common/svg.h"'),
                           ("examples/zd.c", '#include "src/plan/plan.h"'),
                           ("lib/schedule/ze.c", '#include "price/price.h"'),
                           ("lib/dev/zf.c", '#include "dev/cpu/cpu.h"'),
                           ("lib/dev/cpu/zg.c", '#include "dev/cuda/cuda.h"'),
                           ("lib/dev/cuda/zc.cu", '#include "comm/comm.h"'),
                           ("examples/zh.c", "#include <quadrille_private/output.h>"),
                           ("include/quadrille/zi.h", "#include <quadrille_private/output.h>"),
                           ("include/quadrille/zj.h", '#include "../quadrille_private/output.h"')):
            with self.subTest(line=line, path=path):
                self.assertEqual(len(self.check(path, line)), 1)
                os.remove(os.path.join(self.folder, path))

    def link(self, sources):
        """What the objects of these sources have to complain of."""
        commands = []
        for path, text in sources.items():
            made = os.path.join("lib/libquadrille.a.p", path.replace("/", "_") + ".o")
            os.makedirs(os.path.join(self.folder, "build", os.path.dirname(made)), exist_ok=True)
            subprocess.run(["cc", "-c", self.plant(path, text), "-o", os.path.join(self.folder, "build", made)],
                           check=True)
            commands.append({"directory": os.path.join(self.folder, "build"), "file": "../" + path, "output": made})
        with open(os.path.join(self.folder, "build/compile_commands.json"), "w", encoding="utf-8") as file:
            json.dump(commands, file)
        return list(check_layers.check_objects(os.path.join(self.folder, "build")))

    def test_objects(self):
        calls, called = "void below(void);\nvoid above(void) { below(); }\n", "void below(void) {}\n"
        self.assertEqual(self.link({"lib/comm/a.c": calls, "lib/dev/b.c": called}), [])
        self.assertEqual(self.link({"lib/comm/mpi/a.c": calls, "lib/comm/b.c": called}), [])
        for above, below in (("lib/dev/a.c", "lib/comm/b.c"), ("lib/comm/a.c", "lib/comm/mpi/b.c"),
                             ("lib/core/a.c", "perfmodel/price/b.c"), ("lib/comm/mpi/a.c", "lib/comm/nccl/b.c")):
            with self.subTest(above=above, below=below):
                self.assertEqual(len(self.link({above: calls, below: called})), 1)

    def test_circles(self):
        """The first letter of each word is a file with a function, which calls those of the others."""
        for words, expected in (("abc bc c", []), ("ab ba", ["ab"]), ("ab bc ca", ["abc"]), ("abd bac cd d", ["ab"]),
                                ("abc bac cd dc", ["ab", "cd"])):
            with self.subTest(words=words):
                found = self.link({f"lib/grid/{word[0]}.c": "".join(f"void {name}(void);\n" for name in word) +
                                   f"void {word[0]}(void) {{ {''.join(name + '();' for name in word[1:])} }}\n"
                                   for word in words.split()})
                self.assertEqual([line.split(" call each other: ")[0] for line in found],
                                 [", ".join(f"lib/grid/{name}.c" for name in names) for names in expected])
        self.assertIn("lib/grid/c.c -> lib/grid/d.c by d", found[1])


class Collective(Case):
    LOWER = """qdr_status join(comm *member)
{
    QDR_MPI(MPI_Allgather(member));
    return QDR_OK;
}

static qdr_status both(comm *member) { return qdri_comm_agree(member, join(member)); }

"""

    def check(self, lines):
        self.plant("lib/comm/a.c", SPDX + self.LOWER + "static qdr_status split(comm *member)\n{\n" + lines + "}\n")
        return check_collective.problems(self.folder)

    def test_clean(self):
        for lines in ("    qdr_status status = alone(member);\n    QDR_TRY(qdri_comm_agree(member, status));\n"
                      "    return join(member);\n",
                      "    const qdr_status made = alone(member);\n    const qdr_status joined = join(member);\n"
                      "    return made;\n",
                      "    QDR_TRY(both(member));\n    QDR_TRY(qdri_comm_agree(member, alone(member)));\n"
                      "    return join(member);\n",
                      "    QDR_TRY(alone(member)); /* the same on all ranks */\n    return join(member);\n",
                      "    QDR_TRY(qdri_comm_agree(member, QDR_OK));\n    return alone(member);\n"):
            with self.subTest(lines=lines):
                self.assertEqual(self.check(lines), [])

    def test_faults(self):
        for lines in ("    qdr_status status = alone(member);\n    if (status == QDR_OK) status = join(member);\n"
                      "    return status;\n",
                      "    QDR_TRY(alone(member));\n    return join(member);\n",
                      "    QDR_TRY(alone(member));\n    return both(member);\n",
                      "    QDR_TRY(QDRI_NEW(1, \"a communicator\",\n                     &made));\n"
                      "    return join(member);\n",
                      "    if (made(member) != QDR_OK) return QDR_FAIL(QDR_ERR_MEMORY, \"none\");\n"
                      "    return join(member);\n",
                      "    qdr_status status = alone(member);\n    if (status != QDR_OK) return status;\n"
                      "    return join(member);\n",
                      "    qdr_status status = alone(member);\n    QDR_TRY_OUT(status, status);\n"
                      "    return join(member);\n"):
            with self.subTest(lines=lines):
                self.assertEqual(len(self.check(lines)), 1)


class Style(Case):
    def check(self, text, path="lib/core/a.c"):
        self.plant(path, text)
        return check_style.problems(self.folder)[0]

    def test_clean(self):
        self.assertEqual(self.check(SPDX + "int one(void) { return 1; }\n"), [])

    def test_faults(self):
        body = "    one();\n"
        for text in ("int one(void);\n", SPDX + "int one(void);\n\n", SPDX + "int one(void); \n",
                     SPDX + "int\tone(void);\n", SPDX + "int one(void);", SPDX + "int one (void);\n",
                     SPDX + "int one(void);\r\n", SPDX + "int x;\n" * 600,
                     SPDX + "void two(void)\n{\n" + body * 99 + "}\n", SPDX + "/* " + "x" * 120 + " */\n",
                     SPDX + "int *a, * b;\n", SPDX + "int* a;\n"):
            with self.subTest(text=text[:80]):
                self.assertNotEqual(self.check(text), [])

    def test_launches(self):
        self.assertEqual(self.check(SPDX + "void one(void) { two<<<1, 1>>>(); }\n", "examples/a.cu"), [])
        self.assertEqual(len(self.check(SPDX + "void one(void) { two<<<1, 1>>>(); }\n", "lib/dev/cuda/kernels/a.cu")),
                         1)

    def test_columns(self):
        most, spdx = "# " + "x " * 58 + "x", "# SPDX-License-Identifier: Apache-2.0\n"
        prose = ("a.md", "docs/a.md", "docs/man/a.1", "a.cmake.in", "packaging/debian/control", ".gitignore")
        for path in ("a.py", "a.sh", "b/meson.build", "meson_options.txt", "lib/.clang-tidy", *prose):
            begin, number = ("", 1) if path in prose else (spdx, 2)
            with self.subTest(path=path):
                self.assertEqual(self.check(f"{begin}{most}x\n", path), [])
                self.assertEqual(self.check(f"{begin}{most}xx\n", path),
                                 [f"{path}:{number}: 121 columns, more than 120"])
                os.remove(os.path.join(self.folder, path))
        self.assertEqual(self.check(f"{most}xx\n", "a.json"), [])

    def test_columns_of_markdown(self):
        long, word = "x " * 60 + "x\n", "x" * 121
        for text in ("| " + long, "```\n" + long + "```\n", "```console\n" + long + "```\n",
                     "a:\n\n    " + long + "\n    " + long, "- a\n\nb:\n\n    " + long, word + "\n",
                     f"- [a]({word})\n", f"![{word}](a.svg)\n", f"[a]: {word}\n"):
            with self.subTest(text=text[:20]):
                self.assertEqual(self.check(text, "a.md"), [])
        for text in (long, "```c\n" + long + "```\n", "```\na\n```\n" + long, "- a\n\n    " + long, "a\n    " + long,
                     "    a\n\n" + long, f"[a b]({word})\n", f"see {word}\n", "1. " + long):
            with self.subTest(text=text[:20]):
                self.assertEqual(len(self.check(text, "a.md")), 1)

    def test_limits_are_exact(self):
        self.assertEqual(self.check(SPDX + "int x;\n" * 599), [])
        self.assertEqual(self.check(SPDX + "void two(void)\n{\n" + "    one();\n" * 98 + "}\n"), [])


class Duplicates(Case):
    RUN = "    one();\n    two();\n    three();\n    four();\n    five();\n    six();\n"

    def check(self, text, path="lib/dev/b.c"):
        self.plant("lib/core/a.c", SPDX + "void a(void)\n{\n" + self.RUN + "}\n")
        full = self.plant(path, text)
        found = list(check_duplicates.problems(self.folder))
        os.remove(full)
        return found

    def test_clean(self):
        five = self.RUN[:self.RUN.index("    six")]
        for text in (five, five + "    seven();\n    six();\n", five + "    six(); seven();\n",
                     self.RUN.replace("three();", "/* three(); */"), self.RUN.replace("three();", "// three();"),
                     self.RUN.replace("two();", "two(); /*").replace("four();", "four(); */"),
                     self.RUN.replace("two()", 'two("/*")'), '#include "c.h"\n' * 12, "}\n" * 12,
                     "/*\n" + " * a\n" * 12 + " */\n", "    0,\n" * 11):
            with self.subTest(text=text):
                self.assertEqual(self.check(text), [])
        for path in ("tests/b.c", "lib/dev/b.md"):
            self.assertEqual(self.check(self.RUN, path), [])

    def test_faults(self):
        for text in (self.RUN, "    zero();\n" + self.RUN + "    seven();\n", self.RUN.replace("\n", "\n\n"),
                     self.RUN.replace("    ", "\t").replace(";", " ;").replace(" ;", ";"),
                     self.RUN.replace("    two", '/* 2 */\n#include "c.h"\n{\n    two'),
                     self.RUN.replace("four();", "four(); // 4"), self.RUN.replace("four", "/* 3,\n     * 4 */ four")):
            with self.subTest(text=text):
                self.assertEqual(len(self.check(text)), 1)
        for path in ("lib/dev/cuda/kernels/b.cu", "src/b.h", "perfmodel/b.c", "examples/b.cpp"):
            self.assertEqual(len(self.check(self.RUN, path)), 1)

    def test_within_a_file(self):
        other = self.RUN.replace("()", "(2)")
        self.assertEqual(self.check(SPDX + other + self.RUN + "\n" + other),
                         ["lib/dev/b.c:8: 6 lines of code that are also at lib/core/a.c:4; write them once",
                          "lib/dev/b.c:15: 6 lines of code that are also at lib/dev/b.c:2; write them once"])
        self.assertEqual(self.check("    0,\n" * 12),
                         ["lib/dev/b.c:7: 6 lines of code that are also at lib/dev/b.c:1; write them once"])


class Symbols(Case):
    def build(self, text, *options):
        source, library = self.plant("a.c", text), os.path.join(self.folder, "liba.so")
        subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source, *options], check=True)
        return list(check_symbols.problems(library))

    def test_clean(self):
        self.assertEqual(self.build("int qdr_one(void) { return 1; }\n"), [])

    def test_faults(self):
        for text in ("int qdr_one(void) { return 1; } int two(void) { return 2; }\n", "static int none;\n",
                     "int qdri_missing(void); int qdr_one(void) { return qdri_missing(); }\n",
                     "int qdr_one(void) { return 1; } int qdri_two;\n"):
            with self.subTest(text=text):
                self.assertEqual(len(self.build(text)), 1)

    def test_headers(self):
        """What is exported is declared, and has a version if and only if it is private."""
        versions = "-Wl,--version-script=" + self.plant("a.map", "QDR_PRIVATE_1 { qdr_own*; };\n")
        self.assertEqual(self.build("int qdr_one(void) { return 1; } int qdr_own(void) { return 2; }\n", versions), [])
        for text, n_found in (("QDR_API int qdr_one(void);\nQDR_PRIVATE_API int\nqdr_own(void);\n", 0), ("", 2),
                              ("QDR_API int qdr_one(void);\nQDR_API int qdr_own(void);\n", 1),
                              ("QDR_PRIVATE_API int qdr_one(void);\nQDR_PRIVATE_API int qdr_own(void);\n", 1)):
            self.plant("include/a/a.h", text)
            found = list(check_symbols.undeclared(self.folder + "/liba.so", self.folder + "/include"))
            self.assertEqual(len(found), n_found, found)

    def test_brought_by_another(self):
        """A symbol of a library that only another library names: it loads, by luck."""
        text = "double cbrt(double); double qdr_one(double x) { return cbrt(x); }\n"
        self.assertEqual(len(self.build(text)), 1)
        other = os.path.join(self.folder, "libother.so")
        source = self.plant("b.c", "double cbrt(double); double other(double x) { return cbrt(x); }\n")
        subprocess.run(["cc", "-shared", "-fPIC", "-o", other, source, "-lm"], check=True)
        self.assertEqual(len(self.build(text, other, "-Wl,-rpath," + self.folder, "-Wl,--no-as-needed")), 1)
        self.assertEqual(self.build(text, "-lm"), [])


class Abi(unittest.TestCase):
    RELEASE = ("#define QDR_MOST 5\ntypedef enum qdr_kind { QDR_A, QDR_B, QDR_C } qdr_kind;\n"
               "#define QDR_MAX_TERMS 9\ntypedef enum qdr_term { QDR_FIRST, QDR_LAST, QDR_N_TERMS } qdr_term;\n"
               "typedef enum qdr_axis { QDR_X, QDR_Y, QDR_N_AXES } qdr_axis;\n"
               "typedef struct qdr_block { int width, unit; } qdr_block;\n"
               "typedef struct qdr_opts { size_t size; int x; float y; qdr_kind kind; } qdr_opts;\n"
               "typedef struct qdr_part { double z; double room[2]; } qdr_part;\n"
               "int qdr_one(const qdr_opts *opts, qdr_block block) IN_BOTH;\nint qdr_two(double x) IN_RUNTIME;\n")

    def check(self, old, new):
        self.assertIn(old, self.RELEASE)
        return list(check_abi.problems(self.RELEASE, self.RELEASE.replace(old, new, 1)))

    def test_clean(self):
        for old, new in (("", ""), ("qdr_kind kind;", "qdr_kind kind; void *more, *less;"),
                         ("QDR_C }", "QDR_C, QDR_D }"), ("QDR_N_TERMS", "QDR_NEW, QDR_N_TERMS"),
                         ("x) IN_RUNTIME", "z) IN_BOTH"),
                         ("int qdr_two", "int qdr_three(void) IN_BOTH;\nint qdr_two"),
                         ("double room[2]", "double a, b"), ("double room[2]", "double a; double room[1]"),
                         ("double room[2]", "double a; double room[2 - 1]")):
            self.assertEqual(self.check(old, new), [], new)

    def test_faults(self):
        for old, new in (("5", "6"), (" IN_RUNTIME", ""), ("double x", "float x"), ("int qdr_two", "long qdr_two"),
                         ("int x; ", ""), ("int x; float y;", "float y; int x;"), ("int x;", "int x, z;"),
                         ("float y", "double y"), ("float y; qdr_kind kind;", "qdr_kind kind; void *more;"),
                         ("float y", "float z"), (" qdr_kind kind;", ""), ("QDR_B, ", ""), ("QDR_A", "QDR_N, QDR_A"),
                         ("QDR_N_TERMS", "QDR_NEW"), ("QDR_N_TERMS", "QDR_NEW, QDR_N_TERMS = 9"),
                         ("QDR_LAST, ", ""), ("QDR_LAST", "QDR_NEW, QDR_LAST"), ("QDR_N_AXES", "QDR_Z, QDR_N_AXES"),
                         ("QDR_C }", "QDR_C = 7 }"), ("unit;", "unit, more;"), ("IN_BOTH", "IN_RUNTIME"),
                         ("double room[2]", "double a, b, c"), ("double room[2]", "double a; int b; double room[1]"),
                         ("double room[2]", "double a; double room[2 - 2]")):
            with self.subTest(old=old, new=new):
                self.assertTrue(self.check(old, new))


@unittest.skipUnless(shutil.which("git"), "git is not installed")
class Changelog(Case):
    """Commits are lists of (path, text); the last change of the log is what headers are compared with."""

    def commit(self, *files):
        for path, text in files:
            self.plant(path, text)
        who = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
        check_changelog.git(self.folder, "add", ".")
        check_changelog.git(self.folder, *who, "commit", "-q", "-m", "a")

    def setUp(self):
        super().setUp()
        check_changelog.git(self.folder, "init", "-q")
        self.header = "include/quadrille/a.h"
        self.commit(("CHANGELOG.md", "a\n"), (self.header, "int a;\n"))

    def check(self):
        return check_changelog.problems(self.folder)

    def test_clean(self):
        self.assertEqual(self.check(), [])
        self.commit((self.header, "/** One a. */\nint  a;\n"), ("lib/a.h", "int b;\n"))
        self.assertEqual(self.check(), [])
        self.commit((self.header, "int b;\n"), ("CHANGELOG.md", "a\nb\n"))
        self.assertEqual(self.check(), [])
        self.plant(self.header, "int c;\n")
        self.plant("CHANGELOG.md", "a\nb\nc\n")
        self.assertEqual(self.check(), [])

    def test_faults(self):
        self.plant(self.header, "int b;\n")
        self.assertEqual(len(self.check()), 1)
        self.commit()
        self.assertEqual(len(self.check()), 1)
        self.commit(("include/quadrille/b.h", "int c;\n"))
        self.assertEqual(len(self.check()), 2)
        os.remove(os.path.join(self.folder, self.header))
        self.assertEqual(len(self.check()), 2)

    def test_sections(self):
        self.plant("meson.build", "project('a', 'c',\n  version: '1.2.3',\n  meson_version: '>= 1.0')\n")
        for text, n_found in (("## [Unreleased]\n\n## [1.2.3] - 2026-11-28\n\n## [1.0.0] - 2026-01-01\n", 0),
                              ("## [1.2.3] - 2026-11-28\n", 1), ("## [Unreleased]\n\n## [1.2.3]\n", 1),
                              ("## [Unreleased]\n\n## [1.2.4] - 2026-11-28\n", 1), ("## [Unreleased]\n", 1)):
            self.plant("CHANGELOG.md", text)
            self.assertEqual(len(list(check_changelog.sections(self.folder))), n_found, text)

    def test_no_history(self):
        self.commit((self.header, "int b;\n"))
        clone = os.path.join(self.folder, "clone")
        check_changelog.git(self.folder, "clone", "-q", "--depth", "1", "file://" + self.folder, clone)
        for folder in (clone, os.path.join(self.folder, "include")):
            with self.assertRaises(check_changelog.NoHistory):
                check_changelog.problems(folder)


@unittest.skipUnless(check_tidy.find_program(), "clang-tidy 14 is not installed")
class Setup(Case):
    """setup.sh, which run.sh of the tests and of the examples read."""

    def test_configures_once_and_removes_nothing(self):
        top = os.path.join(self.folder, "a [1] folder")
        os.makedirs(os.path.join(top, "build"))
        for name, text in (("meson.build", "project('p')\n"), ("build/results.csv", "mine\n")):
            with open(os.path.join(top, name), "w") as file:
                file.write(text)
        script = f". '{REPOSITORY}/tests/tools/setup.sh'; test_needs=; wanted_needs=; configure_in build"
        for is_first in (True, False):
            done = subprocess.run(["sh", "-c", script], cwd=top, capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual("Build type" in done.stdout, is_first, done.stdout)
            self.assertTrue(os.path.exists(os.path.join(top, "build/results.csv")))
        moved = os.path.join(self.folder, "moved")
        os.rename(top, moved)
        done = subprocess.run(["sh", "-c", script], cwd=moved, capture_output=True, text=True)
        self.assertIn("Build type", done.stdout, done.stderr)
        self.assertTrue(os.path.exists(os.path.join(moved, "build/results.csv")))


class Tidy(Case):
    def check(self, text, path="lib/core/a.c"):
        shutil.copy(os.path.join(REPOSITORY, ".clang-tidy"), self.folder)
        self.plant(path, text)
        command = {"directory": self.folder, "file": path, "arguments": ["cc", "-std=c11", "-c", path]}
        self.plant("build/compile_commands.json", json.dumps([command]))
        return check_tidy.problems(os.path.join(self.folder, "build"), self.folder, check_tidy.find_program())

    def test_clean(self):
        self.assertEqual(self.check("int one(const int *p) { return p ? *p : 0; }\n"), ([], 1))

    def test_faults(self):
        for text in ("int one(const int *p) { if (!p) return *p; return 1; }\n",
                     "#include <stdlib.h>\nint one(void) { int *p = malloc(4); return p ? 1 : 0; }\n",
                     "long one(int a, int b) { return a * b; }\n", "int one(void) { int x; return x; }\n",
                     "this is no C\n"):
            with self.subTest(text=text):
                self.assertEqual(len(self.check(text)[0]), 1)

    def test_other_folders_are_left_alone(self):
        self.assertEqual(self.check("long one(int a, int b) { return a * b; }\n", "tests/a.c"), ([], 0))


if __name__ == "__main__":
    unittest.main()
