/* SPDX-License-Identifier: Apache-2.0 */
/* What qdr_files_check() found. */
#ifndef QDRI_FILES_CHECK_H
#define QDRI_FILES_CHECK_H

/* 1: the process's last qdr_files_check() refused its run, which must write nothing then. */
int qdri_files_refused(void);

#endif
