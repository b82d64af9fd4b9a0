#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""clang-tidy with the checks of .clang-tidy on everything but tests; a finding is an error. 77: no clang-tidy 14 here.

usage: check_tidy.py BUILD-FOLDER [--full]    (configured by meson; --full lets the analyser look as long as it wants)
"""
import concurrent.futures
import json
import os
import shutil
import subprocess
import sys

FOLDERS = ("lib", "perfmodel", "src", "examples")
# Maximum number of states of a function that the analyser visits (its default is 225000, and takes three times as
# long).
STATES = 50000


def find_program():
    """Other versions have other findings, so that a clean tree would fail on another machine."""
    for name in ("clang-tidy-14", "clang-tidy"):
        program = shutil.which(name)
        if program:
            version = subprocess.run([program, "--version"], capture_output=True, text=True).stdout
            if "version 14." in version:
                return program
    return None


def sources(build, top):
    """Each file once, even if it is compiled several times."""
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as file:
        commands = json.load(file)
    paths = {os.path.relpath(os.path.join(command["directory"], command["file"]), top) for command in commands}
    # CUDA is another language, and its headers are newer than this version of clang.
    return sorted(path for path in paths if path.split(os.sep)[0] in FOLDERS and not path.endswith(".cu"))


def check_file(program, build, top, path, full):
    options = ["-p", build, "--quiet", "--extra-arg=-Qunused-arguments"]
    if not full:
        for word in ("-Xclang", "-analyzer-config", "-Xclang", f"max-nodes={STATES}"):
            options.append(f"--extra-arg={word}")
    done = subprocess.run([program, *options, os.path.join(top, path)], capture_output=True, text=True)
    return done.stdout if done.returncode == 0 or done.stdout else done.stderr or f"{path}: clang-tidy failed\n"


def problems(build, top, program, full=False):
    found = []
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        jobs = [pool.submit(check_file, program, build, top, path, full) for path in sources(build, top)]
        found = [job.result() for job in jobs]
    return [text for text in found if text.strip()], len(found)


def main():
    program = find_program()
    if not program:
        print("clang-tidy 14 is not installed: apt-get install clang-tidy-14")
        return 77
    found, n_files = problems(sys.argv[1], os.getcwd(), program, "--full" in sys.argv[2:])
    print("".join(found), end="")
    print(f"{n_files} files, {len(found)} with findings")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
