#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reads a checkpoint by what docs/checkpoint.md says, and nothing else of the library.

    read_checkpoint.py DIR      checks all checksums and names what is inside
"""
import json
import os
import re
import struct
import sys

import xxhash

FORMATS = {'F32': 'f', 'I64': 'q', 'I32': 'i', 'U8': 'B'}
START = b'{"format":"dslide-checkpoint","version":"'
TAIL = re.compile(rb',\n"xxh3":"([0-9a-f]{16})"\}\n\Z')


def xxh3(data):
    return xxhash.xxh3_64_hexdigest(data)


def expect(condition, text):
    if not condition:
        raise ValueError(text)


def read_file(folder, entry, block_bytes):
    expect(re.fullmatch(r'[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}', entry['name']), 'name')
    with open(os.path.join(folder, entry['name']), 'rb') as f:
        data = f.read()
    expect(len(data) == entry['size'], f"{entry['name']}: size")
    sums = ''.join(xxh3(data[at:at + block_bytes]) for at in range(0, len(data), block_bytes))
    expect(sums == entry['xxh3'], f"{entry['name']}: checksum")
    return data


def read_shard(data):
    """name -> (dtype, shape, range, bytes)"""
    (length,) = struct.unpack_from('<Q', data)
    header = json.loads(data[8:8 + length])
    ranges = header.pop('__metadata__')
    expect((8 + length) % 64 == 0, 'alignment')
    entries, covered = {}, 0
    for name, entry in sorted(header.items(), key=lambda item: item[1]['data_offsets']):
        begin, end = entry['data_offsets']
        expect(begin == covered, f'{name}: hole or overlap')
        covered = end
        entries[name] = (entry['dtype'], entry['shape'], ranges[name], data[8 + length + begin:8 + length + end])
    expect(covered == len(data) - 8 - length, 'data after the last tensor')
    return entries


def read_manifest(folder):
    with open(os.path.join(folder, 'manifest.json'), 'rb') as f:
        text = f.read()
    expect(text.startswith(START), 'not a checkpoint')
    tail = TAIL.search(text)
    expect(tail and xxh3(text[:tail.start()]) == tail.group(1).decode(), 'manifest: checksum')
    manifest = json.loads(text)
    expect(manifest['version'].split('.')[0] == '1', 'version')
    return manifest


def read_checkpoint(folder):
    """meta, {tensor: (dtype, rows, cols, values)}, {file: bytes}"""
    manifest = read_manifest(folder)
    block = manifest['block_bytes']
    shards = {entry['name']: read_shard(read_file(folder, entry, block)) for entry in manifest['shards']}
    tensors = {}
    for tensor in manifest['tensors']:
        rows, cols = tensor['shape']
        values, stripe, covered = [None] * (rows * cols), (0, 0), rows
        for part in tensor['parts']:
            (begin, end), (left, right) = part['rows'], part.get('cols', [0, cols])
            if (left, right) != stripe:
                expect(covered == rows and left == stripe[1], f"{tensor['name']}: stripes")
                stripe, covered = (left, right), 0
            expect(begin == covered, f"{tensor['name']}: rows")
            covered = end
            dtype, shape, where, data = shards[part['shard']].pop(tensor['name'])
            expect(dtype == tensor['dtype'] and shape == [end - begin, right - left], f"{tensor['name']}: shape of a part")
            expect(where == f'{begin}:{end}/{rows}' + (f',{left}:{right}/{cols}' if right - left < cols else ''),
                   f"{tensor['name']}: range of a part")
            found = struct.unpack(f"<{(end - begin) * (right - left)}{FORMATS[dtype]}", data)
            for row in range(begin, end):
                at = (row - begin) * (right - left)
                values[row * cols + left:row * cols + right] = found[at:at + right - left]
        expect(covered == rows and stripe[1] == cols, f"{tensor['name']}: rows or columns")
        tensors[tensor['name']] = (tensor['dtype'], rows, cols, values)
    expect(not any(shards.values()), 'a shard has what the manifest does not name')
    return manifest['meta'], tensors, {entry['name']: read_file(folder, entry, block) for entry in manifest['files']}


if __name__ == '__main__':
    found_meta, found_tensors, found_files = read_checkpoint(sys.argv[1])
    print('meta', found_meta)
    for found, (kind, n_rows, n_cols, _) in found_tensors.items():
        print(found, kind, n_rows, 'x', n_cols)
    print('files', *found_files)
