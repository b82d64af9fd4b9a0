#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Manual pages: groff prints no warnings. (tests/cli/quadrille_test.py compares them with --help.)
set -u
failed=0
found=
for page in docs/man/*.[1-9]; do
    [ -f "$page" ] || continue
    found=1
    complaints=$(groff -man -Tutf8 -ww -z "$page" 2>&1)
    [ -z "$complaints" ] || { printf '%s\n' "$complaints" && failed=1; }
done
[ -n "$found" ] || { echo "no manual pages yet" && exit 77; }
exit $failed
