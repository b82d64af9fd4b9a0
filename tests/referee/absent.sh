#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Says why the referee is not asked.
echo "$1"
exit 77
