#!/usr/bin/env python3
"""Renames items of the Rust sources as the compiler understands them: rust-analyzer finds every use of one.

    scripts/moves/rename.py TABLE        (rustup component add rust-analyzer rust-src)

A line of the table says where an item is declared, what is declared there, and its new name:

    core/src/volume/mod.rs | mod live | log_index
    core/src/volume/changes.rs | fn carry_out | execute

The second column is found in the file as it stands, word by word, and its last word is what gets the new name, or the one in
brackets (`pub [config]: Config`). A module takes its file and its folder along. A line whose item is not there (any more) is said and passed over, so that running the table twice does
no harm: a branch that was begun before it is rebased by running it there. Words in comments and strings are not touched, but by
lines of the form `= FOLDER | WORD | NEW`, which replace whole words, in comments too.
"""
import json
import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path
from urllib.parse import unquote, urlparse

ROOT = Path.cwd()


class Server:
    """rust-analyzer, spoken to over its standard input and output."""

    def __init__(self):
        self.process = subprocess.Popen(['rust-analyzer'], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.next = 0
        self.answers = {}
        self.quiet = threading.Event()
        self.arrived = threading.Condition()
        threading.Thread(target=self.read, daemon=True).start()
        capabilities = {
            'experimental': {'serverStatusNotification': True},
            'workspace': {'workspaceEdit': {'documentChanges': True, 'resourceOperations': ['rename']}},
        }
        options = {
            'checkOnSave': False,
            'cargo': {'features': 'all', 'targetDir': True, 'allTargets': True},
            'files': {'exclude': ['target', 'web/node_modules']},
        }
        root = ROOT.as_uri()
        self.call('initialize', {
            'processId': os.getpid(), 'rootUri': root, 'capabilities': capabilities, 'initializationOptions': options,
            'workspaceFolders': [{'uri': root, 'name': 'root'}],
        })
        self.send({'method': 'initialized', 'params': {}})
        self.quiet.wait()

    def send(self, message):
        body = json.dumps({'jsonrpc': '2.0', **message}).encode()
        self.process.stdin.write(b'Content-Length: %d\r\n\r\n' % len(body) + body)
        self.process.stdin.flush()

    def read(self):
        while True:
            length = 0
            while True:
                line = self.process.stdout.readline().strip()
                if not line:
                    break
                if line.lower().startswith(b'content-length:'):
                    length = int(line.split(b':')[1])
            if length == 0:
                return
            message = json.loads(self.process.stdout.read(length))
            if message.get('method') == 'experimental/serverStatus':
                if message['params'].get('quiescent'):
                    self.quiet.set()
            elif 'method' in message and 'id' in message:
                items = message.get('params', {}).get('items', []) if isinstance(message.get('params'), dict) else []
                self.send({'id': message['id'], 'result': [None for _ in items] if items else None})
            elif 'id' in message:
                with self.arrived:
                    self.answers[message['id']] = message
                    self.arrived.notify_all()

    def call(self, method, params):
        self.next += 1
        number = self.next
        self.send({'id': number, 'method': method, 'params': params})
        with self.arrived:
            self.arrived.wait_for(lambda: number in self.answers)
            answer = self.answers.pop(number)
        if 'error' in answer:
            raise RuntimeError(answer['error']['message'])
        return answer['result']

    def changed(self, changes):
        self.send({'method': 'workspace/didChangeWatchedFiles', 'params': {'changes': [{'uri': p.as_uri(), 'type': kind} for p, kind in changes]}})


def path_of(uri):
    return Path(unquote(urlparse(uri).path))


def position_of(text, declared):
    """Line and character of the last word of what is declared, or nothing."""
    before, named, after = re.fullmatch(r'(.*)\[(\w+)\](.*)', declared).groups() if '[' in declared else \
        re.fullmatch(r'(.*?)(\w+)()', declared).groups()
    pattern = re.escape(before) + '(' + named + ')' + (re.escape(after) if after else r'\b')
    match = re.search(r'(?<!\w)' + pattern, text)
    if not match:
        return None
    before = text[:match.start(1)]
    line = before.count('\n')
    return {'line': line, 'character': len(before) - (before.rfind('\n') + 1)}


def placed_edits(text, edits):
    """Edits as offsets into the text, the last one first."""
    starts = [0]
    for found in re.finditer('\n', text):
        starts.append(found.end())

    def offset(at):
        # Characters are counted in UTF-16 units.
        begin = starts[at['line']]
        end = text.find('\n', begin)
        line = text[begin:end if end >= 0 else len(text)]
        units = line.encode('utf-16-le')[:2 * at['character']]
        return begin + len(units.decode('utf-16-le'))

    return sorted({(offset(e['range']['start']), offset(e['range']['end']), e['newText']) for e in edits}, reverse=True)


class Stale(Exception):
    """The server has not read yet what was written last."""


def apply(server, edit, old):
    """Edits first, then files, which are moved with their folders. Nothing is written where an edit does not meet the old name."""
    texts, moves, count = {}, [], 0
    edits_of = [(path_of(uri), edits) for uri, edits in (edit.get('changes') or {}).items()]
    for change in edit.get('documentChanges') or []:
        if change.get('kind') == 'rename':
            moves.append((path_of(change['oldUri']), path_of(change['newUri'])))
        else:
            edits_of.append((path_of(change['textDocument']['uri']), change['edits']))
    for path, edits in edits_of:
        text = texts.get(path) or path.read_text()
        for begin, end, new in placed_edits(text, edits):
            if text[begin:end] not in (old, ''):
                raise Stale()
            text = text[:begin] + new + text[end:]
            count += 1
        texts[path] = text
    for path, text in texts.items():
        path.write_text(text)
    changed = [(path, 2) for path in texts]
    for old, new in moves:
        under = [p for p in old.rglob('*.rs')] if old.is_dir() else [old]
        new.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(['git', 'mv', str(old), str(new)], check=True)
        for path in under:
            changed.append((path, 3))
            changed.append((new / path.relative_to(old) if path != old else new, 1))
    server.changed(changed)
    return count


def replace_words(server, folder, old, new):
    changed = []
    for path in sorted(folder.rglob('*.rs')) if folder.is_dir() else [folder]:
        text = path.read_text()
        replaced = re.sub(rf'(?<!\w){re.escape(old)}(?!\w)', new, text)
        if replaced != text:
            path.write_text(replaced)
            changed.append((path, 2))
    print(f'{len(changed):5} files: {old} | {new}', flush=True)
    server.changed(changed)
    time.sleep(1)


def main():
    lines = [line.split('#')[0].strip() for line in Path(sys.argv[1]).read_text().splitlines()]
    server = Server()
    failed = 0
    for line in filter(None, lines):
        file, declared, new = [part.strip() for part in line.split('|')]
        if file.startswith('='):
            replace_words(server, ROOT / file[1:].strip(), declared, new)
            continue
        path = ROOT / file
        position = position_of(path.read_text(), declared) if path.exists() else None
        if position is None:
            print(f'not there: {line}')
            continue
        old = re.search(r'\[(\w+)\]|(\w+)$', declared)
        for attempt in range(20):
            time.sleep(0.3)
            try:
                edit = server.call('textDocument/rename', {'textDocument': {'uri': path.as_uri()}, 'position': position, 'newName': new})
                print(f'{apply(server, edit or {}, old.group(1) or old.group(2)):5} {line}', flush=True)
                break
            except (RuntimeError, Stale) as error:
                if attempt == 19 or 'content modified' not in str(error) and not isinstance(error, Stale):
                    print(f'FAILED: {line}: {error}')
                    failed += 1
                    break
    server.process.kill()
    sys.exit(1 if failed else 0)


main()
