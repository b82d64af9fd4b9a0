/* SPDX-License-Identifier: Apache-2.0 */
/* A library that is asked for by a name that no file has. */
extern int quadrille_test_absent;
__attribute__((visibility("default"))) int quadrille_test_absent = 1;
