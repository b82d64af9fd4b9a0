/* SPDX-License-Identifier: Apache-2.0 */
/* A library that is not a plugin. */
extern int quadrille_test_nobody;
int quadrille_test_nobody = 1;
