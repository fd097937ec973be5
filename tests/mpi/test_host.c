/* SPDX-License-Identifier: Apache-2.0 */
/* Run by mpirun: a host that uses MPI itself. The cluster takes a part of its ranks, leaves its traffic alone, and
 * leaves MPI usable. The exit code tells. */
#include <dslide/dslide.h>
#include <dslide/mpi.h>

#include <stdio.h>
#include <stdlib.h>

static int failures;

static void expect(int ok, const char *what) {
    if (ok) return;
    ++failures;
    fprintf(stderr, "failed: %s (%s)\n", what, dslide_last_error());
}

/* A step on every rank of the cluster. */
static void train(dslide_cluster *cluster) {
    dslide_model_options shape;
    dslide_model_options_init(&shape, sizeof shape);
    shape.n_inputs = 4;
    shape.n_outputs = 9;
    shape.n_hidden = 1;
    shape.hidden[0] = 8;
    dslide_model *model = NULL;
    expect(dslide_model_create(cluster, &shape, &model) == DSLIDE_OK, "create a model");
    dslide_trainer *trainer = NULL;
    expect(dslide_trainer_create(model, NULL, &trainer) == DSLIDE_OK, "create a trainer");
    const int64_t ptr[] = {0, 1, 2};
    const int32_t feature[] = {1, 3}, label[] = {2, 8};
    dslide_csr_view x = {0}, y = {0};
    x.struct_size = y.struct_size = sizeof x;
    x.n_rows = y.n_rows = 2;
    x.n_cols = 4;
    y.n_cols = 9;
    x.row_ptr = y.row_ptr = ptr;
    x.col = feature;
    y.col = label;
    dslide_step_stats stats = {0};
    stats.struct_size = sizeof stats;
    for (int step = 0; step < 3; ++step)
        expect(dslide_trainer_step(trainer, &x, &y, NULL, &stats) == DSLIDE_OK, "a step");
    expect(stats.step == 3, "three steps");
    dslide_trainer_free(trainer);
    dslide_model_free(model);
}

int main(int argc, char **argv) {
    dslide_cluster *cluster = NULL;
    dslide_cluster_options options;
    dslide_cluster_options_init(&options, sizeof options);
    options.threads = 1;
    options.mpi_module = argc > 1 ? argv[1] : NULL;
    expect(dslide_cluster_open_f(&options, DSLIDE_COMM_WORLD, &cluster) == DSLIDE_E_STATE, "before MPI_Init");

    int level = 0, rank = 0, size = 1;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);

    /* Ranks 0, 2, ... work together; a message of the host's, for any tag, is under way all the while. */
    MPI_Comm part;
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &part);
    int mine = rank, theirs = -1;
    MPI_Request any, note;
    MPI_Irecv(&theirs, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, part, &any);
    expect(dslide_cluster_open_mpi(&options, part, &cluster) == DSLIDE_OK, "open over a part of the ranks");
    int32_t in_part = 0, cluster_rank = -1;
    dslide_cluster_size(cluster, &in_part);
    dslide_cluster_rank(cluster, &cluster_rank);
    expect(in_part == (size + 1 - rank % 2) / 2 && cluster_rank == rank / 2, "ranks of the part");
    train(cluster);
    int part_rank = 0, part_size = 1, done = 0;
    MPI_Comm_rank(part, &part_rank);
    MPI_Comm_size(part, &part_size);
    MPI_Test(&any, &done, MPI_STATUS_IGNORE);
    expect(!done, "the host's message was not taken by the cluster's");
    MPI_Barrier(part);
    MPI_Isend(&mine, 1, MPI_INT, (part_rank + 1) % part_size, 77, part, &note);
    MPI_Wait(&any, MPI_STATUS_IGNORE);
    MPI_Wait(&note, MPI_STATUS_IGNORE);
    expect(theirs == 2 * ((part_rank + part_size - 1) % part_size) + rank % 2, "the host's message arrived");
    expect(dslide_cluster_close(cluster) == DSLIDE_OK, "close");

    /* Again, on all ranks, and freed after MPI is gone. */
    expect(dslide_cluster_open_mpi(&options, MPI_COMM_WORLD, &cluster) == DSLIDE_OK, "open again");
    train(cluster);
    int sum = 0;
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    expect(sum == size * (size - 1) / 2, "MPI works beside the cluster");
    MPI_Finalize();
    dslide_cluster_free(cluster);
    expect(dslide_cluster_open_f(&options, DSLIDE_COMM_WORLD, &cluster) == DSLIDE_E_STATE, "after MPI_Finalize");
    return failures > 0;
}
