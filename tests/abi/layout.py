#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the public headers fix in a compiled program: sizes and offsets of the structs, values of the constants.

    layout.py INCLUDE_DIR --program     a C program that prints both as the compiler has them, one a line
    layout.py LIST PRINTED              compares the lists in the repository with what that program printed

Lines: `struct SIZE`, `struct.field OFFSET SIZE type`, `CONSTANT VALUE`, in the order of the headers. A struct may only
grow at its end, and `reserved` may be renamed; whatever else differs breaks programs that are compiled already.
"""
import difflib
import glob
import os
import re
import sys

RELEASE = {'DSLIDE_VERSION_MAJOR', 'DSLIDE_VERSION_MINOR', 'DSLIDE_VERSION_PATCH', 'DSLIDE_ABI_VERSION'}


def headers(include_dir):
    text = ''
    for path in sorted(glob.glob(os.path.join(include_dir, 'dslide', '*.h'))):
        with open(path, encoding='utf-8') as f:
            text += re.sub(r'/\*.*?\*/', ' ', f.read(), flags=re.S)
    return text


def structs(text):
    for name, body in re.findall(r'typedef struct (dslide_\w+) \{(.*?)\} \w+;', text, flags=re.S):
        fields = []
        for line in filter(None, (' '.join(part.split()) for part in body.split(';'))):
            kind, field, count = re.fullmatch(r'(.*?)(\w+)((?:\[\w+\])?)', line).groups()
            fields.append((field, kind.strip() + count))
        yield name, fields


def constants(text):
    names = re.findall(r'\b(DSLIDE_\w+)\s*=\s*-?\d+', text) + re.findall(r'#define (DSLIDE_\w+) \d+\b', text)
    return [name for name in names if name not in RELEASE]


def program(include_dir):
    text = headers(include_dir)
    print('#include <dslide/dslide.h>\n#include <stdio.h>\nint main(void) {')
    for name, fields in structs(text):
        print(f'    printf("{name} %zu\\n", sizeof({name}));')
        for field, kind in fields:
            print(f'    printf("{name}.{field} %zu %zu {kind}\\n", offsetof({name}, {field}),'
                  f' sizeof((({name} *)0)->{field}));')
    for name in constants(text):
        print(f'    printf("{name} %lld\\n", (long long){name});')
    print('    return 0;\n}')


def lines_of(path):
    with open(path, encoding='utf-8') as f:
        return [line.rstrip('\n') for line in f if line.strip() and not line.startswith('#')]


def sizes_of(lines):
    return {line.split()[0]: int(line.split()[1]) for line in lines if re.fullmatch(r'dslide_\w+ \d+', line)}


def fields_of(lines):
    """For each struct its fields as (name, offset, size, type)."""
    fields = {}
    for struct, name, offset, size, kind in (re.fullmatch(r'(dslide_\w+)\.(\w+) (\d+) (\d+) (.*)', line).groups()
                                             for line in lines if re.match(r'dslide_\w+\.', line)):
        fields.setdefault(struct, []).append((name, int(offset), int(size), kind))
    return fields


def held_by_value(fields):
    return {kind: struct for struct in fields for _, _, _, kind in fields[struct] if kind in fields}


def holes(lines):
    """Padding is never written by a caller who sets all fields, so no later field may come to lie in it."""
    sizes = sizes_of(lines)
    for struct, fields in fields_of(lines).items():
        end = 0
        for name, offset, size, _ in fields:
            if offset != end:
                yield f'{struct}: {offset - end} bytes of padding before {name}; name them `reserved` or move fields'
            end = offset + size
        if end != sizes[struct]:
            yield f'{struct}: {sizes[struct] - end} bytes of padding at its end; add a `reserved` field'


def breaks(old, new):
    """What an old program would trip over."""
    old_fields, new_fields = fields_of(old), fields_of(new)
    for struct, fields in old_fields.items():
        now = new_fields.get(struct)
        if now is None:
            yield f'{struct} is gone'
            continue
        at = {(name, offset, size, kind) for name, offset, size, kind in now}
        for field in fields:
            if field not in at and not field[0].startswith('reserved'):
                yield f'{struct}.{field[0]} is moved, changed or gone; new fields go to the end'
        end = fields[-1][1] + fields[-1][2]
        if any(begin < end < begin + size for _, begin, size, _ in now):
            yield f'{struct}: a field spans its old end, byte {end}'
    sizes = sizes_of(new)
    for inner, outer in held_by_value(old_fields).items():
        if sizes.get(inner) != sizes_of(old)[inner]:
            yield f'{inner} changes its size, but {outer} holds it by value: what follows it there would move'
    values = dict(line.split() for line in new if line.startswith('DSLIDE_'))
    for name, value in (line.split() for line in old if line.startswith('DSLIDE_')):
        if values.get(name) != value:
            yield f'{name} was {value} and is {values.get(name, "gone")}; values are never reused'


def compare(list_path, printed_path):
    old, new = lines_of(list_path), lines_of(printed_path)
    if not new:
        sys.exit('the program printed nothing')
    faults = list(holes(new)) + list(breaks(old, new))
    for fault in faults:
        print(fault)
    if not faults and old != new:
        print(f'nothing that a compiled program knows has changed; list what is new in {os.path.basename(list_path)}:')
        print('\n'.join(difflib.unified_diff(old, new, 'listed', 'in the headers', lineterm='')))
    return 1 if faults or old != new else 0


if sys.argv[2:] == ['--program']:
    program(sys.argv[1])
else:
    sys.exit(compare(sys.argv[1], sys.argv[2]))
