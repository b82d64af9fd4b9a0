# SPDX-License-Identifier: Apache-2.0
# verdict.sh, sourced: how a check ends early.

# fail WHAT...: with an error.
fail() {
    echo "failed: $*" >&2
    exit 1
}

# skip WHY...: it is not possible here.
skip() {
    echo "$*"
    exit 77
}
