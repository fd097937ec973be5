# SPDX-License-Identifier: Apache-2.0
"""Modules that a machine may lack."""
import importlib
import sys

SKIPPED = 77  # meson's exit code for a test that could not run


def module_or_skip(name):
    try:
        return importlib.import_module(name)
    except ImportError as error:
        print(f"skipped: {sys.executable} has no module {name} ({error})")
        sys.exit(SKIPPED)
