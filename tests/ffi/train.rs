// SPDX-License-Identifier: Apache-2.0
//! The C ABI from Rust, without crates; see README.md for what the program does.
//!
//!     train TRAIN TEST

use std::any::Any;
use std::ffi::{CStr, CString};
use std::fmt;
use std::mem::{size_of, zeroed};
use std::os::raw::{c_char, c_void};
use std::panic::{catch_unwind, panic_any, resume_unwind, AssertUnwindSafe};
use std::ptr::{null, null_mut};
use std::thread::{self, ThreadId};
use std::time::Duration;

const E_IO: i32 = -3;
const E_STOPPED: i32 = -8;
const SELECT_SIMHASH: i32 = 1;
const MAX_HIDDEN: usize = 8;
const MAX_CUTOFFS: usize = 16;

const THREADS: i32 = 2;
const HIDDEN: i32 = 64;
const EPOCHS: i32 = 2;
const BATCH_SIZE: i32 = 32;
const MODEL_SEED: u64 = 11;
const TRAINER_SEED: u64 = 12;
const ORDER_SEED: u64 = 13;

macro_rules! opaque {
    ($($name:ident)*) => { $(#[repr(C)] pub struct $name { _private: [u8; 0] })* };
}
opaque!(Cluster Dataset Model Trainer);

/// A structure of the headers: field for field, in their order.
macro_rules! structure {
    ($name:ident { $($field:ident: $kind:ty),* $(,)? }) => {
        #[repr(C)]
        #[allow(dead_code)]
        pub struct $name { struct_size: u32, $($field: $kind),* }
        impl StructSize for $name {
            fn struct_size(&mut self) -> &mut u32 { &mut self.struct_size }
        }
    };
}

/// What starts with `struct_size`.
trait StructSize: Sized {
    fn struct_size(&mut self) -> &mut u32;
}

structure!(ClusterOptions { threads: i32 });
structure!(DatasetOptions {
    format: i32, index_base: i32, mode: i32, n_features: i64, n_labels: i64, wide: i32, shuffle: i32, seed: u64,
    shuffle_rows: i64, normalize: i32, label_base: i32,
});
structure!(DatasetInfo {
    format: i32, n_rows: i64, n_features: i64, n_labels: i64, n_feature_values: i64, n_label_values: i64,
    rows_without_label: i64, rows_without_feature: i64, blank_lines: i64, comment_lines: i64, dropped_features: i64,
    dropped_labels: i64, zero_features: i64, resident_bytes: i64, read_seconds: f64, repeated_labels: i64,
    ignored_qids: i64,
});
structure!(ModelOptions {
    n_hidden: i32, n_inputs: i64, n_outputs: i64, hidden: [i32; MAX_HIDDEN], seed: u64, input_scale: f32,
    output_scale: f32, index_base: i32, reserved: i32,
});
structure!(TrainerOptions {
    flags: u32, seed: u64, optimizer: i32, loss: i32, learning_rate: f32, beta1: f32, beta2: f32, epsilon: f32,
    momentum: f32, weight_decay: f32, decay_mode: i32, clip_value: f32, clip_row_norm: f32, schedule: i32,
    warmup_samples: i64, total_samples: i64, step_samples: i64, step_factor: f32, final_rate: f32, select: i32,
    active_share: f32, tables: i32, bits: i32, shared_negatives: i32, random_fill: i32, candidate_factor: f32,
    rebuild_growth: f32, rebuild_first: i64, rebuild_max: i64, frequency_power: f32, reserved: i32,
    hard_from: i64,
});
structure!(Metrics {
    n_cutoffs: i32, k: [i32; MAX_CUTOFFS], precision: [f64; MAX_CUTOFFS], recall: [f64; MAX_CUTOFFS],
    ndcg: [f64; MAX_CUTOFFS], psp: [f64; MAX_CUTOFFS], coverage: [f64; MAX_CUTOFFS], rows: i64,
    rows_without_label: i64, labels_out_of_range: i64, seconds: f64, reserved: [f64; MAX_CUTOFFS],
});
structure!(Progress {
    epoch: i32, epochs: i32, reserved: i32, step: i64, samples_in_epoch: i64, samples_of_epoch: i64, loss: f64,
    active_share: f64, rows_touched: f64, samples_per_second: f64, seconds: f64, seconds_left: f64,
    last_precision_at_1: f64,
});
structure!(EpochReport {
    epoch: i32, step: i64, samples: i64, loss: f64, learning_rate: f64, active_share: f64, rows_touched: f64,
    seconds: f64, cpu_seconds: f64, read_seconds: f64, eval_seconds: f64, save_seconds: f64, rebuild_seconds: f64,
    bytes_sent: i64, peak_rss_bytes: i64, has_metrics: i32, is_best: i32, metrics: Metrics,
    bytes_sent_all: i64, bytes_dense_allreduce: i64, wait_seconds: f64, wait_seconds_all: f64,
    imbalance_seconds: f64, imbalance_rows: f64,
});
type ProgressFn = extern "C" fn(*mut c_void, *const Progress) -> i32;
type EpochFn = extern "C" fn(*mut c_void, *const EpochReport) -> i32;
structure!(RunOptions {
    epochs: i32, batch_size: i32, early_stop: i32, eval_data: *mut Dataset, eval: *const c_void,
    save_dir: *const c_char, save_every: i64, on_progress: Option<ProgressFn>, on_epoch: Option<EpochFn>,
    user_data: *mut c_void,
});

#[link(name = "dslide")]
extern "C" {
    fn dslide_last_error() -> *const c_char;
    fn dslide_cluster_options_init(options: *mut ClusterOptions, size: usize);
    fn dslide_cluster_open_self(options: *const ClusterOptions, out: *mut *mut Cluster) -> i32;
    fn dslide_cluster_free(cluster: *mut Cluster);
    fn dslide_dataset_options_init(options: *mut DatasetOptions, size: usize);
    fn dslide_dataset_open(
        cluster: *mut Cluster, path: *const c_char, options: *const DatasetOptions, out: *mut *mut Dataset,
    ) -> i32;
    fn dslide_dataset_get_info(dataset: *const Dataset, out: *mut DatasetInfo) -> i32;
    fn dslide_dataset_free(dataset: *mut Dataset);
    fn dslide_model_options_init(options: *mut ModelOptions, size: usize);
    fn dslide_model_create(cluster: *mut Cluster, options: *const ModelOptions, out: *mut *mut Model) -> i32;
    fn dslide_model_tensor_shape(
        model: *const Model, name: *const c_char, out_rows: *mut i64, out_cols: *mut i64,
    ) -> i32;
    fn dslide_model_get_rows(
        model: *const Model, name: *const c_char, row_begin: i64, n_rows: i64, out: *mut f32,
    ) -> i32;
    fn dslide_model_evaluate(
        model: *const Model, dataset: *mut Dataset, options: *const c_void, out: *mut Metrics,
    ) -> i32;
    fn dslide_model_free(model: *mut Model);
    fn dslide_trainer_options_init(options: *mut TrainerOptions, size: usize);
    fn dslide_trainer_create(model: *mut Model, options: *const TrainerOptions, out: *mut *mut Trainer) -> i32;
    fn dslide_run_options_init(options: *mut RunOptions, size: usize);
    fn dslide_trainer_run(
        trainer: *mut Trainer, data: *mut Dataset, options: *const RunOptions, last: *mut EpochReport,
    ) -> i32;
    fn dslide_trainer_free(trainer: *mut Trainer);
}

/// What a dslide call returned, and its text.
#[derive(Debug)]
struct Error {
    status: i32,
    text: String,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{} ({})", self.text, self.status)
    }
}

impl std::error::Error for Error {}

fn check(status: i32) -> Result<(), Error> {
    if status == 0 {
        return Ok(());
    }
    let text = unsafe { CStr::from_ptr(dslide_last_error()) }; // of this thread; copied before its next failure
    Err(Error { status, text: text.to_string_lossy().into_owned() })
}

/// The library's defaults.
fn options<T: StructSize>(init: unsafe extern "C" fn(*mut T, usize)) -> T {
    let mut made: T = unsafe { zeroed() };
    unsafe { init(&mut made, size_of::<T>()) };
    assert_eq!(*made.struct_size() as usize, size_of::<T>(), "{}", std::any::type_name::<T>());
    made
}

/// An output structure. Every field of them may be zero.
fn result<T: StructSize>() -> T {
    let mut made: T = unsafe { zeroed() };
    *made.struct_size() = size_of::<T>() as u32;
    made
}

fn create<H>(call: impl FnOnce(*mut *mut H) -> i32) -> Result<*mut H, Error> {
    let mut handle = null_mut();
    check(call(&mut handle))?;
    Ok(handle)
}

fn open(cluster: *mut Cluster, path: &str, reading: *const DatasetOptions) -> Result<*mut Dataset, Error> {
    let path = CString::new(path).expect("a path without zero bytes");
    create(|out| unsafe { dslide_dataset_open(cluster, path.as_ptr(), reading, out) })
}

/// The callbacks' user data. A panic in one stops the run and goes on behind it.
struct Host {
    thread: ThreadId,
    stop: bool,
    fail: bool,
    progress_calls: i32,
    losses: Vec<f64>,
    precision_at_1: f64,
    panic: Option<Box<dyn Any + Send>>,
}

/// What the callback panics with on purpose.
#[derive(Debug, PartialEq)]
struct OnPurpose(i32);

impl Host {
    fn progress(&mut self, progress: &Progress) -> i32 {
        assert_eq!(thread::current().id(), self.thread, "progress callback on another thread");
        assert_eq!(progress.struct_size as usize, size_of::<Progress>());
        self.progress_calls += 1;
        self.stop as i32
    }

    fn epoch(&mut self, report: &EpochReport) -> i32 {
        if self.fail {
            panic_any(OnPurpose(7));
        }
        assert_eq!(thread::current().id(), self.thread, "epoch callback on another thread");
        assert_eq!(report.struct_size as usize, size_of::<EpochReport>());
        assert_eq!(report.has_metrics, 1, "an epoch without metrics");
        self.losses.push(report.loss);
        self.precision_at_1 = report.metrics.precision[0];
        thread::sleep(Duration::from_millis(150)); // so that the next epoch's first step tells its progress
        0
    }

    /// No panic may cross the frames of the library.
    fn guarded(user_data: *mut c_void, call: impl FnOnce(&mut Host) -> i32) -> i32 {
        let host = unsafe { &mut *(user_data as *mut Host) };
        match catch_unwind(AssertUnwindSafe(|| call(host))) {
            Ok(answer) => answer,
            Err(panic) => {
                host.panic = Some(panic);
                1
            }
        }
    }
}

extern "C" fn on_progress(user_data: *mut c_void, progress: *const Progress) -> i32 {
    Host::guarded(user_data, |host| host.progress(unsafe { &*progress }))
}

extern "C" fn on_epoch(user_data: *mut c_void, report: *const EpochReport) -> i32 {
    Host::guarded(user_data, |host| host.epoch(unsafe { &*report }))
}

fn run(
    trainer: *mut Trainer, train: *mut Dataset, test: *mut Dataset, epochs: i32, host: &mut Host,
) -> Result<(), Error> {
    let mut how = options(dslide_run_options_init);
    how.epochs = epochs;
    how.batch_size = BATCH_SIZE;
    how.eval_data = test;
    how.on_progress = Some(on_progress);
    how.on_epoch = Some(on_epoch);
    how.user_data = host as *mut Host as *mut c_void;
    let status = unsafe { dslide_trainer_run(trainer, train, &how, null_mut()) };
    if let Some(panic) = host.panic.take() {
        resume_unwind(panic);
    }
    check(status)
}

/// FNV-1a, 64 bits, of the bytes of output.weight.
fn hash_of_output(model: *const Model) -> Result<u64, Error> {
    let name = CString::new("output.weight").unwrap();
    let (mut rows, mut cols) = (0, 0);
    check(unsafe { dslide_model_tensor_shape(model, name.as_ptr(), &mut rows, &mut cols) })?;
    let mut weights = vec![0f32; (rows * cols) as usize];
    check(unsafe { dslide_model_get_rows(model, name.as_ptr(), 0, rows, weights.as_mut_ptr()) })?;
    let bytes = weights.iter().flat_map(|w| w.to_ne_bytes());
    Ok(bytes.fold(0xcbf29ce484222325, |hash, byte| (hash ^ byte as u64).wrapping_mul(0x100000001b3)))
}

fn provoke_errors(
    cluster: *mut Cluster, trainer: *mut Trainer, train: *mut Dataset, test: *mut Dataset, host: &mut Host,
) {
    let missing = "no-such-folder/caf\u{e9}.txt";
    let error = open(cluster, missing, null()).expect_err("a missing file was opened");
    assert_eq!(error.status, E_IO, "{}", error);
    assert!(error.text.contains(missing), "{}", error);

    host.stop = true;
    let error = run(trainer, train, test, EPOCHS + 2, host).expect_err("the run was not stopped");
    assert_eq!(error.status, E_STOPPED, "{}", error);
    assert!(!error.text.is_empty());

    host.stop = false;
    host.fail = true;
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| ())); // this one is expected: no message
    let outcome = catch_unwind(AssertUnwindSafe(|| run(trainer, train, test, EPOCHS + 4, host)));
    std::panic::set_hook(hook);
    let panic = outcome.expect_err("the callback's panic was lost");
    assert_eq!(panic.downcast_ref(), Some(&OnPurpose(7)));
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    assert_eq!(arguments.len(), 3, "usage: train TRAIN TEST");

    let mut workers = options(dslide_cluster_options_init);
    workers.threads = THREADS;
    let cluster = create(|out| unsafe { dslide_cluster_open_self(&workers, out) })?;

    let mut reading = options(dslide_dataset_options_init);
    reading.shuffle = 1;
    reading.seed = ORDER_SEED;
    let train = open(cluster, &arguments[1], &reading)?;
    let test = open(cluster, &arguments[2], null())?;
    let mut info: DatasetInfo = result();
    check(unsafe { dslide_dataset_get_info(train, &mut info) })?;

    let mut shape = options(dslide_model_options_init);
    shape.n_inputs = info.n_features;
    shape.n_outputs = info.n_labels;
    shape.n_hidden = 1;
    shape.hidden[0] = HIDDEN;
    shape.seed = MODEL_SEED;
    let model = create(|out| unsafe { dslide_model_create(cluster, &shape, out) })?;

    let mut how = options(dslide_trainer_options_init);
    how.seed = TRAINER_SEED;
    how.learning_rate = 0.01;
    how.select = SELECT_SIMHASH;
    how.active_share = 0.05;
    how.shared_negatives = 0;
    let trainer = create(|out| unsafe { dslide_trainer_create(model, &how, out) })?;

    let mut host = Host {
        thread: thread::current().id(),
        stop: false,
        fail: false,
        progress_calls: 0,
        losses: Vec::new(),
        precision_at_1: -1.0,
        panic: None,
    };
    run(trainer, train, test, EPOCHS, &mut host)?;
    assert_eq!(host.losses.len(), EPOCHS as usize);
    assert!(host.progress_calls >= 1);
    let mut metrics: Metrics = result();
    check(unsafe { dslide_model_evaluate(model, test, null(), &mut metrics) })?;
    assert_eq!(metrics.precision[0], host.precision_at_1, "the evaluation that the epoch's report holds");
    println!(
        "losses {:.12} {:.12} p_at_1 {:.12} hash {:016x}",
        host.losses[0], host.losses[1], metrics.precision[0], hash_of_output(model)?
    );
    provoke_errors(cluster, trainer, train, test, &mut host);

    unsafe {
        dslide_cluster_free(cluster); // handles hold what they need: any order will do
        dslide_dataset_free(train);
        dslide_dataset_free(test);
        dslide_model_free(model);
        dslide_trainer_free(trainer);
    }
    Ok(())
}
