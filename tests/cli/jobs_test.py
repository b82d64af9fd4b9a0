#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs that are continued by a batch system.

usage: jobs_test.py
"""
import json
import os
import re
import subprocess
import tempfile
import unittest

DOCUMENT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../docs/checkpoint.md")


class Jobs(unittest.TestCase):
    """The script for Slurm in docs/checkpoint.md, with commands that are made up."""

    def queued_again(self, train_code, listing):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        folder = temporary.name
        with open(DOCUMENT, encoding="utf-8") as file:
            document = file.read()
        script = re.search(r"```sh\n(.*?)```", document, re.DOTALL).group(1)
        for name, text in (("srun", f"exit {train_code}"), ("quadrille", listing), ("scontrol", "echo queued")):
            path = os.path.join(folder, name)
            with open(path, "w", encoding="ascii") as file:
                file.write("#!/bin/sh\n" + text + "\n")
            os.chmod(path, 0o755)
        done = subprocess.run(["bash", "-c", script], capture_output=True, timeout=20, stdin=subprocess.DEVNULL,
                              env=os.environ | {"PATH": folder + ":" + os.environ["PATH"], "SLURM_JOB_ID": "7"})
        return b"queued" in done.stdout

    def test_only_what_is_not_complete_is_queued_again(self):
        half, whole = ["echo '" + json.dumps({"metadata": {"note": json.dumps({"step": step})}}) + "'"
                       for step in (500, 100000)]
        self.assertEqual([self.queued_again(0, half), self.queued_again(0, whole), self.queued_again(1, half),
                          self.queued_again(0, "exit 1"), self.queued_again(0, half + "; exit 1")],
                         [True, False, False, False, False])


if __name__ == "__main__":
    unittest.main()
