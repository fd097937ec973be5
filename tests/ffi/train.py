# SPDX-License-Identifier: Apache-2.0
"""The C ABI by ctypes; see README.md for what the program does.

    DSLIDE_LIBRARY=libdslide.so train.py TRAIN TEST
"""
import ctypes
import os
import sys
import threading
import time
from ctypes import POINTER, Structure, byref, c_char_p, c_double, c_float, c_int32, c_int64, c_uint32, c_uint64, c_void_p

E_IO, E_STOPPED = -3, -8
SELECT_SIMHASH = 1
MAX_HIDDEN, MAX_CUTOFFS = 8, 16
THREADS, HIDDEN, EPOCHS, BATCH_SIZE = 2, 64, 2, 32
MODEL_SEED, TRAINER_SEED, ORDER_SEED = 11, 12, 13


class ClusterOptions(Structure):
    _fields_ = [("struct_size", c_uint32), ("threads", c_int32)]


class DatasetOptions(Structure):
    _fields_ = [("struct_size", c_uint32), ("format", c_int32), ("index_base", c_int32), ("mode", c_int32),
                ("n_features", c_int64), ("n_labels", c_int64), ("wide", c_int32), ("shuffle", c_int32),
                ("seed", c_uint64), ("shuffle_rows", c_int64), ("normalize", c_int32), ("label_base", c_int32)]


class DatasetInfo(Structure):
    _fields_ = [("struct_size", c_uint32), ("format", c_int32)] + [(name, c_int64) for name in (
        "n_rows", "n_features", "n_labels", "n_feature_values", "n_label_values", "rows_without_label",
        "rows_without_feature", "blank_lines", "comment_lines", "dropped_features", "dropped_labels", "zero_features",
        "resident_bytes")] + [("read_seconds", c_double), ("repeated_labels", c_int64), ("ignored_qids", c_int64)]


class ModelOptions(Structure):
    _fields_ = [("struct_size", c_uint32), ("n_hidden", c_int32), ("n_inputs", c_int64), ("n_outputs", c_int64),
                ("hidden", c_int32 * MAX_HIDDEN), ("seed", c_uint64), ("input_scale", c_float),
                ("output_scale", c_float), ("index_base", c_int32), ("reserved", c_int32)]


class TrainerOptions(Structure):
    _fields_ = [("struct_size", c_uint32), ("flags", c_uint32), ("seed", c_uint64), ("optimizer", c_int32),
                ("loss", c_int32), ("learning_rate", c_float), ("beta1", c_float), ("beta2", c_float),
                ("epsilon", c_float), ("momentum", c_float), ("weight_decay", c_float), ("decay_mode", c_int32),
                ("clip_value", c_float), ("clip_row_norm", c_float), ("schedule", c_int32),
                ("warmup_samples", c_int64), ("total_samples", c_int64), ("step_samples", c_int64),
                ("step_factor", c_float), ("final_rate", c_float), ("select", c_int32), ("active_share", c_float),
                ("tables", c_int32), ("bits", c_int32), ("shared_negatives", c_int32), ("random_fill", c_int32),
                ("candidate_factor", c_float), ("rebuild_growth", c_float), ("rebuild_first", c_int64),
                ("rebuild_max", c_int64), ("frequency_power", c_float), ("reserved", c_int32), ("hard_from", c_int64)]


class Metrics(Structure):
    _fields_ = [("struct_size", c_uint32), ("n_cutoffs", c_int32), ("k", c_int32 * MAX_CUTOFFS)] + [
        (name, c_double * MAX_CUTOFFS) for name in ("precision", "recall", "ndcg", "psp", "coverage")] + [
        ("rows", c_int64), ("rows_without_label", c_int64), ("labels_out_of_range", c_int64), ("seconds", c_double),
        ("reserved", c_double * MAX_CUTOFFS)]


class Progress(Structure):
    _fields_ = [("struct_size", c_uint32), ("epoch", c_int32), ("epochs", c_int32), ("reserved", c_int32),
                ("step", c_int64), ("samples_in_epoch", c_int64), ("samples_of_epoch", c_int64)] + [
        (name, c_double) for name in ("loss", "active_share", "rows_touched", "samples_per_second", "seconds",
                                      "seconds_left", "last_precision_at_1")]


