/* SPDX-License-Identifier: Apache-2.0 */
/* The hash tables alone, without a network: which of many vectors point into nearly the same direction as a query?
 *
 *     04_hashtable */
#include <dslide/dslide.h>
#include <stdio.h>
#include <stdlib.h>

enum { dim = 64, count = 20000, queries = 100, wanted = 10 };

static void must(dslide_status status) {
    if (status == DSLIDE_OK) return;
    fprintf(stderr, "%s: %s\n", dslide_status_name(status), dslide_last_error());
    exit(1);
}

static float next_coordinate(void) { /* uniform in [-1, 1) */
    static uint64_t state = 7;
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (float)(state >> 40) / (float)(1 << 23) - 1.0f;
}

int main(void) {
    float *vectors = malloc(sizeof(float) * count * dim);
    float *near = malloc(sizeof(float) * queries * dim);
    if (!vectors || !near) return 1;
    for (int i = 0; i < count * dim; ++i) vectors[i] = next_coordinate();
    /* Query q is vector q with a fifth of noise. */
    for (int i = 0; i < queries * dim; ++i) near[i] = vectors[i] + 0.2f * next_coordinate();

    dslide_cluster *cluster;
    dslide_hashtable *table;
    must(dslide_cluster_open_self(NULL, &cluster));
    dslide_hashtable_options options;
    dslide_hashtable_options_init(&options, sizeof options);
    options.dim = dim;
    options.tables = 32;
    options.bits = 12;
    must(dslide_hashtable_create(cluster, &options, &table));
    must(dslide_hashtable_insert(table, vectors, count, NULL));
    must(dslide_hashtable_rebuild(table)); /* vectors are found after a rebuild */

    dslide_hashtable_stats stats = {.struct_size = sizeof stats};
    must(dslide_hashtable_get_stats(table, &stats));
    printf("%d tables, %lld of %lld buckets used, %.1f vectors in a used one\n", (int)stats.tables,
           (long long)stats.buckets_used, (long long)stats.buckets, stats.mean_load);

    static int64_t ids[queries * wanted];
    static int32_t collisions[queries * wanted];
    must(dslide_hashtable_query(table, near, queries, wanted, ids, collisions));
    int found = 0;
    for (int q = 0; q < queries; ++q) found += ids[q * wanted] == q;
    printf("first answer is the vector meant: %d of %d; query 0 shares a bucket with it in %d tables\n", found, queries,
           (int)collisions[0]);

    dslide_hashtable_free(table);
    dslide_cluster_free(cluster);
    free(near);
    free(vectors);
    return found > queries * 9 / 10 ? 0 : 1;
}
