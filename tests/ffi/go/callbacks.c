/* SPDX-License-Identifier: Apache-2.0 */
/* A cgo.Handle is an integer; only C may turn it into the void * of the callbacks and back, as Go's collector refuses
 * pointers that are none. */
#include "_cgo_export.h"

static int32_t on_progress(void *user_data, const dslide_progress *progress) {
    return goOnProgress((uintptr_t)user_data, (dslide_progress *)progress);
}

static int32_t on_epoch(void *user_data, const dslide_epoch_report *report) {
    return goOnEpoch((uintptr_t)user_data, (dslide_epoch_report *)report);
}

dslide_status run_with_callbacks(dslide_trainer *trainer, dslide_dataset *data, const dslide_run_options *options,
                                 uintptr_t handle) {
    dslide_run_options with_callbacks = *options;
    with_callbacks.on_progress = on_progress;
    with_callbacks.on_epoch = on_epoch;
    with_callbacks.user_data = (void *)handle;
    return dslide_trainer_run(trainer, data, &with_callbacks, NULL);
}
