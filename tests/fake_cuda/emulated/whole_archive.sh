#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# whole_archive.sh THIN ARCHIVE: copies an archive that only names its members, as Meson's do, with its members.
members=$(ar t "$1") && [ -n "$members" ] && rm -f "$2" && printf '%s\n' "$members" | xargs -d '\n' ar rcs "$2"
