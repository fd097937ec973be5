/* SPDX-License-Identifier: Apache-2.0 */
#include "sample.h"

#include <math.h>

enum { dim = 20, vectors = 500 };

static dslide_hashtable *make_table(dslide_cluster *cluster, int32_t family) {
    dslide_hashtable *table = NULL;
    dslide_hashtable_options options;
    dslide_hashtable_options_init(&options, sizeof options);
    options.family = family;
    options.dim = dim;
    assert_int_equal(dslide_hashtable_create(cluster, &options, &table), DSLIDE_OK);
    return table;
}

/* Uniform in (-1, 1), by the numbers of Knuth's MMIX generator. */
static float next_random(uint64_t *at) {
    *at = *at * 6364136223846793005u + 1442695040888963407u;
    return (float)(*at >> 40) / 8388608.0f - 1;
}

/* Vector i + 250 is close to vector i. */
static void fill(float *out, int i) {
    uint64_t shared = (uint64_t)(i % 250) << 20, own = (uint64_t)i << 40;
    for (int j = 0; j < dim; ++j) out[j] = next_random(&shared) + 0.05f * next_random(&own);
}

static void test_hashtable__refuses_bad_arguments(void **state) {
    (void)state;
    dslide_cluster *cluster = sample_cluster(1);
    dslide_hashtable *table = NULL, *made = make_table(cluster, DSLIDE_HASH_SIMHASH);
    dslide_hashtable_options options;
    dslide_hashtable_stats stats = {0};
    float vector[dim] = {0};
    int64_t ids[2] = {-7, -7};
    const float bad = NAN;
    dslide_hashtable_options_init(NULL, sizeof(dslide_hashtable_options));
    dslide_hashtable_options_init(&options, sizeof options);
    assert_fails_with(dslide_hashtable_create(cluster, &options, &table), DSLIDE_E_ARGUMENT, "dim");
    options.dim = dim;
    assert_fails_with(dslide_hashtable_create(NULL, &options, &table), DSLIDE_E_ARGUMENT, "cluster");
    assert_fails_with(dslide_hashtable_create(cluster, NULL, &table), DSLIDE_E_ARGUMENT, "options");
    assert_fails_with(dslide_hashtable_create(cluster, &options, NULL), DSLIDE_E_ARGUMENT, "out");
    options.family = 2;
    assert_fails_with(dslide_hashtable_create(cluster, &options, &table), DSLIDE_E_ARGUMENT, "family");
    options.family = 0;
    options.tables = 256;
    assert_fails_with(dslide_hashtable_create(cluster, &options, &table), DSLIDE_E_ARGUMENT, "tables");
    options.tables = 0;
    options.bits = 25;
    assert_fails_with(dslide_hashtable_create(cluster, &options, &table), DSLIDE_E_ARGUMENT, "bits");
    options.bits = 0;
    options.dim = 65537;
    assert_fails_with(dslide_hashtable_create(cluster, &options, &table), DSLIDE_E_ARGUMENT, "dim");
    options.struct_size = 0;
    assert_fails_with(dslide_hashtable_create(cluster, &options, &table), DSLIDE_E_ARGUMENT, "struct_size");
    assert_null(table);

    assert_fails_with(dslide_hashtable_insert(NULL, vector, 1, ids), DSLIDE_E_ARGUMENT, "table");
    assert_fails_with(dslide_hashtable_insert(made, NULL, 1, ids), DSLIDE_E_ARGUMENT, "vectors");
    assert_fails_with(dslide_hashtable_insert(made, vector, -1, ids), DSLIDE_E_ARGUMENT, "count");
    vector[3] = bad;
    assert_fails_with(dslide_hashtable_insert(made, vector, 1, ids), DSLIDE_E_ARGUMENT, "place 3");
    assert_fails_with(dslide_hashtable_update(made, 0, vector), DSLIDE_E_ARGUMENT, "id");
    vector[3] = 0;
    assert_fails_with(dslide_hashtable_query(made, vector, 1, 2, ids, NULL), DSLIDE_E_STATE, "rebuild");
    assert_int_equal(dslide_hashtable_insert(made, vector, 1, NULL), DSLIDE_OK);
    assert_fails_with(dslide_hashtable_update(made, 1, vector), DSLIDE_E_ARGUMENT, "id");
    assert_fails_with(dslide_hashtable_update(made, -1, vector), DSLIDE_E_ARGUMENT, "id");
    assert_fails_with(dslide_hashtable_update(made, 0, NULL), DSLIDE_E_ARGUMENT, "vector");
    assert_fails_with(dslide_hashtable_update(NULL, 0, vector), DSLIDE_E_ARGUMENT, "table");
    assert_fails(dslide_hashtable_rebuild(NULL), DSLIDE_E_ARGUMENT);
    assert_int_equal(dslide_hashtable_rebuild(made), DSLIDE_OK);
    assert_fails_with(dslide_hashtable_query(NULL, vector, 1, 2, ids, NULL), DSLIDE_E_ARGUMENT, "table");
    assert_fails_with(dslide_hashtable_query(made, NULL, 1, 2, ids, NULL), DSLIDE_E_ARGUMENT, "queries");
    assert_fails_with(dslide_hashtable_query(made, vector, 1, 2, NULL, NULL), DSLIDE_E_ARGUMENT, "out_ids");
    assert_fails_with(dslide_hashtable_query(made, vector, -1, 2, ids, NULL), DSLIDE_E_ARGUMENT, "n_queries");
    assert_fails_with(dslide_hashtable_query(made, vector, 1, 0, ids, NULL), DSLIDE_E_ARGUMENT, "k is 0");
    assert_fails(dslide_hashtable_query(made, vector, INT64_MAX, 2, ids, NULL), DSLIDE_E_MEMORY);
    vector[dim - 1] = INFINITY;
    assert_fails_with(dslide_hashtable_query(made, vector, 1, 2, ids, NULL), DSLIDE_E_ARGUMENT, "inf");
    assert_fails_with(dslide_hashtable_get_stats(made, &stats), DSLIDE_E_ARGUMENT, "struct_size");
    stats.struct_size = sizeof stats;
    assert_fails(dslide_hashtable_get_stats(NULL, &stats), DSLIDE_E_ARGUMENT);
    assert_fails(dslide_hashtable_get_stats(made, NULL), DSLIDE_E_ARGUMENT);
    assert_int_equal(ids[0], -7);
    assert_int_equal(ids[1], -7);
    assert_int_equal(stats.vectors, 0);
    dslide_hashtable_free(made);
    dslide_hashtable_free(NULL);
    dslide_cluster_free(cluster);
}

