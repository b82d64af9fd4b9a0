# SPDX-License-Identifier: Apache-2.0
"""The files that belong to the repository: those tracked by git, or everything outside build folders if git is not
used."""
import os
import shutil
import subprocess

SKIPPED = (".git", "build", "out", "__pycache__")


def tracked_files(folder):
    paths = []
    if os.path.exists(os.path.join(folder, ".git")) and shutil.which("git"):
        paths = subprocess.run(["git", "-c", "safe.directory=*", "-C", folder, "ls-files", "-z"], capture_output=True,
                               check=True).stdout.decode().split("\0")
    else:
        for root, folders, files in os.walk(folder):
            folders[:] = [name for name in folders if name not in SKIPPED and not name.startswith("build-")]
            paths += [os.path.relpath(os.path.join(root, name), folder) for name in files]
    return sorted(path for path in paths if path and os.path.isfile(os.path.join(folder, path)))
