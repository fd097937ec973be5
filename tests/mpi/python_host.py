# SPDX-License-Identifier: Apache-2.0
"""Run by mpirun, or alone: a host that is an interpreter. MPI is loaded so that no other library sees its symbols.

    python_host.py LIBRARY MODULE

The library must find by itself which MPI is in the process, and the module beside itself; MODULE only says which MPI.
"""
import ctypes
import os
import pathlib
import re
import subprocess
import sys
import tempfile

MPI_THREAD_FUNNELED = 1
DSLIDE_COMM_WORLD = -2**63


def load_mpi(module):
    dynamic = subprocess.run(["readelf", "-d", module], capture_output=True, text=True, check=True).stdout
    return ctypes.CDLL(re.search(r"\(NEEDED\).*\[(libmpi[^\]]*)\]", dynamic).group(1))


def self_communicator(mpi):
    """The Fortran handle of MPI_COMM_SELF."""
    if hasattr(mpi, "ompi_mpi_comm_self"):
        return mpi.MPI_Comm_c2f(ctypes.c_void_p(ctypes.addressof(ctypes.c_char.in_dll(mpi, "ompi_mpi_comm_self"))))
    return 0x44000001  # MPICH: handles are the same in C and Fortran


def open_and_close(library, communicator):
    cluster, rank, size = ctypes.c_void_p(), ctypes.c_int32(-1), ctypes.c_int32(-1)
    status = library.dslide_cluster_open_f(None, ctypes.c_int64(communicator), ctypes.byref(cluster))
    assert status == 0, library.dslide_last_error().decode()
    assert library.dslide_cluster_rank(cluster, ctypes.byref(rank)) == 0
    assert library.dslide_cluster_size(cluster, ctypes.byref(size)) == 0
    assert library.dslide_cluster_close(cluster) == 0, library.dslide_last_error().decode()
    return rank.value, size.value


def main():
    library_file, module = sys.argv[1:]
    with tempfile.TemporaryDirectory() as beside:
        for built in (library_file, *pathlib.Path(module).parent.glob("libdslide-mpi-*.so.[0-9]")):
            os.symlink(os.path.abspath(built), os.path.join(beside, os.path.basename(built)))
        mpi = load_mpi(module)
        library = ctypes.CDLL(os.path.join(beside, os.path.basename(library_file)))
        library.dslide_last_error.restype = ctypes.c_char_p
        level = ctypes.c_int()
        assert mpi.MPI_Init_thread(None, None, MPI_THREAD_FUNNELED, ctypes.byref(level)) == 0
        alone = open_and_close(library, self_communicator(mpi))
        mine = open_and_close(library, DSLIDE_COMM_WORLD)
    launched = os.environ.get("OMPI_COMM_WORLD_RANK", os.environ.get("PMI_RANK", "0"))
    assert mpi.MPI_Finalize() == 0
    assert alone == (0, 1), alone
    assert mine[0] == int(launched), mine
    assert mine[1] == int(os.environ.get("OMPI_COMM_WORLD_SIZE", os.environ.get("PMI_SIZE", "1"))), mine


if __name__ == "__main__":
    main()
