/* SPDX-License-Identifier: Apache-2.0 */
/* The boundary between the library and a module for one MPI: a table of C functions. A module is built once for each
 * MPI, knows nothing of dslide, and is loaded when a cluster over MPI is opened; so the library needs no MPI. */
#ifndef DSLIDE_MPI_MODULE_H
#define DSLIDE_MPI_MODULE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { DSLIDE_MPI_MODULE_VERSION = 1 };

/* Besides 0 and MPI's own error codes, which are positive. */
enum {
    DSLIDE_MPI_NOT_INITIALISED = -1,
    DSLIDE_MPI_FINALISED = -2,
    DSLIDE_MPI_THREAD_LEVEL = -3, /* below MPI_THREAD_FUNNELED */
    DSLIDE_MPI_NO_MEMORY = -4,
    DSLIDE_MPI_BAD_COMM = -5,     /* no communicator, or one between two groups */
    DSLIDE_MPI_OTHER_THREAD = -6, /* MPI_THREAD_FUNNELED, and not the thread that initialised MPI */
    DSLIDE_MPI_TIMED_OUT = -7,
    DSLIDE_MPI_TRUNCATED = -8 /* a longer message came than was expected */
};

typedef struct dslide_mpi_link dslide_mpi_link; /* a duplicate of a communicator, and the messages under way on it */

/* What goes to one rank and what is expected from it; sizes at most INT_MAX. */
typedef struct dslide_mpi_parcel {
    const void *out;
    size_t out_bytes;
    void *in;
    size_t in_capacity;
} dslide_mpi_parcel;

/* Each function returns 0 or an error. */
typedef struct dslide_mpi_module {
    uint32_t version;
    const char *library; /* the kind of MPI: "Open MPI" or "MPICH" */

    /* comm: Fortran handle, or INT64_MIN for MPI_COMM_WORLD. init: start MPI if nobody has. Collective; waits for the
     * other ranks for at most timeout_seconds. */
    int (*open)(int64_t comm, int init, double timeout_seconds, dslide_mpi_link **out, int *rank, int *size);
    /* One message to and one from every other rank. */
    int (*start)(dslide_mpi_link *link, const dslide_mpi_parcel *parcels);
    /* done: all have gone and come. received[r]: bytes from rank r, or -1. pending[r]: a message to or from r is under
     * way. */
    int (*test)(dslide_mpi_link *link, int *done, int64_t *received, int8_t *pending);
    /* A small message to every other rank, apart from the others, whatever is under way; does not wait. */
    void (*send_last_words)(dslide_mpi_link *link, const char *words, size_t bytes);
    /* The next of these messages that has come; *from is -1 if there is none. */
    int (*take_last_words)(dslide_mpi_link *link, int *from, char *words, size_t capacity, size_t *bytes);
    /* Gives up what is under way, without waiting. */
    void (*abandon)(dslide_mpi_link *link);
    /* Frees the communicator, and finalises MPI if open() started it and no other link is open. Collective. */
    int (*close)(dslide_mpi_link *link);
    /* Frees the memory alone. After abandon() some of it is left to messages that may still come. */
    void (*free)(dslide_mpi_link *link);
    /* Text of an MPI error code. */
    void (*error_text)(int code, char *text, size_t capacity);
} dslide_mpi_module;

/* The one symbol of a module. */
const dslide_mpi_module *dslide_mpi_module_get(void);

#ifdef __cplusplus
}
#endif
#endif
