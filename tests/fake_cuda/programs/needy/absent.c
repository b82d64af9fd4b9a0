/* SPDX-License-Identifier: Apache-2.0 */
/* A library that is needed under a name for which there is no file. */
extern int quadrille_test_absent;
__attribute__((visibility("default"))) int quadrille_test_absent = 1;
