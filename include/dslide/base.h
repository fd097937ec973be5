/* SPDX-License-Identifier: Apache-2.0 */
/**
 * @file base.h
 * @brief Export macros, status codes, the last error, version, log sink, CPU and build information.
 *
 * Rules that hold for every function of the library:
 *
 * - Nothing throws, prints, exits, forks, installs a signal handler or changes the environment, locale or FP mode.
 * - "Collective": all ranks of the cluster make the call with the same arguments, and all make such calls in the same
 *   order; where there are several ranks, one at a time. "Local": the call needs no other rank; one that changes a
 *   model or a trainer is to be made on all ranks alike. After dslide_cluster_close() collective calls fail with
 *   DSLIDE_E_STATE.
 * - Different handles may be used from different threads at once. One handle is used by one thread at a time. Calls
 *   marked "any thread" may run at once with each other on one handle, but not with a call that changes it.
 * - Handles and buffers must not be NULL, unless stated. Input buffers are borrowed for the call, unless stated. Output
 *   parameters are written only on success, unless stated.
 * - "@return" names what is particular to a call. Any call may also return DSLIDE_E_ARGUMENT (NULL, or a value outside
 *   its range), DSLIDE_E_MEMORY, DSLIDE_E_INTERNAL, and DSLIDE_E_UNSUPPORTED for a struct newer than the library. After
 *   an error things are as they were before the call, unless stated.
 * - `*_free(NULL)` does nothing. Handles hold what they need, so they can be freed in any order.
 * - Strings are UTF-8. Text comes out through `(char *buf, size_t cap, size_t *out_len)`: `out_len` gets the length
 *   without the final zero. With `cap` 0 nothing else is written; otherwise text that does not fit is a
 *   DSLIDE_E_ARGUMENT. `out_len` is set either way, so that the caller can size the buffer.
 * - Callbacks run only on the thread that made the call, with no lock held. They must not throw, nor leave by longjmp.
 *   They may call the library; with the handles of the running call only as far as stated at the callback.
 *
 * Structs grow from release to release, at their end only; `struct_size`, their first field, tells how far the caller
 * knows them. It is the caller's sizeof, as it was compiled, and at most 4,096.
 *
 * - Options: dslide_<name>_options_init(&options, sizeof options) sets struct_size, and all else to 0; a field of 0
 *   means the default written beside it. Behind the end of a shorter (older) struct nothing is read or written. A
 *   longer (newer) one is valid if the part unknown to the library is 0, otherwise the call fails with
 *   DSLIDE_E_UNSUPPORTED, as it does for a reserved field that is not 0.
 * - Results: the caller sets struct_size, the library writes so many bytes at most. Fields unknown to the library keep
 *   what the caller had in them: set them to 0 before, if an older library may be loaded.
 * - Structs handed to a callback: the library sets struct_size; a field that lies behind it is not there.
 * - dslide_csr_view and dslide_metrics are held by value in other structs. They never change their size.
 */
#ifndef DSLIDE_BASE_H
#define DSLIDE_BASE_H

#include <stddef.h>
#include <stdint.h>

/** Release number of these headers. */
#define DSLIDE_VERSION_MAJOR 0
#define DSLIDE_VERSION_MINOR 1 /**< see #DSLIDE_VERSION_MAJOR */
#define DSLIDE_VERSION_PATCH 0 /**< see #DSLIDE_VERSION_MAJOR */
/** Number in the shared library's name; grows only when an old program could break. */
#define DSLIDE_ABI_VERSION 0

#if defined(__GNUC__) || defined(__clang__)
#define DSLIDE_API __attribute__((visibility("default"))) /**< marks the exported functions */
#else
#define DSLIDE_API /**< marks the exported functions */
#endif

