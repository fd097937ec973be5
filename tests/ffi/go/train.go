// SPDX-License-Identifier: Apache-2.0

// The C ABI by cgo; see ../README.md for what the program does.
//
//	train TRAIN TEST
package main

/*
#cgo LDFLAGS: -ldslide
#include <dslide/dslide.h>
#include <stdlib.h>

dslide_status run_with_callbacks(dslide_trainer *trainer, dslide_dataset *data, const dslide_run_options *options,
                                 uintptr_t handle);
*/
import "C"

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/cgo"
	"strings"
	"syscall"
	"time"
	"unsafe"
)

const (
	threads     = 2
	hidden      = 64
	epochs      = 2
	batchSize   = 32
	modelSeed   = 11
	trainerSeed = 12
	orderSeed   = 13
)

// Error is what a dslide call returned, and its text.
type Error struct {
	Status int32
	Text   string
}

func (e *Error) Error() string { return fmt.Sprintf("%s (%d)", e.Text, e.Status) }

// try keeps the goroutine on one thread until the text of a failure, which belongs to the thread, is copied.
func try(call func() C.dslide_status) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if status := call(); status != C.DSLIDE_OK {
		return &Error{int32(status), C.GoString(C.dslide_last_error())}
	}
	return nil
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func expect(holds bool, what ...any) {
	if !holds {
		panic("expected: " + fmt.Sprint(what...))
	}
}

// host is the state of the callbacks. A panic in one stops the run and goes on behind it.
type host struct {
	thread        int
	stop, fail    bool
	progressCalls int
	losses        []float64
	precisionAt1  float64
	panicked      any
}

var errOnPurpose = errors.New("on purpose")

// guarded keeps panics from the frames of the library.
func guarded(handle C.uintptr_t, call func(h *host) C.int32_t) (answer C.int32_t) {
	h := cgo.Handle(handle).Value().(*host)
	defer func() {
		if reason := recover(); reason != nil {
			h.panicked = reason
			answer = 1
		}
	}()
	return call(h)
}

//export goOnProgress
func goOnProgress(handle C.uintptr_t, progress *C.dslide_progress) C.int32_t {
	return guarded(handle, func(h *host) C.int32_t {
		expect(syscall.Gettid() == h.thread, "progress callback on the calling thread")
		expect(progress.struct_size == C.sizeof_dslide_progress, "size of dslide_progress")
		h.progressCalls++
		if h.stop {
			return 1
		}
		return 0
	})
}

//export goOnEpoch
func goOnEpoch(handle C.uintptr_t, report *C.dslide_epoch_report) C.int32_t {
	return guarded(handle, func(h *host) C.int32_t {
		if h.fail {
			panic(errOnPurpose)
		}
		expect(syscall.Gettid() == h.thread, "epoch callback on the calling thread")
		expect(report.struct_size == C.sizeof_dslide_epoch_report, "size of dslide_epoch_report")
		expect(report.has_metrics == 1, "an epoch with metrics")
		h.losses = append(h.losses, float64(report.loss))
		h.precisionAt1 = float64(report.metrics.precision[0])
		time.Sleep(150 * time.Millisecond) // so that the next epoch's first step tells its progress
		return 0
	})
}

func run(trainer *C.dslide_trainer, train, test *C.dslide_dataset, upToEpoch int, h *host) error {
	var options C.dslide_run_options
	C.dslide_run_options_init(&options, C.size_t(unsafe.Sizeof(options)))
	options.epochs = C.int32_t(upToEpoch)
	options.batch_size = batchSize
	options.eval_data = test
	handle := cgo.NewHandle(h)
	defer handle.Delete()
	err := try(func() C.dslide_status {
		h.thread = syscall.Gettid()
		return C.run_with_callbacks(trainer, train, &options, C.uintptr_t(handle))
	})
	if h.panicked != nil {
		panic(h.panicked)
	}
	return err
}

func open(cluster *C.dslide_cluster, path string, options *C.dslide_dataset_options) (*C.dslide_dataset, error) {
	cpath := C.CString(path)
	defer C.free(unsafe.Pointer(cpath))
	var dataset *C.dslide_dataset
	err := try(func() C.dslide_status { return C.dslide_dataset_open(cluster, cpath, options, &dataset) })
	return dataset, err
}

