#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""docs/first_job.md: its files are written and its commands run, in order, in one folder; what they print is compared.

A block whose first line names a file (```json small/config.json) is that file. In a ```console block, lines after "$ "
are commands, which a backslash continues; the lines that follow are all that one prints, where "..." stands for any
text in a line, and alone for any lines.

usage: first_job_test.py CHAPTER QUADRILLE EXAMPLES_DIR
"""
import os
import re

import cases
from cases import ARGUMENTS, calibrated, start

CHECKED = {"console", "json", "python", "sh"}


def blocks(text):
    """Language, file name, lines; and the number of the first line."""
    for block in re.finditer(r"^```(\w+) ?(\S*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        yield block.group(1), block.group(2), block.group(3), text.count("\n", 0, block.start()) + 2


def commands(block, number):
    """Of a console block: each command, the lines that it shall print, and the number of its line."""
    command = None
    for number, line in enumerate(block.splitlines(), number):
        if line.startswith("$ "):
            if command:
                yield command
            command = (line[2:], [], number)
        elif command[0].endswith("\\") and not command[1]:
            command = (command[0] + "\n" + line, [], command[2])
        else:
            command[1].append(line)
    yield command


def pattern(lines):
    words = ["(?:.*\n)*" if line == "..." else ".*".join(map(re.escape, line.split("..."))) + "\n" for line in lines]
    return re.compile("".join(words))


class Chapter(cases.Case):
    def run_command(self, command, lines, number):
        paths = os.path.dirname(ARGUMENTS.quadrille), ARGUMENTS.examples, os.environ["PATH"]
        done = calibrated(lambda: start("bash", "-e", "-o", "pipefail", "-c", "exec 2>&1\n" + command, cwd=self.folder,
                                        environment={"PATH": ":".join(paths)}))
        printed = "".join(line.rstrip() + "\n" for line in done.out.splitlines())
        self.assertEqual(done.returncode, 0, f"line {number}: {command}\n{printed}")
        self.assertTrue(pattern(lines).fullmatch(printed), f"line {number}: {command}\nprints\n{printed}and not\n"
                        + "\n".join(lines))

    def run_text(self, text):
        n_commands = 0
        for language, name, block, number in blocks(text):
            self.assertIn(language, CHECKED)
            if name:
                os.chmod(self.path(name, block), 0o755 if block.startswith("#!") else 0o644)
            else:
                self.assertEqual(language, "console", f"line {number}: a block without a file's name")
                for command in commands(block, number):
                    self.run_command(*command)
                    n_commands += 1
        return n_commands

    def test_chapter(self):
        with open(ARGUMENTS.chapter, encoding="utf-8") as file:
            self.assertGreater(self.run_text(file.read()), 20)

    def test_what_differs_is_found(self):
        good = ("```sh one\necho 1\n```\n```console\n$ echo 'sum: 12 ms' \\\n  3\nsum: ... ms 3\n"
                "$ sh one; echo 2\n...\n2\n```\n")
        self.assertEqual(self.run_text(good), 2)
        for old, new in (("ms 3\n$", "ms 4\n$"), ("\n2\n", "\n1\n"), ("...\n", ""), ("sh one;", "false; sh one;"),
                         ("echo 2", "exit 3"), ("\n2\n", "\n2\n3\n")):
            with self.subTest(new=new), self.assertRaises(AssertionError):
                self.run_text(good.replace(old, new, 1))


if __name__ == "__main__":
    cases.main("chapter", "quadrille", "examples")