static void test_hashtable__finds_itself_first_and_its_neighbour_next(void **state) {
    (void)state;
    for (int32_t family = DSLIDE_HASH_SIMHASH; family <= DSLIDE_HASH_DWTA; ++family) {
        dslide_cluster *cluster = sample_cluster(2);
        dslide_hashtable *table = make_table(cluster, family);
        dslide_hashtable_stats stats = {.struct_size = sizeof stats};
        static float data[vectors * dim];
        static int64_t ids[vectors * 2];
        static int32_t collisions[vectors * 2];
        int64_t first = -1;
        int neighbours = 0;
        for (int i = 0; i < vectors; ++i) fill(data + i * dim, i);
        assert_int_equal(dslide_hashtable_insert(table, data, 100, &first), DSLIDE_OK);
        assert_int_equal(first, 0);
        assert_int_equal(dslide_hashtable_insert(table, data + 100 * dim, vectors - 100, &first), DSLIDE_OK);
        assert_int_equal(first, 100);
        assert_int_equal(dslide_hashtable_insert(table, NULL, 0, &first), DSLIDE_OK);
        assert_int_equal(first, vectors);
        dslide_cluster_free(cluster); /* the table keeps what it needs */
        assert_int_equal(dslide_hashtable_rebuild(table), DSLIDE_OK);
        assert_int_equal(dslide_hashtable_query(table, data, vectors, 2, ids, collisions), DSLIDE_OK);
        assert_int_equal(dslide_hashtable_get_stats(table, &stats), DSLIDE_OK);
        for (int i = 0; i < vectors; ++i) {
            assert_int_equal(collisions[2 * i], stats.tables); /* a vector shares all buckets with itself */
            assert_true(ids[2 * i] == i || collisions[2 * i + 1] == stats.tables);
            assert_in_range(collisions[2 * i + 1], 1, stats.tables);
            neighbours += ids[2 * i + 1] == (i + 250) % vectors || ids[2 * i] == (i + 250) % vectors;
        }
        assert_true(neighbours > 450);
        assert_int_equal(stats.vectors, vectors);
        assert_int_equal(stats.built, vectors);
        assert_int_equal(stats.tables, 50);
        assert_int_equal(stats.bits, family == DSLIDE_HASH_DWTA ? 6 : 8);
        assert_int_equal(stats.buckets, (int64_t)stats.tables << stats.bits);
        assert_in_range(stats.buckets_used, 1, stats.buckets);
        assert_true(fabs(stats.mean_load - 50.0 * (double)vectors / (double)stats.buckets_used) < 1e-9);
        assert_true(stats.expected_bucket >= 1 && stats.expected_bucket <= (double)stats.largest_bucket);
        assert_true(stats.table_bytes >= 50 * 4 * vectors && stats.vector_bytes >= dim * 4 * vectors);
        dslide_hashtable_free(table);
    }
}

