"""Eight connections with 64 requests each in flight against a shadow copy. Usage: parallel.py URI BYTES"""
import nbd
import random
import select
import sys

uri, size = sys.argv[1], int(sys.argv[2])
rng = random.Random(20)
N, DEPTH, OPS = 8, 64, 12000
conns = []
for _ in range(N):
    h = nbd.NBD()
    h.connect_uri(uri)
    conns.append(h)
assert conns[0].can_multi_conn()
shadow = bytearray(size)
conns[0].zero(size, 0)
busy = []  # ranges in flight: two requests that overlap have no order
reads = [0]
failed = []


def start(h, inflight):
    length = rng.choice([512, 4096, 4096, 4096, 12288, 65536, 1000])
    offset = rng.randrange(0, size - length)
    if rng.random() < 0.7:
        offset &= ~4095
    span = (offset, offset + length)
    if any(a < span[1] and span[0] < b for a, b in busy):
        return
    busy.append(span)
    inflight[0] += 1
    kind = rng.random()
    if kind < 0.45:
        data = rng.randbytes(length)
        buf = nbd.Buffer.from_bytearray(bytearray(data))

        def done(err):
            shadow[span[0]:span[1]] = data
            finish(err)
            return 1
    elif kind < 0.5:
        def done(err):
            shadow[span[0]:span[1]] = bytes(length)
            finish(err)
            return 1
    else:
        buf = nbd.Buffer(length)

        def done(err):
            if bytes(buf.to_bytearray()) != bytes(shadow[span[0]:span[1]]):
                failed.append(span)
            reads[0] += 1
            finish(err)
            return 1

    def finish(err):
        if (err if isinstance(err, int) else err.value) != 0:
            failed.append(("error", err))
        busy.remove(span)
        inflight[0] -= 1

    if kind < 0.45:
        h.aio_pwrite(buf, offset, done)
    elif kind < 0.5:
        h.aio_zero(length, offset, done)
    else:
        h.aio_pread(buf, offset, done)


inflight = [[0] for _ in range(N)]
issued = 0
while issued < OPS or any(i[0] for i in inflight):
    for h, i in zip(conns, inflight):
        if issued < OPS and i[0] < DEPTH:
            for _ in range(8):
                start(h, i)
                issued += 1
        if i[0]:
            h.poll(0)
    if failed:
        raise AssertionError(failed[:3])
whole = bytearray()
for at in range(0, size, 1 << 20):
    whole += conns[3].pread(min(1 << 20, size - at), at)
assert whole == shadow, "the export differs from its shadow"
assert reads[0] > 1000
for h in conns:
    h.shutdown()
print(reads[0], "reads checked")
