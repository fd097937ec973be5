#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes a checkpoint by what docs/checkpoint.md says, and nothing else of the library.

    make_checkpoint.py DIR GENERATION       the content of sample.py

tests/golden/checkpoint-1.0 was made by it and stays as it is: later versions of the library must read it.
"""
import json
import os
import struct
import sys

import xxhash

import sample

FORMATS = {'F32': 'f', 'I64': 'q', 'I32': 'i', 'U8': 'B'}
BLOCK_BYTES = 512


def xxh3(data):
    return xxhash.xxh3_64_hexdigest(data)


def shard_bytes(parts):
    """parts: [(name, dtype, rows, cols, begin, end, values)]"""
    header, data = {'__metadata__': {}}, b''
    for name, dtype, rows, cols, begin, end, values in parts:
        part = struct.pack(f'<{len(values)}{FORMATS[dtype]}', *values)
        header['__metadata__'][name] = f'{begin}:{end}/{rows}'
        header[name] = {'dtype': dtype, 'shape': [end - begin, cols], 'data_offsets': [len(data), len(data) + len(part)]}
        data += part
    text = json.dumps(header).encode()
    text += b' ' * (-(8 + len(text)) % 64)
    return struct.pack('<Q', len(text)) + text + data


def write_file(folder, name, data):
    with open(os.path.join(folder, name), 'wb') as f:
        f.write(data)
    sums = ''.join(xxh3(data[at:at + BLOCK_BYTES]) for at in range(0, len(data), BLOCK_BYTES))
    return {'name': name, 'size': len(data), 'xxh3': sums}


def split(tensors):
    """Two shards: the first rows of the weights in one; all the rest, and everything else, in the other."""
    first, second = [], []
    for name, (dtype, rows, cols, values) in sorted(tensors.items(), key=lambda t: -struct.calcsize(FORMATS[t[1][0]])):
        cut = rows // 3 if name == 'output.weight' else 0
        if cut:
            first.append((name, dtype, rows, cols, 0, cut, values[:cut * cols]))
        second.append((name, dtype, rows, cols, cut, rows, values[cut * cols:]))
    return {'first.safetensors': first, 'second.safetensors': second}


def write_checkpoint(folder, generation):
    os.mkdir(folder)
    shards = split(sample.tensors(generation))
    manifest = {'format': 'dslide-checkpoint', 'version': '1.0', 'block_bytes': BLOCK_BYTES}
    manifest['shards'] = [write_file(folder, name, shard_bytes(parts)) for name, parts in shards.items()]
    manifest['files'] = [write_file(folder, name, data) for name, data in sample.files(generation).items()]
    manifest['tensors'] = [
        {'name': name, 'dtype': dtype, 'shape': [rows, cols],
         'parts': [{'shard': shard, 'rows': list(part[4:6])} for shard, parts in shards.items() for part in parts
                   if part[0] == name]}
        for name, (dtype, rows, cols, _) in sample.tensors(generation).items()]
    manifest['meta'] = sample.meta(generation)
    body = json.dumps(manifest, separators=(',', ':')).encode()[:-1]  # without the last brace
    with open(os.path.join(folder, 'manifest.json'), 'wb') as f:
        f.write(body + b',\n"xxh3":"' + xxh3(body).encode() + b'"}\n')


if __name__ == '__main__':
    write_checkpoint(sys.argv[1], int(sys.argv[2]))
