/* SPDX-License-Identifier: Apache-2.0 */
/* Permutations without a list: bijections, and uniform over keys. */
#include "files/shuffle.h"

#include "qdr_test.h"

TEST(every_size_is_permuted)
{
    static unsigned char is_used[10001];
    for (uint64_t n = 1; n <= 10000; n++) {
        memset(is_used, 0, n);
        for (uint64_t i = 0; i < n; i++) {
            const uint64_t at = qdri_shuffled(i, n, n * 77);
            assert_true(at < n && !is_used[at]);
            is_used[at] = 1;
        }
    }
}

/* Over keys, the place of an element is uniform, and so is the distance of two neighbours: of 2·15 classes the sum of
 * squares is below the quantile of 1e-9 of chi-squared with 15 degrees of freedom. */
TEST(permutations_are_uniform)
{
    enum { N = 1000, CLASSES = 16, KEYS = 40000 };
    uint64_t seed = test_seed();
    for (uint64_t i = 0; i < N; i += 111) {
        double place[CLASSES] = {0}, distance[CLASSES] = {0}, sums[2] = {0};
        for (int k = 0; k < KEYS; k++) {
            const uint64_t key = test_random(&seed), at = qdri_shuffled(i, N, key);
            place[at * CLASSES / N]++;
            distance[(at + N - qdri_shuffled((i + 1) % N, N, key)) % N * CLASSES / N]++;
        }
        for (int c = 0; c < CLASSES; c++) {
            double wanted = 0; /* N is no multiple of CLASSES, and a distance is not 0 */
            for (int at = 0; at < N; at++) wanted += at * CLASSES / N == c;
            const double of_place = wanted * KEYS / N, of_distance = (wanted - (c == 0)) * KEYS / (N - 1);
            sums[0] += (place[c] - of_place) * (place[c] - of_place) / of_place;
            sums[1] += (distance[c] - of_distance) * (distance[c] - of_distance) / of_distance;
        }
        assert_true(sums[0] < 77 && sums[1] < 77);
    }
}
