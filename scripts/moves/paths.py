#!/usr/bin/env python3
"""Rewrites the paths in Rust sources after modules and items have moved between packages.

A table says where files and items were and are: `old::module -> package::new::module`, old paths being those in the package `node`
before its division. Every `use` and every inline path that begins with `crate::` or `super::` is resolved as the file at its old
place meant it, mapped, and written as the file at its new place must say it. Running it twice changes nothing.
"""
import re
import sys
from pathlib import Path


def read_table(path):
    table = {}
    for line in Path(path).read_text().splitlines():
        line = line.split('#')[0].strip()
        if line:
            old, new = [part.strip() for part in line.split('->')]
            table[old] = new
    return table


def module_of(path, root):
    parts = list(path.relative_to(root).with_suffix('').parts)
    if parts and parts[-1] in ('mod', 'lib', 'main'):
        parts.pop()
    return parts


class Mapper:
    def __init__(self, table):
        self.forward = {tuple(old.split('::')): tuple(new.split('::')) for old, new in table.items()}
        self.backward = {new: old for old, new in self.forward.items()}

    def new(self, old):
        """(package, path) of an old absolute path in node."""
        for length in range(len(old), 0, -1):
            head = tuple(old[:length])
            if head in self.forward:
                return self.forward[head] + tuple(old[length:])
        return ('node',) + tuple(old)

    def old_module(self, package, module):
        """Where a module of a package was, as a path in node."""
        whole = (package,) + tuple(module)
        for length in range(len(whole), 0, -1):
            if whole[:length] in self.backward:
                return self.backward[whole[:length]] + whole[length:]
        return tuple(module)


def inline_modules(text):
    """Spans of `mod name { ... }` with their names."""
    spans = []
    for match in re.finditer(r'\bmod (\w+) \{', text):
        depth, at = 1, match.end()
        while depth and at < len(text):
            depth += {'{': 1, '}': -1}.get(text[at], 0)
            at += 1
        spans.append((match.start(), at, match.group(1)))
    return spans


def flatten(tree):
    """Leaves of a use tree: paths with their `as`."""
    tree = tree.strip()
    depth, parts, current = 0, [], ''
    for char in tree:
        if char == '{':
            depth += 1
        if char == '}':
            depth -= 1
        if char == ',' and depth == 0:
            parts.append(current)
            current = ''
        else:
            current += char
    if current.strip():
        parts.append(current)
    leaves = []
    for part in (part.strip() for part in parts):
        if not part:
            continue
        brace = part.find('{')
        if brace < 0:
            leaves.append(part)
        else:
            head = part[:brace]
            leaves.extend(head + leaf for leaf in flatten(part[brace + 1:part.rindex('}')]))
    return leaves


def rewrite(path, package, root, mapper):
    text = path.read_text()
    module = module_of(path, root)
    spans = inline_modules(text)

    def here(at):
        return tuple(module) + tuple(name for start, end, name in spans if start < at < end)

    def resolve(expression, at):
        """The path that an expression means in the new tree as (package, path); None where it is none of ours."""
        parts = expression.split('::')
        now = here(at)
        if parts[0] == 'crate':
            # What was written for the new place already is left alone.
            return mapper.new(tuple(parts[1:])) if not exists(package, parts[1:]) else None
        if parts[0] == 'super':
            old = mapper.old_module(package, now)
            while parts and parts[0] == 'super':
                old, parts = old[:-1], parts[1:]
            if not parts or parts[0] == '*':
                return None
            return mapper.new(old + tuple(parts))
        return None

    def exists(name, parts):
        base = Path(name) / 'src'
        return bool(parts) and name != 'node' and ((base / (parts[0] + '.rs')).exists() or (base / parts[0]).is_dir()) and \
            mapper.new(tuple(parts))[0] == 'node'

    def written(target):
        if target[0] == package:
            return '::'.join(('crate',) + target[1:])
        return '::'.join(('forebay_' + target[0],) + target[1:])

    def same(expression, at, target):
        """Whether the expression means the target at the new place as it stands."""
        parts = expression.split('::')
        now = here(at)
        if parts[0] == 'crate':
            return (package,) + tuple(parts[1:]) == target
        new = (package,) + now
        while parts and parts[0] == 'super':
            new, parts = new[:-1], parts[1:]
        return new + tuple(parts) == target

    def on_use(match):
        lead, tree = match.group(1), match.group(2)
        leaves = flatten(tree)
        kept, moved = [], {}
        for leaf in leaves:
            bare, _, alias = leaf.partition(' as ')
            bare = bare.strip()
            bare_path = re.sub(r'::(self|\*)$', '', bare)
            end = bare[len(bare_path):]
            target = resolve(bare_path, match.start())
            if target is None or same(bare_path, match.start(), target):
                kept.append(leaf)
                continue
            if end == '::self':
                end = ''
            name = written(target)
            moved.setdefault(name.rsplit('::', 1)[0], []).append(name + end + (' as ' + alias if alias else ''))
        if not moved:
            return match.group(0)
        lines = []
        if kept:
            lines.append(lead + ('{' + ', '.join(kept) + '}' if len(kept) > 1 else kept[0]) + ';')
        for names in moved.values():
            lines.extend(lead + name + ';' for name in names)
        return '\n'.join(lines)

    use = re.compile(r'(?m)^([ \t]*(?:pub(?:\([^)]*\))? )?use )((?:crate|super)::[^;]+|\{[^;]+);')
    text = use.sub(on_use, text)
    spans = inline_modules(text)

    def on_path(match):
        expression = match.group(0)
        line_start = text.rfind('\n', 0, match.start()) + 1
        line = text[line_start:match.start()]
        if re.match(r'\s*(pub(\([^)]*\))? )?use ', line) or 'pub(in ' in line[-8:]:
            return expression
        target = resolve(expression, match.start())
        if target is None or same(expression, match.start(), target):
            return expression
        return written(target)

    text = re.sub(r'(?<![\w:$])(?:crate|super)(?:::\w+)+', on_path, text)
    path.write_text(text)


def main():
    table, packages = read_table(sys.argv[1]), sys.argv[2:]
    mapper = Mapper(table)
    for package in packages:
        root = Path(package) / 'src'
        for path in sorted(root.rglob('*.rs')):
            rewrite(path, package, root, mapper)


main()