static void test_hashtable__fewer_than_wanted_are_filled_up(void **state) {
    (void)state;
    dslide_cluster *cluster = sample_cluster(1);
    dslide_hashtable *table = make_table(cluster, DSLIDE_HASH_SIMHASH);
    float data[2 * dim], query[dim];
    int64_t ids[5];
    int32_t collisions[5];
    fill(data, 1);
    for (int j = 0; j < dim; ++j) {
        data[dim + j] = -data[j]; /* shares no bucket */
        query[j] = data[j];
    }
    assert_int_equal(dslide_hashtable_rebuild(table), DSLIDE_OK); /* of nothing */
    assert_int_equal(dslide_hashtable_query(table, query, 1, 5, ids, collisions), DSLIDE_OK);
    for (int i = 0; i < 5; ++i) assert_int_equal(ids[i], -1);
    assert_int_equal(dslide_hashtable_insert(table, data, 2, NULL), DSLIDE_OK);
    assert_int_equal(dslide_hashtable_rebuild(table), DSLIDE_OK);
    assert_int_equal(dslide_hashtable_query(table, query, 1, 5, ids, collisions), DSLIDE_OK);
    assert_int_equal(ids[0], 0);
    assert_int_equal(collisions[0], 50);
    for (int i = 1; i < 5; ++i) {
        assert_int_equal(ids[i], -1);
        assert_int_equal(collisions[i], 0);
    }
    assert_int_equal(dslide_hashtable_query(table, NULL, 0, 5, NULL, NULL), DSLIDE_OK);
    /* Equal vectors: the lower id first. */
    assert_int_equal(dslide_hashtable_update(table, 1, data), DSLIDE_OK);
    assert_int_equal(dslide_hashtable_query(table, query, 1, 2, ids, NULL), DSLIDE_OK);
    assert_int_equal(ids[1], -1); /* not before the rebuild */
    assert_int_equal(dslide_hashtable_rebuild(table), DSLIDE_OK);
    assert_int_equal(dslide_hashtable_query(table, query, 1, 2, ids, NULL), DSLIDE_OK);
    assert_int_equal(ids[0], 0);
    assert_int_equal(ids[1], 1);
    dslide_hashtable_free(table);
    dslide_cluster_free(cluster);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hashtable__refuses_bad_arguments),
        cmocka_unit_test(test_hashtable__finds_itself_first_and_its_neighbour_next),
        cmocka_unit_test(test_hashtable__fewer_than_wanted_are_filled_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
