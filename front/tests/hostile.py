"""Clients that break the rules, by libnbd with its own checks switched off. Usage: hostile.py URI SIZE SOCKET"""
import errno
import nbd
import socket
import sys

uri, size, path = sys.argv[1], int(sys.argv[2]), sys.argv[3]


def connect():
    h = nbd.NBD()
    h.set_strict_mode(0)
    h.connect_uri(uri)
    return h


cases = [
    ("read over the end", lambda h: h.pread(4096, size - 512), errno.EINVAL),
    ("read at 2^63", lambda h: h.pread(512, 2**63 - 512), errno.EINVAL),
    ("read nothing", lambda h: h.pread(0, 0), errno.EINVAL),
    ("read more than 32 MiB", lambda h: h.pread((32 << 20) + 1, 0), errno.EINVAL),
    ("trim past the end", lambda h: h.trim(4096, size), errno.EINVAL),
    ("write with an unknown flag", lambda h: h.pwrite(b"x" * 512, 0, 1 << 15), errno.EINVAL),
    ("write over the end", lambda h: h.pwrite(b"x" * 4096, size - 512), errno.ENOSPC),
    ("write more than 32 MiB", lambda h: h.pwrite(b"x" * (33 << 20), 0), errno.EINVAL),
    ("zero over the end", lambda h: h.zero(4096, size - 512), errno.ENOSPC),
    ("zero nothing", lambda h: h.zero(0, 0), errno.EINVAL),
    ("cache past the end", lambda h: h.cache(4096, size), errno.EINVAL),
    ("status without a context", lambda h: h.block_status(512, 0, lambda *a: 0), errno.EINVAL),
]
for name, request, expected in cases:
    h = connect()
    try:
        request(h)
    except nbd.Error as e:
        assert e.errnum == expected, f"{name}: {e.errnum} instead of {expected}"
    else:
        raise AssertionError(f"{name}: succeeded")
    assert len(h.pread(512, 0)) == 512, f"{name}: the connection must stay usable"
    h.shutdown()

silent = []
for _ in range(200):
    s = socket.socket(socket.AF_UNIX)
    s.connect(path)
    silent.append(s)
h = connect()
h.pread(512, 0)
h.shutdown()

# A client that asks for much and reads nothing must not disturb the others.
greedy = nbd.NBD()
greedy.connect_uri(uri)
buffers = [nbd.Buffer(1 << 20) for _ in range(60)]
for b in buffers:
    greedy.aio_pread(b, 0)
h = connect()
for _ in range(100):
    h.pread(4096, 0)
h.shutdown()
print(f"{len(cases)} cases")
