#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Names of the functions that the public headers declare, sorted, one a line.

    declared.py INCLUDE_DIR              the names
    declared.py INCLUDE_DIR --program    a program, C and C++, that takes the address of each
    declared.py INCLUDE_DIR --options    names of the options structs that have an init function
"""
import glob
import os
import re
import sys


def declarations(include_dir):
    names = []
    for path in sorted(glob.glob(os.path.join(include_dir, 'dslide', '*.h'))):
        if os.path.basename(path) == 'mpi.h':
            continue  # a library of its own exports what it declares
        with open(path, encoding='utf-8') as f:
            text = re.sub(r'/\*.*?\*/', ' ', f.read(), flags=re.S)
        text = re.sub(r'^\s*#.*$', ' ', text, flags=re.M)
        names += re.findall(r'DSLIDE_API\b[^;{]*?\b(dslide_\w+)\s*\(', text)
    return sorted(set(names))


def main():
    names = declarations(sys.argv[1])
    what = sys.argv[2] if len(sys.argv) > 2 else ''
    if what == '--program':
        print('#include <dslide/dslide.h>')
        print('typedef void (*any_function)(void);')
        print('static const any_function functions[] = {')
        for name in names:
            print(f'    (any_function)&{name},')
        print('};')
        print('int main(void) {')
        print('    size_t i;')
        print('    for (i = 0; i < sizeof functions / sizeof functions[0]; ++i) if (!functions[i]) return 1;')
        print('    return dslide_abi_version() == DSLIDE_ABI_VERSION ? 0 : 2;')
        print('}')
    elif what == '--options':
        print('\n'.join(n[:-len('_init')] for n in names if n.endswith('_options_init')))
    else:
        print('\n'.join(names))


main()