class EpochReport(Structure):
    _fields_ = [("struct_size", c_uint32), ("epoch", c_int32), ("step", c_int64), ("samples", c_int64)] + [
        (name, c_double) for name in ("loss", "learning_rate", "active_share", "rows_touched", "seconds",
                                      "cpu_seconds", "read_seconds", "eval_seconds", "save_seconds",
                                      "rebuild_seconds")] + [
        ("bytes_sent", c_int64), ("peak_rss_bytes", c_int64), ("has_metrics", c_int32), ("is_best", c_int32),
        ("metrics", Metrics), ("bytes_sent_all", c_int64), ("bytes_dense_allreduce", c_int64), ("wait_seconds", c_double),
        ("wait_seconds_all", c_double), ("imbalance_seconds", c_double), ("imbalance_rows", c_double)]


# ctypes hands a void * declared as py_object over as the object itself.
ProgressFn = ctypes.CFUNCTYPE(c_int32, ctypes.py_object, POINTER(Progress))
EpochFn = ctypes.CFUNCTYPE(c_int32, ctypes.py_object, POINTER(EpochReport))


class RunOptions(Structure):
    _fields_ = [("struct_size", c_uint32), ("epochs", c_int32), ("batch_size", c_int32), ("early_stop", c_int32),
                ("eval_data", c_void_p), ("eval", c_void_p), ("save_dir", c_char_p), ("save_every", c_int64),
                ("on_progress", ProgressFn), ("on_epoch", EpochFn), ("user_data", ctypes.py_object)]


class Error(Exception):
    """What a dslide call returned, and its text."""

    def __init__(self, status, text):
        super().__init__(f"{text} ({status})")
        self.status = status


def load(path):
    library = ctypes.CDLL(path)

    def check(status, function, arguments):
        if status != 0:
            raise Error(status, library.dslide_last_error().decode())

    library.dslide_last_error.restype = c_char_p
    for name, parameters in {
            "cluster_open_self": [POINTER(ClusterOptions), POINTER(c_void_p)],
            "dataset_open": [c_void_p, c_char_p, POINTER(DatasetOptions), POINTER(c_void_p)],
            "dataset_get_info": [c_void_p, POINTER(DatasetInfo)],
            "model_create": [c_void_p, POINTER(ModelOptions), POINTER(c_void_p)],
            "model_tensor_shape": [c_void_p, c_char_p, POINTER(c_int64), POINTER(c_int64)],
            "model_get_rows": [c_void_p, c_char_p, c_int64, c_int64, c_void_p],
            "model_evaluate": [c_void_p, c_void_p, c_void_p, POINTER(Metrics)],
            "trainer_create": [c_void_p, POINTER(TrainerOptions), POINTER(c_void_p)],
            "trainer_run": [c_void_p, c_void_p, POINTER(RunOptions), POINTER(EpochReport)]}.items():
        function = getattr(library, "dslide_" + name)
        function.argtypes, function.restype, function.errcheck = parameters, c_int32, check
    for name in ("cluster", "dataset", "model", "trainer"):
        function = getattr(library, f"dslide_{name}_free")
        function.argtypes, function.restype = [c_void_p], None
    return library


def options(library, kind, name):
    """The library's defaults."""
    made = kind()
    getattr(library, f"dslide_{name}_options_init")(byref(made), ctypes.c_size_t(ctypes.sizeof(kind)))
    assert made.struct_size == ctypes.sizeof(kind), f"{name}: {made.struct_size} bytes, not {ctypes.sizeof(kind)}"
    return made


def result(kind):
    return kind(struct_size=ctypes.sizeof(kind))


def create(function, *arguments):
    handle = c_void_p()
    function(*arguments, byref(handle))
    return handle


class Host:
    """State of the callbacks. An exception in one stops the run and is raised again behind it."""

    def __init__(self):
        self.thread = threading.get_ident()
        self.progress_calls = 0
        self.losses = []
        self.precision_at_1 = None
        self.stop = False
        self.fail = None
        self.exception = None

    def progress(self, progress):
        assert threading.get_ident() == self.thread, "progress callback on another thread"
        assert progress.struct_size == ctypes.sizeof(Progress), "size of dslide_progress"
        self.progress_calls += 1
        return self.stop

    def epoch(self, report):
        if self.fail:
            raise self.fail
        assert threading.get_ident() == self.thread, "epoch callback on another thread"
        assert report.struct_size == ctypes.sizeof(EpochReport), "size of dslide_epoch_report"
        assert report.has_metrics == 1, "an epoch without metrics"
        self.losses.append(report.loss)
        self.precision_at_1 = report.metrics.precision[0]
        time.sleep(0.15)  # so that the next epoch's first step tells its progress
        return False

    def guarded(self, method, argument):
        try:
            return int(method(argument))
        except BaseException as exception:  # ctypes would print it and go on
            self.exception = exception
            return 1


