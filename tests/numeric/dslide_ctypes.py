# SPDX-License-Identifier: Apache-2.0
"""The C ABI by ctypes, for tests.

Structures and constants are read from the headers when the module is loaded, so they cannot differ from them.
"""
import ctypes
import pathlib
import re

from skipping import module_or_skip

np = module_or_skip("numpy")

INCLUDE = pathlib.Path(__file__).resolve().parents[2] / "include" / "dslide"
HEADERS = ("base.h", "types.h", "dataset.h", "cluster.h", "model.h", "trainer.h")
SCALARS = {"int32_t": ctypes.c_int32, "uint32_t": ctypes.c_uint32, "int64_t": ctypes.c_int64,
           "uint64_t": ctypes.c_uint64, "float": ctypes.c_float, "double": ctypes.c_double, "size_t": ctypes.c_size_t}


def read_headers():
    """The constants and structures of the headers, by name."""
    text = "".join(re.sub(r"/\*.*?\*/", "", (INCLUDE / name).read_text(), flags=re.S) for name in HEADERS)
    constants = {name: int(value) for name, value in re.findall(r"\b(DSLIDE_\w+)\s*=\s*(-?\d+)", text)}
    constants.update((name, int(value)) for name, value in re.findall(r"#define (DSLIDE_\w+) (\d+)\s*\n", text))
    structures = {}
    for body, name in re.findall(r"typedef struct \w+ \{(.*?)\} (\w+);", text, flags=re.S):
        fields = [field_of(" ".join(line.split()), constants, structures) for line in body.split(";") if line.strip()]
        structures[name] = type(name, (ctypes.Structure,), {"_fields_": fields})
    return constants, structures


def field_of(line, constants, structures):
    kind, star, name, count = re.fullmatch(r"(?:const )?(\w+) (\*?)(\w+)(?:\[(\w+)\])?", line).groups()
    if star or kind.endswith("_fn"):
        return name, ctypes.c_void_p
    c_type = SCALARS.get(kind) or structures[kind]
    return name, c_type * constants[count] if count else c_type


CONSTANTS, STRUCTURES = read_headers()

# Trainer options with which every way of selection takes all rows: of two buckets a table, a row shares one with any
# query in some of 50 tables, but for a chance of 2^-50.
ALL_ROWS = dict(active_share=1, bits=1, tables=50, shared_negatives=-1)


def constant(name):
    return CONSTANTS["DSLIDE_" + name]


def structure(name):
    """An output structure, its struct_size set."""
    made = STRUCTURES["dslide_" + name]()
    made.struct_size = ctypes.sizeof(made)
    return made


class Error(Exception):
    def __init__(self, status, text):
        super().__init__(f"{text} ({status})")
        self.status = status


class Library:
    def __init__(self, path):
        self.c = ctypes.CDLL(str(path))
        self.c.dslide_last_error.restype = ctypes.c_char_p

    def call(self, name, *arguments):
        status = getattr(self.c, "dslide_" + name)(*arguments)
        if status != 0:
            raise Error(status, f"dslide_{name}: {self.c.dslide_last_error().decode()}")

    def create(self, name, *arguments):
        handle = ctypes.c_void_p()
        self.call(name, *arguments, ctypes.byref(handle))
        return handle

    def options(self, name, **values):
        """An options structure with the library's defaults and the given fields."""
        made = STRUCTURES[f"dslide_{name}_options"]()
        getattr(self.c, f"dslide_{name}_options_init")(ctypes.byref(made), ctypes.c_size_t(ctypes.sizeof(made)))
        for field, value in values.items():
            setattr(made, field, value)
        return made

    def cluster(self, threads=1):
        return self.create("cluster_open_self", ctypes.byref(self.options("cluster", threads=threads)))


class Csr:
    """Rows that own their arrays, and the view of them that the library takes."""

    def __init__(self, row_ptr, col, n_cols, val=None):
        self.row_ptr = np.ascontiguousarray(row_ptr, np.int64)
        self.col = np.ascontiguousarray(col, np.int32)
        self.val = None if val is None else np.ascontiguousarray(val, np.float32)
        self.shape = (len(self.row_ptr) - 1, n_cols)

    def view(self):
        view = structure("csr_view")
        view.index_bits = 32
        view.n_rows, view.n_cols = self.shape
        view.row_ptr, view.col = self.row_ptr.ctypes.data, self.col.ctypes.data
        view.val = None if self.val is None else self.val.ctypes.data
        return view

    def dense(self):
        """A double-precision matrix of the same rows."""
        matrix = np.zeros(self.shape)
        rows = np.repeat(np.arange(self.shape[0]), np.diff(self.row_ptr))
        matrix[rows, self.col] = 1 if self.val is None else self.val
        return matrix


class Model:
    def __init__(self, library, cluster, n_inputs, hidden, n_outputs, **values):
        self.library, self.n_hidden = library, len(hidden)
        options = library.options("model", n_inputs=n_inputs, n_outputs=n_outputs, n_hidden=len(hidden), **values)
        for layer, width in enumerate(hidden):
            options.hidden[layer] = width
        self.handle = library.create("model_create", cluster, ctypes.byref(options))

    def tensor_names(self):
        hidden = [f"hidden.{layer}.{part}" for layer in range(1, self.n_hidden) for part in ("weight", "bias")]
        return ["input.weight", "input.bias", *hidden, "output.weight", "output.bias"]

    def shape(self, name):
        rows, cols = ctypes.c_int64(), ctypes.c_int64()
        self.library.call("model_tensor_shape", self.handle, name.encode(), ctypes.byref(rows), ctypes.byref(cols))
        return rows.value, cols.value

    def get(self, name):
        rows, cols = self.shape(name)
        out = np.empty((rows, cols), np.float32)
        self.library.call("model_get_rows", self.handle, name.encode(), ctypes.c_int64(0), ctypes.c_int64(rows),
                          ctypes.c_void_p(out.ctypes.data))
        return out

    def set(self, name, values):
        values = np.ascontiguousarray(values, np.float32)
        assert values.shape == self.shape(name), f"{name}: {values.shape}, not {self.shape(name)}"
        self.library.call("model_set_rows", self.handle, name.encode(), ctypes.c_int64(0),
                          ctypes.c_int64(len(values)), ctypes.c_void_p(values.ctypes.data))

    def weights(self):
        return {name: self.get(name) for name in self.tensor_names()}

    def free(self):
        self.library.c.dslide_model_free(self.handle)


class Trainer:
    def __init__(self, model, **values):
        self.library = model.library
        options = self.library.options("trainer", **values)
        self.handle = self.library.create("trainer_create", model.handle, ctypes.byref(options))

    def info(self):
        info = structure("trainer_info")
        self.library.call("trainer_get_info", self.handle, ctypes.byref(info))
        return info

    def step(self, features, labels, weights=None):
        stats = structure("step_stats")
        weights = None if weights is None else np.ascontiguousarray(weights, np.float32)
        x, y = features.view(), labels.view()
        self.library.call("trainer_step", self.handle, ctypes.byref(x), ctypes.byref(y),
                          None if weights is None else ctypes.c_void_p(weights.ctypes.data), ctypes.byref(stats))
        return stats

    def free(self):
        self.library.c.dslide_trainer_free(self.handle)
