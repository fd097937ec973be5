#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds and runs the training program in several languages and compares each with what the C program prints.

    run.py [--build FOLDER] [LANGUAGE...]     LANGUAGE: c python rust go; none: all

FOLDER is meson's, `build` by default; it holds the library and the C program, and gets the others. RUSTC and GO name
other compilers. Exits with 1 if a program fails, with 77 if all are skipped.
"""
import argparse
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
LINE = re.compile(r"losses (\d+\.\d{12}) (\d+\.\d{12}) p_at_1 (0\.\d{12}) hash [0-9a-f]{16}\n")
SECONDS_TO_BUILD = 400  # Go compiles its standard library at the first time
SECONDS_TO_RUN = 60


class Skipped(Exception):
    """A language whose compiler is not there."""


class Failed(Exception):
    """A program that was not built, did not run, or printed something else."""


def command_of(variable, name):
    command = os.environ.get(variable) or shutil.which(name)
    if not command:
        raise Skipped(f"no {name} in PATH; {variable} can name one")
    return command


def execute(command, seconds, **more):
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=seconds,
                              **more)
    except subprocess.TimeoutExpired:
        raise Failed(f"not done after {seconds} s: {command}") from None
    if done.returncode != 0:
        raise Failed(f"exit code {done.returncode}: {command}\n{done.stdout}{done.stderr}")
    return done.stdout


class Programs:
    """For each language a method that builds its program and returns the command that runs it."""

    def __init__(self, build):
        self.libraries = build / "src" / "capi"
        self.folder = build / "tests" / "ffi"
        self.folder.mkdir(parents=True, exist_ok=True)
        self.rpath = f"-Wl,-rpath,{self.libraries}"

    def c(self):
        return [self.folder / "ffi_train"]

    def python(self):
        return [sys.executable, HERE / "train.py"]

    def rust(self):
        program = self.folder / "train_rust"
        execute([command_of("RUSTC", "rustc"), "--edition", "2021", "-O", "-D", "warnings",
                 "-L", f"native={self.libraries}", "-C", f"link-arg={self.rpath}", "-o", program, HERE / "train.rs"],
                SECONDS_TO_BUILD)
        return [program]

    def go(self):
        program = self.folder / "train_go"
        # Go's cache does not look into the headers, but at the flags, so these say which headers they are.
        headers = hashlib.sha256(b"".join(h.read_bytes() for h in sorted(ROOT.glob("include/dslide/*.h")))).hexdigest()
        # Nothing is fetched, and nothing is written outside the folder.
        settings = {"GOFLAGS": "-mod=mod -buildvcs=false", "GOPROXY": "off", "GOTOOLCHAIN": "local", "CGO_ENABLED": "1",
                    "GOWORK": "off", "GOCACHE": str(self.folder / "go-cache"), "GOPATH": str(self.folder / "go-path"),
                    "CGO_CFLAGS": f"-I{ROOT / 'include'} -DHEADERS=0x{headers[:8]}",
                    "CGO_LDFLAGS": f"-L{self.libraries} {self.rpath}"}
        execute([command_of("GO", "go"), "build", "-o", program, "."], SECONDS_TO_BUILD, cwd=HERE / "go",
                env={**os.environ, **settings})
        return [program]

    def line_of(self, command):
        data = ROOT / "examples" / "data"
        environment = {**os.environ, "DSLIDE_LIBRARY": str(self.libraries / "libdslide.so")}
        return execute([*command, data / "wordnet-plant-train.txt.gz", data / "wordnet-plant-test.txt.gz"],
                       SECONDS_TO_RUN, env=environment)


def reference_of(programs):
    line = programs.line_of(programs.c())
    match = LINE.fullmatch(line)
    if not match:
        raise Failed(f"the C program printed {line!r}")
    first, second, precision = map(float, match.groups())
    if not 0 < second < first or not 0 < precision < 1:
        raise Failed(f"the C program did not learn: {line!r}")
    return line


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("languages", nargs="*", metavar="LANGUAGE")
    arguments = parser.parse_args()
    known = ["c", "python", "rust", "go"]
    languages = arguments.languages or known
    if not set(languages) <= set(known):
        parser.error(f"languages are {' '.join(known)}")

    programs = Programs(arguments.build.resolve())
    passed = failed = 0
    reasons = []
    for language in languages:
        try:
            command = getattr(programs, language)()
            reference = reference_of(programs)
            line = programs.line_of(command)
            if line != reference:
                raise Failed(f"printed {line!r},\nthe C program {reference!r}")
            passed += 1
            print(f"ok      {language}: {line}", end="")
        except Skipped as reason:
            reasons.append(f"skipped: {language}: {reason}")
        except Failed as reason:
            failed += 1
            print(f"FAILED  {language}: {reason}")
    print("".join(reason + "\n" for reason in reasons), end="")
    print(f"{passed} passed, {failed} failed, {len(reasons)} skipped", flush=True)
    if failed:
        sys.exit(1)
    if not passed:
        print(*reasons, sep="\n", file=sys.stderr)  # the last line of a skipped test is its reason
        sys.exit(77)


main()
