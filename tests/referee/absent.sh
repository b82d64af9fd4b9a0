#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Prints why the referee is not run.
echo "$1"
exit 77