def run(library, trainer, train, test, epochs, host):
    made = options(library, RunOptions, "run")
    made.epochs = epochs
    made.batch_size = BATCH_SIZE
    made.eval_data = test
    made.on_progress = ProgressFn(lambda user, progress: user.guarded(user.progress, progress.contents))
    made.on_epoch = EpochFn(lambda user, report: user.guarded(user.epoch, report.contents))
    made.user_data = host  # `made` keeps all three alive for the call
    try:
        library.dslide_trainer_run(trainer, train, byref(made), None)
    except Error:
        if host.exception:
            raise host.exception
        raise


def hash_of_output(library, model):
    """FNV-1a, 64 bits, of the bytes of output.weight."""
    rows, cols = c_int64(), c_int64()
    library.dslide_model_tensor_shape(model, b"output.weight", byref(rows), byref(cols))
    weights = (c_float * (rows.value * cols.value))()
    library.dslide_model_get_rows(model, b"output.weight", 0, rows, weights)
    value = 0xcbf29ce484222325
    for byte in bytes(weights):
        value = (value ^ byte) * 0x100000001b3 & 0xffffffffffffffff
    return value


def provoke_errors(library, cluster, trainer, train, test, host):
    missing = "no-such-folder/café.txt"
    try:
        create(library.dslide_dataset_open, cluster, missing.encode(), None)
        raise AssertionError("a missing file was opened")
    except Error as error:
        assert error.status == E_IO and missing in str(error), error
    host.stop = True
    try:
        run(library, trainer, train, test, EPOCHS + 2, host)
        raise AssertionError("the run was not stopped")
    except Error as error:
        assert error.status == E_STOPPED and len(str(error)) > len(f" ({E_STOPPED})"), error
    host.stop, host.fail = False, KeyError("of the host")
    try:
        run(library, trainer, train, test, EPOCHS + 4, host)
        raise AssertionError("the callback's exception was lost")
    except KeyError as error:
        assert error is host.fail


def main():
    library = load(os.environ["DSLIDE_LIBRARY"])
    workers = options(library, ClusterOptions, "cluster")
    workers.threads = THREADS
    cluster = create(library.dslide_cluster_open_self, workers)

    reading = options(library, DatasetOptions, "dataset")
    reading.shuffle, reading.seed = 1, ORDER_SEED
    train = create(library.dslide_dataset_open, cluster, os.fsencode(sys.argv[1]), reading)
    test = create(library.dslide_dataset_open, cluster, os.fsencode(sys.argv[2]), None)
    info = result(DatasetInfo)
    library.dslide_dataset_get_info(train, info)

    shape = options(library, ModelOptions, "model")
    shape.n_inputs, shape.n_outputs, shape.n_hidden = info.n_features, info.n_labels, 1
    shape.hidden[0], shape.seed = HIDDEN, MODEL_SEED
    model = create(library.dslide_model_create, cluster, shape)

    how = options(library, TrainerOptions, "trainer")
    how.seed, how.learning_rate = TRAINER_SEED, 0.01
    how.select, how.active_share, how.shared_negatives = SELECT_SIMHASH, 0.05, 0
    trainer = create(library.dslide_trainer_create, model, how)

    host = Host()
    run(library, trainer, train, test, EPOCHS, host)
    assert len(host.losses) == EPOCHS and host.progress_calls >= 1, "calls of the callbacks"
    metrics = result(Metrics)
    library.dslide_model_evaluate(model, test, None, metrics)
    assert metrics.precision[0] == host.precision_at_1, "the evaluation that the epoch's report holds"
    print(f"losses {host.losses[0]:.12f} {host.losses[1]:.12f} p_at_1 {metrics.precision[0]:.12f} "
          f"hash {hash_of_output(library, model):016x}")
    provoke_errors(library, cluster, trainer, train, test, host)

    library.dslide_cluster_free(cluster)
    for name, handle in (("dataset", train), ("dataset", test), ("model", model), ("trainer", trainer)):
        getattr(library, f"dslide_{name}_free")(handle)


main()
