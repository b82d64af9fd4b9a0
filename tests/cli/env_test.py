#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`quadrille env`: the table of variables, its messages about wrong and unknown ones, and the comparison with the
manual page.

usage: env_test.py QUADRILLE MAN_PAGE
"""
import json
import os
import re
import subprocess
import sys
import unittest

QUADRILLE, MAN_PAGE = sys.argv[1:3]


def run(*words, **variables):
    clean = {name: value for name, value in os.environ.items() if not name.startswith("QDR_")}
    return subprocess.run([QUADRILLE, *words], stdin=subprocess.DEVNULL, capture_output=True, timeout=60, text=True,
                          env={**clean, **variables})


def table(code=0, **variables):
    done = run("env", "--json", **variables)
    assert done.returncode == code, done.stderr
    found = json.loads(done.stdout)
    return {variable["name"]: variable for variable in found["variables"]}, found["unknown"]


class Env(unittest.TestCase):
    def test_defaults(self):
        variables, unknown = table()
        self.assertEqual(unknown, [])
        self.assertGreaterEqual(len(variables), 19)
        for variable in variables.values():
            self.assertEqual((variable["value"], variable["is_set"]), (variable["default"], False))
        text = run("env").stdout
        for name in variables:
            self.assertIn(name, text)
        self.assertNotIn("environment)", text)

    def test_values_in_force(self):
        variables, _ = table(QDR_TIMEOUT="60", QDR_TRACE="/tmp/t", QDR_CHECK="")
        self.assertEqual((variables["QDR_TIMEOUT"]["value"], variables["QDR_TIMEOUT"]["is_set"]), ("60", True))
        self.assertEqual(variables["QDR_TRACE"]["value"], "/tmp/t")
        self.assertFalse(variables["QDR_CHECK"]["is_set"])
        self.assertRegex(run("env", QDR_TIMEOUT="60").stdout, r"QDR_TIMEOUT +60  \(environment\)")

    def test_wrong_values(self):
        """Refused by the table, and with the same message by a command that creates a context."""
        wrong = {"QDR_REPORT": "yes", "QDR_CHECK": "yes", "QDR_DEBUG": "abc", "QDR_TF32": "2", "QDR_DEVICE": "gpu"}
        for name, value in wrong.items():
            variables, _ = table(code=2, **{name: value})
            self.assertFalse(variables[name]["is_understood"])
            sentence = f'environment: {name} is "{value}"; use {variables[name]["values"]}'
            self.assertIn(sentence, run("env", **{name: value}).stderr)
            done = run("verify", "-n", "1", **{name: value})
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(sentence, done.stderr)

    def test_unknown_names(self):
        _, unknown = table(QDR_REPROT="1", QDR_TEST_SEED="3", QDRX="1")
        self.assertEqual(len(unknown), 1)
        self.assertIn("QDR_REPROT is not a variable of Quadrille; did you mean QDR_REPORT? See", unknown[0])
        self.assertIn("did you mean QDR_REPORT", run("env", QDR_REPROT="1").stdout)
        done = run("linear", "--help", QDR_REPROT="1")
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_commands_without_a_context(self):
        for words in (["plan", "gpt2", "-n", "2", "--machine", "laptop"], ["mem", "gpt2"], ["list", "models"], ["topo"],
                      ["predict", "/dev/null"], ["trace", "none"]):
            with self.subTest(command=words[0]):
                self.assertIn("warning: QDR_DATAPATH is not a variable of Quadrille; did you mean QDR_DATA_PATH?",
                              run(*words, QDR_DATAPATH="x").stderr)
                done = run(*words, QDR_TIMEOUT="nan")
                self.assertEqual((done.returncode, done.stdout), (2, ""))
                self.assertIn('QDR_TIMEOUT is "nan"; use', done.stderr)

    def test_manual(self):
        with open(MAN_PAGE, encoding="ascii") as file:
            section = re.search(r"^\.SH ENVIRONMENT\n(.*?)^\.SH ", file.read(), re.S | re.M).group(1)
        entries = dict(re.findall(r"^\.TP\n\.B (QDR_\w+)\n(.*?)(?=^\.TP|\Z)", section, re.S | re.M))
        variables, _ = table()
        self.assertEqual(sorted(entries), sorted(variables))
        for name, variable in variables.items():
            words = " ".join(entries[name].split())
            default = f" (default {variable['default']})" if variable["default"] else ""
            self.assertTrue(words.startswith(variable["values"] + default), f"{name}: {words}")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
