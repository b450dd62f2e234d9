"""A clock of the day that jumps under running processes: a library that is loaded before libc, and the file that moves it."""

from __future__ import annotations

import mmap
import struct
import subprocess
from pathlib import Path

SOURCE = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile long long *moved;

__attribute__((constructor)) static void begin(void) {
    const char *name = getenv("MOVED_CLOCK");
    int file = name ? open(name, O_RDONLY | O_CLOEXEC) : -1;
    if (file >= 0) {
        void *found = mmap(0, 8, PROT_READ, MAP_SHARED, file, 0);
        if (found != MAP_FAILED) moved = found;
        close(file);
    }
}
int clock_gettime(clockid_t which, struct timespec *now) {
    int failed = (int)syscall(SYS_clock_gettime, which, now);
    if (!failed && moved && (which == CLOCK_REALTIME || which == CLOCK_REALTIME_COARSE)) now->tv_sec += *moved;
    return failed;
}
int gettimeofday(struct timeval *now, void *zone) {
    struct timespec found;
    int failed = clock_gettime(CLOCK_REALTIME, &found);
    (void)zone;
    now->tv_sec = found.tv_sec;
    now->tv_usec = found.tv_nsec / 1000;
    return failed;
}
time_t time(time_t *out) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out) *out = now.tv_sec;
    return now.tv_sec;
}
"""


class MovedClock:
    """Processes that are started with `environment` read the day's clock moved by as many seconds as `move` said last."""

    def __init__(self, folder: Path) -> None:
        source, library, file = folder / "clock.c", folder / "clock.so", folder / "moved"
        if not library.exists():
            source.write_text(SOURCE)
            subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-o", str(library), str(source)], check=True)
            file.write_bytes(bytes(8))
        self.environment = {"LD_PRELOAD": str(library), "MOVED_CLOCK": str(file)}
        with file.open("r+b") as opened:
            self._memory = mmap.mmap(opened.fileno(), 8)

    def move(self, seconds: int) -> None:
        """Let the clock of the day be so far from the true one."""
        self._memory[:] = struct.pack("<q", seconds)
