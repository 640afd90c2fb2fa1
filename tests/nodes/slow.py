#!/usr/bin/env python3
"""A slow cable of nodes.sh: slow.py SWITCH-PROCESS PORT NODE-PROCESS MBIT MS LOSS

Carries Ethernet frames between two TAP devices: PORT in the network of the switch and eth0 in the network of the node. Each direction has
this rate in Mbit/s, this delay in milliseconds, and loses this percentage of the frames. `tc netem` would do the same, but many kernels do
not have it.
"""

import collections
import ctypes
import fcntl
import os
import random
import select
import struct
import sys
import time

TUNSETIFF = 0x400454CA
IFF_TAP_NO_PI = 0x0002 | 0x1000
# frames that wait for the wire, like the queue of a network card
QUEUE = 1000


def tap(process, name):
    """Creates a TAP device in the network namespace of a process."""
    namespace = os.open(f"/proc/{process}/ns/net", os.O_RDONLY)
    if ctypes.CDLL(None, use_errno=True).setns(namespace, 0) != 0:
        raise OSError(ctypes.get_errno(), f"setns to the network of process {process}")
    os.close(namespace)
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TAP_NO_PI))
    return device


def main():
    switch, port, node = sys.argv[1:4]
    mbit, delay, loss = (float(word) for word in sys.argv[4:7])
    rate, delay, loss = mbit * 1e6 / 8, delay / 1e3, loss / 100
    devices = [tap(switch, port), tap(node, "eth0")]
    other = dict(zip(devices, reversed(devices)))
    waiting = {device: collections.deque() for device in devices}
    free = dict.fromkeys(devices, 0.0)
    print("ready", flush=True)
    while True:
        due = min((frames[0][0] for frames in waiting.values() if frames), default=None)
        timeout = None if due is None else max(0.0, due - time.monotonic())
        for device in select.select(devices, [], [], timeout)[0]:
            frame = os.read(device, 65536)
            now = time.monotonic()
            frames = waiting[device]
            if len(frames) < QUEUE and random.random() >= loss:
                free[device] = max(now, free[device]) + len(frame) / rate
                frames.append((free[device] + delay, frame))
        now = time.monotonic()
        for device, frames in waiting.items():
            while frames and frames[0][0] <= now:
                try:
                    os.write(other[device], frames.popleft()[1])
                except OSError:
                    pass  # the interface is down, so the frame is lost


main()