#ifdef __cplusplus
#if __cplusplus >= 201103L
#define DSLIDE_NOEXCEPT noexcept /**< no call throws */
#else
#define DSLIDE_NOEXCEPT throw() /**< no call throws */
#endif
extern "C" {
#else
#define DSLIDE_NOEXCEPT /**< no call throws */
#endif

/** What a call returns: 0 or one of the negative codes below. Codes are never reused. */
typedef int32_t dslide_status;

enum {
    DSLIDE_OK = 0,             /**< done */
    DSLIDE_E_ARGUMENT = -1,    /**< a parameter breaks its documented range */
    DSLIDE_E_MEMORY = -2,      /**< an allocation failed */
    DSLIDE_E_IO = -3,          /**< the file system refused */
    DSLIDE_E_FORMAT = -4,      /**< the file is not what it claims to be */
    DSLIDE_E_STATE = -5,       /**< the call came out of order */
    DSLIDE_E_MPI = -6,         /**< an MPI call returned an error */
    DSLIDE_E_PEER = -7,        /**< this rank is well; another rank failed */
    DSLIDE_E_STOPPED = -8,     /**< a callback asked to stop */
    DSLIDE_E_UNSUPPORTED = -9, /**< not built in, or newer than this library */
    DSLIDE_E_DIVERGED = -10,   /**< loss or a weight became NaN or infinite */
    DSLIDE_E_INTERNAL = -99    /**< a defect in dslide: please report it */
};

/** Text of the last failure on this thread.
 *
 * One line, without the code. "" before the first failure; never NULL. Valid until the next failing dslide call on this
 * thread. Read it only after a call has returned an error. Local; any thread.
 * @return zero-terminated UTF-8, owned by the library
 * @since 0.1 */
DSLIDE_API const char *dslide_last_error(void) DSLIDE_NOEXCEPT;

/** Short English name of a status code, as "argument" or "format". Local; any thread.
 * @param status  any value
 * @return a static string; "unknown" for a value that is not a code
 * @since 0.1 */
DSLIDE_API const char *dslide_status_name(dslide_status status) DSLIDE_NOEXCEPT;

/** Release of the library in use, "0.1.0". Local; any thread.
 * @return a static string
 * @since 0.1 */
DSLIDE_API const char *dslide_version(void) DSLIDE_NOEXCEPT;

/** ABI number of the library in use; compare with #DSLIDE_ABI_VERSION. Local; any thread.
 * @return the number
 * @since 0.1 */
DSLIDE_API int32_t dslide_abi_version(void) DSLIDE_NOEXCEPT;

/** How the library was built: compiler, versions of oneTBB and oneDNN, compression formats. Local; any thread.
 * @param buf      where the text goes; may be NULL if cap is 0
 * @param cap      bytes at buf
 * @param out_len  length of the text; may be NULL
 * @return DSLIDE_OK; DSLIDE_E_ARGUMENT: cap is not 0, and too small
 * @since 0.1 */
DSLIDE_API dslide_status dslide_build_info(char *buf, size_t cap, size_t *out_len) DSLIDE_NOEXCEPT;

/** What this CPU offers and which kernels are in use, one "key: value" a line.
 *
 * The instruction set is chosen at the first use. The environment variable DSLIDE_ISA forces a lower one: plain, sse4,
 * avx2, avx512, avx512bf16, neon. Results of different instruction sets differ in the last digits. Local; any thread.
 * @param buf      where the text goes; may be NULL if cap is 0
 * @param cap      bytes at buf
 * @param out_len  length of the text; may be NULL
 * @return DSLIDE_OK; DSLIDE_E_ARGUMENT: cap is not 0, and too small
 * @since 0.1 */
DSLIDE_API dslide_status dslide_cpu_info(char *buf, size_t cap, size_t *out_len) DSLIDE_NOEXCEPT;

/** Importance of a log line. */
enum {
    DSLIDE_LOG_WARNING = 1, /**< something the host should look at */
    DSLIDE_LOG_INFO = 2     /**< what was done where a file and the options disagree; a cluster freed but not closed */
};

/** Receives log lines, on the thread that called the library; must not call the library itself.
 * @param user_data  as given to dslide_set_log()
 * @param level      DSLIDE_LOG_WARNING or DSLIDE_LOG_INFO
 * @param line       one line of UTF-8 without line end; valid during the call */
typedef void (*dslide_log_fn)(void *user_data, int32_t level, const char *line);

/** Choose where log lines go: the only global state that a host can set. Without a sink nothing is logged.
 *
 * Local. Not to be called while another thread is inside the library.
 * @param sink       NULL: no log
 * @param user_data  handed to the sink
 * @param level      highest level wanted, DSLIDE_LOG_*
 * @return DSLIDE_OK; DSLIDE_E_ARGUMENT: unknown level
 * @since 0.1 */
DSLIDE_API dslide_status dslide_set_log(dslide_log_fn sink, void *user_data, int32_t level) DSLIDE_NOEXCEPT;

#ifdef __cplusplus
}
#endif
#endif
