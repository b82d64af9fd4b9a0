/* SPDX-License-Identifier: Apache-2.0 */
/* A file with the plugin's name that needs a missing library. */
extern int quadrille_test_absent;
extern int *quadrille_test_needy;
int *quadrille_test_needy = &quadrille_test_absent;
