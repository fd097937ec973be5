#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Rules for the sources that no compiler checks.

    check_sources.py ROOT RULE      one rule; exit 1 and a line for each breach
    check_sources.py ROOT --list    names of the rules
"""
import os
import re
import sys

# Who may include whom, besides itself. Arrows point one way: a folder lists only folders below it.
LAYERS = {
    'core': [],
    'simd': ['core'],
    'exchange': ['core', 'simd'],
    'data': ['core'],
    'optim': ['core', 'simd'],
    'lsh': ['core', 'simd'],
    'loss': ['core', 'simd'],
    'layers': ['core', 'simd', 'optim', 'lsh', 'loss'],
    'model': ['core', 'simd', 'data', 'optim', 'lsh', 'loss', 'layers', 'exchange'],
    'predict': ['core', 'simd', 'data', 'optim', 'lsh', 'loss', 'layers', 'exchange', 'model'],
    'train': ['core', 'simd', 'data', 'optim', 'lsh', 'loss', 'layers', 'exchange', 'model', 'predict'],
    'capi': ['core', 'simd', 'data', 'optim', 'lsh', 'loss', 'layers', 'exchange', 'model', 'predict', 'train'],
    'cli': [],  # includes only include/dslide, like any host
}

SOURCE = ('.c', '.cpp', '.h', '.hpp')
SCRIPT = ('.sh', '.py', '.rs', '.go', '.jl')
SKIP_DIRS = {'.git', 'subprojects', '__pycache__', 'node_modules', 'target'}

# What a library must leave to its host. Member functions of these names are fine, so "." and "->" before exclude.
FORBIDDEN_CALLS = ['printf', 'vprintf', 'puts', 'putchar', 'perror', 'exit', '_exit', '_Exit', 'quick_exit', 'atexit',
                   'abort', 'signal', 'sigaction', 'raise', 'fork', 'vfork', 'system', 'popen', 'setenv', 'unsetenv',
                   'putenv', 'setlocale', 'fesetround', 'feenableexcept', 'srand', 'rand', 'chdir', 'umask']
FORBIDDEN_NAMES = ['std::cout', 'std::cerr', 'std::clog', 'stdout', 'stderr', 'std::terminate', 'global_control',
                   '_MM_SET_FLUSH_ZERO_MODE', '_MM_SET_DENORMALS_ZERO_MODE', 'MPI_Abort']


def files(root, top, endings):
    for folder, dirs, names in os.walk(os.path.join(root, top)):
        dirs[:] = sorted(d for d in dirs if d not in SKIP_DIRS and not d.startswith('build'))
        for name in sorted(names):
            if name.endswith(endings):
                yield os.path.relpath(os.path.join(folder, name), root)


def read(root, path):
    with open(os.path.join(root, path), encoding='utf-8') as f:
        return f.read()


def code_of(text):
    """Replaces comments, strings and character literals by blanks; keeps the line numbers."""
    pattern = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\'', re.S)
    return pattern.sub(lambda m: ''.join('\n' if c == '\n' else ' ' for c in m.group()), text)


def includes(text):
    for number, line in enumerate(text.split('\n'), 1):
        m = re.match(r'\s*#\s*include\s*([<"])([^>"]+)[>"]', line)
        if m:
            yield number, m.group(1), m.group(2)


def rule_layering(root):
    for path in files(root, 'src', SOURCE):
        parts = path.split('/')
        if len(parts) < 3:
            continue
        folder = parts[1]
        if folder not in LAYERS:
            yield f'{path}: src/{folder} has no place in the layering'
            continue
        for number, quote, name in includes(read(root, path)):
            if quote != '"':
                continue
            target = name.split('/')[0] if '/' in name else folder
            if target != folder and target not in LAYERS[folder]:
                yield f'{path}:{number}: src/{folder} must not include "{name}"'


def rule_layers_apart(root):
    # A layer is a file among these; what several of them share (update rules, block products) is not one.
    layers = {'sparse_input', 'dense', 'sampled_output'}
    for path in files(root, 'src/layers', SOURCE):
        own = os.path.splitext(os.path.basename(path))[0]
        for number, quote, name in includes(read(root, path)):
            other = os.path.splitext(os.path.basename(name))[0]
            if quote == '"' and own in layers and other in layers and other != own:
                yield f'{path}:{number}: layers do not include each other: "{name}"'


def rule_onednn_in_one_file(root):
    users = {}
    for path in files(root, 'src', SOURCE):
        for number, _, name in includes(read(root, path)):
            # dnnl_version.h holds the version number alone
            if re.search(r'(^|/)dnnl[^/]*\.hp?p?$', name) and not name.endswith('dnnl_version.h'):
                users.setdefault(path, number)
    if len(users) > 1:
        for path, number in users.items():
            yield f'{path}:{number}: includes oneDNN; only one file may'


def rule_mpi_in_exchange(root):
    for path in files(root, 'src', SOURCE):
        for number, _, name in includes(read(root, path)):
            if name == 'mpi.h' and path != 'src/exchange/mpi/module.c':
                yield f'{path}:{number}: includes mpi.h, which only the module does'


def rule_cli_is_a_host(root):
    for path in files(root, 'src/cli', SOURCE):
        for number, quote, name in includes(read(root, path)):
            if quote == '"' and '/' in name and not name.startswith(('cli/', 'dslide/')):
                yield f'{path}:{number}: the command uses only include/dslide, not "{name}"'


def rule_public_headers_alone(root):
    allowed = {'stddef.h', 'stdint.h'}
    for path in files(root, 'include', SOURCE):
        for number, _, name in includes(read(root, path)):
            if name not in allowed and not name.startswith('dslide/') and not path.endswith('/mpi.h'):
                yield f'{path}:{number}: a public header must not include {name}'


def rule_quiet_library(root):
    calls = re.compile(r'(?<![\w.>])(?:std::)?(' + '|'.join(FORBIDDEN_CALLS) + r')\s*\(')
    names = re.compile(r'(?<![\w.>:])(' + '|'.join(map(re.escape, FORBIDDEN_NAMES)) + r')\b')
    for path in files(root, 'src', SOURCE):
        if path.startswith('src/cli/'):
            continue
        for number, line in enumerate(code_of(read(root, path)).split('\n'), 1):
            found = calls.search(line) or names.search(line)
            if found:
                yield f'{path}:{number}: a library leaves this to its host: {found.group(1)}'


def rule_no_native_code(root):
    flag = re.compile('-m' + r'(arch|tune|cpu)=native|-O' + r'fast\b|-ff' + r'ast-math')
    for path in files(root, '.', SOURCE + ('meson.build', '.txt', '.cmake', '.in', '.sh', '.rs', '.go')):
        for number, line in enumerate(read(root, path).split('\n'), 1):
            if flag.search(line):
                yield f'{path}:{number}: built for one CPU or loose arithmetic: {line.strip()}'


def rule_spdx(root):
    for top in ('include', 'src', 'tests', 'examples', 'bindings', 'docs'):
        for path in files(root, top, SOURCE + SCRIPT):
            head = '\n'.join(read(root, path).split('\n')[:3])
            if 'SPDX-License-Identifier: Apache-2.0' not in head:
                yield f'{path}: no SPDX line at its head'


def rule_no_views_in_headers(root):
    for path in files(root, 'src', ('.h', '.hpp')):
        for number, _, name in includes(read(root, path)):
            if name in ('ranges', 'format', 'expected', 'print'):
                yield f'{path}:{number}: <{name}> is not usable with every supported compiler'


# What the headers of one standard library bring along those of another do not: g++ 14 needs includes that 12 forgave.
STANDARD_NAMES = {
    'cstdint': re.compile(r'\bstd::u?int(8|16|32|64)_t\b'),
    'cstring': re.compile(r'\bstd::(memcpy|memset|memcmp|strlen|strncpy|strcmp|strerror)\b'),
    'algorithm': re.compile(r'\bstd::(sort|stable_sort|min|max|clamp|copy_n|fill|find_if|any_of|all_of|none_of|lower_bound|'
                            r'upper_bound|remove_if|unique|nth_element|partial_sort|transform|min_element|max_element)\b'),
    'memory': re.compile(r'\bstd::(unique_ptr|shared_ptr|make_unique|make_shared)\b'),
    'vector': re.compile(r'\bstd::vector\b'),
    'string': re.compile(r'\bstd::(string|to_string)\b'),
}


def rule_standard_includes(root):
    closures = {}

    def closure(path):
        if path not in closures:
            closures[path] = set()  # cuts cycles
            found = set()
            for _, quote, name in includes(read(root, path)):
                inside = [os.path.join(top, name) for top in ('src', 'include', os.path.dirname(path))]
                inside = [p for p in inside if os.path.exists(os.path.join(root, p))]
                found |= closure(inside[0]) if inside else {name}
            closures[path] = found
        return closures[path]

    for top in ('src', 'tests'):
        for path in files(root, top, ('.hpp', '.cpp')):
            text = code_of(read(root, path))
            for header, names in STANDARD_NAMES.items():
                used = names.search(text)
                if used and header not in closure(path):
                    yield f'{path}: {used.group()} without <{header}>'


def rule_plain_text(root):
    for path in files(root, '.', SOURCE + SCRIPT + ('meson.build', '.md')):
        text = read(root, path)
        if text and not text.endswith('\n'):
            yield f'{path}: no line end at the end of the file'
        for number, line in enumerate(text.split('\n'), 1):
            if line != line.rstrip() or '\r' in line:
                yield f'{path}:{number}: blanks at the end of the line'
            if '\t' in line and path.endswith(SOURCE + ('.py', 'meson.build')):
                yield f'{path}:{number}: a tab'


def rule_links(root):
    for path in files(root, '.', '.md'):
        for number, line in enumerate(read(root, path).split('\n'), 1):
            for target in re.findall(r'\]\(([^)\s]+)\)', line):
                if re.match(r'[a-z]+:|#|@ref', target):
                    continue
                place = os.path.normpath(os.path.join(root, os.path.dirname(path), target.split('#')[0]))
                if not os.path.exists(place):
                    yield f'{path}:{number}: link to {target}, which is not there'


def rule_folder_readmes(root):
    src = os.path.join(root, 'src')
    for folder in sorted(os.listdir(src)):
        path = os.path.join(src, folder)
        if os.path.isdir(path) and any(n.endswith(SOURCE) for n in os.listdir(path)):
            if not os.path.exists(os.path.join(path, 'README.md')):
                yield f'src/{folder}: no README.md'


RULES = {name[len('rule_'):]: function for name, function in sorted(globals().items()) if name.startswith('rule_')}


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    root, rule = sys.argv[1:]
    if rule == '--list':
        print('\n'.join(RULES))
        return
    breaches = list(RULES[rule](root))
    print('\n'.join(breaches), end='\n' if breaches else '')
    sys.exit(1 if breaches else 0)


main()
