#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The Spack recipe: it runs with stand-ins for Spack's interface, its options are those of meson_options.txt, and its
version is the project's. If Spack itself is installed, its own audit checks it, too.

usage: check_recipe.py [FOLDER]    (the repository; default: the working directory)
"""
import os
import re
import shutil
import subprocess
import sys
import types

RECIPE = "packaging/spack/repo/packages/quadrille/package.py"


class Spec:
    """A spec with some variants on."""

    def __init__(self, on):
        self.on = on

    def satisfies(self, condition):
        return condition.lstrip("+") in self.on

    def __getitem__(self, name):
        return types.SimpleNamespace(prefix="/" + name)


def load(path):
    """The recipe's class, and the directives that it called: [(name, positional arguments)]."""
    given = []

    def directive(name):
        return lambda *args, **_: given.append((name, args)) or (lambda function: function)

    stand_in = types.ModuleType("spack.package")
    for name in ("version", "variant", "depends_on", "license"):
        setattr(stand_in, name, directive(name))
    stand_in.run_after = stand_in.on_package_attributes = lambda *_, **__: lambda function: function
    stand_in.MesonPackage = object
    sys.modules["spack"], sys.modules["spack.package"] = types.ModuleType("spack"), stand_in
    names = {}
    with open(path, encoding="utf-8") as file:
        exec(compile(file.read(), path, "exec"), names)  # pylint: disable=exec-used
    return names["Quadrille"], given


def problems(folder):
    with open(os.path.join(folder, "meson_options.txt"), encoding="utf-8") as file:
        options = set(re.findall(r"^option\('(\w+)'", file.read(), re.M)) | {"werror"}
    with open(os.path.join(folder, "meson.build"), encoding="utf-8") as file:
        version = re.search(r"version: '([^']+)'", file.read()).group(1)
    recipe, given = load(os.path.join(folder, RECIPE))
    if version not in [args[0] for name, args in given if name == "version"]:
        yield f"{RECIPE}: no version {version}, which is that of meson.build"
    variants = [args[0] for name, args in given if name == "variant"]
    for on in [[], variants] + [[variant] for variant in variants]:
        package = recipe()
        package.spec = Spec(on)
        for argument in package.meson_args():
            match = re.fullmatch(r"-D(\w+)=(\S+)", argument)
            if not match or match.group(1) not in options:
                yield f"{RECIPE}: {argument} is no option of meson_options.txt"


def audit(folder):
    """The findings of Spack's own audit; nothing if Spack is not installed."""
    spack = shutil.which("spack")
    if not spack:
        print("no Spack here: its audit of the recipe was not run")
        return []
    repo = os.path.join(os.path.abspath(folder), "packaging/spack/repo")
    command = [spack, "-c", f"repos:[{repo}]", "audit", "packages", "quadrille"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return [] if done.returncode == 0 else [done.stdout + done.stderr]


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else "."
    found = list(problems(folder)) + audit(folder)
    for problem in found:
        print(problem)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
