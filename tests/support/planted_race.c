/* SPDX-License-Identifier: Apache-2.0 */
/* Must fail in a thread-sanitized build: two threads write the same number. */
#include <pthread.h>
#include <stdio.h>

static int shared;

static void *count(void *unused)
{
    for (int i = 0; i < 1000; i++) shared++;
    return unused;
}

int main(void)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, count, NULL)) return 0;
    count(NULL);
    pthread_join(thread, NULL);
    printf("%d\n", shared);
    return 0;
}