// hashOfOutput is FNV-1a, 64 bits, of the bytes of output.weight.
func hashOfOutput(model *C.dslide_model) uint64 {
	name := C.CString("output.weight")
	defer C.free(unsafe.Pointer(name))
	var rows, cols C.int64_t
	must(try(func() C.dslide_status { return C.dslide_model_tensor_shape(model, name, &rows, &cols) }))
	weights := make([]float32, rows*cols)
	out := (*C.float)(unsafe.Pointer(&weights[0]))
	must(try(func() C.dslide_status { return C.dslide_model_get_rows(model, name, 0, rows, out) }))
	hash := uint64(0xcbf29ce484222325)
	for _, b := range unsafe.Slice((*byte)(unsafe.Pointer(&weights[0])), 4*len(weights)) {
		hash = (hash ^ uint64(b)) * 0x100000001b3
	}
	return hash
}

func provokeErrors(cluster *C.dslide_cluster, trainer *C.dslide_trainer, train, test *C.dslide_dataset, h *host) {
	var told *Error
	missing := "no-such-folder/café.txt"
	_, err := open(cluster, missing, nil)
	expect(errors.As(err, &told) && told.Status == C.DSLIDE_E_IO, "E_IO for a missing file, not ", err)
	expect(strings.Contains(told.Text, missing), "the path in the error text: ", err)

	h.stop = true
	err = run(trainer, train, test, epochs+2, h)
	expect(errors.As(err, &told) && told.Status == C.DSLIDE_E_STOPPED, "E_STOPPED by the progress callback, not ", err)
	expect(told.Text != "", "a text for E_STOPPED")

	h.stop, h.fail = false, true
	defer func() {
		reason := recover()
		expect(reason == errOnPurpose, "the callback's panic, not ", reason)
	}()
	run(trainer, train, test, epochs+4, h)
}

func main() {
	expect(len(os.Args) == 3, "train TRAIN TEST")
	var workers C.dslide_cluster_options
	C.dslide_cluster_options_init(&workers, C.size_t(unsafe.Sizeof(workers)))
	workers.threads = threads
	var cluster *C.dslide_cluster
	must(try(func() C.dslide_status { return C.dslide_cluster_open_self(&workers, &cluster) }))
	defer C.dslide_cluster_free(cluster)

	var reading C.dslide_dataset_options
	C.dslide_dataset_options_init(&reading, C.size_t(unsafe.Sizeof(reading)))
	reading.shuffle = 1
	reading.seed = orderSeed
	train, err := open(cluster, os.Args[1], &reading)
	must(err)
	defer C.dslide_dataset_free(train)
	test, err := open(cluster, os.Args[2], nil)
	must(err)
	defer C.dslide_dataset_free(test)
	info := C.dslide_dataset_info{struct_size: C.sizeof_dslide_dataset_info}
	must(try(func() C.dslide_status { return C.dslide_dataset_get_info(train, &info) }))

	var shape C.dslide_model_options
	C.dslide_model_options_init(&shape, C.size_t(unsafe.Sizeof(shape)))
	shape.n_inputs = info.n_features
	shape.n_outputs = info.n_labels
	shape.n_hidden = 1
	shape.hidden[0] = hidden
	shape.seed = modelSeed
	var model *C.dslide_model
	must(try(func() C.dslide_status { return C.dslide_model_create(cluster, &shape, &model) }))
	defer C.dslide_model_free(model)

	var how C.dslide_trainer_options
	C.dslide_trainer_options_init(&how, C.size_t(unsafe.Sizeof(how)))
	how.seed = trainerSeed
	how.learning_rate = 0.01
	how._select = C.DSLIDE_SELECT_SIMHASH
	how.active_share = 0.05
	how.shared_negatives = 0
	var trainer *C.dslide_trainer
	must(try(func() C.dslide_status { return C.dslide_trainer_create(model, &how, &trainer) }))
	defer C.dslide_trainer_free(trainer)

	var h host
	must(run(trainer, train, test, epochs, &h))
	expect(len(h.losses) == epochs && h.progressCalls >= 1, "calls of the callbacks")
	metrics := C.dslide_metrics{struct_size: C.sizeof_dslide_metrics}
	must(try(func() C.dslide_status { return C.dslide_model_evaluate(model, test, nil, &metrics) }))
	expect(float64(metrics.precision[0]) == h.precisionAt1, "the evaluation that the epoch's report holds")
	fmt.Printf("losses %.12f %.12f p_at_1 %.12f hash %016x\n",
		h.losses[0], h.losses[1], float64(metrics.precision[0]), hashOfOutput(model))
	provokeErrors(cluster, trainer, train, test, &h)
}
